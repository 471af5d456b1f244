"""Blocks: the unit in which a corpus is read, about a megabyte of text each.

A block is read in-graph, by its number, wherever a tensor may stand: in ``Dataset.map``, in any
order, by any number of threads, always with the same result.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from . import corpus_formats, corpus_scan


class Blocks(Protocol):
    """What a ``Corpus`` reads from."""

    @property
    def num_blocks(self) -> int:
        """The number of blocks."""

    @property
    def lengths(self) -> np.ndarray:
        """(num_blocks,) int64, the bytes of each block's text."""

    def read(self, block: tf.Tensor) -> tf.RaggedTensor:
        """Returns the documents of one block: ragged (documents, sentences) strings."""


@dataclasses.dataclass(frozen=True, eq=False)
class FileBlocks:
    """Blocks that are byte ranges of plain files, or whole small gzip files.

    F files, N blocks. Offsets and lengths are in bytes; a gzip file's are 0 and its text's length.

    Attributes:
        files: F paths, on any TensorFlow file system.
        file_sizes: (F,) int64, as they lie on the disk.
        file_is_gzip: (F,) bool.
        file_formats: F names of formats that ``corpus_formats.parse`` takes.
        block_files: (N,) int64, the index of each block's file.
        offsets: (N,) int64.
        lengths: (N,) int64.
    """

    files: tuple[str, ...]
    file_sizes: np.ndarray
    file_is_gzip: np.ndarray
    file_formats: tuple[str, ...]
    block_files: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray

    @property
    def num_blocks(self) -> int:
        """The number of blocks, N."""
        return len(self.block_files)

    def read(self, block: tf.Tensor) -> tf.RaggedTensor:
        """Reads and parses one block, in-graph.

        Args:
            block: scalar int64, from 0 to N - 1.

        Returns:
            Ragged (documents, sentences) strings.
        """
        file = tf.gather(self.block_files, block)
        text = self._text(file, tf.gather(self.offsets, block), tf.gather(self.lengths, block))
        formats = sorted(set(self.file_formats))
        if len(formats) == 1:
            return corpus_formats.parse(text, formats[0])
        branch = tf.gather([formats.index(name) for name in self.file_formats], file)

        def values_and_splits(text_format: str) -> tuple[tf.Tensor, tf.Tensor]:
            documents = corpus_formats.parse(text, text_format)
            return documents.values, documents.row_splits

        values, splits = tf.switch_case(
            branch, [functools.partial(values_and_splits, name) for name in formats]
        )
        return tf.RaggedTensor.from_row_splits(values, splits, validate=False)

    def _text(self, file: tf.Tensor, offset: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        """Returns the text of a block, a scalar string."""
        path = tf.gather(list(self.files), file)

        def inflate() -> tf.Tensor:
            return tf.io.decode_compressed(tf.io.read_file(path), "GZIP")

        def read_range() -> tf.Tensor:
            # tf.io.read_file reads whole files; this dataset of one record seeks. A buffer of the
            # record's size makes it one read.
            footer = tf.gather(self.file_sizes, file) - offset - length
            return tf.data.FixedLengthRecordDataset(
                path, length, header_bytes=offset, footer_bytes=footer, buffer_size=length
            ).get_single_element()

        if self.file_is_gzip.all():
            return inflate()
        if not self.file_is_gzip.any():
            return read_range()
        return tf.cond(tf.gather(self.file_is_gzip, file), inflate, read_range)


def file_blocks(files: Sequence[corpus_scan.ScannedFile]) -> FileBlocks:
    """Makes blocks of the ranges of scanned files, in their order.

    Raises:
        ValueError: a file has no ranges: it has to be rewritten first.
    """
    block_files: list[int] = []
    ranges: list[tuple[int, int]] = []
    for index, file in enumerate(files):
        if file.ranges is None:
            raise ValueError(f"{file.path} cannot be read in ranges: it has to be rewritten first.")
        block_files += [index] * len(file.ranges)
        ranges += file.ranges
    offsets_and_lengths = np.array(ranges, np.int64).reshape(-1, 2)
    return FileBlocks(
        files=tuple(file.path for file in files),
        file_sizes=np.array([file.size for file in files], np.int64),
        file_is_gzip=np.array([file.is_gzip for file in files], bool),
        file_formats=tuple(file.text_format for file in files),
        block_files=np.array(block_files, np.int64),
        offsets=offsets_and_lengths[:, 0],
        lengths=offsets_and_lengths[:, 1],
    )


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryBlocks:
    """Blocks of documents held in memory; a graph that reads them holds them as a constant.

    D documents, N blocks, L sentences.

    Attributes:
        sentences: (L,) array of bytes objects.
        document_splits: (D + 1,) int64, where each document's sentences begin.
        block_splits: (N + 1,) int64, where each block's documents begin.
    """

    sentences: np.ndarray
    document_splits: np.ndarray
    block_splits: np.ndarray

    @property
    def num_blocks(self) -> int:
        """The number of blocks, N."""
        return len(self.block_splits) - 1

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """(N,) int64, the bytes of each block's sentences."""
        ends = np.cumsum([0, *map(len, self.sentences)], dtype=np.int64)
        return np.diff(ends[self.document_splits[self.block_splits]])

    def read(self, block: tf.Tensor) -> tf.RaggedTensor:
        """Returns the documents of one block, in-graph; see ``FileBlocks.read``."""
        first = tf.gather(self.block_splits, block)
        last = tf.gather(self.block_splits, block + 1)
        splits = tf.constant(self.document_splits)[first : last + 1]
        values = tf.constant(self.sentences)[splits[0] : splits[-1]]
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
