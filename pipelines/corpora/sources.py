"""Corpora: text on any TensorFlow file system, as documents of sentences.

A corpus is a list of blocks of about a megabyte. ``Corpus.read_documents`` reads one of them
in-graph, so that a pipeline can take blocks in any order, by any number of threads, and start
anywhere. Opening a corpus reads it once, to check it and to count its documents; with a cache
folder the counts are kept, and opening it again reads them alone.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.choices import INPUT_FORMATS
from bert_tf.io.files import atomic_write, check_outside

from . import block_index as corpus_index
from . import files as corpus_files
from . import formats as corpus_formats
from .block_index import Progress, Reading
from .corpus import (
    Corpus,
    DocumentTable,
    FileBlocks,
    fingerprint_texts,
    join,
    make_corpus,
    memory_blocks,
)

__all__ = [
    "BLOCK_BYTES",
    "Corpus",
    "Progress",
    "copy_documents",
    "from_documents",
    "join",
    "open_corpus",
    "open_tfds",
]

#: How large a block is where the text does not decide it.
BLOCK_BYTES = 1 << 20


def open_corpus(
    input: str | Sequence[str],
    *,
    input_format: str | None = None,
    text_key: str = "text",
    cache_dir: str | None = None,
    block_bytes: int = BLOCK_BYTES,
    progress: Progress | None = None,
) -> Corpus:
    r"""Opens text files as a corpus, whose ``formats`` say what was detected.

    Plain files are read where they lie, in ranges of about ``block_bytes``; so are gzip files of up
    to two megabytes of text. Of larger gzip files and of JSON lines ``cache_dir`` takes a copy, as
    long as a gzip file, or two fifths of JSON lines. A document of more than a megabyte becomes
    several. Any number of processes can share ``cache_dir``; only the first call reads the text.

    Args:
        input: paths or globs of plain or gzip files, in a list or separated by commas, on any
            TensorFlow file system. A folder stands for all files in it and below whose names do
            not begin with ``.`` or ``_``.
        input_format: one of ``choices.INPUT_FORMATS``, for all files; None to detect each
            file's from its suffix and first lines (see ``corpus_formats.detect_format``). JSON
            lines hold a document each, under ``text_key``; its lines are paragraphs.
        text_key: the key of the text in JSON lines.
        cache_dir: a folder for packed blocks and for the index; None for none.
        block_bytes: the size of block to aim at.
        progress: called now and then, from any thread, but never from two at once.

    Raises:
        ValueError: nothing matches ``input``; the format is unknown; a file is not UTF-8 (with the
            offset of the first invalid byte), a damaged gzip file, or not of its format; no
            document is in it; packing is needed and ``cache_dir`` is None or has no space.

    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "sample.txt")
    >>> with tf.io.gfile.GFile(path, "w") as file:
    ...     file.write("It rained.\nWe stayed in.\n\nThe sun shone.\nWe went out.\n")
    >>> open_corpus(path).describe()
    '1 file, google, 2 documents, 0.0 MB, 1 block'
    """
    if input_format is not None and input_format not in INPUT_FORMATS:
        raise ValueError(
            f"Unknown corpus format {input_format!r}: expected one of {', '.join(INPUT_FORMATS)}."
        )
    if block_bytes < 1:
        raise ValueError(f"A block has at least one byte: got block_bytes {block_bytes}.")
    inputs = input.split(",") if isinstance(input, str) else input
    if cache_dir is not None:
        check_outside("cache_dir", cache_dir, inputs)
    reading = Reading(input_format, text_key, block_bytes)
    files = corpus_files.find_files(inputs)
    return _open_files(files, reading, cache_dir, progress)


def open_tfds(
    name: str,
    *,
    split: str = "train",
    text_key: str = "text",
    data_dir: str | None = None,
    cache_dir: str,
    block_bytes: int = BLOCK_BYTES,
    progress: Progress | None = None,
) -> Corpus:
    """Opens a text dataset of TensorFlow Datasets as a corpus: an example is a document.

    Its text is written once to ``cache_dir``; the dataset is downloaded if it has not been, to
    ``data_dir`` or TensorFlow Datasets' default. ``name`` is ``dataset``, ``dataset/config`` or
    ``dataset/config:version``, ``split`` may be a slice such as ``train[:10%]``, and the lines of
    the feature ``text_key`` are paragraphs; the rest is as for ``open_corpus``. What does not exist
    is a ``ValueError``.
    """
    import tensorflow_datasets as tfds  # takes seconds to import

    try:
        builder = tfds.builder(name, data_dir=data_dir)
        builder.download_and_prepare()
        info = builder.info.splits[split]
    except (KeyError, ValueError, tfds.core.DatasetNotFoundError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise ValueError(
            f"TensorFlow Datasets cannot read split {split!r} of {name!r} ({reason}): check the "
            "name, the split and the data folder."
        ) from error
    if text_key not in builder.info.features:
        raise ValueError(
            f"The dataset {name!r} has no feature {text_key!r} but "
            f"{', '.join(sorted(builder.info.features))}: name the one that holds the text."
        )
    full_name = builder.info.full_name
    key = corpus_files.digest(full_name, split, text_key, info.num_examples, info.num_bytes)
    path = os.path.join(cache_dir, f"{full_name.replace('/', '-')}-{key}.txt")
    if not tf.io.gfile.exists(path):
        corpus_files.check_space(cache_dir, info.num_bytes, f"the text of {full_name}")
        # One file after another: the documents' order must not depend on timing.
        try:
            examples = builder.as_dataset(
                split=split,
                decoders=tfds.decode.PartialDecoding({text_key: True}),
                read_config=tfds.ReadConfig(interleave_cycle_length=1),
            )
        except NotImplementedError as error:
            raise ValueError(
                f"{full_name} was prepared as {builder.info.file_format.value} files, which "
                "tf.data does not read: prepare it anew as TFRecords, tfds build "
                "--file_format=tfrecord, or name another data folder."
            ) from error
        texts = _tfds_texts(tfds.as_numpy(examples), text_key, full_name)
        with atomic_write(path) as file:
            for chunk in corpus_formats.paragraphs(texts):
                file.write(chunk)
    reading = Reading(corpus_formats.PARAGRAPHS, text_key, block_bytes)
    corpus = _open_files([corpus_files.describe_file(path)], reading, cache_dir, progress)
    return dataclasses.replace(corpus, formats=("tfds",))


def _tfds_texts(examples: Iterable[dict[str, Any]], text_key: str, name: str) -> Iterator[str]:
    """Yields the text of each of a dataset's NumPy examples; ``name`` is for errors."""
    for index, example in enumerate(examples):
        try:
            yield example[text_key].decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"Example {index} of {name} is not UTF-8: invalid byte "
                f"0x{error.object[error.start]:02x} at byte offset {error.start} of {text_key!r}."
            ) from error


