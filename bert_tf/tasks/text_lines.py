r"""The lines of a text file and their numbers: plain, gzip, or a member of a zip archive.

Lines end at ``\n`` or ``\r\n`` alone: texts hold U+2028 and single returns, at which
``str.splitlines`` and TensorFlow's ``GFile.readline`` would end a line, or lose the return.
"""

import codecs
import contextlib
import io
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

import tensorflow as tf

from bert_tf.pipelines.corpus_files import open_text
from bert_tf.untrusted import listed, reason

_CHUNK_BYTES = 1 << 20
# So many characters are UTF-8 by chance in no text of another encoding.
_NO_CHANCE = 20
_ARCHIVE_MARK = ".zip/"


def read_lines(path: str, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    r"""Reads a text file line by line.

    Args:
        path: a plain or gzip file on any TensorFlow file system, or ``ARCHIVE.zip/MEMBER``.
        encoding: one in which ASCII is ASCII. A byte order mark of UTF-8 is dropped.

    Yields:
        A line's number, counted from 1, and its text without its end.

    Raises:
        ValueError: there is no such file, encoding or member, an archive is damaged, a line is not
            of the encoding, the text is UTF-8 and another encoding was named, or single returns
            alone end the lines.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.txt")
    >>> with tf.io.gfile.GFile(path, "wb") as file:
    ...     file.write(b"\xef\xbb\xbfone\r\n\ntwo")
    >>> list(read_lines(path))
    [(1, 'one'), (2, ''), (3, 'two')]
    """
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        raise ValueError(
            f"Unknown encoding {encoding!r}: expected a name such as utf-8 or latin-1."
        ) from error
    before = 0
    with _open(str(path)) as file:
        for block in _whole_lines(file, str(path)):
            try:
                text = block.decode(encoding)
            except UnicodeDecodeError as error:
                line = before + block.count(b"\n", 0, error.start) + 1
                utf16 = not before and block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
                raise ValueError(
                    f"{path}, line {line}: expected text in {encoding}, got "
                    f"{'UTF-16' if utf16 else f'the byte 0x{block[error.start]:02x}'}; save the "
                    "file as UTF-8."
                ) from error
            _check_encoding(path, block, encoding)
            if not before:
                text = text.removeprefix("\ufeff")
            lines = text.split("\n")
            for number, line_text in enumerate(lines, start=before + 1):
                yield number, line_text.removesuffix("\r")
            before += len(lines)


def _check_encoding(path: str, block: bytes, encoding: str) -> None:
    """Refuses to read UTF-8 as latin-1 and its like, where each byte is a character."""
    if block.isascii() or codecs.lookup(encoding).name.startswith("utf"):
        return
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError:
        return
    if sum(not character.isascii() for character in text) >= _NO_CHANCE:
        raise ValueError(
            f"{path}: expected text in {encoding}, got UTF-8: read it as utf-8, the default."
        )


def _whole_lines(file: IO[bytes], path: str) -> Iterator[bytes]:
    """Gives the file in pieces of whole lines, each piece without its last line's end."""
    pieces: list[bytes] = []
    is_one_line = True
    while chunk := file.read(_CHUNK_BYTES):
        whole, newline, rest = chunk.rpartition(b"\n")
        if newline:
            yield b"".join([*pieces, whole])
            pieces = []
            is_one_line = False
        pieces.append(rest)
    last = b"".join(pieces)
    if is_one_line and b"\r" in last[:-1]:
        raise ValueError(
            f"{path}: expected lines that end with a line feed, got single carriage returns alone "
            "(as old Macs wrote them): save it with the line ends of Unix or Windows."
        )
    if last:
        yield last


@contextlib.contextmanager
def _open(path: str) -> Iterator[IO[bytes]]:
    stem, mark, member = path.partition(_ARCHIVE_MARK)
    archive = stem + mark.rstrip("/")
    if mark and not tf.io.gfile.isdir(archive):
        with _open_member(archive, member) as file:
            yield file
        return
    _check_is_file(path, "a text file")
    if path.lower().endswith(".zip"):
        raise ValueError(
            f"{path} is an archive: name the file in it, such as {path}/{_first_member(path)}."
        )
    with open_text(path) as file:
        yield file


@contextlib.contextmanager
def _open_member(archive: str, member: str) -> Iterator[IO[bytes]]:
    _check_is_file(archive, "an archive")
    # zipfile speaks of an encrypted member by RuntimeError, and by its subclass
    # NotImplementedError of a compression that it does not know.
    try:
        with _open_archive(archive) as opened:
            if member not in opened.namelist():
                names = listed(name for name in opened.namelist() if not name.endswith("/"))
                raise ValueError(f"{archive} holds no {member!r}: expected one of {names}.")
            with opened.open(member) as stream:
                yield stream
    except (EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{archive} cannot be unpacked ({reason(error, 120)}): expected a whole zip file "
            "without a password; fetch it again."
        ) from error


def _open_archive(path: str) -> zipfile.ZipFile:
    # From memory: a GFile seeks otherwise than zipfile expects it of a file that is no archive.
    with tf.io.gfile.GFile(path, "rb") as file:
        return zipfile.ZipFile(io.BytesIO(file.read()))


def _first_member(archive: str) -> str:
    with contextlib.suppress(zipfile.BadZipFile), _open_archive(archive) as opened:
        for name in opened.namelist():
            if not name.endswith("/"):
                return name
    return "MEMBER"


def _check_is_file(path: str, what: str) -> None:
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise ValueError(f"There is no file at {path}: expected {what}.")
