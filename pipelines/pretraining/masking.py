"""Selects and replaces the tokens to predict.

Source: BERT paper, section 3.1 and appendix A.1; google-research/bert,
``create_pretraining_data.py`` (``create_masked_lm_predictions``). [CLS], [SEP] and padding are
never predicted. ``choices.MASK_SPLIT`` contains the percentages of [MASK], random and unchanged
tokens. If segment B starts with a ``##`` piece, which continues a split word, Google's script adds
the piece to the last word of segment A; here, the piece is a separate word.

Letters: R rows, S sequence length, P predictions, W words.
"""

import math
from typing import NamedTuple, get_args

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.choices import MASK_SPLIT, Masking
from bert_tf.pipelines.packing import SpecialTokens
from bert_tf.pipelines.randomness import Operation, below, bits, fold, uniform


def word_starts(
    word_ids: tf.Tensor, candidates: tf.Tensor, continuation: np.ndarray | tf.Tensor
) -> tf.Tensor:
    """Returns where words start, (R, S) bool: at pieces without ``##``, or after non-candidates.

    Args:
        word_ids: Token ids.
            Shape `(R, S)`, int32.
        candidates: Whether a token is neither special nor padding.
            Shape `(R, S)`, bool.
        continuation: Whether a piece of the vocabulary starts with ``##``.
            Shape `(V,)`, bool.
    """
    follows = tf.pad(candidates[:, :-1], [[0, 0], [1, 0]])
    return candidates & ~(tf.gather(tf.constant(continuation), word_ids) & follows)


def choose_tokens(
    candidates: tf.Tensor, counts: tf.Tensor, max_count: int, seed: tf.Tensor
) -> tf.Tensor:
    """Chooses single tokens, (R, S) bool, with equal probability for all sets of candidates.

    ``counts``, (R,), is the number of tokens per row, at most ``max_count``. Rows with fewer
    candidates use all of them.
    """
    rows, length = tf.unstack(tf.shape(candidates))
    keys = tf.where(candidates, _sort_keys([rows, length], seed), -1)
    keys, position = tf.math.top_k(keys, k=tf.minimum(max_count, length))
    is_chosen = (keys >= 0) & (tf.range(tf.shape(keys)[1])[None, :] < counts[:, None])
    flat = position + tf.range(rows)[:, None] * length
    return _mask_from_indices(tf.boolean_mask(flat, is_chosen), candidates)


