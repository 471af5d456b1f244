"""Corpora: text on any TensorFlow file system, as documents of sentences.

A corpus is a list of blocks of about a megabyte. ``Corpus.read_documents`` reads one of them
in-graph, so that a pipeline can take blocks in any order, by any number of threads, and start
anywhere. Opening a corpus reads it once, to check it and to count its documents; with a cache
folder the counts are kept, and opening it again is quick.
"""

import concurrent.futures
import functools
import os
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.choices import INPUT_FORMATS

from . import corpus_cache, corpus_files, corpus_formats
from .corpus import Blocks, Corpus, DocumentTable, count_documents, file_blocks, memory_blocks

__all__ = [
    "BLOCK_BYTES",
    "Corpus",
    "Progress",
    "copy_documents",
    "from_documents",
    "open_corpus",
    "open_tfds",
]

#: Called now and then with the bytes done and the bytes in all.
Progress = Callable[[int, int], None]

#: How large a block is where the text does not decide it.
BLOCK_BYTES = 1 << 20

# Scanning waits for file systems and for zlib, neither of which holds Python's lock.
_NUM_THREADS = 16


def open_corpus(
    input: str | Sequence[str],
    *,
    input_format: str | None = None,
    text_key: str = "text",
    cache_dir: str | None = None,
    block_bytes: int = BLOCK_BYTES,
    progress: Progress | None = None,
) -> Corpus:
    r"""Opens text files as a corpus.

    Plain files are read where they lie, in ranges of about ``block_bytes``; so are gzip files of up
    to two megabytes of text. Larger gzip files and JSON lines are rewritten once as plain text in
    ``cache_dir``. A document of more than a megabyte becomes several.

    Args:
        input: paths or globs of plain or gzip files, in a list or separated by commas, on any
            TensorFlow file system. A folder stands for all files in it and below whose names do
            not begin with ``.`` or ``_``.
        input_format: one of ``choices.INPUT_FORMATS``, for all files; None to detect each
            file's from its suffix and first lines (see ``corpus_formats.detect_format``). JSON
            lines hold a document each, under ``text_key``; its lines are paragraphs.
        text_key: the key of the text in JSON lines.
        cache_dir: a folder for rewritten files and for the index; None for none.
        block_bytes: the size of block to aim at.
        progress: called now and then.

    Returns:
        The corpus, whose ``input_format`` says what was detected.

    Raises:
        ValueError: nothing matches ``input``; the format is unknown; a file is not UTF-8 (with the
            offset of the first invalid byte), a damaged gzip file, or not of its format; no
            document is in it; rewriting is needed and ``cache_dir`` is None or has no space.

    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "sample.txt")
    >>> with tf.io.gfile.GFile(path, "w") as file:
    ...     file.write("It rained.\nWe stayed in.\n\nThe sun shone.\nWe went out.\n")
    >>> open_corpus(path).describe()
    '1 file, google, 2 documents, 4 sentences, 1 block'
    """
    if input_format is not None and input_format not in INPUT_FORMATS:
        raise ValueError(
            f"Unknown corpus format {input_format!r}: expected one of {', '.join(INPUT_FORMATS)}."
        )
    if block_bytes < 1:
        raise ValueError(f"A block has at least one byte: got block_bytes {block_bytes}.")
    return _open_files(
        corpus_files.find_files(input), input_format, text_key, cache_dir, block_bytes, progress
    )


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

    Its text is written once to ``cache_dir``. The dataset is downloaded if it has not been, to
    ``data_dir`` or TensorFlow Datasets' default. ``name`` is ``dataset``, ``dataset/config`` or
    ``dataset/config:version``, ``split`` may be a slice such as ``train[:10%]``, and the lines of
    the feature ``text_key`` are paragraphs; the rest is as for ``open_corpus``. A dataset, split or
    feature that does not exist is a ``ValueError``.
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
    key = corpus_cache.digest(full_name, split, text_key, info.num_examples, info.num_bytes)
    path = os.path.join(cache_dir, f"{full_name.replace('/', '-')}-{key}.txt")
    if not tf.io.gfile.exists(path):
        corpus_cache.check_space(cache_dir, info.num_bytes, f"the text of {full_name}")
        # One file after another: the documents' order must not depend on timing.
        examples = builder.as_dataset(
            split=split,
            decoders=tfds.decode.PartialDecoding({text_key: True}),
            read_config=tfds.ReadConfig(interleave_cycle_length=1),
        )
        corpus_cache.write_paragraphs(
            path, corpus_cache.tfds_texts(tfds.as_numpy(examples), text_key, full_name)
        )
    return _open_files(
        [corpus_files.describe_file(path)],
        corpus_formats.PARAGRAPHS,
        text_key,
        cache_dir,
        block_bytes,
        progress,
        label="tfds",
    )


