"""Commands that are killed as one of their files gets its name."""

import signal
import subprocess
import sys

_SCRIPT = """
import os, runpy, signal, sys
import tensorflow as tf

moment, target, module = (sys.argv.pop(1) for _ in range(3))
rename = tf.io.gfile.rename

def killing(source, destination, overwrite=False):
    hit = destination.endswith(target)
    if hit and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, destination, overwrite=overwrite)
    if hit:
        os.kill(os.getpid(), signal.SIGKILL)

tf.io.gfile.rename = killing
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def kill_at_a_write(module, arguments, moment, target):
    """Runs a command until SIGKILL ends it.

    Args:
        module: the command's, such as "bert_tf.finetune".
        arguments: its flags.
        moment: "before" or "after" the file gets its name.
        target: what the file's path ends in.
    """
    started = subprocess.run(
        [sys.executable, "-c", _SCRIPT, moment, target, module, *arguments], capture_output=True
    )
    assert started.returncode == -signal.SIGKILL, (moment, target, started.stderr)
