"""Runs commands in new processes, which can be killed when they rename a temporary file.

The processes are forked from a server that has imported the slow modules. The server has not
computed anything, so that each process initializes TensorFlow itself.
"""

import multiprocessing
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["bert_tf.pretraining.run", "bert_tf.finetuning.run"])


def _run(module, arguments, folder, environment, outputs, killed):
    import tensorflow as tf

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY), descriptor)
    rename = tf.io.gfile.rename
    moment, target = killed

    def rename_and_kill(source, destination, overwrite=False):
        matches = destination.endswith(target)
        if matches and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, destination, overwrite=overwrite)
        if matches and moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)

    tf.io.gfile.rename = rename_and_kill
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


class Started:
    """A running command; ``number`` is the ID of its process.

    ``killed`` is ("before" or "after", suffix): The command gets SIGKILL before or after it renames
    a temporary file to a path with this suffix.
    """

    def __init__(self, module, arguments, killed=("never", "")):
        self.arguments = [str(argument) for argument in arguments]
        self._folder = tempfile.TemporaryDirectory()
        self._outputs = [pathlib.Path(self._folder.name, name) for name in ("out", "error")]
        for path in self._outputs:
            path.touch()
        args = module, self.arguments, os.getcwd(), dict(os.environ), self._outputs, killed
        self._process = _FORKS.Process(target=_run, args=args)
        self._process.start()
        self.number = self._process.pid

    def ended(self):
        """Waits for the command to end; returns a ``CompletedProcess``."""
        self._process.join()
        printed = [path.read_text() for path in self._outputs]
        self._folder.cleanup()
        return subprocess.CompletedProcess(self.arguments, self._process.exitcode, *printed)


def run_command(module, arguments):
    """Runs a command; returns a ``CompletedProcess``."""
    return Started(module, arguments).ended()


def kill_at_write(module, arguments, moment, target):
    """Runs a command that gets SIGKILL at a write; see ``Started``."""
    ended = Started(module, arguments, (moment, target)).ended()
    assert ended.returncode == -signal.SIGKILL, (moment, target, ended.stderr)
