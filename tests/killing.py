"""Commands in processes of their own, some killed as one of their files gets its name.

They are forked from a process that has imported what they need, which takes longer than all that
they do. It has computed nothing before: TensorFlow begins anew in each.
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

    def killing(source, destination, overwrite=False):
        hit = destination.endswith(target)
        if hit and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, destination, overwrite=overwrite)
        if hit and moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)

    tf.io.gfile.rename = killing
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


class Started:
    """A command that runs, ``number`` of its process.

    ``killed``: ("before" or "after", what a path ends in): SIGKILL ends the command as the file of
    such a path gets its name.
    """

    def __init__(self, module, arguments, killed=("never", "")):
        self.arguments = [str(argument) for argument in arguments]
        self._folder = tempfile.TemporaryDirectory()
        self._outputs = [pathlib.Path(self._folder.name, name) for name in ("out", "error")]
        for path in self._outputs:
            path.touch()
        given = module, self.arguments, os.getcwd(), dict(os.environ), self._outputs, killed
        self._process = _FORKS.Process(target=_run, args=given)
        self._process.start()
        self.number = self._process.pid

    def ended(self):
        """Waits for its end, and gives what ``subprocess.run`` does."""
        self._process.join()
        printed = [path.read_text() for path in self._outputs]
        self._folder.cleanup()
        return subprocess.CompletedProcess(self.arguments, self._process.exitcode, *printed)


def run_command(module, arguments):
    """Runs a command to its end: what ``subprocess.run`` gives."""
    return Started(module, arguments).ended()


def kill_at_a_write(module, arguments, moment, target):
    """Runs a command until SIGKILL ends it: ``Started`` says when."""
    ended = Started(module, arguments, (moment, target)).ended()
    assert ended.returncode == -signal.SIGKILL, (moment, target, ended.stderr)
