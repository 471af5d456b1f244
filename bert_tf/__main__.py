"""Lists and runs the commands; ``bert-tf pretrain`` runs ``python -m bert_tf.pretrain``.

bert-tf COMMAND [--name=value ...]
bert-tf COMMAND --help
"""

import ast
import pathlib
import runpy
import sys

import bert_tf
from bert_tf.io.messages import did_you_mean
from bert_tf.io.runtime import exit_quietly_on_broken_pipe

_HELP = ("--help", "-h", "-help", "--helpfull", "help")


def commands() -> dict[str, str]:
    """Returns the first line of each command's docstring by command name."""
    summaries = {}
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        # This line identifies a command. Importing the modules would be slower.
        if "\n    command.run(main" in text:
            summaries[path.stem] = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    return summaries


def _listing(summaries: dict[str, str]) -> str:
    width = max(map(len, summaries))
    lines = [f"  {name:{width}}  {summary}" for name, summary in summaries.items()]
    return "\n".join(
        [
            "usage: bert-tf COMMAND [--name=value ...], or python -m bert_tf.COMMAND",
            "",
            *lines,
            "",
            "bert-tf COMMAND --help lists the flags; bert-tf --version prints the version.",
        ]
    )


def main() -> None:
    """Runs the command named by the first argument, like ``python -m``."""
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
        sys.exit(f"Error: unknown command {name!r}{guess}. bert-tf --help lists the commands.")


if __name__ == "__main__":
    main()
