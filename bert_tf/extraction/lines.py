"""The lines of the input files, tokenised, and put into batches.

Letters: N lines, T tokens of all of them, B batch, S sequence.
"""

import gzip
import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.pipelines.corpus_files import SourceFile
from bert_tf.pipelines.length_buckets import Examples, row_examples
from bert_tf.pipelines.packing import fit_segments, join_segments, pack
from bert_tf.pipelines.preprocessor import BertPreprocessor
from bert_tf.pipelines.text_bytes import open_text, split_lines

_CHUNK_BYTES = 1 << 20
_PAIR_MARK = " ||| "


class Line(NamedTuple):
    """A line of the input."""

    first: str  # its text, or the first of a pair, without white space around it
    second: str | None  # of a pair
    is_utf8: bool  # whether no byte had to be left out
    number: int  # counted from 0 through all files
    bytes_read: int  # of all files on the disk by then


def fingerprint(files: Sequence[SourceFile]) -> str:
    """A digest of what the files hold, in their order; their names do not matter."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.size}\n".encode())
        with tf.io.gfile.GFile(file.path, "rb") as content:
            while chunk := content.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


def read_lines(files: Sequence[SourceFile]) -> Iterator[Line]:
    """Reads lines, each of which ends at a line feed or the file's end.

    A byte that is not UTF-8 is left out, as the tokenizer does.
    """
    number = bytes_before = 0
    for file in files:
        with open_text(file.path) as text:
            # The offset in a gzip file counts its text; the file object counts bytes on the disk.
            on_disk = text.fileobj if isinstance(text, gzip.GzipFile) else None
            for _, end, line in split_lines(text, file.path):
                yield _parse(line, number, bytes_before + (on_disk.tell() if on_disk else end))
                number += 1
        bytes_before += file.size


def _parse(raw: bytes, number: int, bytes_read: int) -> Line:
    try:
        text, is_utf8 = raw.decode("utf-8"), True
    except UnicodeDecodeError:
        text, is_utf8 = raw.decode("utf-8", "ignore"), False
    # Google's expression is greedy: the last mark separates a pair.
    first, mark, second = text.strip().rpartition(_PAIR_MARK)
    if mark:
        return Line(first, second, is_utf8, number, bytes_read)
    return Line(second, None, is_utf8, number, bytes_read)


# === Tokens ===


class Rows(NamedTuple):
    """Lines as a model reads them, without padding."""

    first_line: int  # the number of the first one in the input
    lengths: np.ndarray  # (N,) int32, the tokens of each, [CLS] and [SEP] included
    ids: np.ndarray  # (T,) int32
    type_ids: np.ndarray  # (T,) int32

    @property
    def starts(self) -> np.ndarray:
        """(N + 1,) where each line's tokens begin among all, and where the last one's end."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])

    def between(self, begin: int, end: int) -> "Rows":
        """The lines from one to before another, counted from 0."""
        first, last = self.starts[[begin, end]]
        return Rows(
            self.first_line + begin,
            self.lengths[begin:end],
            self.ids[first:last],
            self.type_ids[first:last],
        )


def examples_of(rows: Rows, preprocessor: BertPreprocessor) -> Examples:
    """The lines for batches of ``ENCODER_FEATURES``."""
    columns = {
        features.INPUT_WORD_IDS: (rows.ids, preprocessor.tokenizer.pad_id),
        features.INPUT_MASK: (np.ones_like(rows.ids), 0),
        features.INPUT_TYPE_IDS: (rows.type_ids, 0),
    }
    return row_examples(rows.lengths, columns, preprocessor.max_seq_length)


def tokenize(preprocessor: BertPreprocessor, lines: Sequence[Line]) -> tuple[Rows, int]:
    """Tokenises consecutive lines, single ones and pairs; says how many of them lost tokens."""
    tokenizer, max_seq_length = preprocessor.tokenizer, preprocessor.max_seq_length
    num_texts = np.array([1 if line.second is None else 2 for line in lines])
    packed = {
        key: np.zeros((len(lines), max_seq_length), np.int32) for key in features.ENCODER_FEATURES
    }
    num_cut = 0
    for count in np.unique(num_texts):
        chosen = np.flatnonzero(num_texts == count)
        columns = zip(*(lines[number][:count] for number in chosen.tolist()), strict=True)
        segments = [tokenizer.tokenize(tf.constant(column)) for column in columns]
        ids, ranges = join_segments(segments)
        fitted = fit_segments(ranges, max_seq_length)
        rows = pack(ids, fitted.ranges, max_seq_length, tokenizer)
        for key, values in rows.items():
            packed[key][chosen] = values
        num_cut += int(tf.math.count_nonzero(fitted.truncated))
    mask = packed[features.INPUT_MASK].astype(bool)
    return (
        Rows(
            first_line=lines[0].number,
            lengths=mask.sum(axis=1, dtype=np.int32),
            ids=packed[features.INPUT_WORD_IDS][mask],
            type_ids=packed[features.INPUT_TYPE_IDS][mask],
        ),
        num_cut,
    )


def join(parts: Sequence[Rows]) -> Rows:
    """Joins consecutive lines; there is at least one part."""
    _, *columns = zip(*parts, strict=True)
    lengths, ids, type_ids = (np.concatenate(column) for column in columns)
    return Rows(parts[0].first_line, lengths, ids, type_ids)
