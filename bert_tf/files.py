"""Files that appear whole or not at all, on any file system that TensorFlow writes; JSON."""

import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from typing import IO, Any

import tensorflow as tf

from bert_tf.untrusted import MAX_JSON_BYTES, parse_json, parse_json_object


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
            file.write(b"")  # or TensorFlow makes no file for a block that writes nothing
            yield file
        tf.io.gfile.rename(temporary, path, overwrite=True)
    finally:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.remove(temporary)


def write_json(path: str, value: Any) -> None:
    """Writes JSON so that the file appears whole or not at all."""
    with replace_whole(path) as file:
        file.write((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def size_of(path: str) -> int:
    """Bytes of a file, or of all files below a directory."""
    if not tf.io.gfile.isdir(path):
        length: int = tf.io.gfile.stat(path).length
        return length
    return sum(
        tf.io.gfile.stat(os.path.join(folder, name)).length
        for folder, _, names in tf.io.gfile.walk(path)
        for name in names
    )


def read_json(path: str) -> Any:
    """Reads a JSON file of at most 32 MiB; ``bert_tf.untrusted.parse_json`` says what is refused.

    Raises:
        ValueError: the file cannot be read, is larger, or is not JSON.
    """
    return parse_json(_read_bounded(path), path)


def read_json_object(path: str) -> dict[str, Any]:
    """Reads a JSON file that holds an object.

    Raises:
        ValueError: as ``read_json``, or the file holds something else.
    """
    return parse_json_object(_read_bounded(path), path)


def _read_bounded(path: str) -> bytes:
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content: bytes = file.read(MAX_JSON_BYTES + 1)
    except tf.errors.OpError as error:
        raise ValueError(f"{path} cannot be read: {error.message}.") from error
    if len(content) > MAX_JSON_BYTES:
        raise ValueError(f"{path}: expected a JSON file of at most {MAX_JSON_BYTES:,} bytes.")
    return content
