"""What units do in the tests of Beam's process, whose workers import it."""

import os
import pathlib
import signal
import time


def write(folder, name, after, number):
    """Writes a file, once all files of the step before are there."""
    missing = [path for path in after if not pathlib.Path(folder, path).exists()]
    pathlib.Path(folder, f"{name}-{number}").write_text(" ".join(missing))


def fail(number):
    if number == 1:
        raise ValueError("a/b.txt: expected text, got none: give another file.")


def die(number):
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1)


def sleep(folder, number):
    pathlib.Path(folder, f"{os.getpid()}").touch()
    time.sleep(600)
