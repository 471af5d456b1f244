"""Which tokens are predicted: tokens, whole words, or spans of words, up to a row's count.

Each function fills every row's count as far as it can, by one greedy pass over the row's
candidates in random order, and works on all rows at once. Letters: R rows, S sequence length.
"""

import numpy as np
import tensorflow as tf

from .randomness import bits, uniform

# SpanBERT's lengths: geometric (0.2), cut at 10 words and renormalised; 3.8 words on average.
_LENGTH_WEIGHTS = 0.2 * 0.8 ** np.arange(10)
_LENGTH_BORDERS = np.cumsum(_LENGTH_WEIGHTS / _LENGTH_WEIGHTS.sum())[:-1].astype(np.float32)


def word_starts(
    word_ids: tf.Tensor, candidates: tf.Tensor, continuation: np.ndarray | tf.Tensor
) -> tf.Tensor:
    """Says where words begin.

    Args:
        word_ids: (R, S) int32.
        candidates: (R, S) bool, the tokens of words: neither special nor padding.
        continuation: (V,) bool, the vocabulary's ``##`` pieces.

    Returns:
        (R, S) bool: the candidates that are no ``##`` piece or that follow no candidate.
    """
    follows = tf.pad(candidates[:, :-1], [[0, 0], [1, 0]])
    return candidates & ~(tf.gather(tf.constant(continuation), word_ids) & follows)


def choose_tokens(
    candidates: tf.Tensor, counts: tf.Tensor, max_count: int, seed: tf.Tensor
) -> tf.Tensor:
    """Chooses single tokens, each set of ``counts`` candidates equally likely.

    Args:
        candidates: (R, S) bool.
        counts: (R,) int32, how many to choose.
        max_count: no count is greater.
        seed: from ``randomness.fold``, shape (2,).

    Returns:
        (R, S) bool: all candidates, where a row has fewer than its count.

    >>> some = tf.constant([[False, True, True, False]])
    >>> choose_tokens(some, tf.constant([2]), 3, tf.constant([0, 0])).numpy()
    array([[False,  True,  True, False]])
    """
    rows, length = tf.unstack(tf.shape(candidates))
    keys = tf.where(candidates, _keys([rows, length], seed), -1)
    keys, position = tf.math.top_k(keys, k=tf.minimum(max_count, length))
    taken = (keys >= 0) & (tf.range(tf.shape(keys)[1])[None, :] < counts[:, None])
    return _marked(tf.boolean_mask(position + tf.range(rows)[:, None] * length, taken), candidates)


