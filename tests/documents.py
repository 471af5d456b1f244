"""Code blocks of the documentation, and the commands in them."""

import dataclasses
import json
import pathlib
import re
import shlex

import bert_tf
from tests.processes import run_python

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
    """A fenced code block; ``not_run`` is the reason why no test runs it, or ``""``."""

    page: pathlib.Path
    line: int
    language: str
    text: str
    not_run: str

    @property
    def location(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page):
    """Returns the fenced code blocks of a page."""
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
    """Yields the words of each command in a shell script."""
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
    """Yields (name, arguments) of each bert_tf command in a shell script.

    Commands in quoted words, such as the argument of ``bash -c``, are included. Variables become 0.
    """
    if not re.search("bert[-_]tf", text):
        return  # the output of a command is not a shell script
    for words in _simple_commands(text):
        if words[:2] == ["python", "-m"] and words[2].startswith("bert_tf."):
            arguments = [re.sub(r"\$\w+", "0", word) for word in words[3:]]
            yield words[2].removeprefix("bert_tf."), arguments
        elif words[0] == "bert-tf" and not words[1].startswith("-"):
            yield words[1], words[2:]
        for word in words:
            if "python -m bert_tf." in word:
                yield from commands(word.replace("\n", " "))


def curl_requests(text):
    """Yields the address and the body (bytes or None) of each curl command in a shell script."""
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
# The module runs unchanged except for its last call.
command.run = lambda main, *declarations, **_: command.define_flags(*declarations)
# Each command needs its own process, because commands define flags of the same name.
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
    """Parses argument lists with the flags of each command; ``lines`` maps names to lists.

    Returns, for each command, an (error or None, unparsed arguments) pair per list, and the names
    of all flags.
    """
    process = run_python(_PARSE, input=json.dumps(lines), timeout=300)
    assert process.returncode == 0, process.stderr
    found = map(json.loads, process.stdout.splitlines())
    return {name: (each, set(names)) for name, (each, names) in zip(lines, found, strict=True)}


def printed(notebook):
    """Returns the text that the cells of a notebook printed, and all outputs."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    # A notebook file stores text as a list of lines.
    return "".join("".join(output.get("text", "")) for output in outputs), outputs
