"""Lines as tokens, without padding, and batches of them.

Letters: N lines, T tokens of all of them, B batch, S sequence.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.pipelines.length_buckets import padded_lengths
from bert_tf.pipelines.preprocessor import BertPreprocessor

from .input_lines import Line

_LENGTH_MULTIPLE = 8


class Rows(NamedTuple):
    """Lines as a model reads them.

    Attributes:
        first_line: the first one's number in the input.
        lengths: (N,) int32, tokens of each, [CLS] and [SEP] among them.
        ids: (T,) int32.
        type_ids: (T,) int32.
    """

    first_line: int
    lengths: np.ndarray
    ids: np.ndarray
    type_ids: np.ndarray

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
    """Tokenises consecutive lines, single ones and pairs in any order.

    Args:
        preprocessor: its ``max_seq_length`` is the most that a line keeps.
        lines: one at least.

    Returns:
        The lines as tokens, and how many of them lost some.
    """
    is_pair = np.array([line.second is not None for line in lines])
    packed = {
        key: np.zeros((len(lines), preprocessor.max_seq_length), np.int32)
        for key in features.ENCODER_FEATURES
    }
    num_cut = 0
    for kind in (False, True):
        if kind not in is_pair:
            continue
        of_kind = [line for line in lines if (line.second is not None) == kind]
        strings: Any = tf.constant([line.first for line in of_kind])
        if kind:
            strings = (strings, tf.constant([line.second for line in of_kind]))
        for key, values in preprocessor(strings).items():
            packed[key][is_pair == kind] = values
        num_cut += int(tf.math.count_nonzero(preprocessor.is_truncated(strings)))
    mask = packed[features.INPUT_MASK].astype(bool)
    rows = Rows(
        first_line=lines[0].end.line - 1,
        lengths=mask.sum(axis=1, dtype=np.int32),
        ids=packed[features.INPUT_WORD_IDS][mask],
        type_ids=packed[features.INPUT_TYPE_IDS][mask],
    )
    return rows, num_cut


def join(parts: Sequence[Rows]) -> Rows:
    """Lays consecutive lines one behind the other; there is one part at least."""
    _, *columns = zip(*parts, strict=True)
    lengths, ids, type_ids = (np.concatenate(column) for column in columns)
    return Rows(parts[0].first_line, lengths, ids, type_ids)


def batches(
    rows: Rows, batch_size: int, preprocessor: BertPreprocessor
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Makes batches of lines of like length, the longest first.

    Args:
        rows: N lines.
        batch_size: the most lines of a batch.
        preprocessor: the one that the lines were tokenised with; S is a multiple of 8, and at most
            its ``max_seq_length``.

    Yields:
        The numbers of a batch's lines, (B,), and its ``ENCODER_FEATURES``, each (B, S) int32.
    """
    order = np.argsort(-rows.lengths, kind="stable")
    widths = padded_lengths(preprocessor.max_seq_length, _LENGTH_MULTIPLE, None)
    starts, pad_id = rows.starts, np.int32(preprocessor.tokenizer.pad_id)
    for begin in range(0, len(order), batch_size):
        numbers = order[begin : begin + batch_size]
        lengths = rows.lengths[numbers]
        width = widths[np.searchsorted(widths, lengths[0])]
        # (B, S)
        is_real = np.arange(width) < lengths[:, None]
        place = np.where(is_real, starts[numbers][:, None] + np.arange(width), 0)
        yield (
            numbers,
            {
                features.INPUT_WORD_IDS: np.where(is_real, rows.ids[place], pad_id),
                features.INPUT_MASK: is_real.astype(np.int32),
                features.INPUT_TYPE_IDS: np.where(is_real, rows.type_ids[place], np.int32(0)),
            },
        )
