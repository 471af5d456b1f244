"""Texts to a model's rows, as wide as the longest of a request needs.

All heads are functions of the served model and of a request's tensors, whose batch is first, of any
size, also 0. Outputs are dense, padded where rows differ ("", -1, 0) next to a count, so that
TensorFlow Serving can split a batch; ``truncated`` says where a text lost its end.

Letters, here and in the heads: B batch, S sequence, H hidden, V vocabulary, C classes, K guesses,
answers or choices, R rows.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.pipelines.bounded_memory import map_blocks
from bert_tf.pipelines.packing import (
    Range,
    fit_segments,
    join_segments,
    pack,
    pack_from_table,
    token_table,
)

from .served import Outputs, Served

# The most tokens that the model reads at once, padding included: 8 rows of 512, or 64 of 64. More
# make no CPU quicker, and attention's memory grows with rows times the square of their length.
_TOKENS_CHUNK_SIZE = 4096
# A text of this many bytes for each token that is wanted has enough of them, most probably.
_BYTES_PER_TOKEN = 64
# This much padding costs less than another call of the model.
_FREE_PADDING = 256

# The served model that is to compute some rows, and the encoder's inputs of these, to tensors.
Head = Callable[[Served, Outputs], Any]


class Rows(NamedTuple):
    """Rows that are yet to be packed: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]."""

    ids: tf.Tensor  # all tokens, int32
    segments: Sequence[Range]  # ranges of A, and of B where there is one, (R,) int32 each

    @property
    def lengths(self) -> tf.Tensor:
        """The rows' tokens, with [CLS] and [SEP], (R,) int32."""
        return tf.add_n([lengths for _, lengths in self.segments]) + 1 + len(self.segments)


def text_rows(served: Served, *texts: tf.Tensor) -> tuple[Rows, tf.Tensor]:
    """Rows of texts or pairs of texts, (B,) string each, and ``truncated`` (B,) bool."""
    if len(texts) == 2:
        texts = check_equally_many(*texts)
    cut = [truncate_texts(served, strings, served.max_seq_length) for strings in texts]
    return fit_rows(served, *(served.tokenizer.tokenize(strings) for strings in cut))


def truncate_texts(served: Served, texts: tf.Tensor, limit: int) -> tf.Tensor:
    """Cuts long texts, (B,) string, after a blank with more than the ``limit`` tokens before it."""
    # A blank ends a word whatever follows, so the tokens before it are those of the whole text.
    size = limit * _BYTES_PER_TOKEN
    is_long = tf.strings.length(texts) > size

    def cut() -> tf.Tensor:
        # In a pattern \C is any byte: the text may not be UTF-8.
        begin = tf.strings.regex_replace(
            tf.strings.substr(texts, 0, size), r"^(\C*[ \t\n\r])\C*$", r"\1"
        )
        begin = tf.where(is_long & tf.strings.regex_full_match(begin, r"\C*[ \t\n\r]"), begin, "")
        is_enough = served.tokenizer.tokenize(begin).row_lengths() > limit
        return tf.where(is_enough, begin, texts)

    return tf.cond(tf.reduce_any(is_long), cut, lambda: texts)


def fit_rows(served: Served, *segments: tf.RaggedTensor) -> tuple[Rows, tf.Tensor]:
    """Rows of one or two segments of ids, [B, (tokens)] int32 each, and ``truncated`` (B,) bool."""
    ids, ranges = join_segments(segments)
    fitted = fit_segments(ranges, served.max_seq_length, served.tokenizer)
    return Rows(ids, fitted.ranges), fitted.truncated


def run_on_rows(
    served: Served,
    rows: Rows,
    head: Head,
    extra_features: Mapping[str, tf.Tensor] = MappingProxyType({}),
) -> Any:
    """Packs R rows and runs a head on them, in blocks of rows that are about as long as each other.

    The head takes the encoder's inputs of some rows, (N, S) int32 each, and their part of
    ``extra_features``, (R, longest S); it returns tensors (N, ...) whose other sizes do not
    depend on S.
    """
    lengths = rows.lengths
    if served.unmasked is None:
        return _in_blocks(served, rows, lengths, head, extra_features)
    unmasked = served.unmasked
    # One text, most often.
    size, width = tf.size(lengths), tf.reduce_max(lengths)
    fits = (size * width <= _TOKENS_CHUNK_SIZE) | (size == 1)

    def run_unpadded() -> Any:
        packed = pack(rows.ids, rows.segments, width, unmasked.tokenizer)
        return head(
            unmasked,
            {**packed, **{key: values[:, :width] for key, values in extra_features.items()}},
        )

    return tf.cond(
        (size > 0) & tf.reduce_all(lengths == width) & fits,
        run_unpadded,
        lambda: _in_blocks(served, rows, lengths, head, extra_features),
    )


def _in_blocks(
    served: Served,
    rows: Rows,
    lengths: tf.Tensor,
    head: Head,
    extra_features: Mapping[str, tf.Tensor],
) -> Any:
    table = token_table(rows.ids, served.tokenizer)
    size = tf.size(lengths)
    order = tf.argsort(lengths, direction="DESCENDING")
    lengths = tf.gather(lengths, order)
    # (R + 1,)
    tokens_before = tf.concat([[0], tf.cumsum(lengths)], 0)

    def step(begin: tf.Tensor) -> tuple[tf.Tensor, Any]:
        # An empty batch has no longest row; it gets the columns of an empty text.
        width = tf.reduce_max(lengths[begin : begin + 1])
        width = tf.maximum(width, 1 + len(rows.segments))
        limit = tf.minimum(tf.maximum(_TOKENS_CHUNK_SIZE // width, 1), size - begin)
        num_positions = width * (1 + tf.range(limit))
        real = tokens_before[begin + 1 : begin + 1 + limit] - tokens_before[begin]
        fits = (2 * real >= num_positions) | (num_positions - real <= _FREE_PADDING)
        end = begin + tf.math.count_nonzero(fits, dtype=tf.int32)
        block = order[begin:end]
        segments = [tuple(tf.gather(part, block) for part in segment) for segment in rows.segments]
        extra = {key: tf.gather(values, block)[:, :width] for key, values in extra_features.items()}
        packed = pack_from_table(table, segments, width, served.tokenizer.second_type)
        return end, head(served, {**packed, **extra})

    outputs = map_blocks(size, step)
    back = tf.argsort(order)
    return tf.nest.map_structure(lambda values: tf.gather(values, back), outputs)


def check_equally_many(first: tf.Tensor, second: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Two columns of a request, (B, ...) each, once it is checked that B is the same."""
    # A column of one row would be repeated for every row of the other, and nobody would know.
    check = tf.debugging.assert_equal(
        tf.shape(first)[0],
        tf.shape(second)[0],
        "Expected as many rows in both columns of the request.",
    )
    with tf.control_dependencies([check]):
        return tf.identity(first), tf.identity(second)


def dense(rows: tf.RaggedTensor, values: tf.Tensor, padding: str | float) -> tf.Tensor:
    """Puts P values into their rows, [B, (P)], padded to the longest, and to a column at least."""
    width = tf.maximum(tf.reduce_max(rows.row_lengths()), 1)
    return rows.with_values(values).to_tensor(padding, shape=tf.stack([-1, width]))
