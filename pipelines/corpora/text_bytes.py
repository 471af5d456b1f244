"""Reads plain or gzip text files as bytes, on any TensorFlow file system.

Local files are read without loading TensorFlow.
"""

import codecs
import contextlib
import gzip
import io
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
# First bytes (of gzip files, after decompression), descriptions and remedies of other file types.
_BINARY_FORMATS = {
    rb"PK(\x03\x04|\x05\x06|\x07\x08)": "a zip archive or an Office file (.xlsx, .docx). Unpack "
    'it, save a workbook as "CSV UTF-8", or save a document as plain text',
    rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old Office file (.xls, .doc). Save a workbook as "
    ".csv, or a document as plain text",
    rb"PAR1[\0-\x08\x0b\x0c\x0e-\x1f]|ARROW1\0|FEA1|\xff{4}": "a Parquet or Arrow file. Write its "
    "texts as JSON lines; finetune and predict read .parquet and .arrow",
    rb"%PDF-": "a PDF. Extract its text first, for example with pdftotext",
    rb"\{\\rtf1": "a Rich Text file. Save it as plain text",
    rb"\x93NUMPY|\x80[\x02-\x05]|SQLite format 3\0|\x89HDF\r\n": "a NumPy, pickle, SQLite or HDF5 "
    "file. Write its texts as .jsonl or .csv",
    rb"BZh[1-9](1AY&SY|\x17rE8P)|\xfd7zXZ\0|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18|7z\xbc\xaf"
    rb"|Rar!\x1a\x07|LZIP\x01|\x1f\x9d|\x1f\x8b\x08": "compressed twice, or not by gzip. "
    "Decompress it first",
    rb".{257}ustar(\0|  \0)": "a tar archive. Unpack it, and pass its files or their folder",
    rb"(?i)(\xef\xbb\xbf)?\s*(<!--.{,300}?-->\s*)?<(!doctype\s+)?html\b": "an HTML page. Extract "
    "its text first, or if the page describes the file, download the file itself",
    rb"(\xef\xbb\xbf)?\s*<(\?xml|mediawiki)\b": "an XML file. Extract its text first; use "
    "WikiExtractor for a Wikipedia dump",
    rb"\xff\xfe|\xfe\xff|\0\0\xfe\xff|([^\0]\0){4}|(\0[^\0]){4}": "encoded as UTF-16 or UTF-32. "
    'Save it as UTF-8 (in Excel "CSV UTF-8"), or run iconv -f UTF-16 -t UTF-8',
    rb".{,5}\0\0\0": "a binary file. Pass text files; for Google's records, pass "
    "--input_format=tfrecord to pretrain",
}
_INFLATE_ERROR = cast(type[Exception], isal_zlib.error)  # not a class in its type stubs


@contextlib.contextmanager
def gzip_errors(path: str) -> Iterator[None]:
    """Converts errors about damaged gzip files to a ValueError."""
    try:
        yield
    except (EOFError, _INFLATE_ERROR, gzip.BadGzipFile) as error:
        reason = str(error).rstrip(".")
        raise ValueError(
            f"{path} is damaged or incomplete ({reason}). Copy the gzip file again."
        ) from error


@contextlib.contextmanager
def open_text(path: str, on_read: Callable[[int], None] | None = None) -> Iterator[IO[bytes]]:
    """Opens a plain or gzip file, detected by its first bytes, to read its text as bytes.

    ``on_read`` is called with the number of bytes that each read took from the file. Files of other
    types raise a ValueError.
    """
    with open_bytes(path) as raw:
        head = raw.read(_HEAD_BYTES)
        is_gzip = head.startswith(_GZIP_MAGIC)
        raw.seek(0)
        # The gzip reader calls ``readinto``, which TensorFlow's files do not implement.
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
    """Rejects files with the first bytes of another file type."""
    for pattern, description in _BINARY_FORMATS.items():
        if re.match(pattern, head, re.DOTALL):
            raise ValueError(f"{path} is {description}.")


def open_bytes(path: str) -> IO[bytes]:
    """Opens a file for reading."""
    local = local_path(path)
    if local is not None:
        return open(local, "rb")
    # Imported late, so that commands on local files do not load TensorFlow.
    import tensorflow as tf

    return cast(IO[bytes], tf.io.gfile.GFile(path, "rb"))


def text_chunks(stream: IO[bytes], path: str) -> Iterator[bytes]:
    r"""Yields a text in chunks, after checking the length of its lines, which end at ``\n``.

    All readers of text use this function, so that none stores more than the longest allowed line.
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
    r"""Yields the start, the end and the bytes of each line, which ends at ``\n``.

    Errors name the stream ``path``.
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
    """Checks that bytes are valid UTF-8; ``offset`` is their offset in the file's text."""
    try:
        codecs.utf_8_decode(text, "strict", True)
    except UnicodeDecodeError as error:
        position = offset + error.start
        remedy = "Convert the file, for example with iconv"
        if b"\0" in text:
            remedy = "It contains zero bytes, as binary files do. Use a text file"
        raise ValueError(
            f"{path} is not UTF-8: invalid byte 0x{text[error.start]:02x} at byte offset "
            f"{position} ({error.reason}). {remedy}."
        ) from error


def inflate_small(path: str, size: int, limit: int) -> bytes | None:
    """Returns the text of a small gzip file; ``None`` if it is long or has several streams.

    TensorFlow's decoder neither detects incomplete streams nor reads several streams.
    """
    if size > limit:
        return None
    decoder = isal_zlib.decompressobj(wbits=31)
    with gzip_errors(path), open_bytes(path) as stream:
        text = decoder.decompress(stream.read(), limit + 1)
        if not decoder.eof and len(text) <= limit:
            raise EOFError("incomplete compressed stream")
    return text if decoder.eof and not decoder.unused_data and len(text) <= limit else None


class _ReportingFile(io.RawIOBase):
    """Wraps a file, and reports the number of bytes of each read."""

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
