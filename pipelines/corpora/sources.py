"""Opens text on any TensorFlow file system as corpora of documents.

A corpus is a list of blocks of about a megabyte. ``Corpus.read_documents`` reads one block in the
graph, so pipelines can read blocks in any order and in parallel, and start anywhere. Opening a
corpus reads the text once, to validate it and to count its documents. With a cache folder, opening
the corpus again reads only the index.
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

#: Target number of bytes per block; the actual number depends on documents and files.
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
    r"""Opens text files as a corpus, whose ``formats`` are the formats of the files.

    Plain files, and gzip files with up to two megabytes of text, are read in place, in ranges of
    about ``block_bytes``. Larger gzip files and JSON lines are copied to ``cache_dir``; the copies
    take as much space as the gzip files, or two fifths of the size of the JSON lines. Documents of
    more than a megabyte are split. Processes can share ``cache_dir``; only the first call reads the
    text.

    Args:
        input: Paths, globs or folders of plain or gzip files, in a list or with commas, on any
            TensorFlow file system. Folders are searched recursively; names that begin with ``.`` or
            ``_`` are skipped.
        input_format: One of ``choices.INPUT_FORMATS``, for all files; ``None`` detects the format
            of each file from its suffix and first lines (see ``corpus_formats.detect_format``).
        text_key: Key of the text in JSON lines. A JSON line is a document, and the lines of its
            text are paragraphs.
        cache_dir: Folder for the index and packed blocks, or ``None``.
        block_bytes: Target size of blocks.
        progress: Function to call with the numbers of processed and total bytes, from any thread,
            but never concurrently.

    Returns:
        The ``Corpus``.

    Raises:
        ValueError: If no file matches, a file is damaged, not UTF-8 or not of its format, there are
            no documents, or a cache folder is missing or full.

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
        raise ValueError(f"block_bytes={block_bytes}: expected at least 1.")
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
    """Opens a text dataset of TensorFlow Datasets as a corpus, with one document per example.

    Downloads the dataset if needed, and writes its text once to ``cache_dir``.

    Args:
        name: ``dataset``, ``dataset/config`` or ``dataset/config:version``.
        split: Split, or a slice such as ``train[:10%]``.
        text_key: Feature with the text; its lines are paragraphs.
        data_dir: Folder of the datasets; by default the folder that TensorFlow Datasets uses.
        cache_dir: Folder for the text and its index.
        block_bytes: See ``open_corpus``.
        progress: See ``open_corpus``.

    Returns:
        The ``Corpus``.

    Raises:
        ValueError: If the dataset, split or feature does not exist.
    """
    import tensorflow_datasets as tfds  # takes seconds to import

    try:
        builder = tfds.builder(name, data_dir=data_dir)
        builder.download_and_prepare()
        info = builder.info.splits[split]
    except (KeyError, ValueError, tfds.core.DatasetNotFoundError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise ValueError(
            f"TensorFlow Datasets cannot read split {split!r} of {name!r} ({reason}). Check the "
            "name, the split and the data folder."
        ) from error
    if text_key not in builder.info.features:
        raise ValueError(
            f"The dataset {name!r} has no feature {text_key!r}. Use one of "
            f"{', '.join(sorted(builder.info.features))}."
        )
    full_name = builder.info.full_name
    key = corpus_files.digest(full_name, split, text_key, info.num_examples, info.num_bytes)
    path = os.path.join(cache_dir, f"{full_name.replace('/', '-')}-{key}.txt")
    if not tf.io.gfile.exists(path):
        corpus_files.check_space(cache_dir, info.num_bytes, f"the text of {full_name}")
        # Files are read sequentially, so that the order of documents does not depend on timing.
        try:
            examples = builder.as_dataset(
                split=split,
                decoders=tfds.decode.PartialDecoding({text_key: True}),
                read_config=tfds.ReadConfig(interleave_cycle_length=1),
            )
        except NotImplementedError as error:
            raise ValueError(
                f"tf.data cannot read {full_name}, which was prepared as "
                f"{builder.info.file_format.value} files. Prepare it with tfds build "
                "--file_format=tfrecord, or use another data folder."
            ) from error
        texts = _tfds_texts(tfds.as_numpy(examples), text_key, full_name)
        with atomic_write(path) as file:
            for chunk in corpus_formats.paragraphs(texts):
                file.write(chunk)
    reading = Reading(corpus_formats.PARAGRAPHS, text_key, block_bytes)
    corpus = _open_files([corpus_files.describe_file(path)], reading, cache_dir, progress)
    return dataclasses.replace(corpus, formats=("tfds",))


def _tfds_texts(examples: Iterable[dict[str, Any]], text_key: str, name: str) -> Iterator[str]:
    """Yields the text of each NumPy example; errors name the dataset."""
    for index, example in enumerate(examples):
        try:
            yield example[text_key].decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"Example {index} of {name} is not UTF-8: invalid byte "
                f"0x{error.object[error.start]:02x} at byte offset {error.start} of {text_key!r}."
            ) from error


