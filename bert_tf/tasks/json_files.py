"""JSON documents as data sets are published: plain, gzipped, or alone in a zip archive."""

import gzip
import io
import zipfile
import zlib
from typing import Any

from bert_tf.untrusted import parse_json, reason

# SQuAD's largest file has 42 MB, Natural Questions' simplified dev set 1 GB as JSON lines. What is
# larger is no document to hold in memory whole, or an archive made to fill it.
_MAX_BYTES = 1 << 30


def read_json_document(path: str) -> Any:
    """Reads a file that holds one JSON document, plain, gzipped or zipped.

    Which of the three it is, its first bytes tell, whatever the name. The text is UTF-8, with or
    without a byte order mark.

    Args:
        path: a local file, or with ``://`` one on any TensorFlow file system. A zip archive holds
            exactly one file whose name ends in ``.json``; folders, other files and what macOS adds
            (``__MACOSX/``) do not count.

    Returns:
        The document: a dict, a list, a str, a number, a bool or None.

    Raises:
        OSError: the file cannot be read; a ``FileNotFoundError`` where there is none.
        ValueError: the file is empty, broken, no JSON, an archive of none or several documents, or
            larger than 1 GiB when unpacked.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "answers.json.gz")
    >>> with gzip.open(path, "wt") as file:
    ...     _ = file.write('{"id": ["an answer"]}')
    >>> read_json_document(path)
    {'id': ['an answer']}
    """
    text = _decode(_unpack(_read_bytes(path), path), path)
    if not text.strip():
        raise ValueError(f"{path} is empty: expected a JSON document.")
    try:
        return parse_json(text, path)
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
    try:
        with open(path, "rb") as file:
            return _read_bounded(file, path)
    except OSError as error:
        raise type(error)(f"{path} cannot be read: {error.strerror}.") from error


def _read_bounded(file: Any, path: str) -> bytes:
    content: bytes = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(
            f"{path} holds more than {_MAX_BYTES:,} bytes: expected a JSON document that fits into "
            "memory; split it."
        )
    return content


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
    # zipfile speaks of an encrypted member by RuntimeError, of a compression that it does not
    # know by NotImplementedError.
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
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
