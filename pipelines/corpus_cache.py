"""Texts that are written to a corpus' cache folder, and whether there is space for them."""

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from typing import IO, Any

import tensorflow as tf

from bert_tf.files import replace_whole
from bert_tf.paths import local_path
from bert_tf.untrusted import listed, parse_json

from . import corpus_files
from .text_bytes import split_lines

_CHUNK = 1 << 22


def digest(*parts: object) -> str:
    """Returns 24 hexadecimal digits that stand for the parts' ``repr``."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def check_space(cache_dir: str, needed: int, what: str) -> None:
    """Checks that the cache's disk has ``needed`` bytes free; object stores cannot tell."""
    folder = local_path(cache_dir)
    if folder is None or not needed:
        return
    os.makedirs(folder, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ValueError(
            f"The cache folder {cache_dir} needs about {needed / 1e6:,.0f} MB for {what} and has "
            f"{free / 1e6:,.0f} MB free: free some space or choose another cache folder."
        )


def json_texts(stream: IO[bytes], path: str, text_key: str) -> Iterator[str]:
    """Yields the text of each line of JSON; ``path`` names the file in errors."""
    for number, (offset, _, line) in enumerate(split_lines(stream, path), 1):
        corpus_files.check_utf8(line, path, offset)
        if not line.strip():
            continue
        try:
            value = parse_json(line, f"{path}:{number}")
        except ValueError as error:
            raise ValueError(
                f'{error} Every line must be one object such as {{"{text_key}": "..."}}.'
            ) from error
        text = value.get(text_key) if isinstance(value, dict) else None
        if not isinstance(text, str):
            found = f"the keys {listed(value)}" if isinstance(value, dict) else "no object"
            raise ValueError(
                f"{path}:{number} has no string under {text_key!r} but {found}: rename the key "
                "that holds the text, or in Python give open_corpus its text_key."
            )
        yield text


def paragraphs(texts: Iterable[str]) -> Iterator[bytes]:
    """Yields texts in the format ``paragraphs``, megabytes at a time; blank ones are left out."""
    pending: list[bytes] = []
    size = 0
    for text in texts:
        lines = [line.strip() for line in text.splitlines()]
        document = "\n".join(line for line in lines if line)
        if document:
            # JSON can spell halves of surrogate pairs, which UTF-8 cannot.
            pending.append(document.encode("utf-8", "replace") + b"\n\n")
            size += len(pending[-1])
        if size >= _CHUNK:
            yield b"".join(pending)
            pending, size = [], 0
    if pending:
        yield b"".join(pending)


def write_documents(path: str, blocks: Iterable[tf.RaggedTensor]) -> list[int]:
    """Writes ragged (documents, sentences) blocks in the format ``google``: the bytes of each."""
    lengths = []
    with replace_whole(path) as file:
        for block in blocks:
            documents = tf.strings.reduce_join(block, axis=-1, separator="\n").numpy()
            # The blank line comes first: a block that began with a byte order mark would lose it.
            text = b"".join(b"\n" + document + b"\n" for document in documents)
            file.write(text)
            lengths.append(len(text))
    return lengths


def tfds_texts(examples: Iterable[dict[str, Any]], text_key: str, name: str) -> Iterator[str]:
    """Yields the text of each of a dataset's NumPy examples; ``name`` is for errors."""
    for index, example in enumerate(examples):
        try:
            yield example[text_key].decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"Example {index} of {name} is not UTF-8: invalid byte "
                f"0x{error.object[error.start]:02x} at byte offset {error.start} of {text_key!r}."
            ) from error
