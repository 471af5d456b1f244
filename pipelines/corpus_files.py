"""The files of a corpus, plain or gzip, on any TensorFlow file system: found, opened, cut up."""

import codecs
import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import tensorflow as tf
from isal import isal_zlib

from bert_tf import paths
from bert_tf.paths import local_path

from . import corpus_formats
from .text_bytes import gzip_errors

T = TypeVar("T")
R = TypeVar("R")

_NUM_THREADS = 16
_MOST_CALLS = 1024


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A file that the user named: its path, its bytes on the disk, and when it was last changed.

    ``changed_nsec`` is when anything of a local file was changed, which nobody can set back, else
    0. Names of indexes hold the ``repr``.
    """

    path: str
    size: int
    mtime_nsec: int
    changed_nsec: int = 0


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
    named = list(in_threads(_glob, patterns))
    below = in_threads(_files_below, [path for found in named for path in found])
    for pattern, matches in zip(patterns, named, strict=True):
        found = [file for _ in matches for file in next(below)]
        if not found:
            raise ValueError(paths.corpus(pattern))
        for path in found:
            by_real.setdefault(_real(path, real_folder), path)
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
    step = 1 + len(items) // _MOST_CALLS  # a million calls would take a gigabyte
    parts = [items[first : first + step] for first in range(0, len(items), step)]
    with concurrent.futures.ThreadPoolExecutor(_NUM_THREADS) as pool:
        done = pool.map(lambda part: [work(item) for item in part], parts)
        yield from (result for results in done for result in results)


def describe_file(path: str) -> SourceFile:
    """Asks the file system about a file."""
    local = local_path(path)
    if local is None:
        found = tf.io.gfile.stat(path)
        return SourceFile(path, found.length, found.mtime_nsec)
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
        if os.path.realpath(folder) in seen:
            folders.clear()
        else:
            seen.add(os.path.realpath(folder))
            yield path.removesuffix(local) + folder, names


def _real(path: str, real_folder: Callable[[str], str]) -> str:
    local = local_path(path)
    if local is None:
        return path
    if os.path.islink(local):
        return os.path.realpath(local)
    return os.path.join(real_folder(os.path.dirname(local)), os.path.basename(local))


def inflate_small(file: SourceFile, limit: int) -> bytes | None:
    """Returns the text of a gzip file, or None if it is long or not just one compressed stream.

    TensorFlow's decoder does not notice a stream that is cut short, nor takes what may follow one.
    """
    if file.size > limit:
        return None
    decoder = isal_zlib.decompressobj(wbits=31)
    with gzip_errors(file.path), tf.io.gfile.GFile(file.path, "rb") as stream:
        text = decoder.decompress(stream.read(), limit + 1)
        if not decoder.eof and len(text) <= limit:
            raise EOFError("its compressed stream has no end")
    return text if decoder.eof and not decoder.unused_data and len(text) <= limit else None


#: A document longer than this is cut, at a paragraph or sentence where there is one, into several:
#: what is in memory at one time must not depend on the corpus.
MAX_DOCUMENT_BYTES = 1 << 20

_BLANK_LINES = (b"\n\n", b"\n\r\n")
_PACKED = (".bz2", ".xz", ".zst", ".lz4", ".zip")


def check_utf8(text: bytes, path: str, offset: int) -> None:
    """Checks that whole characters are UTF-8; ``offset`` is where in the file's text they begin."""
    try:
        codecs.utf_8_decode(text, "strict", True)
    except UnicodeDecodeError as error:
        position = offset + error.start
        remedy = "convert the file, for example with iconv"
        if path.endswith(_PACKED):
            remedy = "unpack it first, as of packed files gzip alone is read"
        raise ValueError(
            f"{path} is not UTF-8: invalid byte 0x{text[error.start]:02x} at byte offset "
            f"{position} ({error.reason}); {remedy}."
        ) from error


def cut_blocks(chunks: Iterable[bytes], text_format: str, block_bytes: int) -> Iterator[bytes]:
    """Cuts a text, which comes in chunks of any length, into its blocks."""
    limit = max(block_bytes, MAX_DOCUMENT_BYTES)
    rest = iter(chunks)
    buffer = b""
    at_end = False
    while not at_end or buffer:
        while len(buffer) < limit and not at_end:
            chunk = next(rest, b"")
            at_end = not chunk
            buffer += chunk
        start = 0
        while len(buffer) - start >= limit or (at_end and start < len(buffer)):
            window = buffer[start : start + limit]
            is_rest = at_end and start + len(window) == len(buffer)
            length = find_cut(window, text_format, block_bytes, is_rest)
            yield window[:length]
            start += length
        buffer = buffer[start:]


def find_cut(window: bytes, text_format: str, block_bytes: int, is_rest: bool) -> int:
    """Returns the length of the next block of a window, at most as long as a block may be.

    The block ends behind the last document that ends within ``block_bytes``, else behind the first
    that ends within the window. A document that is too long is cut behind the last blank line,
    line, blank or character of the window. ``is_rest``: the file ends with the window.
    """
    if is_rest and len(window) <= block_bytes:
        return len(window)
    cut = 0
    if text_format == corpus_formats.WIKIEXTRACTOR:
        cut = window.rfind(b"\n<doc ", 0, block_bytes) + 1 or window.find(b"\n<doc ") + 1
    elif text_format != corpus_formats.PROSE:
        cut = _last_blank_line(window, block_bytes) or _first_blank_line(window)
    if cut:
        return cut
    if is_rest:
        return len(window)
    cut = _last_blank_line(window, len(window)) or window.rfind(b"\n") + 1 or window.rfind(b" ") + 1
    if not cut:
        cut = len(window) - 1
        while cut and window[cut] & 0xC0 == 0x80:  # inside a character
            cut -= 1
    return max(cut, 1)


def _last_blank_line(window: bytes, end: int) -> int:
    """Returns where the last blank line before ``end`` ends, or 0."""
    places = ((window.rfind(mark, 0, end), len(mark)) for mark in _BLANK_LINES)
    return max((place + length for place, length in places if place >= 0), default=0)


def _first_blank_line(window: bytes) -> int:
    """Returns where the first blank line ends, or 0."""
    places = ((window.find(mark), len(mark)) for mark in _BLANK_LINES)
    return min((place + length for place, length in places if place >= 0), default=0)


def starts_document(text: bytes) -> bool:
    """True if WikiExtractor's markup of a document begins in a text."""
    return text.removeprefix(codecs.BOM_UTF8).startswith(b"<doc ") or b"\n<doc " in text