def choose_words(
    starts: tf.Tensor, candidates: tf.Tensor, counts: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """Chooses whole words: Google's ``do_whole_word_mask``.

    The words are taken in random order; one that would pass the row's count is left out, and
    those after it are tried.

    Args:
        starts: (R, S) bool, from ``word_starts``.
        candidates: (R, S) bool, the tokens of words.
        counts: (R,) int32, the tokens to choose at most.
        seed: from ``randomness.fold``, shape (2,).

    Returns:
        (R, S) bool: the tokens of the chosen words.
    """
    begins, sizes, _ = _words(starts, candidates)
    keys = tf.RaggedTensor.from_row_lengths(
        _keys([tf.size(sizes)], seed), tf.math.count_nonzero(starts, axis=1)
    )
    # (R, W), W the greatest number of words in a row: the row's words in random order.
    dense = keys.to_tensor(-1)
    dense, order = tf.math.top_k(dense, k=tf.shape(dense)[1])
    order += tf.cast(keys.row_starts(), tf.int32)[:, None]
    order = tf.where(dense >= 0, order, 0)
    taken = _take_greedily(tf.where(dense >= 0, tf.gather(sizes, order), 0), counts)
    words = tf.boolean_mask(order, taken)
    begin = tf.gather(begins, words)
    flat = tf.ragged.range(begin, begin + tf.gather(sizes, words)).flat_values
    return _marked(flat, candidates)


def choose_spans(
    starts: tf.Tensor,
    candidates: tf.Tensor,
    counts: tf.Tensor,
    lengths: tf.Tensor,
    seed: tf.Tensor,
) -> tf.Tensor:
    """Chooses runs of whole words, after SpanBERT (Joshi et al. 2020, section 3.1).

    Until the row's count is filled, a span begins at a word drawn uniformly from those not yet
    chosen, and takes as many words as were drawn for it. It ends sooner at [SEP], at a word that
    is already chosen, or before a word that would pass the count. SpanBERT's own code lets a
    span run on over chosen words and cuts the last word at the count; here spans stay apart
    and words whole.

    Args:
        starts: (R, S) bool, from ``word_starts``.
        candidates: (R, S) bool, the tokens of words.
        counts: (R,) int32, the tokens to choose at most.
        lengths: (R, S) int32, the words in a span that begins here, from ``span_lengths``.
        seed: from ``randomness.fold``, shape (2,).

    Returns:
        (R, S) int32: the position at which a chosen token's span begins, -1 elsewhere.
    """
    rows, length = tf.unstack(tf.shape(candidates))
    position = tf.range(length)[None, :]
    begins, sizes, number = _words(starts, candidates)
    number = tf.reshape(number, [rows, length])
    # (R, S): one past the end of each token's word, and of a span that begins at it.
    ends = tf.concat([begins + sizes, [0]], 0)  # The 0 is for rows none of which has a word.
    word_end = tf.gather(ends, tf.maximum(number, 0)) - tf.range(rows)[:, None] * length
    keys = tf.where(starts, _keys([rows, length], seed), -1)

    def take_one(anchors: tf.Tensor, left: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, ...]:
        free = candidates & (anchors < 0)
        open_keys = tf.where(free & (word_end - position <= left[:, None]), keys, -1)
        anchor = tf.argmax(open_keys, axis=1, output_type=tf.int32)[:, None]
        last = tf.gather(number + lengths, anchor, batch_dims=1)
        after = position >= anchor
        stop = tf.reduce_min(tf.where(after & ~free, position, length), axis=1, keepdims=True)
        some = tf.gather(open_keys, anchor, batch_dims=1) >= 0
        span = after & (position < stop) & (number < last) & some
        span &= word_end - anchor <= left[:, None]
        left -= tf.math.count_nonzero(span, axis=1, dtype=tf.int32)
        return tf.where(span, anchor, anchors), left, tf.reduce_any(some)

    anchors, _, _ = tf.while_loop(
        lambda anchors, left, more: more,
        take_one,
        (tf.fill([rows, length], -1), counts, tf.size(begins) > 0),
    )
    return anchors


def span_lengths(shape: tf.Tensor | list[int], seed: tf.Tensor) -> tf.Tensor:
    """Draws SpanBERT's span lengths: geometric (0.2) on one to ten words, 3.8 on average.

    Args:
        shape: the shape of the result.
        seed: from ``randomness.fold``, shape (2,).

    Returns:
        int32 in [1, 10].
    """
    drawn = tf.reshape(uniform(shape, seed), [-1])
    return 1 + tf.reshape(tf.searchsorted(_LENGTH_BORDERS, drawn, side="right"), shape)


def _keys(shape: list[tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
    """Random int32 sort keys that are not negative."""
    return tf.cast(bits(shape, seed) // 2, tf.int32)


def _marked(flat: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """(R, S) bool, true at some positions of the flattened rows."""
    marks = tf.scatter_nd(flat[:, None], tf.ones_like(flat), [tf.size(like)])
    return tf.reshape(marks > 0, tf.shape(like))


def _words(starts: tf.Tensor, candidates: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Lists the words of all rows.

    Returns:
        (W,) int32, where each word begins in the flattened rows; (W,) int32, its tokens; and
        (R*S,) int32, at each position the number of the last word that has begun, or -1.
    """
    begins = tf.cast(tf.where(tf.reshape(starts, [-1]))[:, 0], tf.int32)
    number = tf.cumsum(tf.cast(tf.reshape(starts, [-1]), tf.int32)) - 1
    tokens = tf.cast(tf.reshape(candidates, [-1]), tf.int32)
    return begins, tf.math.unsorted_segment_sum(tokens, number, tf.size(begins)), number


def _take_greedily(sizes: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Goes through each row and takes what still fits.

    Args:
        sizes: (R, W) int32, 0 = nothing to take.
        counts: (R,) int32, what the sizes of those taken may add up to.

    Returns:
        (R, W) bool.
    """

    # A turn takes the words up to the first that does not fit. What is larger than what is left
    # will never fit again, so that the next turn goes on behind it: two or three turns in all.
    def turn(
        taken: tf.Tensor, open_: tf.Tensor, left: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        open_sizes = tf.where(open_, sizes, 0)
        fits = open_ & (tf.cumsum(open_sizes, axis=1) <= left[:, None])
        left -= tf.reduce_sum(tf.where(fits, sizes, 0), axis=1)
        return taken | fits, open_ & ~fits & (sizes <= left[:, None]), left

    taken, _, _ = tf.while_loop(
        lambda taken, open_, left: tf.reduce_any(open_),
        turn,
        (tf.zeros_like(sizes, tf.bool), (sizes > 0) & (sizes <= counts[:, None]), counts),
    )
    return taken
