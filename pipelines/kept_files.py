"""What is known of files, kept on the disk as arrays, and whether it still holds of them.

An ``.npz`` file holds the arrays, uncompressed, with a check sum of each; beside them it holds how
the files were: their sizes and times, and a sample of each. A file is as it was if its size and its
times are. Of a local file that counts the time of any change of its inode, which nobody can set
back; where that alone differs, as after a copy or ``chmod``, the samples decide.
"""

import time
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.files import WritableFile, replace_whole

from .corpus_files import SourceFile, sample_file, sample_piece
from .text_bytes import buffered

#: What reading arrays that are damaged, or another program's, may raise.
ERRORS = (
    *(ValueError, KeyError, TypeError, IndexError, AttributeError, OSError, EOFError),
    *(zipfile.BadZipFile, RuntimeError, MemoryError, OverflowError),
)

#: How often what is known is kept while the rest is read: a process may be killed.
SAVE_SECONDS = 60.0

_STATE = ("sizes", "times", "changed", "samples")
# A file may change again within the same tick of its file system's clock, unseen.
_TICK_SECONDS = 2


class Look:
    """Files as they are now. A sample of one is taken when it is first asked for, and once.

    ``knows_more``: keeping what was found would spare the next look samples. ``samples_of``: how
    many files share the bytes that are sampled.
    """

    def __init__(self, files: Sequence[SourceFile], samples_of: int | None = None) -> None:
        self.files = files
        self.knows_more = False
        self._samples = np.zeros(len(files), "S16")
        self._is_known = np.zeros(len(files), bool)
        self._piece = sample_piece(len(files) if samples_of is None else samples_of)
        self._settled = (time.time() - _TICK_SECONDS) * 1e9

    def _sample(self, number: int) -> bytes:
        if not self._is_known[number]:
            self._keep(number, sample_file(self.files[number].path, self._piece).encode())
        sample: bytes = self._samples[number]
        return sample

    def _keep(self, numbers: Any, samples: Any) -> None:
        self._samples[numbers], self._is_known[numbers] = samples, True

    def state(self, numbers: Sequence[int]) -> dict[str, np.ndarray]:
        """How the files of these numbers are: arrays to keep, and the files' names."""
        for number in numbers:
            self._sample(number)
        now = self._now(numbers)
        now["changed"][now["changed"] > self._settled] = 0
        names = pack_names([self.files[number].path for number in numbers])
        return {**now, "samples": self._samples[np.asarray(numbers, np.int64)], "names": names}

    def known(self, kept: Mapping[str, np.ndarray]) -> tuple[list[int], list[int]]:
        """The files that are as arrays of ``state`` say: their numbers, and their places there."""
        places = {name: place for place, name in enumerate(unpack_names(kept["names"]))}
        numbers = [number for number, file in enumerate(self.files) if file.path in places]
        of_kept = np.array([places[self.files[number].path] for number in numbers], np.int64)
        same = self.is_same({name: kept[name][of_kept] for name in _STATE}, numbers)
        return np.array(numbers, np.int64)[same].tolist(), of_kept[same].tolist()

    def is_same(self, kept: Mapping[str, np.ndarray], numbers: Sequence[int]) -> np.ndarray:
        """Which of the files are as arrays of ``state`` say, (files,) bool, in their order."""
        now, places, samples = self._now(numbers), np.asarray(numbers, np.int64), kept["samples"]
        same = (kept["sizes"] == now["sizes"]) & (kept["times"] == now["times"])
        # An object store's files have 0 here: their time changes with them.
        for place in np.flatnonzero(same & (kept["changed"] != now["changed"])).tolist():
            same[place] = samples[place] == self._sample(numbers[place])
            self.knows_more |= bool(same[place] and now["changed"][place] < self._settled)
        self._keep(places[same], samples[same])
        return same

    def _now(self, numbers: Sequence[int]) -> dict[str, np.ndarray]:
        of_each = {"sizes": "size", "times": "mtime_nsec", "changed": "changed_nsec"}
        return {
            name: np.fromiter(
                (getattr(self.files[number], field) for number in numbers), np.int64, len(numbers)
            )
            for name, field in of_each.items()
        }


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
    """What ``pack_names`` was given, one name at least."""
    return tuple(packed.tobytes().decode("utf-8", "surrogateescape").split("\0"))
