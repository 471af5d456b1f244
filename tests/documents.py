"""The documents as data: their blocks of code, and the commands in them."""

import dataclasses
import json
import pathlib
import re
import shlex

import bert_tf
from tests.anew import run_python

ROOT = pathlib.Path(bert_tf.__file__).parent.parent
RECIPES = sorted((ROOT / "docs" / "recipes").glob("*.md"))
NOTEBOOK = ROOT / "examples" / "first_classifier.ipynb"
FOLDERS = ("", "guides", "concepts", "reference")
PAGES = [
    ROOT / "README.md",
    *(page for name in FOLDERS for page in sorted((ROOT / "docs" / name).glob("*.md"))),
]

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+?) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_SEPARATORS = ";&|()<>\n"


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and why no test runs it, or ``""``."""

    page: pathlib.Path
    line: int
    language: str
    text: str
    not_run: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page):
    """Every fenced block of a page."""
    text = page.read_text()
    return [
        Block(
            page=page,
            line=text.count("\n", 0, match.start("text")),
            language=match["language"],
            text=match["text"],
            not_run=match["reason"] or "",
        )
        for match in _BLOCK.finditer(text)
    ]


def _simple_commands(text):
    """A shell text as lists of words, one for each command."""
    text = re.sub(r"(^|\s)#.*$", "", text.replace("\\\n", " "), flags=re.MULTILINE)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_SEPARATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    words = []
    for word in lexer:
        if not set(word) <= set(_SEPARATORS):
            words.append(word)
        elif words:
            yield words
            words = []
    if words:
        yield words


def commands(text):
    """The command of this library and its arguments, of each one in a shell text.

    A command inside a quoted word, as ``bash -c`` takes it, counts. Variables become 0.
    """
    if not re.search("bert[-_]tf", text):
        return  # what a command prints is no shell text
    for words in _simple_commands(text):
        if words[:2] == ["python", "-m"] and words[2].startswith("bert_tf."):
            arguments = [re.sub(r"\$\w+", "0", word) for word in words[3:]]
            yield words[2].removeprefix("bert_tf."), arguments
        elif words[0] == "bert-tf" and not words[1].startswith("-"):
            yield words[1], words[2:]
        for word in words:
            if "python -m bert_tf." in word:
                yield from commands(word.replace("\n", " "))


def curls(text):
    """The address and the body, bytes or None, of each curl in a shell text."""
    for words in _simple_commands(text):
        if words[0] == "curl":
            *given, address = words[1:]
            assert not given or (len(given) == 2 and given[0] == "-d"), words
            yield address, given[1].encode() if given else None


_PARSE = """
import json, os, runpy, sys
import numpy  # which many commands import
from absl import flags
from bert_tf.cli import command
# The command as it is run, but for this last call.
command.run = lambda main, *declarations, **_: command.define_flags(*declarations)
# A process for each command: two of them define flags of the same name.
for name, lines in json.load(sys.stdin).items():
    if process := os.fork():
        if os.waitpid(process, 0)[1]:
            sys.exit(1)
        continue
    runpy.run_module(f"bert_tf.{name}", run_name="__main__")
    outcomes = []
    for arguments in lines:
        try:
            outcomes.append([None, flags.FLAGS([name, *arguments], known_only=True)[1:]])
        except flags.Error as error:
            outcomes.append([str(error), []])
        flags.FLAGS.unparse_flags()
    print(json.dumps([outcomes, sorted(flags.FLAGS)]))
    break
"""


def parse(lines):
    """What commands' real flags make of argument lists, of which each command has some.

    Returns, by command, an (error or None, arguments left) pair for each list, and the names of all
    its flags.
    """
    process = run_python(_PARSE, input=json.dumps(lines), timeout=300)
    assert process.returncode == 0, process.stderr
    found = map(json.loads, process.stdout.splitlines())
    return {name: (each, set(names)) for name, (each, names) in zip(lines, found, strict=True)}


def printed(notebook):
    """What a notebook's cells printed, as one text, and all their outputs."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    # In the file a text is a list of lines.
    return "".join("".join(output.get("text", "")) for output in outputs), outputs
