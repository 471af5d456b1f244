"""A command in a process of its own, as a person runs it, or in what is sooner: a fork, or here."""

import dataclasses
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types

from absl import flags

from bert_tf.cli import flag_fields


def split_cpu(count):
    """Splits the CPU into logical devices, before TensorFlow has started any."""
    import tensorflow as tf

    parts = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)


def run_anew(command, *arguments, options=(), cwd=None):
    """Runs ``python -m bert_tf.COMMAND``; ``options`` are Python's."""
    line = [sys.executable, *options, "-m", f"bert_tf.{command}", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, cwd=cwd)


def run_python(code, *arguments, **options):
    """Runs Python code in a process of its own."""
    line = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, **options)


# Runs each of some commands as ``python -m`` does, in a fork that starts with what takes longest of
# the modules that most of them import.
_IN_FORKS = """
import atexit, json, os, pathlib, runpy, sys
import numpy
import bert_tf.cli.command
place, folder = pathlib.Path.cwd(), sys.argv[1]
for number, (command, *arguments) in enumerate(json.loads(sys.argv[2])):
    if process := os.fork():
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        (place / f"{number}.status").write_text(str(status))
        continue
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(place / f"{number}.{name}", os.O_WRONLY | os.O_CREAT), descriptor)
    atexit.register(lambda: (place / f"{number}.loaded").write_text(" ".join([*sys.modules])))
    os.chdir(folder)
    sys.argv = [command, *arguments]
    if command.endswith(".py"):
        runpy.run_path(command, run_name="__main__")
    else:
        runpy.run_module(command, run_name="__main__", alter_sys=True)
    break
"""


@dataclasses.dataclass
class Ended:
    """How a command ended, and which modules it had loaded by then."""

    returncode: int
    stdout: str
    stderr: str
    loaded: set[str]


def run_in_forks(folder, *lines):
    """How each of some lines of a module, or a program's path, and arguments ends in a folder."""
    given = json.dumps([list(map(str, line)) for line in lines])
    with tempfile.TemporaryDirectory() as place:
        line = [sys.executable, "-c", _IN_FORKS, os.path.abspath(folder), given]
        subprocess.run(line, cwd=place, check=True)

        def read(number, name):
            path = pathlib.Path(place, f"{number}.{name}")
            return path.read_text() if path.exists() else ""  # nothing after an abort

        return [
            Ended(
                *(int(read(number, "status")), read(number, "out"), read(number, "err")),
                set(read(number, "loaded").split()),
            )
            for number in range(len(lines))
        ]


def run_main(module, *arguments):
    """Runs a command's module in this process, whose flags it leaves alone."""

    def run(main, *declarations, passes_on=False):
        values = flags.FlagValues()
        flag_fields.define_flags(values, *declarations)
        words = values([module.__name__, *map(str, arguments)], known_only=passes_on)[1:]
        main(*flag_fields.settings_of(values, *declarations), *words)

    (last_line,) = re.findall(
        r"^    (command\.run\(.*\))$", inspect.getsource(module), re.MULTILINE
    )
    eval(last_line, {**vars(module), "command": types.SimpleNamespace(run=run)})
