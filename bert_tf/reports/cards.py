"""A model card: a ``README.md`` in Markdown, with the YAML header that model hubs read.

A card has parts, each a text without an end of line; a blank line stands between two of them, and
an empty part is left out. Source of the header's keys: the Hugging Face hub's documentation, "Model
Cards".
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import yaml

from bert_tf.files import replace_whole
from bert_tf.untrusted import markdown_code, one_line

README = "README.md"


def card(title: str, *parts: str, header: Mapping[str, Any] | None = None) -> str:
    """The text of a card."""
    return _join([_header(header) if header else "", f"# {title}", *parts]) + "\n"


def section(title: str, *parts: str, level: int = 2) -> str:
    """A part of a card under a title of its own."""
    return _join([f"{'#' * level} {title}", *parts])


def bullets(lines: Iterable[str]) -> str:
    """A list, of the lines that are not empty."""
    return "\n".join(f"- {line}" for line in lines if line)


def code(text: str, language: str = "") -> str:
    """A block of code."""
    return f"```{language}\n{text}\n```"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells in Markdown."""
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def cell(text: str) -> str:
    """Any text as a table's cell."""
    return markdown_code(text).replace("|", "\\|")


def names(labels: Iterable[str]) -> str:
    """Any texts, in one line."""
    return ", ".join(map(markdown_code, labels))


def vocabulary(size: int, lower_case: bool) -> str:
    """What a card says of a model's text."""
    case = "lower-cased, and accents are stripped" if lower_case else "cased"
    return f"A vocabulary of {size:,} pieces; text is {case}."


def pooling(name: str) -> str:
    """What a card says of a head that does not read the first token; else nothing."""
    return "" if name == "cls" else f"The head reads the {name} over a text's tokens."


def write(path: str, text: str) -> None:
    """Writes a card where there is none; one that is there is somebody's, and stays."""
    if not tf.io.gfile.exists(path):
        with replace_whole(path) as file:
            file.write(text.encode(errors="surrogateescape"))


def _join(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)


def _header(values: Mapping[str, Any]) -> str:
    """The YAML header: mappings, lists, texts and finite numbers, without what is empty.

    >>> print(_header({"license": "", "language": "no", "tags": ["bert"], "seed": [{"a": 1e-05}]}))
    ---
    language: 'no'
    tags:
    - bert
    seed:
    - a: 1.0e-05
    ---
    """
    filled = {key: value for key, value in values.items() if value}
    text = yaml.dump(filled, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{text}---"


class _Dumper(yaml.SafeDumper):
    """Writes each text on one line."""


_Dumper.add_representer(str, lambda dumper, text: dumper.represent_str(one_line(text)))
