"""Rows of token ids from texts, and chunks of rows of similar length to save padding.

Signature functions take the served model and a request's tensors, whose first dimension is the
batch size, possibly 0. Their outputs are dense, padded with "", -1 or 0 and accompanied by
counts, so that TensorFlow Serving can split a batch. ``truncated`` marks texts that were cut.

Dimensions, also in the modules of signatures: B batch, S sequence, H hidden, V vocabulary, C
classes, K candidates (tokens, answers or choices), R rows.
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

# Maximum number of tokens per model call, including padding: 8 rows of 512 tokens, or 64 rows of
# 64. Larger calls are not faster on CPUs, and attention memory grows with the number of rows times
# the square of their length.
_TOKENS_CHUNK_SIZE = 4096
# Number of bytes of text that almost always contain at least one token.
_BYTES_PER_TOKEN = 64
# Number of padding tokens that take less time than another model call.
_FREE_PADDING = 256

# Function that maps the served model and the encoder's inputs for some rows to tensors.
Head = Callable[[Served, Outputs], Any]


class Rows(NamedTuple):
    """Rows [CLS] A [SEP] or [CLS] A [SEP] B [SEP] before packing: token ids and ranges."""

    ids: tf.Tensor  # tokens of all texts, int32
    segments: Sequence[Range]  # ranges of A and, for pairs, of B, (R,) int32 each

    @property
    def lengths(self) -> tf.Tensor:
        """Number of tokens per row, including special tokens, shape (R,) int32."""
        return tf.add_n([lengths for _, lengths in self.segments]) + 1 + len(self.segments)


def text_rows(served: Served, *texts: tf.Tensor) -> tuple[Rows, tf.Tensor]:
    """Returns the rows of texts or text pairs, (B,) string each, and ``truncated``, (B,) bool."""
    if len(texts) == 2:
        texts = check_equally_many(*texts)
    cut = [truncate_texts(served, strings, served.max_seq_length) for strings in texts]
    return fit_rows(served, *(served.tokenizer.tokenize(strings) for strings in cut))


def truncate_texts(served: Served, texts: tf.Tensor, limit: int) -> tf.Tensor:
    """Cuts long texts, (B,) string, at white space after more than ``limit`` tokens."""
    # White space always ends a word, so the tokens before it do not depend on the rest of the text.
    size = limit * _BYTES_PER_TOKEN
    is_long = tf.strings.length(texts) > size

    def cut() -> tf.Tensor:
        # The pattern \C matches any byte, because the text may not be valid UTF-8.
        begin = tf.strings.regex_replace(
            tf.strings.substr(texts, 0, size), r"^(\C*[ \t\n\r])\C*$", r"\1"
        )
        begin = tf.where(is_long & tf.strings.regex_full_match(begin, r"\C*[ \t\n\r]"), begin, "")
        is_enough = served.tokenizer.tokenize(begin).row_lengths() > limit
        return tf.where(is_enough, begin, texts)

    return tf.cond(tf.reduce_any(is_long), cut, lambda: texts)


def fit_rows(served: Served, *segments: tf.RaggedTensor) -> tuple[Rows, tf.Tensor]:
    """Returns rows of one or two segments, [B, (tokens)] int32, and ``truncated``, (B,) bool."""
    ids, ranges = join_segments(segments)
    fitted = fit_segments(ranges, served.max_seq_length, served.tokenizer)
    return Rows(ids, fitted.ranges), fitted.truncated


def run_rows(
    served: Served, rows: Rows, head: Head, extras: Mapping[str, tf.Tensor] = MappingProxyType({})
) -> Any:
    """Packs R rows and runs a head on them in chunks of rows of similar length.

    The head takes the encoder's inputs for N rows, (N, S) int32 each, and the same rows of the
    tensors in ``extras``, which have the shape (R, maximum S). It returns tensors of shape (N, ...)
    whose other dimensions do not depend on S.
    """
    lengths = rows.lengths
    if served.unmasked is None:
        return _in_blocks(served, rows, lengths, head, extras)
    unmasked = served.unmasked
    # A single text, which is the most common case, needs no padding.
    size, width = tf.size(lengths), tf.reduce_max(lengths)
    fits = (size * width <= _TOKENS_CHUNK_SIZE) | (size == 1)

    def run_unpadded() -> Any:
        packed = pack(rows.ids, rows.segments, width, unmasked.tokenizer)
        return head(
            unmasked, {**packed, **{key: values[:, :width] for key, values in extras.items()}}
        )

    return tf.cond(
        (size > 0) & tf.reduce_all(lengths == width) & fits,
        run_unpadded,
        lambda: _in_blocks(served, rows, lengths, head, extras),
    )


def _in_blocks(
    served: Served, rows: Rows, lengths: tf.Tensor, head: Head, extras: Mapping[str, tf.Tensor]
) -> Any:
    table = token_table(rows.ids, served.tokenizer)
    size = tf.size(lengths)
    order = tf.argsort(lengths, direction="DESCENDING")
    lengths = tf.gather(lengths, order)
    # (R + 1,)
    tokens_before = tf.concat([[0], tf.cumsum(lengths)], 0)

    def step(begin: tf.Tensor) -> tuple[tf.Tensor, Any]:
        # An empty batch has no longest row, so its width is the length of an empty text.
        width = tf.reduce_max(lengths[begin : begin + 1])
        width = tf.maximum(width, 1 + len(rows.segments))
        limit = tf.minimum(tf.maximum(_TOKENS_CHUNK_SIZE // width, 1), size - begin)
        padded = width * (1 + tf.range(limit))
        real = tokens_before[begin + 1 : begin + 1 + limit] - tokens_before[begin]
        fits = (2 * real >= padded) | (padded - real <= _FREE_PADDING)
        end = begin + tf.math.count_nonzero(fits, dtype=tf.int32)
        block = order[begin:end]
        segments = [tuple(tf.gather(part, block) for part in segment) for segment in rows.segments]
        block_extras = {key: tf.gather(values, block)[:, :width] for key, values in extras.items()}
        packed = pack_from_table(table, segments, width, served.tokenizer.second_type)
        return end, head(served, {**packed, **block_extras})

    outputs = map_blocks(size, step)
    back = tf.argsort(order)
    return tf.nest.map_structure(lambda values: tf.gather(values, back), outputs)


def check_equally_many(first: tf.Tensor, second: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Checks that two inputs of a request, (B, ...) each, have the same number of rows."""
    # An input with one row would otherwise be broadcast silently.
    check = tf.debugging.assert_equal(
        tf.shape(first)[0],
        tf.shape(second)[0],
        "Expected the same number of rows in both inputs of the request.",
    )
    with tf.control_dependencies([check]):
        return tf.identity(first), tf.identity(second)


def dense(rows: tf.RaggedTensor, values: tf.Tensor, padding: str | float) -> tf.Tensor:
    """Returns values (P,) as a padded matrix with the row lengths of ``rows``.

    The matrix has at least one column.
    """
    width = tf.maximum(tf.reduce_max(rows.row_lengths()), 1)
    return rows.with_values(values).to_tensor(padding, shape=tf.stack([-1, width]))
