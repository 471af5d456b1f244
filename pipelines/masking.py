"""Masked-LM: which tokens of a row are predicted, and what stands in their place.

Source: BERT's paper, section 3.1 and appendix A.1; ``create_masked_lm_predictions`` in
google-research/bert, ``create_pretraining_data.py``; for spans, SpanBERT (Joshi et al. 2020),
section 3.1. [CLS], [SEP] and padding are never predicted. Google's script joins a ``##`` piece at
the very front of segment B, the rest of a word cut there, to the last word of segment A; here it is
a word of its own.

Letters: R rows, S sequence length, P predictions.
"""

import math
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np
import tensorflow as tf

from bert_tf import features

from .mask_choice import choose_spans, choose_tokens, choose_words, span_lengths, word_starts
from .randomness import Operation, below, bits, fold, uniform

Masking = Literal["token", "whole_word", "span"]


class SpecialTokens(Protocol):
    """What masking must know of a tokenizer; ``wordpiece.BertTokenizer`` has it."""

    vocab_size: int
    pad_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    continuation: np.ndarray


class Replacement(NamedTuple):
    """What becomes of a predicted token; the rest (by default 10%) stays as it is.

    Attributes:
        mask: the share that becomes [MASK].
        random: the share that becomes a token drawn uniformly from the whole vocabulary.
    """

    mask: float = 0.8
    random: float = 0.1


PAPER_REPLACEMENT = Replacement()


def default_max_predictions(max_seq_length: int, masked_lm_prob: float) -> int:
    """The predictions that a full row needs: 20 for 128 tokens at 0.15, 77 for 512.

    >>> default_max_predictions(128, 0.15), default_max_predictions(512, 0.15)
    (20, 77)
    """
    return max(1, math.ceil(masked_lm_prob * max_seq_length))


def check_masking(masking: str) -> None:
    """Raises a ValueError where ``masking`` is no known way to choose what is predicted."""
    if masking not in get_args(Masking):
        raise ValueError(
            f"masking: expected one of {', '.join(get_args(Masking))}; got {masking!r}."
        )


def prediction_counts(
    num_tokens: tf.Tensor, max_seq_length: int, max_predictions_per_seq: int, masked_lm_prob: float
) -> tf.Tensor:
    """How many tokens of a row are to be predicted.

    That is min(max_predictions_per_seq, max(1, round(num_tokens * masked_lm_prob))): one at least,
    even at probability 0. The rounding is Python's (half to even), as in Google's script.

    Args:
        num_tokens: (R,) integers, [CLS] and [SEP] included, ``max_seq_length`` at most.
        max_seq_length: S.
        max_predictions_per_seq: P.
        masked_lm_prob: the share of tokens to predict.

    Returns:
        (R,) int32; 0 where ``num_tokens`` is 0.

    >>> prediction_counts(tf.constant([0, 1, 10, 128]), 128, 20, 0.15).numpy()
    array([ 0,  1,  2, 19], dtype=int32)
    """
    table = [
        min(max_predictions_per_seq, max(1, round(n * masked_lm_prob))) if n else 0
        for n in range(max_seq_length + 1)
    ]
    return tf.gather(tf.constant(table, tf.int32), num_tokens)