def choose_words(
    starts: tf.Tensor, candidates: tf.Tensor, counts: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """Chooses the tokens of whole words, (R, S) bool, like Google's ``do_whole_word_mask``.

    Takes words in random order, and skips words that would exceed the row's count, (R,) int32.
    """
    begins, sizes = _words(starts, candidates)
    keys = tf.RaggedTensor.from_row_lengths(
        _sort_keys([tf.size(sizes)], seed), tf.math.count_nonzero(starts, axis=1)
    )
    # (R, W), where W is the maximum number of words per row: words in random order.
    dense = keys.to_tensor(-1)
    dense, order = tf.math.top_k(dense, k=tf.shape(dense)[1])
    order += tf.cast(keys.row_starts(), tf.int32)[:, None]
    order = tf.where(dense >= 0, order, 0)
    is_chosen = _take_greedily(tf.where(dense >= 0, tf.gather(sizes, order), 0), counts)
    words = tf.boolean_mask(order, is_chosen)
    begin = tf.gather(begins, words)
    flat = tf.ragged.range(begin, begin + tf.gather(sizes, words)).flat_values
    return _mask_from_indices(flat, candidates)


def _sort_keys(shape: list[tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
    """Draws non-negative int32 sort keys."""
    return tf.cast(bits(shape, seed) // 2, tf.int32)


def _mask_from_indices(flat: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Returns a mask, (R, S) bool, of positions in the flattened rows."""
    marks = tf.scatter_nd(flat[:, None], tf.ones_like(flat), [tf.size(like)])
    return tf.reshape(marks > 0, tf.shape(like))


def _words(starts: tf.Tensor, candidates: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the starts in flattened rows and the lengths of all words, (W,) int32."""
    begins = tf.cast(tf.where(tf.reshape(starts, [-1]))[:, 0], tf.int32)
    number = tf.cumsum(tf.cast(tf.reshape(starts, [-1]), tf.int32)) - 1
    tokens = tf.cast(tf.reshape(candidates, [-1]), tf.int32)
    return begins, tf.math.unsorted_segment_sum(tokens, number, tf.size(begins))


def _take_greedily(sizes: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Returns which of each row's ``sizes`` (R, W) fit, in order; sizes of 0 are ignored."""

    # Each iteration takes the words up to the first that does not fit, and drops words that exceed
    # the remaining room. Two or three iterations suffice.
    def take_fitting(
        is_taken: tf.Tensor, is_open: tf.Tensor, room: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        open_sizes = tf.where(is_open, sizes, 0)
        fits = is_open & (tf.cumsum(open_sizes, axis=1) <= room[:, None])
        room -= tf.reduce_sum(tf.where(fits, sizes, 0), axis=1)
        return is_taken | fits, is_open & ~fits & (sizes <= room[:, None]), room

    is_taken, _, _ = tf.while_loop(
        lambda is_taken, is_open, room: tf.reduce_any(is_open),
        take_fitting,
        (tf.zeros_like(sizes, tf.bool), (sizes > 0) & (sizes <= counts[:, None]), counts),
    )
    return is_taken


class Replacement(NamedTuple):
    """Fractions of predicted tokens to replace; the remaining ones are unchanged."""

    mask: float = MASK_SPLIT[0] / 100  # with [MASK]
    random: float = MASK_SPLIT[1] / 100  # with a token drawn uniformly from the vocabulary


PAPER_REPLACEMENT = Replacement()


def default_max_predictions(max_seq_length: int, masked_lm_prob: float) -> int:
    """Returns the number of predictions in a full row: at 0.15, 20 for 128 tokens, 77 for 512."""
    return max(1, math.ceil(masked_lm_prob * max_seq_length))


def prediction_counts(
    num_tokens: tf.Tensor, max_seq_length: int, max_predictions_per_seq: int, masked_lm_prob: float
) -> tf.Tensor:
    """Returns the number of tokens to predict per row, (R,) int32.

    This is min(max_predictions_per_seq, max(1, round(num_tokens * masked_lm_prob))), with Python's
    rounding (half to even), as in Google's script; 0 for 0 tokens. ``num_tokens``, (R,), includes
    [CLS] and [SEP].
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
    """Chooses and replaces the tokens to predict in packed rows.

    Args:
        word_ids: Token ids, with a static S.
            Shape `(R, S)`, int32.
        tokenizer: Tokenizer with the special tokens.
        max_predictions_per_seq: Maximum number of predictions per row, P.
        seed: Seed of the pool.
        masked_lm_prob: Number of predictions divided by all tokens, including [CLS] and [SEP].
        masking: ``"token"`` for single tokens, or ``"whole_word"`` for all pieces of a word.
        replacement: Fractions of predicted tokens to replace; each token is drawn independently.

    Returns:
        ``input_word_ids``, the inputs of the model, `(R, S)`, int32; ``masked_lm_positions``,
        ascending, and ``masked_lm_ids``, the original ids, `(R, P)`, int32; and
        ``masked_lm_weights``, 1 for predictions, `(R, P)`, float32. Unused entries are 0.

    Raises:
        ValueError: If ``masking`` is unknown.
    """
    if masking not in get_args(Masking):
        raise ValueError(
            f"masking: expected one of {', '.join(get_args(Masking))}, got {masking!r}."
        )
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
    if masking == "token":
        chosen = choose_tokens(candidates, counts, max_predictions_per_seq, choice_seed)
    else:
        starts = word_starts(word_ids, candidates, tokenizer.continuation)
        chosen = choose_words(starts, candidates, counts, choice_seed)
    positions, real = _sorted_positions(chosen, max_predictions_per_seq)
    draws = uniform(tf.shape(positions), fold(seed, Operation.MASK_REPLACEMENT))  # (R, P)
    original = tf.gather(word_ids, positions, batch_dims=1)
    random_bits = bits(tf.shape(positions), fold(seed, Operation.MASK_RANDOM_IDS))
    random_ids = tf.cast(below(random_bits, tokenizer.vocab_size), tf.int32)
    replaced = tf.where(
        draws < replacement.mask,
        tokenizer.mask_id,
        tf.where(draws < replacement.mask + replacement.random, random_ids, original),
    )
    # (R, P, 2). Without a prediction, position 0 receives its own id.
    row = tf.broadcast_to(tf.range(rows)[:, None], tf.shape(positions))
    masked_ids = tf.tensor_scatter_nd_update(
        word_ids, tf.stack([row, positions], 2), tf.where(real, replaced, original)
    )
    return _predictions(masked_ids, positions, original, real)


def predict_next(word_ids: tf.Tensor, tokenizer: SpecialTokens) -> dict[str, tf.Tensor]:
    """Predicts the next token at every position of packed rows, to train a causal model.

    No tokens are hidden. The target of [CLS] is the first token of the text, the target of the
    text's last token is [SEP], and in pairs, the target of that [SEP] is the first token of the
    second text. The last [SEP] and padding have no target. The results have the keys of
    ``mask_rows``, with P = S - 1 and unchanged ``input_word_ids``.
    """
    after = word_ids[:, 1:]
    real = after != tokenizer.pad_id
    positions = tf.broadcast_to(tf.range(after.shape[1]), tf.shape(after))
    return _predictions(word_ids, tf.where(real, positions, 0), after, real)


def _predictions(
    word_ids: tf.Tensor, positions: tf.Tensor, originals: tf.Tensor, real: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Returns the features of rows and their predictions."""
    return {
        features.INPUT_WORD_IDS: word_ids,
        features.MASKED_LM_POSITIONS: positions,
        features.MASKED_LM_IDS: tf.where(real, originals, 0),
        features.MASKED_LM_WEIGHTS: tf.cast(real, tf.float32),
    }


def _sorted_positions(
    chosen: tf.Tensor, max_predictions_per_seq: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the positions of ``chosen`` (R, S), (R, P) int32, and which of them are real."""
    where = tf.where(chosen)
    ragged = tf.RaggedTensor.from_value_rowids(
        tf.cast(where[:, 1], tf.int32), where[:, 0], tf.shape(chosen, tf.int64)[0]
    )
    positions = ragged.to_tensor(-1, shape=[None, max_predictions_per_seq])
    return tf.maximum(positions, 0), positions >= 0
