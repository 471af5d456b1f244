"""Finds and describes files on any TensorFlow file system, and caches arrays about them.

Arrays are cached in uncompressed ``.npz`` files with checksums. The file name contains a key of the
paths, sizes and times of the described files, so the arrays of changed files are not found.
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
    """File that a user passed. Names of indexes contain a hash of its ``repr``."""

    path: str
    size: int  # in bytes
    mtime_nsec: int
    changed_nsec: int = 0  # change time of a local file, which users cannot reset


def find_files(inputs: str | Sequence[str]) -> list[SourceFile]:
    """Lists the non-empty files that paths, globs and folders match, each once.

    Folders are searched recursively; names that begin with ``.`` or ``_`` are skipped. The files
    are in the order of ``inputs``, and sorted within each input.
    """
    patterns = inputs.split(",") if isinstance(inputs, str) else list(inputs)
    patterns = [pattern.strip() for pattern in patterns if pattern.strip()]
    if not patterns:
        raise ValueError(
            "The input contains no paths. Pass comma-separated paths or globs of text files."
        )
    by_real: dict[str, str] = {}  # path by resolved path
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
            f"All files of the input {', '.join(patterns)} are empty. Pass files that contain text."
        )
    return filled


def in_threads(work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Processes items in parallel, because remote file systems have a high latency."""
    step = 1 + len(items) // _MAX_CALLS  # a million futures would take a gigabyte
    parts = [items[first : first + step] for first in range(0, len(items), step)]
    with concurrent.futures.ThreadPoolExecutor(_NUM_THREADS) as pool:
        done = pool.map(lambda part: [work(item) for item in part], parts)
        yield from (result for results in done for result in results)


def describe_file(path: str) -> SourceFile:
    """Returns a file with its size and times."""
    local = local_path(path)
    if local is None:
        status = tf.io.gfile.stat(path)
        return SourceFile(path, status.length, status.mtime_nsec)
    paths.check_readable(path)
    status = os.stat(local)
    return SourceFile(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _glob(pattern: str) -> list[str]:
    if tf.io.gfile.exists(pattern):  # a path, even if it contains glob characters
        return [pattern]
    if "**" in pattern:
        raise ValueError(
            f"{pattern}: ** is not supported. Pass the folder, which is searched recursively."
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
    """Yields folders recursively with their file names, each once even with circular links."""
    seen = set()
    local = local_path(path)
    if local is None:  # object stores have no links
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


# === Caching ===


def digest(*parts: object) -> str:
    """Returns a key of 24 hexadecimal digits for the ``repr`` of the parts."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def check_space(cache_dir: str, needed: int, purpose: str) -> None:
    """Checks that the cache's disk has ``needed`` free bytes; object stores are not checked."""
    folder = local_path(cache_dir)
    if folder is None or not needed:
        return
    os.makedirs(folder, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ValueError(
            f"The cache folder {cache_dir} needs about {needed / 1e6:,.0f} MB for {purpose}, but "
            f"has {free / 1e6:,.0f} MB free. Free disk space, or use another cache folder."
        )


#: Errors that may occur when reading files that are damaged or from another program.
ERRORS = (
    *(ValueError, KeyError, TypeError, IndexError, AttributeError, OSError, EOFError),
    *(zipfile.BadZipFile, RuntimeError, MemoryError, OverflowError, tf.errors.OpError),
)


def save_arrays(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays atomically, without copying them in memory."""
    with atomic_write(path) as file:
        np.savez(WritableFile(file), allow_pickle=False, **arrays)


def load_arrays(path: str) -> dict[str, np.ndarray] | None:
    """Reads arrays that ``save_arrays`` wrote; returns ``None`` for missing or invalid files."""
    if not tf.io.gfile.exists(path):
        return None
    try:
        with open_bytes(path) as file, np.load(file, allow_pickle=False) as arrays:
            # Compressed arrays could be larger than the file.
            if any(entry.compress_type or entry.flag_bits & 1 for entry in arrays.zip.infolist()):
                return None
            return {name: arrays[name] for name in arrays.files}
    except ERRORS:
        return None  # incomplete, or written by another program
