"""A command in a process of its own, as a person runs it."""

import subprocess
import sys


def run_anew(command, *arguments, options=(), cwd=None):
    """Runs ``python -m bert_tf.COMMAND``; ``options`` are Python's."""
    line = [sys.executable, *options, "-m", f"bert_tf.{command}", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, cwd=cwd)
