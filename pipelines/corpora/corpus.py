"""Corpora: documents of sentences, in blocks that are read in the graph."""

import collections
import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from . import formats as corpus_formats


def _input(values: Any) -> tf.Tensor:
    """Creates a tensor that graphs capture as an input, instead of as a large constant."""
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.constant(values)


@dataclasses.dataclass(frozen=True, eq=False)
class FileBlocks:
    """Blocks that are byte ranges of plain files, or gzip streams in files: F files, N blocks."""

    files: tuple[str, ...]  # (F,) paths
    file_sizes: np.ndarray  # (F,) int64
    file_is_gzip: np.ndarray  # (F,) bool, whether blocks are compressed streams
    file_formats: tuple[str, ...]  # (F,) formats for `corpus_formats.parse`
    block_files: np.ndarray  # (N,) int64, file index of each block
    offsets: np.ndarray  # (N,) int64, start of the block in its file
    stored: np.ndarray  # (N,) int64, number of bytes in the file
    lengths: np.ndarray  # (N,) int64, number of bytes of text

    @functools.cached_property
    def _tensors(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Paths, gzip flags and format indices of files, and byte ranges of blocks.

        The ranges are (N, 4) int64: file index, bytes before the block, bytes after it, and size.
        """
        formats = sorted(set(self.file_formats))
        numbers = np.array([formats.index(name) for name in self.file_formats], np.int32)
        footers = self.file_sizes[self.block_files] - self.offsets - self.stored
        ranges = np.stack([self.block_files, self.offsets, footers, self.stored], axis=1)
        return _input(list(self.files)), _input(self.file_is_gzip), _input(numbers), _input(ranges)

    def read(self, block: tf.Tensor) -> tf.RaggedTensor:
        """Reads and parses one block, a scalar int64: ragged (documents, sentences) strings."""
        paths, is_gzip, format_numbers, ranges = self._tensors
        file, offset, footer, stored = tf.unstack(tf.gather(ranges, block), num=4)
        # tf.io.read_file reads entire files, but a dataset of one record seeks. With a buffer of
        # the record's size, there is only one read. The public FixedLengthRecordDataset would trace
        # a function.
        record = tf.raw_ops.FixedLengthRecordDatasetV2(
            filenames=tf.gather(paths, file)[None],
            header_bytes=offset,
            record_bytes=stored,
            footer_bytes=footer,
            buffer_size=stored,
            compression_type="",
        )
        spec = tf.TensorSpec([], tf.string)
        text = tf.data.experimental.from_variant(record, spec).get_single_element()
        if self.file_is_gzip.all():
            text = _inflate(text)
        elif self.file_is_gzip.any():
            packed = text
            text = tf.cond(tf.gather(is_gzip, file), lambda: _inflate(packed), lambda: packed)
        formats = sorted(set(self.file_formats))
        if len(formats) == 1:
            return corpus_formats.parse(text, formats[0])

        def values_and_splits(text_format: str) -> tuple[tf.Tensor, tf.Tensor]:
            documents = corpus_formats.parse(text, text_format)
            return documents.values, documents.row_splits

        values, splits = tf.switch_case(
            tf.gather(format_numbers, file),
            [functools.partial(values_and_splits, name) for name in formats],
        )
        return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def _inflate(packed: tf.Tensor) -> tf.Tensor:
    return tf.io.decode_compressed(packed, "GZIP")


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryBlocks:
    """Blocks of documents in memory: N blocks, D documents, L sentences."""

    sentences: np.ndarray  # (L,) bytes
    document_splits: np.ndarray  # (D + 1,) int64, start of each document's sentences
    block_splits: np.ndarray  # (N + 1,) int64, start of each block's documents

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Number of bytes of each block's sentences, (N,) int64."""
        ends = np.cumsum([0, *map(len, self.sentences)], dtype=np.int64)
        return np.diff(ends[self.document_splits[self.block_splits]])

    @functools.cached_property
    def _tensors(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return _input(self.sentences), _input(self.document_splits), _input(self.block_splits)

    def read(self, block: tf.Tensor) -> tf.RaggedTensor:
        """Returns the documents of one block, in the graph; see ``FileBlocks.read``."""
        sentences, document_splits, block_splits = self._tensors
        splits = document_splits[block_splits[block] : block_splits[block + 1] + 1]
        values = sentences[splits[0] : splits[-1]]
        return tf.RaggedTensor.from_row_splits(values, splits - splits[0], validate=False)


def memory_blocks(documents: Sequence[Sequence[bytes]], block_bytes: int) -> MemoryBlocks:
    """Groups documents into blocks of at least ``block_bytes``, except the last block."""
    sizes = np.array([sum(map(len, document)) for document in documents], np.int64)
    block_splits = [0]
    filled = 0
    for index, size in enumerate(sizes.tolist()):
        filled += size
        if filled >= block_bytes or index == len(documents) - 1:
            block_splits.append(index + 1)
            filled = 0
    return MemoryBlocks(
        sentences=np.array([line for document in documents for line in document], object),
        document_splits=np.cumsum([0, *map(len, documents)], dtype=np.int64),
        block_splits=np.array(block_splits, np.int64),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class DocumentTable:
    """Documents of a corpus, by block: N blocks, D documents.

    The text of a document is its lines from ``corpus_formats.parse``, joined by line breaks.
    """

    block_splits: np.ndarray  # (N + 1,) int64, start of each block's documents
    num_bytes: np.ndarray  # (D,) int32, size of each text, at least 1
    fingerprints: np.ndarray  # (D,) int64, from `fingerprint_texts`


def fingerprint_texts(texts: tf.Tensor) -> tf.Tensor:
    """Returns FarmHash fingerprints, int64 below 2**62, which are the same on every machine."""
    return tf.strings.to_hash_bucket_fast(texts, 1 << 62)


@functools.cache
def _counting(text_format: str) -> Any:
    def count(text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        documents = corpus_formats.parse(text, text_format, into_sentences=False)
        texts = tf.strings.reduce_join(documents, axis=-1, separator="\n")
        return tf.strings.length(texts), fingerprint_texts(texts)

    # The function is traced here, because TensorFlow warns if several threads trace it by calls.
    traced = tf.function(count, [tf.TensorSpec([], tf.string)], autograph=False)
    return traced.get_concrete_function()


def count_text(text: bytes, text_format: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sizes, int32, and fingerprints, int64, of the documents in a block of text."""
    num_bytes, fingerprints = _counting(text_format)(tf.constant(text))
    return num_bytes.numpy(), fingerprints.numpy()


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """Documents of sentences in blocks, or a subset of another corpus' documents.

    The functions ``open_corpus``, ``open_tfds`` and ``from_documents`` in ``sources`` create
    corpora. A corpus keeps no files open. Traced functions can read a corpus; they capture its
    tables as inputs, so graphs do not grow with the corpus.

    >>> from bert_tf.pipelines.corpora import sources
    >>> corpus = sources.from_documents([["One.", "Two."], ["Three."]])
    >>> corpus.describe()
    'in memory, 2 documents, 0.0 MB, 1 block'
    >>> corpus.read_documents(tf.constant(0, tf.int64)).to_list()
    [[b'One.', b'Two.'], [b'Three.']]
    >>> list(corpus.sentences())
    ['One.', 'Two.', 'Three.']
    """

    formats: tuple[str, ...]  # formats of the files, sorted
    blocks: FileBlocks | MemoryBlocks
    table: DocumentTable  # all documents of `blocks`
    # (documents of `blocks`,) bool, whether a document belongs to this corpus. Blocks without such
    # documents do not belong to this corpus, and are not read.
    is_member: np.ndarray

    def _sum_per_block(self, per_document: np.ndarray) -> np.ndarray:
        """Sums values per block, over all blocks, (blocks,) int64."""
        sums = np.concatenate([[0], np.cumsum(per_document, dtype=np.int64)])
        return np.diff(sums[self.table.block_splits])

    @functools.cached_property
    def _blocks_read(self) -> np.ndarray:
        """Indices in ``blocks`` of this corpus' blocks, (num_blocks,) int64."""
        return np.flatnonzero(self._sum_per_block(self.is_member))

    @functools.cached_property
    def _tensors(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return _input(self._blocks_read), _input(self.table.block_splits), _input(self.is_member)

    @property
    def num_blocks(self) -> int:
        """Number of blocks with at least one document of this corpus."""
        return len(self._blocks_read)

    @functools.cached_property
    def documents_per_block(self) -> np.ndarray:
        """Number of documents per block, (num_blocks,) int64."""
        return self._sum_per_block(self.is_member)[self._blocks_read]

    @functools.cached_property
    def bytes_per_block(self) -> np.ndarray:
        """Estimated number of bytes of this corpus per block, (num_blocks,) float64."""
        block_bytes = self._sum_per_block(self.table.num_bytes)
        member_bytes = self._sum_per_block(np.where(self.is_member, self.table.num_bytes, 0))
        read = self._blocks_read
        return self.blocks.lengths[read] * (member_bytes[read] / block_bytes[read])

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return int(self.documents_per_block.sum())

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hexadecimal fingerprint of documents and blocks, independent of file paths."""
        content = hashlib.sha256()
        table = self.table.num_bytes, self.table.fingerprints
        for array in (self.documents_per_block, *(column[self.is_member] for column in table)):
            content.update(array.astype("<i8").tobytes())
        return content.hexdigest()[:32]

    def describe(self) -> str:
        """Returns one line with the formats, and numbers of files, documents, bytes and blocks."""
        files = ["in memory"]
        if isinstance(self.blocks, FileBlocks):
            files = [format_count(len(self.blocks.files), "file"), *self.formats]
            number = collections.Counter(self.blocks.file_formats)
            number[corpus_formats.JSONL] = number[corpus_formats.PARAGRAPHS]
            if len(self.formats) > 1 and all(number[name] for name in self.formats):
                files[1:] = [f"{number[name]:,} {name}" for name in self.formats]
        size = f"{self.table.num_bytes[self.is_member].sum() / 1e6:,.1f} MB"
        documents = format_count(self.num_documents, "document")
        return ", ".join([*files, documents, size, format_count(self.num_blocks, "block")])

    def read_documents(self, block: tf.Tensor) -> tf.RaggedTensor:
        """Reads one block in the graph.

        Args:
            block: Index of the block, a scalar int64.

        Returns:
            Non-empty documents of non-blank sentences, in order: ragged `[documents, (sentences)]`
            strings.

        Raises:
            tf.errors.InvalidArgumentError: If the block has a different number of documents,
                because a file has changed since the corpus was opened.
        """
        blocks_read, block_splits, is_member = self._tensors
        block = tf.gather(blocks_read, block)
        documents = self.blocks.read(block)
        first = tf.gather(block_splits, block)
        last = tf.gather(block_splits, block + 1)
        unchanged = tf.debugging.assert_equal(
            documents.nrows(),
            last - first,
            "The corpus has changed since it was opened: a block has a different number of "
            "documents. Rerun the command.",
        )
        with tf.control_dependencies([unchanged]):
            documents = documents.with_flat_values(tf.identity(documents.flat_values))
        if self.is_member.all():
            return documents
        return tf.gather(documents, tf.where(is_member[first:last])[:, 0])

    def split_held_out(
        self, fraction: float = 0.01, max_documents: int = 1000
    ) -> tuple["Corpus", "Corpus | None"]:
        """Splits the documents into training and evaluation documents, in order.

        The documents with the smallest fingerprints are held out. Copies of a document therefore
        stay together, and the split does not depend on the order of files or a seed.

        Args:
            fraction: Fraction of documents to hold out, between 0 and 1. At least one document is
                held out, and at least two if there are four or more, because random next segments
                need two.
            max_documents: Maximum number of documents to hold out.

        Returns:
            Two corpora; or this corpus and ``None`` if all documents are copies.

        >>> from bert_tf.pipelines.corpora import sources
        >>> corpus = sources.from_documents([[f"This is document {i}."] for i in range(300)])
        >>> train, held_out = corpus.split_held_out()
        >>> train.num_documents, held_out.num_documents
        (297, 3)
        """
        if not 0 < fraction < 1 or max_documents < 1:
            raise ValueError(
                "Expected a fraction between 0 and 1 and at least one document, got "
                f"fraction={fraction} and max_documents={max_documents}."
            )
        size = self.num_documents
        count = min(max(round(fraction * size), 2 if size >= 4 else 1), max_documents, size - 1)
        chosen = _smallest(self.table.fingerprints[self.is_member], count)
        if not len(chosen):
            return self, None
        held_out = self.is_member & (self.table.fingerprints <= chosen[-1])
        held_out[held_out] = np.isin(self.table.fingerprints[held_out], chosen)
        return (
            dataclasses.replace(self, is_member=self.is_member & ~held_out),
            dataclasses.replace(self, is_member=held_out),
        )

    def sentences(self, limit_bytes: int | None = None) -> Iterable[str]:
        """Returns an iterable of sentences that can be iterated repeatedly.

        ``limit_bytes`` limits the text, which then comes from blocks spread evenly over the corpus.
        """
        return _Sentences(self, limit_bytes)


def make_corpus(
    formats: Iterable[str], blocks: FileBlocks | MemoryBlocks, table: DocumentTable
) -> Corpus:
    """Creates a corpus of all documents in ``blocks``."""
    return Corpus(tuple(sorted(set(formats))), blocks, table, np.ones(len(table.num_bytes), bool))


def join(corpora: Sequence[Corpus]) -> Corpus:
    """Concatenates complete corpora of files."""
    if len(corpora) == 1:
        return corpora[0]
    parts = [corpus.blocks for corpus in corpora if isinstance(corpus.blocks, FileBlocks)]
    if len(parts) < len(corpora) or not all(corpus.is_member.all() for corpus in corpora):
        raise ValueError("Only complete corpora of files can be joined.")

    def joined(items: Sequence[Any], name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in items])

    files_before = np.cumsum([0, *(len(part.files) for part in parts[:-1])])
    block_files = [
        part.block_files + count for part, count in zip(parts, files_before, strict=True)
    ]
    arrays = ("file_sizes", "file_is_gzip", "offsets", "stored", "lengths")
    blocks = FileBlocks(
        files=tuple(path for part in parts for path in part.files),
        file_formats=tuple(name for part in parts for name in part.file_formats),
        block_files=np.concatenate(block_files),
        **{name: joined(parts, name) for name in arrays},
    )
    tables = [corpus.table for corpus in corpora]
    documents = np.concatenate([np.diff(table.block_splits) for table in tables])
    table = DocumentTable(
        block_splits=np.concatenate([[0], np.cumsum(documents, dtype=np.int64)]),
        num_bytes=joined(tables, "num_bytes"),
        fingerprints=joined(tables, "fingerprints"),
    )
    return make_corpus((name for corpus in corpora for name in corpus.formats), blocks, table)


@dataclasses.dataclass(frozen=True)
class _Sentences:
    """Iterable that ``Corpus.sentences`` returns."""

    corpus: Corpus
    limit_bytes: int | None

    def __iter__(self) -> Iterator[str]:
        order = np.arange(self.corpus.num_blocks)
        if self.limit_bytes is not None:
            # Multiples of the golden ratio modulo 1 are spread evenly.
            order = np.argsort(order * ((5**0.5 - 1) / 2) % 1, kind="stable")

        # Skips AutoGraph, whose first conversion takes seconds.
        @tf.autograph.experimental.do_not_convert
        def read_sentences(block: tf.Tensor) -> tf.Tensor:
            return self.corpus.read_documents(block).flat_values

        blocks = tf.data.Dataset.from_tensor_slices(order.astype(np.int64))
        sentences = blocks.map(read_sentences, tf.data.AUTOTUNE)
        num_bytes = 0
        for block in sentences.as_numpy_iterator():
            for sentence in block:
                if self.limit_bytes is not None and num_bytes >= self.limit_bytes:
                    return
                num_bytes += len(sentence)
                yield sentence.decode("utf-8")


# Number of candidates per selected document, because sorting all fingerprints takes seconds.
_CANDIDATE_FACTOR = 16


def _smallest(prints: np.ndarray, count: int) -> np.ndarray:
    """Returns the smallest fingerprints, ascending, of up to ``count`` documents."""
    last = _CANDIDATE_FACTOR * count
    if last < len(prints):
        values, copies = np.unique(
            prints[prints <= np.partition(prints, last)[last]], return_counts=True
        )
        fitting = copies <= count
        within = np.cumsum(copies[fitting]) <= count
        if within.any() and not within.all():
            return values[fitting][within]
    values, copies = np.unique(prints, return_counts=True)
    if len(values) < 2:
        return values[:0]
    # Texts with too many copies are skipped.
    fitting = copies <= count
    chosen = values[fitting][np.cumsum(copies[fitting]) <= count]
    return chosen if len(chosen) else values[[np.argmin(copies)]]


def format_count(number: int, noun: str) -> str:
    """Formats a number with a noun, such as 1 line or 4,000 lines."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
