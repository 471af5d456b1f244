"""A corpus: documents of sentences, in blocks that are read in-graph."""

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from . import corpus_blocks, corpus_index


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """Documents of sentences, in blocks; or a part of another corpus' documents.

    Made by ``open_corpus``, ``open_tfds`` and ``from_documents`` of ``sources``. It holds no open
    file and no tensor, and can be read from any graph.

    Attributes:
        input_format: the format of the files, or their formats, joined by ", ".
        num_files: 0 for a corpus in memory.
        blocks: what is read.
        table: what the documents of ``blocks`` are.
        kept: (documents of ``blocks``,) bool, which of them belong to this corpus. Blocks without
            such a document do not count as blocks of this corpus, and are not read.
    """

    input_format: str
    num_files: int
    blocks: corpus_blocks.Blocks
    table: corpus_index.DocumentTable
    kept: np.ndarray

    def _sum_per_block(self, per_document: np.ndarray) -> np.ndarray:
        """(blocks,) int64, over all blocks, also those without a document of this corpus."""
        sums = np.concatenate([[0], np.cumsum(per_document, dtype=np.int64)])
        return np.diff(sums[self.table.block_splits])

    @functools.cached_property
    def _kept_per_block(self) -> np.ndarray:
        return self._sum_per_block(self.kept)

    @functools.cached_property
    def _blocks_read(self) -> np.ndarray:
        """(num_blocks,) int64, the numbers in ``blocks`` of this corpus' blocks."""
        return np.flatnonzero(self._kept_per_block)

    @property
    def num_blocks(self) -> int:
        """The number of blocks with at least one document of this corpus."""
        return len(self._blocks_read)

    @functools.cached_property
    def documents_per_block(self) -> np.ndarray:
        """(num_blocks,) int64: the number of documents that ``read_documents`` yields for each."""
        return self._kept_per_block[self._blocks_read]

    @functools.cached_property
    def bytes_per_block(self) -> np.ndarray:
        """(num_blocks,) float64: the bytes of this corpus' text in each block.

        An estimate by sentences for blocks of which not every document belongs to this corpus.
        """
        sentences = self._sum_per_block(self.table.num_sentences)
        kept = self._sum_per_block(np.where(self.kept, self.table.num_sentences, 0))
        read = self._blocks_read
        return self.blocks.lengths[read] * (kept[read] / sentences[read])

    @property
    def num_documents(self) -> int:
        """The number of documents."""
        return int(self.documents_per_block.sum())

    @functools.cached_property
    def num_sentences(self) -> int:
        """The number of sentences."""
        return int(self.table.num_sentences[self.kept].sum())

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hexadecimal digits that stand for the documents, their order and their blocks.

        Equal for equal text in equal files, wherever these lie.
        """
        content = hashlib.sha256()
        for array in (
            self.documents_per_block,
            self.table.num_sentences[self.kept],
            self.table.fingerprints[self.kept],
        ):
            content.update(array.astype("<i8").tobytes())
        return content.hexdigest()[:32]

    def describe(self) -> str:
        """Returns one line: files, format, documents, sentences, blocks.

        >>> from bert_tf.pipelines import sources
        >>> sources.from_documents([["One.", "Two."], ["Three."]]).describe()
        'in memory, 2 documents, 3 sentences, 1 block'
        """
        first = (
            [_count(self.num_files, "file"), self.input_format] if self.num_files else ["in memory"]
        )
        return ", ".join(
            [
                *first,
                _count(self.num_documents, "document"),
                _count(self.num_sentences, "sentence"),
                _count(self.num_blocks, "block"),
            ]
        )

    def read_documents(self, block: tf.Tensor) -> tf.RaggedTensor:
        """Reads one block, in-graph.

        Args:
            block: scalar int64, from 0 to ``num_blocks - 1``.

        Returns:
            Ragged (documents, sentences) strings, ``documents_per_block[block]`` documents in the
            order of the text. Every document has a sentence; none is blank.

        Raises:
            tf.errors.InvalidArgumentError: while it runs, the block has not the documents that it
                had when the corpus was opened: a file has been changed.

        >>> from bert_tf.pipelines import sources
        >>> corpus = sources.from_documents([["One.", "Two."], ["Three."]])
        >>> corpus.read_documents(tf.constant(0, tf.int64)).to_list()
        [[b'One.', b'Two.'], [b'Three.']]
        """
        block = tf.gather(self._blocks_read, block)
        documents = self.blocks.read(block)
        first = tf.gather(self.table.block_splits, block)
        last = tf.gather(self.table.block_splits, block + 1)
        unchanged = tf.debugging.assert_equal(
            documents.nrows(),
            last - first,
            "The corpus has been changed since it was opened: a block has another number of "
            "documents; start again.",
        )
        with tf.control_dependencies([] if unchanged is None else [unchanged]):
            documents = documents.with_flat_values(tf.identity(documents.flat_values))
        if self.kept.all():
            return documents
        return tf.ragged.boolean_mask(documents, tf.constant(self.kept)[first:last])

    def split_held_out(
        self, fraction: float = 0.01, max_documents: int = 1000
    ) -> tuple["Corpus", "Corpus | None"]:
        """Divides the documents into those to train on and those to evaluate on.

        By the fingerprint of their text: the documents with the smallest are held out. So copies
        of a document stay together, and the division depends neither on the order of the files
        nor on any seed.

        Args:
            fraction: the share of documents to hold out, between 0 and 1. At least one is, and two
                of four or more, as a random next segment comes from another document.
            max_documents: hold out at most so many.

        Returns:
            The rest, and the held-out documents; together all, each in their order. Where not both
            would have a document (there is only one, or all are copies of one): this corpus and
            None.

        Raises:
            ValueError: ``fraction`` is not between 0 and 1, or ``max_documents`` not positive.

        >>> from bert_tf.pipelines import sources
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
        wanted = min(max(round(fraction * size), 2 if size >= 4 else 1), max_documents, size - 1)
        prints, copies = np.unique(self.table.fingerprints[self.kept], return_counts=True)
        if len(prints) < 2:
            return self, None
        # A text with more copies than documents are wanted is passed over.
        few = copies <= wanted
        chosen = prints[few][np.cumsum(copies[few]) <= wanted]
        if not len(chosen):
            chosen = prints[[np.argmin(copies)]]
        held_out = self.kept & np.isin(self.table.fingerprints, chosen)
        return (
            dataclasses.replace(self, kept=self.kept & ~held_out),
            dataclasses.replace(self, kept=held_out),
        )

    def sentences(self, limit_bytes: int | None = None) -> Iterable[str]:
        """Reads sentences, for learning a vocabulary, anew as often as they are iterated over.

        Args:
            limit_bytes: stop after so many bytes of text, from blocks that are spread evenly over
                the corpus; None for all, in order.

        Returns:
            The sentences of one block after another.

        >>> from bert_tf.pipelines import sources
        >>> list(sources.from_documents([["One.", "Two."], ["Three."]]).sentences())
        ['One.', 'Two.', 'Three.']
        """
        return _Sentences(self, limit_bytes)


@dataclasses.dataclass(frozen=True)
class _Sentences:
    """What ``Corpus.sentences`` returns."""

    corpus: Corpus
    limit_bytes: int | None

    def __iter__(self) -> Iterator[str]:
        order = np.arange(self.corpus.num_blocks)
        if self.limit_bytes is not None:
            # Multiples of the golden ratio modulo 1 never cluster.
            order = np.argsort(order * ((5**0.5 - 1) / 2) % 1, kind="stable")
        blocks = tf.data.Dataset.from_tensor_slices(order.astype(np.int64))
        read = blocks.map(
            lambda block: self.corpus.read_documents(block).flat_values, tf.data.AUTOTUNE
        )
        left = self.limit_bytes
        for block in read.as_numpy_iterator():
            for sentence in block:
                if left is not None:
                    if left <= 0:
                        return
                    left -= len(sentence)
                yield sentence.decode("utf-8")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