def copy_documents(corpus: Corpus, cache_dir: str) -> Corpus:
    """Writes a corpus' documents to a file of their own, so that reading them reads nothing else.

    The file, in ``cache_dir``, is written once: a later call with the same documents opens it. The
    copy has as many blocks. A corpus in memory with a line break in a sentence is returned as it
    is.

    >>> import tempfile
    >>> documents = [[f"This is {i}.", "It ends."] for i in range(300)]
    >>> _, held_out = from_documents(documents, block_bytes=100).split_held_out()
    >>> copy = copy_documents(held_out, tempfile.mkdtemp())
    >>> list(copy.sentences()) == list(held_out.sentences())
    True
    """
    name = f"held-out-{corpus.fingerprint}"
    index_path = corpus_cache.index_path(cache_dir, name)
    known = corpus_cache.load_index(index_path)
    if known is None:
        path = os.path.join(cache_dir, f"{name}.txt")
        needed = int(corpus.bytes_per_block.sum())
        corpus_cache.check_space(cache_dir, needed, "the held-out documents")
        read = tf.data.Dataset.range(corpus.num_blocks).map(corpus.read_documents, tf.data.AUTOTUNE)
        lengths = corpus_cache.write_documents(path, iter(read))
        block = corpus_files.ScannedFile(
            path,
            sum(lengths),
            corpus_formats.GOOGLE,
            is_gzip=False,
            ranges=tuple(zip(np.cumsum([0, *lengths[:-1]]), lengths, strict=True)),
        )
        blocks = file_blocks([block])
        known = corpus.input_format, blocks, count_documents(blocks)
        corpus_cache.save_index(index_path, *known)
    input_format, blocks, table = known
    copy = _corpus(input_format, corpus.num_files, blocks, table)
    return copy if copy.fingerprint == corpus.fingerprint else corpus


def from_documents(documents: Sequence[Sequence[str]], *, block_bytes: int = BLOCK_BYTES) -> Corpus:
    """Makes a corpus of documents in memory.

    Args:
        documents: each a list of sentences; blank sentences, and documents of none but such, are
            left out.
        block_bytes: the size of block to aim at.

    Returns:
        The corpus. A graph that reads it holds all of its text (2 GB at most).

    Raises:
        ValueError: a document is a string and not a list of them, or no document has a sentence.

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
    return _corpus("memory", 0, blocks, count_documents(blocks))


def _corpus(input_format: str, num_files: int, blocks: Blocks, table: DocumentTable) -> Corpus:
    kept = np.ones(len(table.num_sentences), bool)
    return Corpus(input_format, num_files, blocks, table, kept)


def _open_files(
    sources: Sequence[corpus_files.SourceFile],
    input_format: str | None,
    text_key: str,
    cache_dir: str | None,
    block_bytes: int,
    progress: Progress | None,
    label: str | None = None,
) -> Corpus:
    """Opens found files: see ``open_corpus``. ``label`` is shown in place of their format."""
    index_path: str | None = None
    samples: list[str] = []
    if cache_dir is not None:
        samples = corpus_files.sample_files([file.path for file in sources])
        parts = (sources, input_format, text_key, block_bytes, corpus_files.MAX_DOCUMENT_BYTES)
        index_path = corpus_cache.index_path(cache_dir, *parts)
        if known := corpus_cache.load_index(index_path, samples):
            known_formats, blocks, table = known
            return _corpus(label or known_formats, len(sources), blocks, table)
    # Every byte is gone through twice: scanned, then counted.
    total = sum(file.size for file in sources)

    def report(share: float) -> None:
        if progress:
            progress(int(share * total), total)

    scan = functools.partial(_scan, input_format=input_format, block_bytes=block_bytes)
    with concurrent.futures.ThreadPoolExecutor(_NUM_THREADS) as pool:
        scanned = []
        done = 0
        for source, file in zip(sources, pool.map(scan, sources), strict=True):
            done += source.size
            report(done / total / 2)
            scanned.append(file)
        formats = ", ".join(sorted({file.text_format for file in scanned}))
        scanned = _rewrite(pool, sources, scanned, text_key, cache_dir, block_bytes)
    blocks = file_blocks(scanned)
    table = count_documents(blocks, lambda share: report((1 + share) / 2))
    if not len(table.num_sentences):
        names = sources[0].path + (f" and {len(sources) - 1} more" if len(sources) > 1 else "")
        raise ValueError(
            f"There is no document in {names}, read as {label or formats}: nothing is left but "
            "white space and markup; give other files or another format."
        )
    if index_path is not None:
        corpus_cache.save_index(index_path, formats, blocks, table, samples)
    return _corpus(label or formats, len(sources), blocks, table)


def _scan(
    source: corpus_files.SourceFile, input_format: str | None, block_bytes: int
) -> corpus_files.ScannedFile:
    """Scans a file as the user named it; one that was written to the cache is scanned likewise."""
    if input_format == corpus_formats.PARAGRAPHS:
        return corpus_files.scan_plain_file(source.path, source.path, input_format, block_bytes)
    return corpus_files.scan_file(source, input_format, block_bytes)


def _rewrite(
    pool: concurrent.futures.Executor,
    sources: Sequence[corpus_files.SourceFile],
    scanned: Sequence[corpus_files.ScannedFile],
    text_key: str,
    cache_dir: str | None,
    block_bytes: int,
) -> list[corpus_files.ScannedFile]:
    """Puts plain files in the cache in place of those that cannot be read from the middle."""
    waiting = [file for file in scanned if file.ranges is None]
    if not waiting:
        return list(scanned)
    if cache_dir is None:
        raise ValueError(
            f"{waiting[0].path} has to be rewritten as plain text once, as JSON lines and large "
            "gzip files have: give a cache folder."
        )
    rewritten = {
        source.path: corpus_cache.RewrittenFile(source, file, cache_dir, text_key)
        for source, file in zip(sources, scanned, strict=True)
        if file.ranges is None
    }
    missing = [file for file in rewritten.values() if not file.is_written()]
    corpus_cache.check_space(
        cache_dir, sum(file.space() for file in missing), "the corpus as plain text"
    )
    list(pool.map(corpus_cache.RewrittenFile.write, missing))

    def scan(file: corpus_files.ScannedFile) -> corpus_files.ScannedFile:
        if file.ranges is not None:
            return file
        plain = rewritten[file.path]
        return corpus_files.scan_plain_file(plain.path, file.path, plain.text_format, block_bytes)

    return list(pool.map(scan, scanned))
