r"""Published files as text: JSON documents and lines, plain or gzip.

Nothing here loads TensorFlow for a local file: scoring one takes no such seconds.

Lines end at ``\n`` or ``\r\n`` alone: texts hold U+2028 and single returns, at which
``str.splitlines`` and TensorFlow's ``GFile.readline`` would end a line, or lose the return.
"""

import codecs
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from bert_tf import paths
from bert_tf.pipelines.text_bytes import open_text
from bert_tf.untrusted import check_line, parse_json, quote

# SQuAD's largest file has 42 MB, Natural Questions' simplified dev set 1 GB as JSON lines. What is
# larger is no document to hold in memory whole, or a file made to fill it.
_MAX_BYTES = 1 << 29
_CHUNK_BYTES = 1 << 20


def read_json_document(path: str, *, unique_keys: bool = False) -> Any:
    """Reads one JSON document from a plain or gzip file on any TensorFlow file system.

    The text is UTF-8, with or without a byte order mark, and unpacked at most 512 MiB.
    """
    with _open(path) as file:
        content = _read_bounded(file, path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text (0x{content[error.start]:02x} at byte {error.start:,}): "
            "expected a JSON document, plain or gzipped."
        ) from error
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


def _read_bounded(file: IO[bytes], path: str) -> bytes:
    # Piece by piece: a small gzip file may hold more than memory does.
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


def read_lines(path: str, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yields the number, from 1, and the text of each line of a file, without the line's end.

    ``path`` is a plain or gzip file on any TensorFlow file system; ``encoding`` one in which ASCII
    is ASCII. Byte order marks of UTF-8 that begin lines, as where files were joined, are dropped.
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
                    "file as UTF-8, or name its encoding: finetune and predict take "
                    "--encoding, such as cp1252 (Windows) or latin-1."
                ) from error
            lines = text.removeprefix("\ufeff").replace("\n\ufeff", "\n").split("\n")
            for number, line_text in enumerate(lines, start=before + 1):
                yield number, line_text.removesuffix("\r")
            before += len(lines)


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
    paths.check_file(path, "a text file")
    if path.lower().endswith(".zip"):
        raise ValueError(f"{path} is an archive: unpack it, and name the file in it.")
    with open_text(path) as file:
        yield file


def _is_utf8(text: str) -> bool:
    for encoding in () if text.isascii() else ("latin-1", "cp1252"):
        with contextlib.suppress(UnicodeError):
            return bool(text.encode(encoding).decode())
    return False


# Of texts that were read in another encoding than their own, how they are known, and what to say.
_ODD: dict[Callable[[str], object], str] = {
    _is_utf8: "seem to be UTF-8 that was read as another encoding, such as {}: leave --encoding "
    "out, or mend the file.",
    re.compile("[\x80-\x9f]").search: "hold control characters, such as {}, where cp1252 has "
    "quotes and dashes, and the tokenizer deletes them: give --encoding=cp1252 in place of "
    "latin-1, or mend a UTF-8 file.",
}


def encoding_notes(texts: Sequence[str]) -> list[str]:
    """Says that some texts seem to be read in another encoding than their own; [] where not."""
    for is_odd, what in _ODD.items():
        odd = [text for text in texts if is_odd(text)]
        if len(odd) > 2:
            word = next(filter(is_odd, odd[0].split()), odd[0])
            return [f"{len(odd):,} of {len(texts):,} examples {what.format(quote(word, 60))}"]
    return []