def copy_documents(corpus: Corpus, cache_dir: str) -> Corpus:
    """Writes a corpus' documents to a file of their own, so that reading them reads nothing else.

    The file, in ``cache_dir``, is written once: a later call with the same documents opens it. The
    copy has as many blocks. A corpus in memory is returned as it is.
    """
    if not isinstance(corpus.blocks, FileBlocks):
        return corpus
    name = f"held-out-{corpus.fingerprint}"
    index_path = corpus_index.index_path(cache_dir, name)
    known = corpus_index.load_index(index_path)
    if known is None:
        path = os.path.join(cache_dir, f"{name}.txt")
        needed = int(corpus.bytes_per_block.sum())
        corpus_files.check_space(cache_dir, needed, "the held-out documents")
        blocks = tf.data.Dataset.range(corpus.num_blocks)
        read = blocks.map(
            tf.autograph.experimental.do_not_convert(corpus.read_documents), tf.data.AUTOTUNE
        )
        sizes = _write_documents(path, iter(read))
        table = DocumentTable(
            np.concatenate([[0], np.cumsum(corpus.documents_per_block, dtype=np.int64)]),
            corpus.table.num_bytes[corpus.is_member],
            corpus.table.fingerprints[corpus.is_member],
        )
        written = FileBlocks.from_file(path, corpus_formats.GOOGLE, False, sizes, sizes)
        known = make_corpus(corpus.formats, written, table)
        corpus_index.save_index(index_path, known)
    return known


def _write_documents(path: str, blocks: Iterable[tf.RaggedTensor]) -> list[int]:
    """Writes ragged (documents, sentences) blocks in the format ``google``: the bytes of each."""
    lengths = []
    with atomic_write(path) as file:
        for block in blocks:
            documents = tf.strings.reduce_join(block, axis=-1, separator="\n").numpy()
            # The blank line comes first: a block that began with a byte order mark would lose it.
            text = b"".join(b"\n" + document + b"\n" for document in documents)
            file.write(text)
            lengths.append(len(text))
    return lengths


def from_documents(documents: Sequence[Sequence[str]], *, block_bytes: int = BLOCK_BYTES) -> Corpus:
    """Makes a corpus of documents in memory, each a list of sentences.

    Blank sentences, and documents of none but such, are left out. A ``ValueError``: a document is a
    string and not a list of them, or no document has a sentence.

    >>> from_documents([["One.", "Two."], ["Three."]]).documents_per_block
    array([2])
    """
    cleaned = []
    for index, document in enumerate(documents):
        if isinstance(document, str | bytes):
            raise ValueError(
                f"Document {index} is a string: expected a list of sentences, each a string."
            )
        sentences = [sentence.strip().encode() for sentence in document]
        cleaned.append([sentence for sentence in sentences if sentence])
    cleaned = [document for document in cleaned if document]
    if not cleaned:
        raise ValueError(
            f"None of the {len(documents)} documents has a sentence: expected lists of strings."
        )
    blocks = memory_blocks(cleaned, block_bytes)
    texts = [b"\n".join(document) for document in cleaned]
    sizes = np.array([*map(len, texts)], np.int32)
    table = DocumentTable(blocks.block_splits, sizes, fingerprint_texts(tf.constant(texts)).numpy())
    return make_corpus((), blocks, table)


def _open_files(
    files: Sequence[corpus_files.SourceFile],
    reading: Reading,
    cache_dir: str | None,
    progress: Progress | None,
) -> Corpus:
    """Opens found files: see ``open_corpus``."""
    corpus = corpus_index.open_index(files, reading, cache_dir, progress)
    if not corpus.num_documents:
        names = files[0].path + (f" and {len(files) - 1} more" if len(files) > 1 else "")
        raise ValueError(
            f"There is no document in {names}, read as {', '.join(corpus.formats)}: nothing is "
            "left but white space and markup; give other files or another format."
        )
    return corpus
