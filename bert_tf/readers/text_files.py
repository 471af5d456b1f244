r"""Published files as text: JSON documents and lines, plain, gzip or in a zip archive.

Nothing here loads TensorFlow for a local file: scoring one takes no such seconds.

Lines end at ``\n`` or ``\r\n`` alone: texts hold U+2028 and single returns, at which
``str.splitlines`` and TensorFlow's ``GFile.readline`` would end a line, or lose the return.
"""

import codecs
import contextlib
import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

from bert_tf import paths
from bert_tf.pipelines.text_bytes import open_text
from bert_tf.untrusted import check_line, listed, parse_json, reason

# SQuAD's largest file has 42 MB, Natural Questions' simplified dev set 1 GB as JSON lines. What is
# larger is no document to hold in memory whole, or an archive made to fill it.
_MAX_BYTES = 1 << 29
_CHUNK_BYTES = 1 << 20
# So many characters are UTF-8 by chance in no text of another encoding.
_NO_CHANCE = 20
_ARCHIVE_MARK = ".zip/"
# zipfile reports an encrypted member by RuntimeError, and by its subclass NotImplementedError a
# compression that it does not know.
_UNPACKING_ERRORS = (EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


# === JSON documents ===


def read_json_document(path: str, *, unique_keys: bool = False) -> Any:
    """Reads one JSON document from a file that is plain, gzip or zip by its first bytes.

    The text is UTF-8, with or without a byte order mark, and unpacked at most 512 MiB. A local path
    needs no TensorFlow; one with ``://`` is on any of its file systems. A zip archive holds exactly
    one file whose name ends in ``.json``; what macOS adds (``__MACOSX/``) does not count.
    """
    text = _decode(_unpack(_read_bytes(path), path), path)
    if not text.strip():
        raise ValueError(f"{path} is empty: expected a JSON document.")
    try:
        return parse_json(text, path, unique_keys=unique_keys)
    except ValueError as error:
        first, _, rest = text.strip().partition("\n")
        if rest and first.startswith("{") and first.rstrip().endswith("}"):
            raise ValueError(
                f"{path} holds several JSON documents, a line each: expected one; if they are a "
                "table's rows, let its name end in .jsonl."
            ) from error
        raise


def _read_bytes(path: str) -> bytes:
    if "://" in path:
        # Only for these: a command on local files answers without loading TensorFlow.
        import tensorflow as tf

        with tf.io.gfile.GFile(path, "rb") as file:
            return _read_bounded(file, path)
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise ValueError(f"{path} is a pipe or a device: expected a file.")
    try:
        with open(path, "rb") as file:
            return _read_bounded(file, path)
    except OSError as error:
        raise type(error)(f"{path} cannot be read: {error.strerror}.") from error


def _read_bounded(file: Any, path: str) -> bytes:
    # Piece by piece: one read of as much would hold an archive's text twice.
    pieces, size = [], 0
    while chunk := file.read(_CHUNK_BYTES):
        pieces.append(chunk)
        size += len(chunk)
        if size > _MAX_BYTES:
            raise ValueError(
                f"{path} holds more than {_MAX_BYTES:,} bytes: expected a JSON document that fits "
                "into memory; split it."
            )
    return b"".join(pieces)


def _unpack(content: bytes, path: str) -> bytes:
    try:
        if content.startswith(b"\x1f\x8b"):
            with gzip.open(io.BytesIO(content)) as file:
                return _read_bounded(file, path)
        if content.startswith(b"PK"):
            with (
                zipfile.ZipFile(io.BytesIO(content)) as archive,
                archive.open(_only_document(archive, path)) as file,
            ):
                return _read_bounded(file, path)
    except (OSError, *_UNPACKING_ERRORS) as error:
        raise ValueError(
            f"{path} cannot be unpacked ({reason(error, 120)}): expected a whole gzip or zip "
            "file without a password; fetch it again."
        ) from error
    return content


def _only_document(archive: zipfile.ZipFile, path: str) -> str:
    documents = [
        name
        for name in archive.namelist()
        if name.endswith(".json") and not name.startswith("__MACOSX/")
    ]
    if len(documents) != 1:
        names = ", ".join(documents[:5]) or "none"
        raise ValueError(
            f"{path} holds {len(documents)} files named *.json ({names}): expected exactly one; "
            "unpack it and name the file."
        )
    return documents[0]


def _decode(content: bytes, path: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text (0x{content[error.start]:02x} at byte {error.start:,}): "
            "expected a JSON document, plain, gzipped or zipped."
        ) from error


# === Lines ===


def read_lines(path: str, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yields the number, from 1, and the text of each line of a file, without the line's end.

    ``path`` is a plain or gzip file on any TensorFlow file system, or ``ARCHIVE.zip/MEMBER``;
    ``encoding`` one in which ASCII is ASCII. A byte order mark of UTF-8 is dropped.
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
                    "file as UTF-8, or name its encoding: finetune, predict and export take "
                    "--encoding, such as cp1252 (Windows) or latin-1."
                ) from error
            _check_encoding(path, block, encoding)
            if not before:
                text = text.removeprefix("\ufeff")
            lines = text.split("\n")
            for number, line_text in enumerate(lines, start=before + 1):
                yield number, line_text.removesuffix("\r")
            before += len(lines)


def _check_encoding(path: str, block: bytes, encoding: str) -> None:
    """Refuses UTF-8 read as latin-1 or another encoding in which each byte is a character."""
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
    """Yields the file in pieces of whole lines, each without the end of its last line."""
    pieces: list[bytes] = []
    is_one_line = True
    size = before = 0
    while chunk := file.read(_CHUNK_BYTES):
        whole, newline, rest = chunk.rpartition(b"\n")
        if newline:
            yield b"".join([*pieces, whole])
            pieces, size = [], 0
            is_one_line = False
            before += chunk.count(b"\n")
        pieces.append(rest)
        size += len(rest)
        check_line(size, path, f"line {before + 1:,}")
    last = b"".join(pieces)
    if is_one_line and b"\r" in last[:-1]:
        raise ValueError(
            f"{path}: expected lines that end with a line feed, got only single carriage returns "
            "(as old Macs wrote them): save it with the line ends of Unix or Windows."
        )
    if last:
        yield last


@contextlib.contextmanager
def _open(path: str) -> Iterator[IO[bytes]]:
    stem, mark, member = path.partition(_ARCHIVE_MARK)
    archive = stem + mark.rstrip("/")
    if mark and not paths.is_folder(archive):
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
    try:
        with _open_archive(archive) as opened:
            if member not in opened.namelist():
                names = listed(name for name in opened.namelist() if not name.endswith("/"))
                raise ValueError(f"{archive} holds no {member!r}: expected one of {names}.")
            with opened.open(member) as stream:
                yield stream
    except _UNPACKING_ERRORS as error:
        raise ValueError(
            f"{archive} cannot be unpacked ({reason(error, 120)}): expected a whole zip file "
            "without a password; fetch it again."
        ) from error


def _open_archive(path: str) -> zipfile.ZipFile:
    if "://" not in path:
        return zipfile.ZipFile(path)
    # From memory: a GFile seeks otherwise than zipfile expects it of a file that is no archive.
    return zipfile.ZipFile(io.BytesIO(_read_bytes(path)))


def _first_member(archive: str) -> str:
    with contextlib.suppress(zipfile.BadZipFile), _open_archive(archive) as opened:
        for name in opened.namelist():
            if not name.endswith("/"):
                return name
    return "MEMBER"


def _check_is_file(path: str, what: str) -> None:
    paths.check_readable(path)
    if not paths.is_file(path):
        raise ValueError(paths.file(path, what))
