"""A corpus: documents of sentences, in blocks that are read in-graph."""

import collections
import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from . import formats as corpus_formats


def _captured(values: Any) -> tf.Tensor:
    """Makes a tensor that a graph takes as an input: as constants, tables would be megabytes."""
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.constant(values)


@dataclasses.dataclass(frozen=True, eq=False)
class FileBlocks:
    """Blocks that are byte ranges of plain files, or gzip streams in files: F files, N blocks."""

    files: tuple[str, ...]  # (F,) paths
    file_sizes: np.ndarray  # (F,) int64
    file_is_gzip: np.ndarray  # (F,) bool, whether a block is a compressed stream
    file_formats: tuple[str, ...]  # (F,) formats that `corpus_formats.parse` knows
    block_files: np.ndarray  # (N,) int64, the file of each block
    offsets: np.ndarray  # (N,) int64, where in the file the block begins
    stored: np.ndarray  # (N,) int64, its bytes there
    lengths: np.ndarray  # (N,) int64, its bytes of text

    @classmethod
    def from_file(
        cls,
        path: str,
        text_format: str,
        is_gzip: bool,
        stored: Sequence[int],
        lengths: Sequence[int],
    ) -> "FileBlocks":
        """The blocks of one file, one behind the other."""
        sizes = np.array(stored, np.int64)
        return cls(
            files=(path,),
            file_sizes=np.array([sizes.sum()]),
            file_is_gzip=np.array([is_gzip]),
            file_formats=(text_format,),
            block_files=np.zeros(len(sizes), np.int64),
            offsets=np.cumsum(sizes) - sizes,
            stored=sizes,
            lengths=np.array(lengths, np.int64),
        )

    @functools.cached_property
    def _tensors(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """The files' paths, whether they are gzip, and their formats' numbers; the blocks' ranges.

        Those are (N, 4) int64: a block's file, and the bytes there before it, behind it and of it.
        """
        formats = sorted(set(self.file_formats))
        numbers = np.array([formats.index(name) for name in self.file_formats], np.int32)
        footers = self.file_sizes[self.block_files] - self.offsets - self.stored
        ranges = np.stack([self.block_files, self.offsets, footers, self.stored], axis=1)
        return (
            _captured(list(self.files)),
            _captured(self.file_is_gzip),
            _captured(numbers),
            _captured(ranges),
        )

    def read(self, block: tf.Tensor) -> tf.RaggedTensor:
        """Reads and parses one block, a scalar int64: ragged (documents, sentences) strings."""
        paths, is_gzip, format_numbers, ranges = self._tensors
        file, offset, footer, stored = tf.unstack(tf.gather(ranges, block), num=4)
        # tf.io.read_file reads whole files; a dataset of one record seeks. A buffer of the record's
        # size makes it one read, and the public FixedLengthRecordDataset traces a function.
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
    """Blocks of documents held in memory: N blocks, D documents, L sentences."""

    sentences: np.ndarray  # (L,) bytes
    document_splits: np.ndarray  # (D + 1,) int64, where the documents' sentences begin
    block_splits: np.ndarray  # (N + 1,) int64, where the blocks' documents begin

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """(N,) int64, the bytes of each block's sentences."""
        ends = np.cumsum([0, *map(len, self.sentences)], dtype=np.int64)
        return np.diff(ends[self.document_splits[self.block_splits]])

    @functools.cached_property
    def _tensors(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return (
            _captured(self.sentences),
            _captured(self.document_splits),
            _captured(self.block_splits),
        )

    def read(self, block: tf.Tensor) -> tf.RaggedTensor:
        """Returns the documents of one block, in-graph; see ``FileBlocks.read``."""
        sentences, document_splits, block_splits = self._tensors
        splits = document_splits[block_splits[block] : block_splits[block + 1] + 1]
        values = sentences[splits[0] : splits[-1]]
        return tf.RaggedTensor.from_row_splits(values, splits - splits[0], validate=False)


def memory_blocks(documents: Sequence[Sequence[bytes]], block_bytes: int) -> MemoryBlocks:
    """Puts documents, in their order, into blocks of at least ``block_bytes`` each but the last."""
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
    """The documents of a corpus, block after block: N blocks, D documents.

    A document's text is its lines as ``corpus_formats.parse`` gives them, joined by line breaks.
    """

    block_splits: np.ndarray  # (N + 1,) int64, where each block's documents begin
    num_bytes: np.ndarray  # (D,) int32, of the text of each, at least 1
    fingerprints: np.ndarray  # (D,) int64: `fingerprint_texts`


def fingerprint_texts(texts: tf.Tensor) -> tf.Tensor:
    """FarmHash's Fingerprint64 of texts, 0 to 2**62 - 1, int64: the same on every machine."""
    return tf.strings.to_hash_bucket_fast(texts, 1 << 62)


@functools.cache
def _counting(text_format: str) -> Any:
    def count(text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        documents = corpus_formats.parse(text, text_format, into_sentences=False)
        texts = tf.strings.reduce_join(documents, axis=-1, separator="\n")
        return tf.strings.length(texts), fingerprint_texts(texts)

    # Threads that trace it together by calling it would make TensorFlow warn.
    traced = tf.function(count, [tf.TensorSpec([], tf.string)], autograph=False)
    return traced.get_concrete_function()


def count_text(text: bytes, text_format: str) -> tuple[np.ndarray, np.ndarray]:
    """Counts the documents of a block of text: their bytes, int32, and fingerprints, int64."""
    num_bytes, fingerprints = _counting(text_format)(tf.constant(text))
    return num_bytes.numpy(), fingerprints.numpy()


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """Documents of sentences, in blocks; or a part of another corpus' documents.

    Made by ``open_corpus``, ``open_tfds`` and ``from_documents`` of ``sources``. It holds no open
    file, and any function that TensorFlow traces can read it; the function takes the corpus' tables
    as inputs, so that no graph grows with the corpus.

    >>> from bert_tf.pipelines.corpora import sources
    >>> corpus = sources.from_documents([["One.", "Two."], ["Three."]])
    >>> corpus.describe()
    'in memory, 2 documents, 0.0 MB, 1 block'
    >>> corpus.read_documents(tf.constant(0, tf.int64)).to_list()
    [[b'One.', b'Two.'], [b'Three.']]
    >>> list(corpus.sentences())
    ['One.', 'Two.', 'Three.']
    """

    formats: tuple[str, ...]  # of the files, sorted
    blocks: FileBlocks | MemoryBlocks
    table: DocumentTable  # of all documents of `blocks`
    # (documents of `blocks`,) bool, which of them belong to this corpus. Blocks without such a
    # document do not count as blocks of this corpus, and are not read.
    is_member: np.ndarray

    def _sum_per_block(self, per_document: np.ndarray) -> np.ndarray:
        """(blocks,) int64, over all blocks, also those without a document of this corpus."""
        sums = np.concatenate([[0], np.cumsum(per_document, dtype=np.int64)])
        return np.diff(sums[self.table.block_splits])

    @functools.cached_property
    def _blocks_read(self) -> np.ndarray:
        """(num_blocks,) int64, the numbers in ``blocks`` of this corpus' blocks."""
        return np.flatnonzero(self._sum_per_block(self.is_member))

    @functools.cached_property
    def _tensors(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return (
            _captured(self._blocks_read),
            _captured(self.table.block_splits),
            _captured(self.is_member),
        )

    @property
    def num_blocks(self) -> int:
        """The number of blocks with at least one document of this corpus."""
        return len(self._blocks_read)

    @functools.cached_property
    def documents_per_block(self) -> np.ndarray:
        """(num_blocks,) int64: the number of documents that ``read_documents`` yields for each."""
        return self._sum_per_block(self.is_member)[self._blocks_read]

    @functools.cached_property
    def bytes_per_block(self) -> np.ndarray:
        """(num_blocks,) float64: the bytes of this corpus' text, and its markup, in each."""
        block_bytes = self._sum_per_block(self.table.num_bytes)
        member_bytes = self._sum_per_block(np.where(self.is_member, self.table.num_bytes, 0))
        read = self._blocks_read
        return self.blocks.lengths[read] * (member_bytes[read] / block_bytes[read])

    @property
    def num_documents(self) -> int:
        """The number of documents."""
        return int(self.documents_per_block.sum())

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hexadecimal digits: equal for equal documents in equal blocks, wherever the files lie."""
        content = hashlib.sha256()
        document_arrays = (
            self.table.num_bytes[self.is_member],
            self.table.fingerprints[self.is_member],
        )
        for array in (self.documents_per_block, *document_arrays):
            content.update(array.astype("<i8").tobytes())
        return content.hexdigest()[:32]

    def describe(self) -> str:
        """One line: files, format, documents, bytes of their text, blocks."""
        files = ["in memory"]
        if isinstance(self.blocks, FileBlocks):
            files = [format_count(len(self.blocks.files), "file"), *self.formats]
            number = collections.Counter(self.blocks.file_formats)
            number[corpus_formats.JSONL] = number[corpus_formats.PARAGRAPHS]  # as it is packed
            if len(self.formats) > 1 and all(number[name] for name in self.formats):
                files[1:] = [f"{number[name]:,} {name}" for name in self.formats]
        size = f"{self.table.num_bytes[self.is_member].sum() / 1e6:,.1f} MB"
        documents = format_count(self.num_documents, "document")
        return ", ".join([*files, documents, size, format_count(self.num_blocks, "block")])

    def read_documents(self, block: tf.Tensor) -> tf.RaggedTensor:
        """Reads one block, a scalar int64, in-graph: ragged (documents, sentences) strings.

        The documents are in the order of the text; each has a sentence, and no sentence is blank.
        A block that has other documents than when the corpus was opened, because a file has been
        changed, is a ``tf.errors.InvalidArgumentError``.
        """
        blocks_read, block_splits, is_member = self._tensors
        block = tf.gather(blocks_read, block)
        documents = self.blocks.read(block)
        first = tf.gather(block_splits, block)
        last = tf.gather(block_splits, block + 1)
        unchanged = tf.debugging.assert_equal(
            documents.nrows(),
            last - first,
            "The corpus has been changed since it was opened: a block has another number of "
            "documents; start again.",
        )
        with tf.control_dependencies([] if unchanged is None else [unchanged]):
            documents = documents.with_flat_values(tf.identity(documents.flat_values))
        if self.is_member.all():
            return documents
        return tf.gather(documents, tf.where(is_member[first:last])[:, 0])

    def split_held_out(
        self, fraction: float = 0.01, max_documents: int = 1000
    ) -> tuple["Corpus", "Corpus | None"]:
        """Divides the documents into those to train on and those to evaluate on, in their order.

        The documents with the smallest fingerprints of their text are held out. So copies of a
        document stay together, and the division depends neither on the order of the files nor on
        any seed. ``fraction``, between 0 and 1, is the share to hold out: at least one document,
        and two of four or more, as a random next segment comes from another document. Where all
        are copies of one, the result is this corpus and None.

        >>> from bert_tf.pipelines.corpora import sources
        >>> corpus = sources.from_documents([[f"This is document {i}."] for i in range(300)])
        >>> train, held_out = corpus.split_held_out()
        >>> train.num_documents, held_out.num_documents
        (297, 3)
        """
        if not 0 < fraction < 1 or max_documents < 1:
            raise ValueError(
                "To hold out documents takes a fraction between 0 and 1 and at least one document; "
                f"got fraction {fraction} and max_documents {max_documents}."
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
        """Reads sentences, block by block, anew as often as they are iterated over.

        ``limit_bytes`` is when to stop, in bytes of text, from blocks that are spread evenly over
        the corpus; None for all, in order.
        """
        return _Sentences(self, limit_bytes)


def make_corpus(
    formats: Iterable[str], blocks: FileBlocks | MemoryBlocks, table: DocumentTable
) -> Corpus:
    """The corpus of all documents of some blocks."""
    return Corpus(tuple(sorted(set(formats))), blocks, table, np.ones(len(table.num_bytes), bool))


def join(corpora: Sequence[Corpus]) -> Corpus:
    """Makes one corpus of several whole ones of files: their blocks, one corpus after another."""
    if len(corpora) == 1:
        return corpora[0]
    parts = [each.blocks for each in corpora if isinstance(each.blocks, FileBlocks)]
    if len(parts) < len(corpora) or not all(each.is_member.all() for each in corpora):
        raise ValueError("Only whole corpora of files can be joined.")

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
    tables = [each.table for each in corpora]
    documents = np.concatenate([np.diff(table.block_splits) for table in tables])
    table = DocumentTable(
        block_splits=np.concatenate([[0], np.cumsum(documents, dtype=np.int64)]),
        num_bytes=joined(tables, "num_bytes"),
        fingerprints=joined(tables, "fingerprints"),
    )
    return make_corpus((name for each in corpora for name in each.formats), blocks, table)


@dataclasses.dataclass(frozen=True)
class _Sentences:
    """Result of ``Corpus.sentences``."""

    corpus: Corpus
    limit_bytes: int | None

    def __iter__(self) -> Iterator[str]:
        order = np.arange(self.corpus.num_blocks)
        if self.limit_bytes is not None:
            # Multiples of the golden ratio modulo 1 never cluster.
            order = np.argsort(order * ((5**0.5 - 1) / 2) % 1, kind="stable")

        # AutoGraph's first conversion takes seconds.
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


# How many times the documents wanted are looked at first: sorting all of ten million takes seconds.
_CANDIDATE_FACTOR = 16


def _smallest(prints: np.ndarray, count: int) -> np.ndarray:
    """The smallest fingerprints, ascending, of ``count`` documents at most."""
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
    # A text with more copies than there is room for is skipped.
    fitting = copies <= count
    chosen = values[fitting][np.cumsum(copies[fitting]) <= count]
    return chosen if len(chosen) else values[[np.argmin(copies)]]


def format_count(number: int, noun: str) -> str:
    """A number of things: 1 line, 4,000 lines."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
