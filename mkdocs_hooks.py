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


def _named(described):
    """A package's modules, a module's own classes and functions, or the one thing itself."""
    if not described.is_module:
        return [described]
    own = [
        one
        for name, one in described.members.items()
        if not (name.startswith("_") or one.is_alias or one.is_attribute)
    ]
    return sorted((one for one in own if one.is_module), key=lambda one: one.path) or own


def on_page_markdown(markdown, *, page, **_):
    """Lists what a page of the reference describes, one line a name, above the first of them."""
    paths = re.findall(r"^::: (\S+)$", markdown, re.MULTILINE)
    if not paths:
        return markdown
    package = griffe.load(
        "bert_tf",
        search_paths=[_installed.name],
        resolve_aliases=True,
        try_relative_path=False,
    )
    rows = ["| Name | Description |", "|---|---|"]
    for path in paths:
        for one in _named(package[path.removeprefix("bert_tf.")]):
            first = one.docstring.value.partition("\n\n")[0].replace("\n", " ")
            rows.append(f"| [`{one.path.removeprefix('bert_tf.')}`][{one.path}] | {first} |")
    at = re.search(r"^(## |:::)", markdown, re.MULTILINE).start()
    return markdown[:at] + "\n".join(rows) + "\n\n" + markdown[at:]


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
