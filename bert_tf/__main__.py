"""Lists the commands, and runs one: ``bert-tf pretrain`` is ``python -m bert_tf.pretrain``.

bert-tf COMMAND [--name=value ...]
bert-tf COMMAND --help
"""

import ast
import pathlib
import runpy
import sys

import bert_tf
from bert_tf.io.runtime import exit_quietly_on_broken_pipe
from bert_tf.io.wording import did_you_mean

_HELP = ("--help", "-h", "-help", "--helpfull", "help")


def commands() -> dict[str, str]:
    """The first sentence of each command's docstring, by the command's name."""
    summaries = {}
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        # Every command's module has this line; importing the modules would take longer.
        if "\n    command.run(main" in text:
            summaries[path.stem] = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    return summaries


def _listing(summaries: dict[str, str]) -> str:
    width = max(map(len, summaries))
    lines = [f"  {name:{width}}  {sentence}" for name, sentence in summaries.items()]
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
    summaries = commands()
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in _HELP:
        with exit_quietly_on_broken_pipe():
            print(_listing(summaries))
    elif name == "--version":
        print(f"bert_tf {bert_tf.__version__}")
    elif name in summaries:
        del sys.argv[1]
        runpy.run_module(f"bert_tf.{name}", run_name="__main__", alter_sys=True)
    else:
        guess = did_you_mean(name.replace("-", "_"), summaries)
        sys.exit(f"Error: {name!r} is no command{guess}; bert-tf --help lists them.")


if __name__ == "__main__":
    main()
