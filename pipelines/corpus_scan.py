"""Recognising a corpus' files, checking their bytes, and cutting large ones into ranges.

This runs in Python, once per file; what it finds is kept in the corpus' index.
"""

import codecs
import dataclasses

import tensorflow as tf

from . import corpus_files, corpus_formats

#: A document longer than this is cut, at a paragraph or sentence where there is one, into several:
#: what is in memory at one time must not depend on the corpus.
MAX_DOCUMENT_BYTES = 1 << 20

_HEAD_BYTES = 1 << 16
_BLANK_LINES = (b"\n\n", b"\n\r\n")


@dataclasses.dataclass(frozen=True)
class ScannedFile:
    """What is known of a file before its documents are counted.

    Attributes:
        path: the file to read.
        size: bytes, as it lies on the disk.
        text_format: ``corpus_formats.parse`` takes it, except ``jsonl``.
        is_gzip: whether ``path`` is compressed.
        ranges: (offset, length) of each block, in bytes of text; None where the file can only be
            read after a rewriting (JSON lines, and gzip files that are large or of unusual form).
    """

    path: str
    size: int
    text_format: str
    is_gzip: bool
    ranges: tuple[tuple[int, int], ...] | None


def check_utf8(text: bytes, path: str, offset: int) -> None:
    """Checks a part of a file's text.

    Args:
        text: whole characters.
        path: the file, for the message.
        offset: where in the file's text ``text`` begins, for the message.

    Raises:
        ValueError: ``text`` is not UTF-8; the message says the offset of the first invalid byte.
    """
    try:
        codecs.utf_8_decode(text, "strict", True)
    except UnicodeDecodeError as error:
        position = offset + error.start
        raise ValueError(
            f"{path} is not UTF-8: invalid byte 0x{text[error.start]:02x} at byte offset "
            f"{position} ({error.reason}); convert the file, for example with iconv."
        ) from error


def scan_file(
    file: corpus_files.SourceFile, input_format: str | None, block_bytes: int
) -> ScannedFile:
    """Finds a file's format and blocks, and checks that its text is UTF-8.

    Args:
        file: as ``corpus_files.find_files`` returned it.
        input_format: one of ``corpus_formats.INPUT_FORMATS``; None to detect it.
        block_bytes: the size of block to aim at.

    Raises:
        ValueError: the text is not UTF-8, a gzip file is damaged, or a WikiExtractor file has no
            ``<doc ...>`` line.
    """
    with tf.io.gfile.GFile(file.path, "rb") as raw:
        is_gzip = corpus_files.starts_as_gzip(raw)
    with corpus_files.open_text(file.path) as stream:
        head = stream.read(_HEAD_BYTES).decode("utf-8", "ignore")
    text_format = input_format or corpus_formats.detect_format(file.path, head)
    if text_format == corpus_formats.JSONL:
        return ScannedFile(file.path, file.size, text_format, is_gzip, None)
    if not is_gzip:
        return scan_plain_file(file.path, file.path, text_format, block_bytes)
    text = corpus_files.inflate_small(file, 2 * max(block_bytes, MAX_DOCUMENT_BYTES))
    if text is None:
        return ScannedFile(file.path, file.size, text_format, is_gzip, None)
    check_utf8(text, file.path, 0)
    if text_format == corpus_formats.WIKIEXTRACTOR:
        _check_documents(_starts_document(text), file.path)
    return ScannedFile(file.path, file.size, text_format, is_gzip, ((0, len(text)),))


def scan_plain_file(path: str, source: str, text_format: str, block_bytes: int) -> ScannedFile:
    """Does what ``scan_file`` does, for a plain file of known format.

    Args:
        path: the file to cut.
        source: the file to name in messages: where ``path`` was unpacked from.
        text_format: see ``ScannedFile``.
        block_bytes: the size of block to aim at.

    Raises:
        ValueError: as ``scan_file``.
    """
    limit = max(block_bytes, MAX_DOCUMENT_BYTES)
    ranges = []
    offset = 0
    has_document = False
    buffer = b""
    with tf.io.gfile.GFile(path, "rb") as file:
        at_end = False
        while not at_end or buffer:
            while len(buffer) < limit and not at_end:
                chunk = file.read(4 * limit)
                at_end = not chunk
                buffer += chunk
            start = 0
            while len(buffer) - start >= limit or (at_end and start < len(buffer)):
                window = buffer[start : start + limit]
                whole = at_end and start + len(window) == len(buffer)
                length = find_cut(window, text_format, block_bytes, whole)
                block = window[:length]
                check_utf8(block, source, offset)
                has_document = has_document or _starts_document(block)
                ranges.append((offset, length))
                offset += length
                start += length
            buffer = buffer[start:]
    if text_format == corpus_formats.WIKIEXTRACTOR:
        _check_documents(has_document, source)
    return ScannedFile(path, offset, text_format, False, tuple(ranges))


def find_cut(window: bytes, text_format: str, block_bytes: int, is_rest: bool) -> int:
    r"""Returns the length of the next block.

    The block ends behind the last document that ends within ``block_bytes``, else behind the first
    that ends within the window. Where there is none, the document is too long: it is cut behind the
    last blank line, line, blank or character of the window.

    Args:
        window: the text from the block's start, at most as long as a block may be.
        text_format: see ``ScannedFile``; decides where documents end.
        block_bytes: the size of block to aim at.
        is_rest: whether the file ends with the window.

    >>> find_cut(b"One.\n\nTwo.\n\nThree.", "google", 13, True)
    12
    >>> find_cut(b"One.\n\nTwo.\n\nThree.", "prose", 13, True)
    18
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


def _starts_document(text: bytes) -> bool:
    return text.removeprefix(codecs.BOM_UTF8).startswith(b"<doc ") or b"\n<doc " in text


def _check_documents(found: bool, path: str) -> None:
    if not found:
        raise ValueError(
            f"{path} has no line that begins with '<doc ', as WikiExtractor's output has: give "
            f"its format as one of {', '.join(corpus_formats.INPUT_FORMATS)}."
        )
