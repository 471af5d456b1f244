"""Text files as bytes, plain or gzip, on any TensorFlow file system.

A local file loads no TensorFlow.
"""

import codecs
import contextlib
import gzip
import io
import os
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, TypeVar, cast

from isal import igzip, isal_zlib

from bert_tf.paths import local_path
from bert_tf.untrusted import check_line

T = TypeVar("T")
_CHUNK_BYTES = 1 << 20
_PACKED = (".bz2", ".xz", ".zst", ".lz4", ".zip")
_GZIP_MAGIC = b"\x1f\x8b"
_INFLATE_ERROR = cast(type[Exception], isal_zlib.error)  # its types call it no class


@contextlib.contextmanager
def gzip_errors(path: str) -> Iterator[None]:
    """Turns what a damaged gzip file raises into a sentence."""
    try:
        yield
    except (EOFError, _INFLATE_ERROR, gzip.BadGzipFile) as error:
        reason = str(error).rstrip(".")
        raise ValueError(
            f"{path} is not a whole gzip file ({reason}): it is damaged or was cut short; "
            "copy it again."
        ) from error


@contextlib.contextmanager
def open_text(path: str, on_read: Callable[[int], None] | None = None) -> Iterator[IO[bytes]]:
    """Opens a plain or gzip file, known by its first bytes, for reading its text as bytes.

    ``on_read`` is called with how many bytes of the file, compressed ones of gzip, each read took.
    """
    with open_bytes(path) as raw:
        is_gzip = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        raw.seek(0)
        # The gzip reader calls ``readinto``, which TensorFlow's files do not have.
        needs_wrapper = is_gzip or on_read is not None
        file = cast(IO[bytes], _ReportingFile(raw, on_read) if needs_wrapper else raw)
        if is_gzip:
            with gzip_errors(path), igzip.IGzipFile(fileobj=file) as stream:
                yield cast(IO[bytes], stream)
        else:
            yield file


def open_bytes(path: str) -> IO[bytes]:
    """Opens a file for reading."""
    local = local_path(path)
    if local is not None:
        return open(local, "rb")
    # Only for these: a command on local files answers without loading TensorFlow.
    import tensorflow as tf

    return cast(IO[bytes], tf.io.gfile.GFile(path, "rb"))


def split_lines(stream: IO[bytes], path: str) -> Iterator[tuple[int, int, bytes]]:
    r"""Reads lines, which end at ``\n``: where each begins, where the next one does, and its bytes.

    ``path`` names the stream in errors.
    """
    offset, rest = 0, b""
    while chunk := stream.read(_CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            begin, offset = offset, offset + len(line) + 1
            yield begin, offset, line
        check_line(len(rest), path, f"the line at byte {offset:,}")
    if rest:
        yield offset, offset + len(rest), rest


def grouped(
    items: Iterable[T], characters: Callable[[T], int], most: int, most_characters: int
) -> Iterator[list[T]]:
    """Lists of at most ``most`` consecutive items, of fewer where these have many characters."""
    group: list[T] = []
    size = 0
    for item in items:
        group.append(item)
        size += characters(item)
        if len(group) == most or size >= most_characters:
            yield group
            group, size = [], 0
    if group:
        yield group


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


def inflate_small(path: str, size: int, limit: int) -> bytes | None:
    """The text of a gzip file of ``size`` bytes; None if it is long or not one compressed stream.

    TensorFlow's decoder does not notice a stream that is cut short, nor takes what may follow one.
    """
    if size > limit:
        return None
    decoder = isal_zlib.decompressobj(wbits=31)
    with gzip_errors(path), open_bytes(path) as stream:
        text = decoder.decompress(stream.read(), limit + 1)
        if not decoder.eof and len(text) <= limit:
            raise EOFError("its compressed stream has no end")
    return text if decoder.eof and not decoder.unused_data and len(text) <= limit else None


class _ReportingFile(io.RawIOBase):
    """A file of TensorFlow's, or any other, with a report of each read's bytes."""

    def __init__(self, file: Any, on_read: Callable[[int], None] | None) -> None:
        self._file = file
        self._on_read = on_read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data: bytes = self._file.read(len(buffer))
        buffer[: len(data)] = data
        if self._on_read is not None:
            self._on_read(len(data))
        return len(data)

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        place: int = self._file.tell()
        return place
