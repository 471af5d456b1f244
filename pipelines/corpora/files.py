"""Files on any TensorFlow file system: found by globs, described, and what is kept of them.

What is kept is arrays in an ``.npz`` file, uncompressed, with a check sum of each. Its name holds a
key of the files, by path, size and times, so that what is kept of files that have changed is not
found.
"""

import concurrent.futures
import dataclasses
import functools
import hashlib
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import tensorflow as tf

from bert_tf.io import paths
from bert_tf.io.files import WritableFile, atomic_write
from bert_tf.io.paths import local_path

from .text_bytes import open_bytes

T = TypeVar("T")
R = TypeVar("R")

_NUM_THREADS = 16
_MAX_CALLS = 1024


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A file that the user named. Names of indexes hold the ``repr``."""

    path: str
    size: int  # bytes on the disk
    mtime_nsec: int
    changed_nsec: int = 0  # of a local file when anything was, which nobody can set back


def find_files(inputs: str | Sequence[str]) -> list[SourceFile]:
    """Lists the files that paths, globs and folders name, each once, without those that are empty.

    A folder stands for all files in it and below, except names that begin with ``.`` or ``_``. The
    order is that of ``inputs``, sorted within each of them.
    """
    patterns = inputs.split(",") if isinstance(inputs, str) else list(inputs)
    patterns = [pattern.strip() for pattern in patterns if pattern.strip()]
    if not patterns:
        raise ValueError(
            "The input names no file: give paths or globs of text files, separated by commas."
        )
    by_real: dict[str, str] = {}  # by what they are in the end
    real_folder = functools.cache(os.path.realpath)
    matches = list(in_threads(_glob, patterns))
    below = in_threads(_files_below, [path for matched in matches for path in matched])
    for pattern, matched in zip(patterns, matches, strict=True):
        matching_files = [file for _ in matched for file in next(below)]
        if not matching_files:
            raise ValueError(paths.missing_text_message(pattern))
        for path in matching_files:
            by_real.setdefault(_resolve(path, real_folder), path)
    files = list(in_threads(describe_file, list(by_real.values())))
    filled = [file for file in files if file.size]
    if not filled:
        raise ValueError(
            f"The input {', '.join(patterns)} is empty: every file that it names has 0 bytes; "
            "give files with text."
        )
    return filled


def in_threads(work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Does work on each item, several at a time: remote file systems are slow to ask."""
    step = 1 + len(items) // _MAX_CALLS  # a million calls would take a gigabyte
    parts = [items[first : first + step] for first in range(0, len(items), step)]
    with concurrent.futures.ThreadPoolExecutor(_NUM_THREADS) as pool:
        done = pool.map(lambda part: [work(item) for item in part], parts)
        yield from (result for results in done for result in results)


def describe_file(path: str) -> SourceFile:
    """Asks the file system about a file."""
    local = local_path(path)
    if local is None:
        status = tf.io.gfile.stat(path)
        return SourceFile(path, status.length, status.mtime_nsec)
    paths.check_readable(path)
    status = os.stat(local)
    return SourceFile(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _glob(pattern: str) -> list[str]:
    if tf.io.gfile.exists(pattern):  # a path, even where it has a glob's characters
        return [pattern]
    if "**" in pattern:
        raise ValueError(
            f"{pattern}: ** would stand for one folder, and leave out what is above and below: "
            "name the folder itself, which stands for all files in it and below."
        )
    try:
        return sorted(tf.io.gfile.glob(pattern))
    except tf.errors.NotFoundError:
        return []


def _files_below(path: str) -> list[str]:
    if not tf.io.gfile.isdir(path):
        return [path]
    files = []
    for folder, names in _folders_below(path):
        inside = folder[len(path) :].strip("/").split("/")
        if not any(map(_is_hidden, inside)):
            files += [tf.io.gfile.join(folder, name) for name in names if not _is_hidden(name)]
    return sorted(files)


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _folders_below(path: str) -> Iterator[tuple[str, list[str]]]:
    """Yields a folder and all below it, each once even if links form a circle, with their files."""
    seen = set()
    local = local_path(path)
    if local is None:  # an object store, which has no links
        yield from ((folder, names) for folder, _, names in tf.io.gfile.walk(path))
        return
    for folder, folders, names in os.walk(local, followlinks=True):
        folders.sort()
        if os.path.realpath(folder) in seen:
            folders.clear()
        else:
            seen.add(os.path.realpath(folder))
            yield path.removesuffix(local) + folder, names


def _resolve(path: str, real_folder: Callable[[str], str]) -> str:
    local = local_path(path)
    if local is None:
        return path
    if os.path.islink(local):
        return os.path.realpath(local)
    return os.path.join(real_folder(os.path.dirname(local)), os.path.basename(local))


# === Keeping ===


def digest(*parts: object) -> str:
    """24 hexadecimal digits that stand for the parts' ``repr``."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def check_space(cache_dir: str, needed: int, purpose: str) -> None:
    """Checks that the cache's disk has ``needed`` bytes free; object stores cannot tell."""
    folder = local_path(cache_dir)
    if folder is None or not needed:
        return
    os.makedirs(folder, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ValueError(
            f"The cache folder {cache_dir} needs about {needed / 1e6:,.0f} MB for {purpose} and "
            f"has {free / 1e6:,.0f} MB free: free some space or choose another cache folder."
        )


#: What reading arrays that are damaged, or another program's, may raise.
ERRORS = (
    *(ValueError, KeyError, TypeError, IndexError, AttributeError, OSError, EOFError),
    *(zipfile.BadZipFile, RuntimeError, MemoryError, OverflowError, tf.errors.OpError),
)


def save_arrays(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays, whole or not at all, without a copy of them in memory."""
    with atomic_write(path) as file:
        np.savez(WritableFile(file), allow_pickle=False, **arrays)


def load_arrays(path: str) -> dict[str, np.ndarray] | None:
    """Reads what ``save_arrays`` wrote; None where nothing is there, or nothing that it wrote."""
    if not tf.io.gfile.exists(path):
        return None
    try:
        with open_bytes(path) as file, np.load(file, allow_pickle=False) as arrays:
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
