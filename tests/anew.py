"""A command in a process of its own, as a person runs it, or in this one, which is sooner."""

import contextlib
import functools
import subprocess
import sys
from unittest import mock

from absl import flags


def run_anew(command, *arguments, options=(), cwd=None):
    """Runs ``python -m bert_tf.COMMAND``; ``options`` are Python's."""
    line = [sys.executable, *options, "-m", f"bert_tf.{command}", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, cwd=cwd)


@contextlib.contextmanager
def own_flags():
    """Gives the flags that what runs here defines and sees, and nobody else."""
    values = flags.FlagValues()
    with contextlib.ExitStack() as stack:
        for name in ("string", "list", "enum", "bool", "integer", "float", "alias"):
            define = functools.partial(getattr(flags, f"DEFINE_{name}"), flag_values=values)
            stack.enter_context(mock.patch.object(flags, f"DEFINE_{name}", define))
        stack.enter_context(mock.patch.object(flags, "FLAGS", values))
        yield values


def run_main(command, *arguments):
    """Runs a command's module in this process."""
    with own_flags() as values:
        command.define_flags()
        values([command.__name__, *arguments])
        command.main([])
