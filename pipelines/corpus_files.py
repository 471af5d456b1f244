"""Finding the files of a corpus and opening them, plain or gzip, on any TensorFlow file system."""

import concurrent.futures
import contextlib
import dataclasses
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, cast

import tensorflow as tf

from bert_tf.files import local_path

_GZIP_MAGIC = b"\x1f\x8b"

# A file's sample is so many pieces, spread evenly over it; all files' together are this long, so
# that those of a small corpus are read whole.
_SAMPLE_PIECES = 16
_SAMPLE_BYTES = 64 << 20
_SMALLEST_SAMPLE = 1 << 18


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A file that the user named.

    Attributes:
        path: on any TensorFlow file system.
        size: bytes, as it lies on the disk.
        mtime_nsec: time of the last change.
    """

    path: str
    size: int
    mtime_nsec: int


def find_files(inputs: str | Sequence[str]) -> list[SourceFile]:
    """Lists the files that paths, globs and folders name, without those that are empty.

    Args:
        inputs: paths or globs, in a list or separated by commas. A folder stands for all files in
            it and below, except names that begin with ``.`` or ``_``.

    Returns:
        The files, each once, by whatever names and links it can be reached, in the order of
        ``inputs`` and sorted within each of them.

    Raises:
        ValueError: nothing is named, a name matches no file, or all files are empty.
    """
    patterns = inputs.split(",") if isinstance(inputs, str) else list(inputs)
    patterns = [pattern.strip() for pattern in patterns if pattern.strip()]
    if not patterns:
        raise ValueError(
            "The input names no file: give paths or globs of text files, separated by commas."
        )
    paths: dict[str, str] = {}  # by what they are in the end
    for pattern in patterns:
        found = [file for path in _glob(pattern) for file in _files_below(path)]
        if not found:
            raise ValueError(
                f"No file matches {pattern!r}: give paths or globs of text files, separated by "
                "commas."
            )
        for path in found:
            paths.setdefault(_real(path), path)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:  # remote file systems are slow to ask
        files = list(pool.map(describe_file, paths.values()))
    filled = [file for file in files if file.size]
    if not filled:
        raise ValueError(
            f"The input {', '.join(patterns)} is empty: every file that it names has 0 bytes; "
            "give files with text."
        )
    return filled


def describe_file(path: str) -> SourceFile:
    """Asks the file system about a file."""
    statistics = tf.io.gfile.stat(path)
    return SourceFile(path, statistics.length, statistics.mtime_nsec)


def sample_files(paths: Sequence[str]) -> list[str]:
    """Says in a few characters what stands in local files, whatever their size and time say.

    Args:
        paths: of files that are there.

    Returns:
        The hash of a sample of each file, which is all of it in a small corpus; "" for files of
        an object store, which cannot be changed without a change of their time.
    """
    piece = max(_SMALLEST_SAMPLE, _SAMPLE_BYTES // max(1, len(paths))) // _SAMPLE_PIECES

    def sample(path: str) -> str:
        local = local_path(path)
        if local is None:
            return ""
        digest = hashlib.sha256()
        with open(local, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            for number in range(_SAMPLE_PIECES):
                file.seek(max(number * piece, (size - piece) * number // (_SAMPLE_PIECES - 1)))
                digest.update(file.read(piece))
        return digest.hexdigest()[:16]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return list(pool.map(sample, paths))


def _glob(pattern: str) -> list[str]:
    if tf.io.gfile.exists(pattern):  # a path, even where it has a glob's characters
        return [pattern]
    try:
        return sorted(tf.io.gfile.glob(pattern))
    except tf.errors.NotFoundError:
        return []


def _files_below(path: str) -> list[str]:
    if not tf.io.gfile.isdir(path):
        return [path]
    found = []
    for folder, names in _folders_below(path):
        inside = folder[len(path) :].strip("/").split("/")
        if not any(name.startswith((".", "_")) for name in inside):
            found += [
                tf.io.gfile.join(folder, name) for name in names if not name.startswith((".", "_"))
            ]
    return sorted(found)


def _folders_below(path: str) -> Iterator[tuple[str, list[str]]]:
    """A folder and those below it, each once even where links lead round, and their files."""
    seen = set()
    local = local_path(path)
    if local is None:  # an object store, which has no links
        yield from ((folder, names) for folder, _, names in tf.io.gfile.walk(path))
        return
    for folder, folders, names in os.walk(local, followlinks=True):
        folders.sort()
        if _real(folder) in seen:
            folders.clear()
        else:
            seen.add(_real(folder))
            yield path.removesuffix(local) + folder, names


def _real(path: str) -> str:
    local = local_path(path)
    return path if local is None else os.path.realpath(local)


@contextlib.contextmanager
def _gzip_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = str(error).rstrip(".")
        raise ValueError(
            f"{path} is not a whole gzip file ({reason}): it is damaged or was cut short; "
            "copy it again."
        ) from error


@contextlib.contextmanager
def open_text(path: str) -> Iterator[IO[bytes]]:
    """Opens a plain or gzip file (known by its first bytes) for reading its text as bytes.

    Raises:
        ValueError: while it is read, a gzip file turns out to be damaged or cut short.
    """
    with tf.io.gfile.GFile(path, "rb") as file:
        if starts_as_gzip(file):
            with _gzip_errors(path), gzip.GzipFile(fileobj=file) as stream:
                yield cast(IO[bytes], stream)
        else:
            yield file


def starts_as_gzip(file: Any) -> bool:
    """Whether an opened file's first bytes are gzip's; leaves the file at its start."""
    magic = file.read(len(_GZIP_MAGIC))
    file.seek(0)
    return magic == _GZIP_MAGIC


def inflate_small(file: SourceFile, limit: int) -> bytes | None:
    """Returns the text of a gzip file, or None if it is long or not just one compressed stream.

    TensorFlow's decoder does not notice a stream that is cut short, nor takes what may follow one.
    """
    if file.size > limit:
        return None
    decoder = zlib.decompressobj(wbits=31)
    with _gzip_errors(file.path), tf.io.gfile.GFile(file.path, "rb") as stream:
        text = decoder.decompress(stream.read(), limit + 1)
        if not decoder.eof and len(text) <= limit:
            raise EOFError("its compressed stream has no end")
    return text if decoder.eof and not decoder.unused_data and len(text) <= limit else None
