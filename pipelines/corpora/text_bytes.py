"""Text files as bytes, plain or gzip, on any TensorFlow file system.

A local file loads no TensorFlow.
"""

import codecs
import contextlib
import gzip
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, TypeVar, cast

from isal import igzip, isal_zlib

from bert_tf.io.paths import local_path
from bert_tf.io.untrusted import check_line_length

T = TypeVar("T")
_CHUNK_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_HEAD_BYTES = 512
# How files that are no text begin (of gzip: once unpacked), what they are, and what to do.
_BINARY_FORMATS = {
    rb"PK(\x03\x04|\x05\x06|\x07\x08)": "a zip archive, as workbooks (.xlsx) and documents (.docx) "
    'are, too: save a workbook as .csv, in Excel as "CSV UTF-8", a document as plain text, or '
    "unpack it",
    rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old workbook or document of Office (.xls, .doc): "
    "save a workbook as .csv, and a document as plain text",
    rb"PAR1[\0-\x08\x0b\x0c\x0e-\x1f]|ARROW1\0|FEA1|\xff{4}": "a file of Parquet or Arrow: write "
    "its texts as JSON lines; as tables finetune and predict read .parquet and .arrow",
    rb"%PDF-": "a PDF: extract its text first, as pdftotext does",
    rb"\{\\rtf1": "Rich Text: save it as plain text",
    rb"\x93NUMPY|\x80[\x02-\x05]|SQLite format 3\0|\x89HDF\r\n": "binary data of NumPy, pickle, "
    "SQLite or HDF5: write its texts as .jsonl or .csv",
    rb"BZh[1-9](1AY&SY|\x17rE8P)|\xfd7zXZ\0|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18|7z\xbc\xaf"
    rb"|Rar!\x1a\x07|LZIP\x01|\x1f\x9d|\x1f\x8b\x08": "packed by another program than gzip, or "
    "twice: unpack it first, as of packed files gzip alone is read",
    rb".{257}ustar(\0|  \0)": "a tar archive: unpack it, and name the files in it, or their folder",
    rb"(?i)(\xef\xbb\xbf)?\s*(<!--.{,300}?-->\s*)?<(!doctype\s+)?html\b": "a page of HTML, whose "
    "tags would be read as text: extract its text first; if it is a page about the file, download "
    "the file itself",
    rb"(\xef\xbb\xbf)?\s*<(\?xml|mediawiki)\b": "XML, whose tags would be read as text: extract "
    "its text first, as WikiExtractor does of a dump of Wikipedia",
    rb"\xff\xfe|\xfe\xff|\0\0\xfe\xff|([^\0]\0){4}|(\0[^\0]){4}": "UTF-16 or UTF-32: save it as "
    'UTF-8, in Excel as "CSV UTF-8", or convert it: iconv -f UTF-16 -t UTF-8',
    rb".{,5}\0\0\0": "binary data and no text: give files of text; pretrain reads records of "
    "Google's by --input_format=tfrecord",
}
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
    A file that by its first bytes is no text is a ``ValueError``.
    """
    with open_bytes(path) as raw:
        head = raw.read(_HEAD_BYTES)
        is_gzip = head.startswith(_GZIP_MAGIC)
        raw.seek(0)
        # The gzip reader calls ``readinto``, which TensorFlow's files do not have.
        needs_wrapper = is_gzip or on_read is not None
        file = cast(IO[bytes], _ReportingFile(raw, on_read) if needs_wrapper else raw)
        if is_gzip:
            with gzip_errors(path), igzip.IGzipFile(fileobj=file) as stream:
                _check_is_text(stream.peek(_HEAD_BYTES)[:_HEAD_BYTES], path)
                yield cast(IO[bytes], stream)
        else:
            _check_is_text(head, path)
            yield file


def _check_is_text(head: bytes, path: str) -> None:
    """Refuses a file whose first bytes are those of another kind than text."""
    for pattern, description in _BINARY_FORMATS.items():
        if re.match(pattern, head, re.DOTALL):
            raise ValueError(f"{path} is {description}.")


def open_bytes(path: str) -> IO[bytes]:
    """Opens a file for reading."""
    local = local_path(path)
    if local is not None:
        return open(local, "rb")
    # Only for these: a command on local files answers without loading TensorFlow.
    import tensorflow as tf

    return cast(IO[bytes], tf.io.gfile.GFile(path, "rb"))


def text_chunks(stream: IO[bytes], path: str) -> Iterator[bytes]:
    r"""Reads a text in chunks, and checks the length of its lines, which end at ``\n``.

    Every reader of text reads by this: none has more than a line of the maximum length in memory.
    """
    line, length = 1, 0
    while chunk := stream.read(_CHUNK_BYTES):
        if (end := chunk.find(b"\n")) >= 0:
            check_line_length(length + end, path, line)
            line += chunk.count(b"\n")
            length = -1 - chunk.rfind(b"\n")
        length += len(chunk)
        check_line_length(length, path, line)
        yield chunk


def split_lines(stream: IO[bytes], path: str) -> Iterator[tuple[int, int, bytes]]:
    r"""Reads lines, which end at ``\n``: where each begins, where the next one does, and its bytes.

    ``path`` names the stream in errors.
    """
    offset, rest = 0, b""
    for chunk in text_chunks(stream, path):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            begin, offset = offset, offset + len(line) + 1
            yield begin, offset, line
    if rest:
        yield offset, offset + len(rest), rest


def group_items(
    items: Iterable[T], size: Callable[[T], int], max_items: int, max_size: int
) -> Iterator[list[T]]:
    """Yields lists of up to ``max_items`` consecutive items, ended early at ``max_size``."""
    group: list[T] = []
    total = 0
    for item in items:
        group.append(item)
        total += size(item)
        if len(group) == max_items or total >= max_size:
            yield group
            group, total = [], 0
    if group:
        yield group


def check_utf8(text: bytes, path: str, offset: int) -> None:
    """Checks that whole characters are UTF-8; ``offset`` is where in the file's text they begin."""
    try:
        codecs.utf_8_decode(text, "strict", True)
    except UnicodeDecodeError as error:
        position = offset + error.start
        remedy = "convert the file, for example with iconv"
        if b"\0" in text:
            remedy = (
                "it has bytes of zero, as binary files do, and text has none: give files of text"
            )
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
        position: int = self._file.tell()
        return position