def mask_rows(
    word_ids: tf.Tensor,
    tokenizer: SpecialTokens,
    *,
    max_predictions_per_seq: int,
    seed: tf.Tensor,
    masked_lm_prob: float = 0.15,
    masking: Masking = "token",
    replacement: Replacement = PAPER_REPLACEMENT,
) -> dict[str, tf.Tensor]:
    """Chooses the tokens to predict, and replaces them.

    Args:
        word_ids: (R, S) int32 with a static S: packed rows.
        tokenizer: says which ids are special and which pieces continue a word.
        max_predictions_per_seq: P.
        seed: from ``randomness.fold``, shape (2,).
        masked_lm_prob: the share of a row's tokens, [CLS] and [SEP] counted, to predict.
        masking: ``"token"``: each token alone; ``"whole_word"``: words with all their ``##``
            pieces; ``"span"``: runs of one to ten whole words.
        replacement: what becomes of them; with ``"span"`` it is drawn once for a span, else once
            for each token.

    Returns:
        ``input_word_ids`` (R, S) int32 as the model sees them; ``masked_lm_positions`` (R, P)
        int32, ascending, ``masked_lm_ids`` (R, P) int32, the original ids, and
        ``masked_lm_weights`` (R, P) float32, 1 = real; each 0 where there is no prediction.

    Raises:
        ValueError: ``masking`` is none of the three.
    """
    check_masking(masking)
    rows, length = tf.shape(word_ids)[0], word_ids.shape[1]
    special = (word_ids == tokenizer.cls_id) | (word_ids == tokenizer.sep_id)
    padding = word_ids == tokenizer.pad_id
    candidates = ~(special | padding)
    counts = prediction_counts(
        length - tf.math.count_nonzero(padding, axis=1, dtype=tf.int32),
        length,
        max_predictions_per_seq,
        masked_lm_prob,
    )
    choice_seed = fold(seed, Operation.MASK_CHOICE)
    replacement_seed = fold(seed, Operation.MASK_REPLACEMENT)
    starts = word_starts(word_ids, candidates, tokenizer.continuation)
    anchors = None
    if masking == "token":
        chosen = choose_tokens(candidates, counts, max_predictions_per_seq, choice_seed)
    elif masking == "whole_word":
        chosen = choose_words(starts, candidates, counts, choice_seed)
    else:
        lengths = span_lengths(tf.shape(word_ids), fold(seed, Operation.SPAN_LENGTHS))
        anchors = choose_spans(starts, candidates, counts, lengths, choice_seed)
        chosen = anchors >= 0
    positions, real = _ascending(chosen, max_predictions_per_seq)
    # (R, P): drawn for each prediction, or for each position at which a span may begin.
    if anchors is None:
        drawn = uniform(tf.shape(positions), replacement_seed)
    else:
        drawn = uniform(tf.shape(word_ids), replacement_seed)
        anchor = tf.maximum(tf.gather(anchors, positions, batch_dims=1), 0)
        drawn = tf.gather(drawn, anchor, batch_dims=1)
    original = tf.gather(word_ids, positions, batch_dims=1)
    random_bits = bits(tf.shape(positions), fold(seed, Operation.MASK_RANDOM_IDS))
    random_ids = tf.cast(below(random_bits, tokenizer.vocab_size), tf.int32)
    replaced = tf.where(
        drawn < replacement.mask,
        tokenizer.mask_id,
        tf.where(drawn < replacement.mask + replacement.random, random_ids, original),
    )
    # (R, P, 2). Where there is no prediction, position 0 is given the id that it has.
    row = tf.broadcast_to(tf.range(rows)[:, None], tf.shape(positions))
    seen = tf.tensor_scatter_nd_update(
        word_ids, tf.stack([row, positions], 2), tf.where(real, replaced, original)
    )
    return {
        features.INPUT_WORD_IDS: seen,
        features.MASKED_LM_POSITIONS: positions,
        features.MASKED_LM_IDS: tf.where(real, original, 0),
        features.MASKED_LM_WEIGHTS: tf.cast(real, tf.float32),
    }


def _ascending(chosen: tf.Tensor, max_predictions_per_seq: int) -> tuple[tf.Tensor, tf.Tensor]:
    """(R, S) bool to (R, P) int32 positions, 0 where there is none, and (R, P) bool, which are."""
    where = tf.where(chosen)
    ragged = tf.RaggedTensor.from_value_rowids(
        tf.cast(where[:, 1], tf.int32), where[:, 0], tf.shape(chosen, tf.int64)[0]
    )
    positions = ragged.to_tensor(-1, shape=[None, max_predictions_per_seq])
    return tf.maximum(positions, 0), positions >= 0
