"""The lines of the input files, one after the other, from any place on."""

import gzip
import hashlib
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

import tensorflow as tf

from bert_tf.pipelines.corpus_files import SourceFile, open_text

_CHUNK_BYTES = 1 << 20
_MAX_LINE_BYTES = 16 << 20
_PAIR_MARK = " ||| "


class Position(NamedTuple):
    """A place between two lines.

    Attributes:
        file: the number of the file that the next line is in.
        offset: where in that file's text the line begins, in bytes.
        line: the line's number, counted from 0 through all files.
    """

    file: int = 0
    offset: int = 0
    line: int = 0


BEGINNING = Position()


class Line(NamedTuple):
    """A line of the input.

    Attributes:
        first: its text, or of a pair the first one; without white space round it.
        second: of a pair the second one, ``None`` elsewhere.
        is_utf8: whether no byte had to be passed over.
        end: the place behind the line.
        bytes_read: how much of all files had been read by then, as they lie on the disk.
    """

    first: str
    second: str | None
    is_utf8: bool
    end: Position
    bytes_read: int


def fingerprint(files: Sequence[SourceFile]) -> str:
    """A digest of what the files hold, in their order; their names do not matter."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.size}\n".encode())
        with tf.io.gfile.GFile(file.path, "rb") as content:
            while chunk := content.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


def read_lines(files: Sequence[SourceFile], start: Position = BEGINNING) -> Iterator[Line]:
    r"""Reads lines, each of which ends at ``\n``, ``\r\n`` or the file's end.

    A byte that is not UTF-8 is passed over, as the tokenizer does. Files are read a megabyte at a
    time; a gzip file is unpacked again up to ``start``.

    Args:
        files: plain or gzip.
        start: where to begin, the ``end`` of some line.

    Raises:
        ValueError: a line is longer than 16 MiB, or a gzip file is damaged.
    """
    position = start
    bytes_before = sum(file.size for file in files[: start.file])
    for number, file in enumerate(files[start.file :], start.file):
        with open_text(file.path) as text:
            if position.offset:
                text.seek(position.offset)
            for line, bytes_read in _raw_lines(text, file.path, position.offset):
                position = Position(number, position.offset + len(line), position.line + 1)
                yield _parse(line, position, bytes_before + bytes_read)
        bytes_before += file.size
        position = Position(number + 1, 0, position.line)


def _raw_lines(text: IO[bytes], path: str, offset: int) -> Iterator[tuple[bytes, int]]:
    """Lines with their ends, and how much of the file had been read by then."""
    # Of a gzip file the offset is one in the text, and its file's is that on the disk.
    on_disk = text.fileobj if isinstance(text, gzip.GzipFile) else None
    rest = b""
    while chunk := text.read(_CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            offset += len(line) + 1
            yield line + b"\n", on_disk.tell() if on_disk else offset
        if len(rest) > _MAX_LINE_BYTES:
            raise ValueError(
                f"{path}: the line at byte {offset} is longer than {_MAX_LINE_BYTES >> 20} MiB; "
                "expected text with one sentence, or one pair, a line."
            )
    if rest:
        yield rest, on_disk.tell() if on_disk else offset + len(rest)


def _parse(raw: bytes, end: Position, bytes_read: int) -> Line:
    try:
        text, is_utf8 = raw.decode("utf-8"), True
    except UnicodeDecodeError:
        text, is_utf8 = raw.decode("utf-8", "ignore"), False
    # Google's expression is greedy: the last mark parts a pair.
    first, mark, second = text.strip().rpartition(_PAIR_MARK)
    if mark:
        return Line(first, second, is_utf8, end, bytes_read)
    return Line(second, None, is_utf8, end, bytes_read)
