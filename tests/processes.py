"""Runs commands in a new process, in a fork of a process with imported modules, or in this one."""

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
    """Splits the CPU into logical devices; call it before TensorFlow initializes its devices."""
    import tensorflow as tf

    devices = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)


def run_bert_tf(command, *arguments, options=(), cwd=None):
    """Runs ``python OPTIONS -m bert_tf.COMMAND ARGUMENTS``."""
    line = [sys.executable, *options, "-m", f"bert_tf.{command}", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, cwd=cwd)


def run_python(code, *arguments, **options):
    """Runs Python code in a new process."""
    line = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, **options)


# Runs each command as ``python -m`` does, but in a fork of a process that has imported the slowest
# modules.
_IN_FORKS = """
import atexit, json, os, pathlib, runpy, sys
import numpy
import bert_tf.cli.command
results, folder = pathlib.Path.cwd(), sys.argv[1]
for number, (command, *arguments) in enumerate(json.loads(sys.argv[2])):
    if process := os.fork():
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        (results / f"{number}.status").write_text(str(status))
        continue
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(results / f"{number}.{name}", os.O_WRONLY | os.O_CREAT), descriptor)
    atexit.register(lambda: (results / f"{number}.loaded").write_text(" ".join([*sys.modules])))
    os.chdir(folder)
    sys.argv = [command, *arguments]
    if command.endswith(".py"):
        runpy.run_path(command, run_name="__main__")
    else:
        runpy.run_module(command, run_name="__main__", alter_sys=True)
    break
"""


@dataclasses.dataclass
class CompletedCommand:
    """Exit status, output and loaded modules of a command."""

    returncode: int
    stdout: str
    stderr: str
    loaded: set[str]


def run_in_forks(folder, *lines):
    """Runs commands in a folder; a line is a module or the path of a program, and its arguments."""
    commands = json.dumps([list(map(str, line)) for line in lines])
    with tempfile.TemporaryDirectory() as results:
        line = [sys.executable, "-c", _IN_FORKS, os.path.abspath(folder), commands]
        subprocess.run(line, cwd=results, check=True)

        def read(number, name):
            path = pathlib.Path(results, f"{number}.{name}")
            # An aborted process does not write all files.
            return path.read_text() if path.exists() else ""

        return [
            CompletedCommand(
                *(int(read(number, "status")), read(number, "out"), read(number, "err")),
                set(read(number, "loaded").split()),
            )
            for number in range(len(lines))
        ]


def run_main(module, *arguments):
    """Runs a command's module in this process without defining absl's global flags."""

    def run(main, *declarations, passes_on=False):
        values = flags.FlagValues()
        flag_fields.define_flags(values, *declarations)
        words = values([module.__name__, *map(str, arguments)], known_only=passes_on)[1:]
        main(*flag_fields.settings_of(values, *declarations), *words)

    (last_line,) = re.findall(
        r"^    (command\.run\(.*\))$", inspect.getsource(module), re.MULTILINE
    )
    eval(last_line, {**vars(module), "command": types.SimpleNamespace(run=run)})
