"""Inputs that are pipes, such as ``<(zcat x.gz)`` of a shell: copied to a file, then read.

Commands read an input more than once, and a pipe gives its bytes once.
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from typing import IO

from absl import flags

# The most that a pipe may give; beside it the disk of temporary files bounds it.
MOST_BYTES = 8 << 30
_CHUNK_BYTES = 1 << 20
# The flags that name files to read, of any command.
_INPUTS = (
    *("input", "input_file", "eval_input", "vocab_file"),
    *("train_file", "dev_file", "test_file"),
)


@contextlib.contextmanager
def spooled_pipes(values: flags.FlagValues) -> Iterator[None]:
    """Within it, flags that named pipes name files with what the pipes gave, gone afterwards."""
    with contextlib.ExitStack() as stack:
        for name in _INPUTS:
            given = values[name].value if name in values else None
            paths = given if isinstance(given, list) else [given]
            if not any(map(_is_pipe, paths)):
                continue
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bert_tf-"))
            found = [
                _spool(
                    path, f"--{name}", os.path.join(folder, f"{number}-{os.path.basename(path)}")
                )
                if _is_pipe(path)
                else path
                for number, path in enumerate(paths)
            ]
            values[name].value = found if isinstance(given, list) else found[0]
        yield


def _is_pipe(path: object) -> bool:
    return isinstance(path, str) and os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode)


def _spool(path: str, flag: str, target: str) -> str:
    with open(path, "rb") as source:
        copy_bounded(source, target, f"{flag}={path}")
    return target


def copy_bounded(source: IO[bytes], target: str, what: str) -> None:
    """Copies all that comes, at most ``MOST_BYTES``, to a file; ``what`` is named in the error."""
    size = 0
    with open(target, "wb") as file:
        while chunk := source.read(_CHUNK_BYTES):
            size += len(chunk)
            if size > MOST_BYTES:
                raise ValueError(
                    f"{what} gave more than {MOST_BYTES >> 30} GiB, which is not copied from a "
                    "pipe: write it to a file, and name that."
                )
            file.write(chunk)
