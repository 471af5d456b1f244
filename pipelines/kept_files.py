"""Properties of input files, kept on the disk as arrays.

An ``.npz`` file holds the arrays, uncompressed, with a check sum of each. Its name holds a key of
the files, by path, size and times, so that what is kept of files that have changed is not found.
"""

import zipfile
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.files import WritableFile, replace_whole

from .text_bytes import buffered

#: What reading arrays that are damaged, or another program's, may raise.
ERRORS = (
    *(ValueError, KeyError, TypeError, IndexError, AttributeError, OSError, EOFError),
    *(zipfile.BadZipFile, RuntimeError, MemoryError, OverflowError),
)


def save_arrays(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays, whole or not at all, without a copy of them in memory."""
    with replace_whole(path) as file:
        np.savez(WritableFile(file), allow_pickle=False, **arrays)


def load_arrays(path: str) -> dict[str, np.ndarray] | None:
    """Reads what ``save_arrays`` wrote; None where nothing is there, or nothing that it wrote."""
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path, "rb") as file:
        try:
            with np.load(buffered(file), allow_pickle=False) as arrays:
                # So no array is larger than the file.
                if any(each.compress_type or each.flag_bits & 1 for each in arrays.zip.infolist()):
                    return None
                return {name: arrays[name] for name in arrays.files}
        except ERRORS:
            return None  # cut short, or another program's


def pack_names(names: Sequence[str]) -> np.ndarray:
    """Names as an array of bytes, which is as long as they are."""
    return np.frombuffer("\0".join(names).encode("utf-8", "surrogateescape"), np.uint8)


def unpack_names(packed: np.ndarray) -> tuple[str, ...]:
    """Names that ``pack_names`` packed, one at least."""
    return tuple(packed.tobytes().decode("utf-8", "surrogateescape").split("\0"))
