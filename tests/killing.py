"""Commands in processes of their own, some killed as one of their files gets its name.

The processes are forked from one that has imported what they need, which takes longer than all that
they do. It has computed nothing before: TensorFlow begins anew in each.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

_SERVER = """
import importlib, json, os, runpy, signal, sys

module, imported = sys.argv[1:]
import tensorflow as tf
if imported:
    importlib.import_module(imported)
answers = os.fdopen(os.dup(1), "w")
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    print(child, file=answers, flush=True)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
else:
    sys.exit()

answers.close()
os.chdir(order["folder"])
os.environ.clear()
os.environ.update(order["environment"])
for number, path in enumerate([os.devnull, *order["outputs"]]):
    opened = os.open(path, os.O_RDWR)
    os.dup2(opened, number)
    os.close(opened)
rename = tf.io.gfile.rename
moment, target = order["killed"] or ("never", "")

def killing(source, destination, overwrite=False):
    hit = destination.endswith(target)
    if hit and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, destination, overwrite=overwrite)
    if hit and moment == "after":
        os.kill(os.getpid(), signal.SIGKILL)

tf.io.gfile.rename = killing
sys.argv = [module, *order["arguments"]]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""

# What a command imports once its flags are read.
_IMPORTED = {
    "bert_tf.pretrain": "bert_tf.pretraining.run",
    "bert_tf.finetune": "bert_tf.finetuning.run",
}
_servers = {}


def _server(module):
    """The process that a command's are forked from, of this checkout."""
    if module not in _servers:
        _servers[module] = subprocess.Popen(
            [sys.executable, "-c", _SERVER, module, _IMPORTED.get(module, "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    return _servers[module]


class Started:
    """A command that runs, ``number`` of its process; one at a time.

    ``killed``: ("before" or "after", what a path ends in): SIGKILL ends the command as the file of
    such a path gets its name.
    """

    def __init__(self, module, arguments, killed=None):
        self.arguments = [str(argument) for argument in arguments]
        self._folder = tempfile.TemporaryDirectory()
        self._outputs = [pathlib.Path(self._folder.name, name) for name in ("out", "error")]
        for path in self._outputs:
            path.touch()
        self._server = _server(module)
        order = {
            "arguments": self.arguments,
            "folder": os.getcwd(),
            "environment": dict(os.environ),
            "outputs": list(map(str, self._outputs)),
            "killed": killed,
        }
        print(json.dumps(order), file=self._server.stdin, flush=True)
        self.number = int(self._server.stdout.readline())

    @property
    def printed(self):
        return self._outputs[0].read_text()

    def ended(self):
        """Waits for its end, and gives what ``subprocess.run`` does."""
        status = int(self._server.stdout.readline())
        printed = [path.read_text() for path in self._outputs]
        self._folder.cleanup()
        return subprocess.CompletedProcess(self.arguments, status, *printed)


def run_command(module, arguments):
    """Runs a command to its end: what ``subprocess.run`` gives."""
    return Started(module, arguments).ended()


def kill_at_a_write(module, arguments, moment, target):
    """Runs a command until SIGKILL ends it: ``Started`` says when."""
    ended = Started(module, arguments, (moment, target)).ended()
    assert ended.returncode == -signal.SIGKILL, (moment, target, ended.stderr)
