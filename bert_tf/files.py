"""Files that appear whole or not at all, on any file system that TensorFlow writes."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from typing import IO

import tensorflow as tf


@contextlib.contextmanager
def replace_whole(path: str) -> Iterator[IO[bytes]]:
    """Opens a file for writing that takes its name only after the block has ended well.

    Missing folders are made; a file of that name is replaced. After an error, or where the process
    is killed, what was there before is there still.

    Args:
        path: the file's name once it is whole.

    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "folder", "text.txt")
    >>> with replace_whole(path) as file:
    ...     file.write(b"whole")
    >>> tf.io.gfile.GFile(path).read()
    'whole'
    """
    folder = os.path.dirname(path)
    if folder:
        tf.io.gfile.makedirs(folder)
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        with tf.io.gfile.GFile(temporary, "wb") as file:
            yield file
        tf.io.gfile.rename(temporary, path, overwrite=True)
    finally:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.remove(temporary)
