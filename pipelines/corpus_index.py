"""The index of a corpus: its blocks, and what each document in them is.

Counting reads and parses the whole corpus once, by the code that training reads it with, so that
the counts are exactly what training sees. The index is kept in the cache folder under a key of the
files' names, sizes and times and of everything that decides how they are parsed.
"""

import dataclasses
import io
import os
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.files import replace_whole

from . import corpus_blocks, corpus_cache, corpus_formats

# To be raised when blocks or counts come out differently for another reason than the patterns.
_VERSION = 1

# Fingerprints are taken modulo this: they stay positive as int64.
_NUM_FINGERPRINTS = 1 << 62


@dataclasses.dataclass(frozen=True, eq=False)
class DocumentTable:
    """The documents of a corpus, block after block.

    N blocks, D documents.

    Attributes:
        block_splits: (N + 1,) int64, where each block's documents begin.
        num_sentences: (D,) int32, at least 1.
        fingerprints: (D,) int64, Fingerprint64 of each document's sentences joined by line breaks.
    """

    block_splits: np.ndarray
    num_sentences: np.ndarray
    fingerprints: np.ndarray


def fingerprint_documents(documents: tf.RaggedTensor) -> tf.Tensor:
    r"""Returns a number from 0 to 2**62 - 1 for the text of each document.

    The same on every machine and in every version (FarmHash's Fingerprint64).

    Args:
        documents: ragged (documents, sentences) strings.

    Returns:
        (documents,) int64.

    >>> documents = tf.ragged.constant([["One.", "Two."], ["One."], ["One.", "Two."]])
    >>> first, second, third = fingerprint_documents(documents).numpy().tolist()
    >>> first == third, first == second
    (True, False)
    """
    texts = tf.strings.reduce_join(documents, axis=-1, separator="\n")
    return tf.strings.to_hash_bucket_fast(texts, _NUM_FINGERPRINTS)


def count_documents(
    blocks: corpus_blocks.Blocks, progress: Callable[[float], None] | None = None
) -> DocumentTable:
    """Reads all blocks and counts what is in them.

    Args:
        blocks: of any kind.
        progress: called now and then with the share that is done, from 0 to 1.

    Returns:
        The table of the documents as ``blocks.read`` yields them.
    """

    def count(block: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        documents = blocks.read(block)
        return tf.cast(documents.row_lengths(), tf.int32), fingerprint_documents(documents)

    num_sentences, fingerprints = [], []
    counted = tf.data.Dataset.range(blocks.num_blocks).map(count, tf.data.AUTOTUNE)
    for done, (lengths, prints) in enumerate(counted.as_numpy_iterator(), 1):
        num_sentences.append(lengths)
        fingerprints.append(prints)
        if progress:
            progress(done / blocks.num_blocks)
    return DocumentTable(
        block_splits=np.cumsum([0, *map(len, num_sentences)], dtype=np.int64),
        num_sentences=np.concatenate([np.zeros(0, np.int32), *num_sentences]),
        fingerprints=np.concatenate([np.zeros(0, np.int64), *fingerprints]),
    )


def index_path(cache_dir: str, *parts: object) -> str:
    """Returns where the index is kept of what ``parts`` describe, parsed as this version parses."""
    key = corpus_cache.digest(_VERSION, corpus_formats.PATTERNS, *parts)
    return os.path.join(cache_dir, f"index-{key}.npz")


def save_index(
    path: str,
    formats: str,
    blocks: corpus_blocks.FileBlocks,
    table: DocumentTable,
    samples: Sequence[str] = (),
) -> None:
    """Writes an index, whole or not at all.

    Args:
        path: the file to write.
        formats: what the files' formats were.
        blocks: what is read.
        table: the documents of ``blocks``.
        samples: ``corpus_files.sample_files`` of the files that the user named.
    """
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
) -> tuple[str, corpus_blocks.FileBlocks, DocumentTable] | None:
    """Reads an index.

    Args:
        path: the index.
        samples: as ``save_index`` takes them; an earlier release wrote none, and none are asked.

    Returns:
        What ``save_index`` was given, but for the samples; None if there is no index at ``path``,
        if it is damaged, if its samples are others, or if a file that it refers to is gone or has
        another size.
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
        blocks = corpus_blocks.FileBlocks(**fields)
        table = DocumentTable(**parts["table"])
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile):
        return None  # cut short, or another version's: it is made anew
    for file_path, size in zip(blocks.files, blocks.file_sizes, strict=True):
        if not tf.io.gfile.exists(file_path) or tf.io.gfile.stat(file_path).length != size:
            return None
    return formats, blocks, table
