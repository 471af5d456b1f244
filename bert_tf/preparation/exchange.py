"""Files by which the units of one stage hand data to those of the next: N parts, read one by one.

A unit writes one file with a part for each unit of the next stage, which reads its part of every
such file. So text is shuffled between any number of processes and nothing holds all of it, in an
order that no scheduler decides, and what was finished before a kill is there afterwards.

A file begins with eight bytes that name the format, N, and the N + 1 offsets at which the parts
begin and the last one ends, counted from behind them; the numbers are int64.
"""

import itertools
import struct
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.files import replace_whole

_MAGIC = b"bert_tf1"
_HEAD = struct.Struct("<8sq")
_OFFSET = struct.Struct("<q")


def write_parts(path: str, parts: Sequence[Sequence[bytes | memoryview]]) -> None:
    """Writes a file of parts, whole or not at all; a part is one or more pieces."""
    offsets = np.cumsum([0, *(sum(map(len, part)) for part in parts)], dtype="<i8")
    with replace_whole(path) as file:
        file.write(_HEAD.pack(_MAGIC, len(parts)) + offsets.tobytes())
        for part in parts:
            file.write(b"".join(part))


def read_part(path: str, number: int) -> bytes:
    """Reads one part."""
    with tf.io.gfile.GFile(path, "rb") as file:
        first = _first_part(file, path)
        file.seek(_HEAD.size + _OFFSET.size * number)
        begin, end = (_OFFSET.unpack(_read(file, _OFFSET.size, path))[0] for _ in range(2))
        file.seek(first + begin)
        return _read(file, end - begin, path)


def read_at(path: str, offset: int, head: struct.Struct) -> tuple[tuple[int, ...], bytes]:
    """Reads a record at an offset: its head, whose last number is its length, and the rest."""
    with tf.io.gfile.GFile(path, "rb") as file:
        file.seek(_first_part(file, path) + offset)
        values = head.unpack(_read(file, head.size, path))
        return values, _read(file, values[-1], path)


def _first_part(file: tf.io.gfile.GFile, path: str) -> int:
    magic, count = _HEAD.unpack(_read(file, _HEAD.size, path))
    if magic != _MAGIC:
        raise ValueError(_damaged(path))
    return _HEAD.size + _OFFSET.size * (count + 1)


def _read(file: tf.io.gfile.GFile, size: int, path: str) -> bytes:
    data: bytes = file.read(size)
    if len(data) != size:
        raise ValueError(_damaged(path))
    return data


def _damaged(path: str) -> str:
    return f"{path} is damaged: delete it, and give the same command again."


def split_rows(rows: np.ndarray, parts: np.ndarray, count: int) -> list[list[memoryview]]:
    """Rows as ``count`` parts; ``parts`` (R,) are the numbers of the rows' parts, ascending."""
    borders = np.searchsorted(parts, np.arange(count + 1))
    return [[rows[begin:end].view(np.uint8).data] for begin, end in itertools.pairwise(borders)]
