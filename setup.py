"""Sets the long description for PyPI: README without relative links, which PyPI cannot resolve."""

import pathlib
import re

import setuptools

text = pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8")
text = re.sub(r"^<!--.*-->\n|^!\[[^]]*\]\((?!https?:).*\)\n+", "", text, flags=re.MULTILINE)
text = re.sub(r"\[([^]]*)\]\((?!https?:)([^)]*)\)", r"\1 (`\2`)", text)
setuptools.setup(long_description=text)
