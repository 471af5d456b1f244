"""Packs segments into rows of fixed length: [CLS] A [SEP] B [SEP], with masks and type ids.

Letters: R rows, S sequence length.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from bert_tf import features

from .randomness import Operation, fold


class SpecialTokens(Protocol):
    """Tokenizer attributes that packing and masking use."""

    vocab_size: int
    pad_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    second_type: int
    odd_to_longer: bool
    continuation: np.ndarray


def longest_first(
    a_lengths: tf.Tensor,
    b_lengths: tf.Tensor,
    max_tokens: int | tf.Tensor,
    odd_to_longer: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the lengths of A and B, (R,), after dropping tokens, always from the longer segment.

    If the lengths are equal, B loses a token, as in Google's ``truncate_seq_pair``. With
    ``odd_to_longer``, an odd token remains with the originally longer segment, else with B, as with
    ``longest_first`` in ``tokenizers``.
    """
    limit = tf.cast(max_tokens, a_lengths.dtype)
    odd = tf.cast(a_lengths > b_lengths, limit.dtype) if odd_to_longer else 1
    size_a = tf.minimum(a_lengths, tf.maximum((limit + odd) // 2, limit - b_lengths))
    return size_a, tf.minimum(b_lengths, limit - size_a)


class Segments(NamedTuple):
    """Pairs of segments, as ranges of a pool's token ids; B may be empty."""

    a_start: tf.Tensor  # (R,) int64; A is ids[a_start:a_end]
    a_end: tf.Tensor
    b_start: tf.Tensor
    b_end: tf.Tensor
    labels: tf.Tensor  # (R,) int32, 0 = B follows A, 1 = B is random


def cut_pairs(segments: Segments, max_tokens: int, seed: tf.Tensor) -> Segments:
    """Truncates pairs to ``max_tokens``, at least 2, as Google's ``truncate_seq_pair`` does.

    Each token is dropped at the front or back with equal probability, so the number of tokens
    dropped at the front is binomial. ``seed`` is the seed of the pool.
    """
    a_lengths = segments.a_end - segments.a_start
    b_lengths = segments.b_end - segments.b_start
    size_a, size_b = longest_first(a_lengths, b_lengths, max_tokens)
    a_start = segments.a_start + _front(a_lengths - size_a, fold(seed, Operation.CUTS_A))
    b_start = segments.b_start + _front(b_lengths - size_b, fold(seed, Operation.CUTS_B))
    return Segments(a_start, a_start + size_a, b_start, b_start + size_b, segments.labels)


# Starts and lengths of a segment in a vector of tokens, (R,) integers each.
Range = tuple[tf.Tensor, tf.Tensor]


class FittedSegments(NamedTuple):
    """Segments that fit into their rows; see ``fit_segments``."""

    ranges: list[Range]  # remaining tokens, for `pack`
    lengths: tf.Tensor  # (R,) int32, tokens per row, including [CLS] and [SEP]
    truncated: tf.Tensor  # (R,) bool


def join_segments(segments: Sequence[tf.RaggedTensor]) -> tuple[tf.Tensor, list[Range]]:
    """Concatenates ragged ids, [R, (tokens)] int32; returns all ids and each segment's ranges."""
    ranges = []
    offset = tf.constant(0)
    for segment in segments:
        starts, lengths = segment.row_starts(), segment.row_lengths()
        ranges.append((tf.cast(starts, tf.int32) + offset, tf.cast(lengths, tf.int32)))
        offset += tf.size(segment.flat_values)
    return tf.concat([segment.flat_values for segment in segments], 0), ranges


def fit_segments(
    segments: Sequence[Range], max_seq_length: int, tokenizer: SpecialTokens
) -> FittedSegments:
    """Truncates one or two segments at the end, so that they fit with [CLS] and [SEP].

    Pairs are truncated by ``longest_first``. Ranges of A and B may have any common shape.
    """
    lengths = [lengths for _, lengths in segments]
    special = 1 + len(segments)
    room = max_seq_length - special
    if len(segments) == 1:
        fitting = [tf.minimum(lengths[0], room)]
    else:
        lengths_a, lengths_b = lengths
        fitting = list(longest_first(lengths_a, lengths_b, room, tokenizer.odd_to_longer))
    ranges = [(starts, stay) for (starts, _), stay in zip(segments, fitting, strict=True)]
    tokens = tf.add_n(fitting)
    return FittedSegments(ranges, tf.cast(tokens, tf.int32) + special, tokens < tf.add_n(lengths))


def pack(
    ids: tf.Tensor,
    segments: Sequence[Range],
    max_seq_length: int | tf.Tensor,
    tokenizer: SpecialTokens,
) -> dict[str, tf.Tensor]:
    """Packs rows of one or two segments: [CLS] A [SEP], or [CLS] A [SEP] B [SEP].

    Args:
        ids: All tokens.
            Shape `(tokens,)`, int32.
        segments: Starts and lengths of segments in ``ids``, which must fit into the row.
            Shape `(R,)`, integer.
        max_seq_length: Length of the rows, S.
        tokenizer: Tokenizer with the special tokens.

    Returns:
        ``input_word_ids``, ``input_mask`` (1 for real tokens) and ``input_type_ids`` (the
        tokenizer's ``second_type`` for B [SEP], else 0).
            Shape `(R, S)`, int32.
    """
    table = token_table(ids, tokenizer)
    return pack_from_table(table, segments, max_seq_length, tokenizer.second_type)


def token_table(ids: tf.Tensor, tokenizer: SpecialTokens) -> tf.Tensor:
    """Appends the ids of [PAD], [CLS] and [SEP] to all tokens, for ``pack_from_table``."""
    special = [tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id]
    return tf.concat([ids, tf.constant(special, ids.dtype)], 0)


def pack_from_table(
    table: tf.Tensor,
    segments: Sequence[Range],
    max_seq_length: int | tf.Tensor,
    second_type: int = 1,
) -> dict[str, tf.Tensor]:
    """Packs rows as ``pack`` does, at a cost independent of the number of tokens."""
    # Each position becomes an index into the table, for a single gather.
    pad, cls, sep = (tf.size(table) - 3 + offset for offset in range(3))
    position = tf.range(max_seq_length)[None, :]
    index = tf.where(position == 0, cls, pad)
    (_, first_lengths), *_ = segments
    end = tf.ones_like(first_lengths, tf.int32)[:, None]
    type_ids = tf.zeros_like(end)
    for number, (starts, lengths) in enumerate(segments):
        begin = end
        end = begin + tf.cast(lengths, tf.int32)[:, None]
        shift = tf.cast(starts, tf.int32)[:, None] - begin
        inside = (position >= begin) & (position < end)
        # (R, S)
        index = tf.where(inside, position + shift, tf.where(position == end, sep, index))
        end += 1
        if number and second_type:
            type_ids = tf.cast((position >= begin) & (position < end), tf.int32)
    return {
        features.INPUT_WORD_IDS: tf.gather(table, index),
        features.INPUT_MASK: tf.cast(position < end, tf.int32),
        features.INPUT_TYPE_IDS: tf.broadcast_to(type_ids, tf.shape(index)),
    }


def _front(dropped: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draws how many of the dropped tokens are at the front, binomial (dropped, 1/2)."""
    return tf.random.stateless_binomial(
        tf.shape(dropped),
        seed,
        counts=tf.cast(dropped, tf.float64),
        probs=tf.constant(0.5, tf.float64),
        output_dtype=tf.int64,
    )


def check_at_least(name: str, value: int, minimum: int) -> None:
    """Raises a ValueError if ``value`` is below ``minimum``."""
    if value < minimum:
        raise ValueError(f"{name}: expected at least {minimum}, got {value}.")
