"""What the site needs to know of this library, and of its pages."""

import pathlib
import re
import shutil
import tempfile

import griffe
from mkdocs.plugins import event_priority

ROOT = pathlib.Path(__file__).parent
_installed = tempfile.TemporaryDirectory()


@event_priority(100)  # before mkdocstrings reads its configuration
def on_config(config):
    """Lays the folders out as a wheel does: pipelines/ is bert_tf.pipelines."""
    folder = pathlib.Path(_installed.name) / "bert_tf"
    if not folder.exists():
        shutil.copytree(ROOT / "bert_tf", folder)
        for room in ("pipelines", "saved_models"):
            shutil.copytree(ROOT / room, folder / room)
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [_installed.name]


def on_page_content(html, **_):
    """Colours the flags of commands, and keeps inline ones whole: a browser breaks at a hyphen."""

    def coloured(block):
        return re.sub(r"(?<![\w-])--\w+", r'<span class="na">\g<0></span>', block[0])

    def whole(code):
        words = re.sub(
            r"(?<![^\s=])(?=[^\s=]*-)[^\s=]{2,24}(?![^\s=])",
            r'<span class="word">\g<0></span>',
            code[1],
        )
        return f"<code>{words}</code>"

    html = re.sub(r'<div class="language-sh highlight">.*?</div>', coloured, html, flags=re.DOTALL)
    return re.sub(r"(?<!</span>)<code>([^<]*-[^<]*)</code>", whole, html)


class Examples(griffe.Extension):
    """Docstrings' examples, which no empty line divides, as blocks of code."""

    def on_object(self, *, obj, **_):
        """Is called for every module, class and function."""
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^>>> .+(?:\n.+)*",
                r"```pycon\n\g<0>\n```",
                obj.docstring.value,
                flags=re.MULTILINE,
            )