def copy_documents(corpus: Corpus, cache_dir: str) -> Corpus:
    """Copies the documents of a subset to a separate file, which is faster to read.

    The file is written to ``cache_dir`` once per set of documents, and has the same blocks. A
    corpus in memory is returned unchanged.
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
        ends = np.cumsum(corpus.documents_per_block)[:-1]
        columns = (
            np.split(column[corpus.is_member], ends)
            for column in (corpus.table.num_bytes, corpus.table.fingerprints)
        )
        parts = zip(sizes, sizes, *columns, strict=True)
        written = [corpus_index.Block(*part) for part in parts]
        known = corpus_index.index_file(path, corpus.formats, corpus_formats.GOOGLE, False, written)
        corpus_index.save_index(index_path, known)
    return known


def _write_documents(path: str, blocks: Iterable[tf.RaggedTensor]) -> list[int]:
    """Writes ragged (documents, sentences) blocks as ``google``; returns their sizes in bytes."""
    lengths = []
    with atomic_write(path) as file:
        for block in blocks:
            documents = tf.strings.reduce_join(block, axis=-1, separator="\n").numpy()
            # A leading blank line protects a byte order mark at the start of a document.
            text = b"".join(b"\n" + document + b"\n" for document in documents)
            file.write(text)
            lengths.append(len(text))
    return lengths


def from_documents(documents: Sequence[Sequence[str]], *, block_bytes: int = BLOCK_BYTES) -> Corpus:
    """Creates a corpus in memory from documents, without blank sentences and empty documents.

    Args:
        documents: Lists of sentences.
        block_bytes: Target size of blocks.

    Returns:
        The ``Corpus``.

    Raises:
        ValueError: If a document is a string, or there are no sentences.

    >>> from_documents([["One.", "Two."], ["Three."]]).documents_per_block
    array([2])
    """
    cleaned = []
    for index, document in enumerate(documents):
        if isinstance(document, str | bytes):
            raise ValueError(f"documents[{index}]: expected a list of sentences, got a string.")
        sentences = [sentence.strip().encode() for sentence in document]
        cleaned.append([sentence for sentence in sentences if sentence])
    cleaned = [document for document in cleaned if document]
    if not cleaned:
        raise ValueError(
            f"Expected lists of sentences, got {len(documents)} documents without sentences."
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
    """Opens files; see ``open_corpus``."""
    corpus = corpus_index.open_index(files, reading, cache_dir, progress)
    if not corpus.num_documents:
        names = files[0].path + (f" and {len(files) - 1} more" if len(files) > 1 else "")
        raise ValueError(
            f"No documents in {names}, read as {', '.join(corpus.formats)}: they only contain "
            "whitespace and markup. Use other files or another --input_format."
        )
    return corpus
