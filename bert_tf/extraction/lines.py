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
            for _, end, raw in split_lines(text, file.path):
                line = raw.decode("utf-8", "ignore")
                # Google's expression is greedy: the last mark separates a pair.
                first, mark, second = line.strip().rpartition(_PAIR_MARK)
                texts: tuple[str, str | None] = (first, second) if mark else (second, None)
                bytes_read = bytes_before + (on_disk.tell() if on_disk else end)
                yield Line(*texts, line.encode() == raw, number, bytes_read)
                number += 1
        bytes_before += file.size


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


def tokenize(preprocessor: BertPreprocessor, lines: Sequence[Line]) -> tuple[Rows, int]:
    """Tokenises consecutive lines, single ones and pairs; says how many of them lost tokens."""
    tokenizer, max_seq_length = preprocessor.tokenizer, preprocessor.max_seq_length
    num_texts = np.array([1 if line.second is None else 2 for line in lines])
    packed = {
        key: np.zeros((len(lines), max_seq_length), np.int32) for key in features.ENCODER_FEATURES
    }
    num_cut = 0
    for count in np.unique(num_texts):
        numbers = np.flatnonzero(num_texts == count)
        columns = zip(*(lines[number][:count] for number in numbers.tolist()), strict=True)
        segments = [tokenizer.tokenize(tf.constant(column)) for column in columns]
        ids, ranges = join_segments(segments)
        fitted = fit_segments(ranges, max_seq_length)
        rows = pack(ids, fitted.ranges, max_seq_length, tokenizer)
        for key, values in rows.items():
            packed[key][numbers] = values
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
