"""Lists the commands, and runs one: ``bert-tf pretrain`` is ``python -m bert_tf.pretrain``.

bert-tf COMMAND [--name=value ...]
bert-tf COMMAND --help
"""

import ast
import difflib
import pathlib
import runpy
import sys

import bert_tf
from bert_tf.startup import quiet_without_reader

_HELP = ("--help", "-h", "-help", "--helpfull", "help")


def commands() -> dict[str, str]:
    """The commands' names, and the sentence that each one's docstring begins with."""
    sentences = {}
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        # How a command's module ends; to import it would take longer.
        if "\n    command.run(main" in text:
            sentences[path.stem] = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    return sentences


def _listing(sentences: dict[str, str]) -> str:
    width = max(map(len, sentences))
    lines = [f"  {name:{width}}  {sentence}" for name, sentence in sentences.items()]
    return "\n".join(
        [
            "usage: bert-tf COMMAND [--name=value ...], or python -m bert_tf.COMMAND",
            "",
            *lines,
            "",
            "bert-tf COMMAND --help lists its flags; bert-tf --version says the version.",
        ]
    )


def main() -> None:
    """Runs the command that the first argument names, as ``python -m`` does."""
    sentences = commands()
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in _HELP:
        with quiet_without_reader():
            print(_listing(sentences))
    elif name == "--version":
        print(f"bert_tf {bert_tf.__version__}")
    elif name in sentences:
        del sys.argv[1]
        runpy.run_module(f"bert_tf.{name}", run_name="__main__", alter_sys=True)
    else:
        near = difflib.get_close_matches(name.replace("-", "_"), sentences, n=1)
        guess = f" did you mean {near[0]}?" if near else ""
        sys.exit(f"Error: {name!r} is no command;{guess} bert-tf --help lists them.")


if __name__ == "__main__":
    main()
