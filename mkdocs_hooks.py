"""MkDocs hooks for the site: package layout, API tables and highlighting of flags."""

import pathlib
import posixpath
import re
import shutil
import tempfile

import griffe
from mkdocs.plugins import event_priority

ROOT = pathlib.Path(__file__).parent
_installed = tempfile.TemporaryDirectory()


@event_priority(100)  # before mkdocstrings reads its configuration
def on_config(config):
    """Copies the packages into the layout of the wheel: pipelines/ becomes bert_tf/pipelines/."""
    folder = pathlib.Path(_installed.name) / "bert_tf"
    if not folder.exists():
        shutil.copytree(ROOT / "bert_tf", folder)
        for subpackage in ("pipelines", "saved_models"):
            shutil.copytree(ROOT / subpackage, folder / subpackage)
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [_installed.name]


def _documented_objects(obj):
    """Returns the modules of a package, the public members of a module, or the object itself."""
    if not obj.is_module:
        return [obj]
    members = [
        one
        for name, one in obj.members.items()
        if not (name.startswith("_") or one.is_alias or one.is_attribute)
    ]
    return sorted((one for one in members if one.is_module), key=lambda one: one.path) or members


def _name_files_outside_docs(markdown, folder):
    """Replaces links to files outside ``docs/``, which the site does not contain, with paths."""

    def replace(link):
        text, target = link.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        if not path.startswith("../"):
            return link[0]
        return f"{text} (`{path.removeprefix('../')}` in the repository)"

    return re.sub(r"\[([^]]+)\]\((\.\./[^)#]+)\)", replace, markdown)


def on_page_markdown(markdown, *, page, **_):
    """Replaces links to files outside ``docs/``, and adds a table to pages of the API reference."""
    markdown = _name_files_outside_docs(markdown, posixpath.dirname(page.file.src_uri))
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
        for one in _documented_objects(package[path.removeprefix("bert_tf.")]):
            summary = one.docstring.value.partition("\n\n")[0].replace("\n", " ")
            rows.append(f"| [`{one.path.removeprefix('bert_tf.')}`][{one.path}] | {summary} |")
    at = re.search(r"^(## |:::)", markdown, re.MULTILINE).start()
    return markdown[:at] + "\n".join(rows) + "\n\n" + markdown[at:]


def on_page_content(html, **_):
    """Highlights flags in commands, and prevents line breaks at the hyphens of inline code."""

    def highlight(block):
        return re.sub(r"(?<![\w-])--\w+", r'<span class="na">\g<0></span>', block[0])

    def prevent_breaks(code):
        words = re.sub(
            r"(?<![^\s=])(?=[^\s=]*-)[^\s=]{2,24}(?![^\s=])",
            r'<span class="word">\g<0></span>',
            code[1],
        )
        return f"<code>{words}</code>"

    html = re.sub(r'<div class="language-sh highlight">.*?</div>', highlight, html, flags=re.DOTALL)
    return re.sub(r"(?<!</span>)<code>([^<]*-[^<]*)</code>", prevent_breaks, html)


class Examples(griffe.Extension):
    """Griffe extension that converts docstring examples to code blocks."""

    def on_object(self, *, obj, **_):
        """Converts the examples of an object; griffe calls it for each one."""
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^>>> .+(?:\n.+)*",
                r"```pycon\n\g<0>\n```",
                obj.docstring.value,
                flags=re.MULTILINE,
            )
