"""What a corpus keeps in its cache folder: its index, and texts rewritten once in a plain form.

Large gzip files, JSON lines and TensorFlow Datasets cannot be read from the middle; they are
written once as plain text, of which blocks are ranges. The index holds the blocks and what the
documents in them are: counting reads and parses the whole corpus once, by the code that training
reads it with. A file's name holds a key of what it was made from, an index' also of everything that
decides how text is parsed. Every file appears under its name only when it is whole.
"""

import hashlib
import io
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np
import tensorflow as tf

from bert_tf.files import replace_whole
from bert_tf.untrusted import listed, parse_json

from . import corpus, corpus_files, corpus_formats
from .corpus import DocumentTable

_CHUNK = 1 << 22
# How much longer text is than its gzip file, for asking for space: seldom more.
_GZIP_RATIO = 4


def digest(*parts: object) -> str:
    """Returns 24 hexadecimal digits that stand for the parts' ``repr``."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def check_space(cache_dir: str, needed: int, what: str) -> None:
    """Checks that the cache's disk has ``needed`` bytes free; remote file systems are not asked."""
    if "://" in cache_dir or not needed:
        return
    tf.io.gfile.makedirs(cache_dir)
    free = shutil.disk_usage(cache_dir).free
    if free < needed:
        raise ValueError(
            f"The cache folder {cache_dir} needs about {needed / 1e6:,.0f} MB for {what} and has "
            f"{free / 1e6:,.0f} MB free: free some space or choose another cache folder."
        )


class RewrittenFile:
    """A source file that has to be rewritten as plain text, in the cache folder."""

    def __init__(
        self,
        source: corpus_files.SourceFile,
        scanned: corpus_files.ScannedFile,
        cache_dir: str,
        text_key: str,
    ) -> None:
        self.source = source
        self._text_key = text_key
        self._is_jsonl = scanned.text_format == corpus_formats.JSONL
        self._is_gzip = scanned.is_gzip
        self.text_format = corpus_formats.PARAGRAPHS if self._is_jsonl else scanned.text_format
        key = digest(source, text_key if self._is_jsonl else None)
        name = os.path.basename(source.path).removesuffix(".gz")
        self.path = os.path.join(cache_dir, f"{name}-{key}.txt")

    def is_written(self) -> bool:
        """Whether an earlier run has written the plain text."""
        return bool(tf.io.gfile.exists(self.path))

    def space(self) -> int:
        """Returns about how many bytes the plain text will have."""
        return self.source.size * (_GZIP_RATIO if self._is_gzip else 1)

    def write(self) -> None:
        """Writes the plain text."""
        with corpus_files.open_text(self.source.path) as stream:
            if self._is_jsonl:
                write_paragraphs(self.path, json_texts(stream, self.source.path, self._text_key))
            else:
                with replace_whole(self.path) as file:
                    shutil.copyfileobj(stream, file, _CHUNK)


def json_texts(stream: IO[bytes], path: str, text_key: str) -> Iterator[str]:
    """Yields the text of each line of JSON; ``path`` names the file in errors."""
    for number, (offset, line) in enumerate(_numbered_lines(stream), 1):
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
                f"{path}:{number} has no string under {text_key!r} but {found}: name the key that "
                "holds the text."
            )
        yield text


def _numbered_lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields the byte offset and the bytes of each line, without its line break."""
    offset = 0
    rest = b""
    while chunk := stream.read(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield offset, line
            offset += len(line) + 1
    if rest:
        yield offset, rest


def write_paragraphs(
    path: str, texts: Iterable[str], progress: Callable[[int], None] | None = None
) -> None:
    """Writes texts in the format ``paragraphs``: each a document, its lines the paragraphs.

    Texts of white space are left out. ``progress`` is told the number of texts done.
    """
    with replace_whole(path) as file:
        pending: list[bytes] = []
        size = 0
        for number, text in enumerate(texts, 1):
            lines = [line.strip() for line in text.splitlines()]
            document = "\n".join(line for line in lines if line)
            if document:
                # JSON can spell halves of surrogate pairs, which UTF-8 cannot.
                pending.append(document.encode("utf-8", "replace") + b"\n\n")
                size += len(pending[-1])
            if size >= _CHUNK:
                file.write(b"".join(pending))
                pending, size = [], 0
                if progress:
                    progress(number)
        file.write(b"".join(pending))


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


# To be raised when blocks or counts come out differently for another reason than the patterns.
_VERSION = 1


def index_path(cache_dir: str, *parts: object) -> str:
    """Returns where the index is kept of what ``parts`` describe, parsed as this version parses."""
    key = digest(_VERSION, corpus_formats.PATTERNS, *parts)
    return os.path.join(cache_dir, f"index-{key}.npz")


def save_index(
    path: str,
    formats: str,
    blocks: corpus.FileBlocks,
    table: DocumentTable,
    samples: Sequence[str] = (),
) -> None:
    """Writes an index, whole or not at all; ``samples`` are the inputs' ``sample_files``."""
    arrays = {
        "samples": np.asarray(samples, np.str_),
        "formats": np.asarray(formats),
        **{f"blocks/{name}": np.asarray(value) for name, value in vars(blocks).items()},
        **{f"table/{name}": value for name, value in vars(table).items()},
    }
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    with replace_whole(path) as file:
        file.write(buffer.getvalue())


def load_index(
    path: str, samples: Sequence[str] = ()
) -> tuple[str, corpus.FileBlocks, DocumentTable] | None:
    """Reads an index: what ``save_index`` was given, but for the samples.

    None where there is no index at ``path``, it is damaged, its samples are others, or a file that
    it refers to is gone or has another size. Earlier releases wrote no samples: none are compared
    then.
    """
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path, "rb") as file:
        data = io.BytesIO(file.read())
    try:
        with np.load(data, allow_pickle=False) as arrays:
            values = {name: arrays[name] for name in arrays.files}
        formats = str(values.pop("formats"))
        if values.pop("samples", np.asarray(samples)).tolist() != list(samples):
            return None
        parts: dict[str, dict[str, np.ndarray]] = {"blocks": {}, "table": {}}
        for name, value in values.items():
            part, field = name.split("/")
            parts[part][field] = value
        fields: dict[str, Any] = dict(parts["blocks"])
        for field in ("files", "file_formats"):
            fields[field] = tuple(fields[field].tolist())
        blocks = corpus.FileBlocks(**fields)
        table = DocumentTable(**parts["table"])
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile):
        return None  # cut short, or another version's: it is made anew
    for file_path, size in zip(blocks.files, blocks.file_sizes, strict=True):
        if not tf.io.gfile.exists(file_path) or tf.io.gfile.stat(file_path).length != size:
            return None
    return formats, blocks, table
