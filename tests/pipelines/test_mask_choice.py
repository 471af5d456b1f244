import itertools

import numpy as np
import tensorflow as tf

from bert_tf.pipelines.mask_choice import (
    choose_spans,
    choose_tokens,
    choose_words,
    span_lengths,
    word_starts,
)
from bert_tf.pipelines.randomness import bits, fold
from tests.pipelines import pretraining_twins as twins

SEED = fold(5)


def _random_rows(rows, length, seed):
    """Rows of words of one to five tokens in two segments, [CLS], [SEP] and padding between."""
    generator = np.random.default_rng(seed)
    starts, candidates = np.zeros((2, rows, length), bool)
    for row in range(rows):
        separator = generator.integers(2, length - 2)
        end = generator.integers(separator + 1, length)
        candidates[row, 1:end] = True
        candidates[row, separator] = False
        position = 1
        while position < end:
            starts[row, position] = candidates[row, position]
            position += generator.integers(1, 6)
        starts[row, [1, separator + 1]] = candidates[row, [1, separator + 1]]
    return starts, candidates


def test_word_starts():
    # [CLS] a ##b c [SEP] ##b a ##b [SEP] [PAD]: a piece at the front of a segment begins a word.
    ids = tf.constant([[0, 4, 5, 6, 1, 5, 4, 5, 1, 2]])
    candidates = ids > 3
    continuation = np.array([False] * 5 + [True, False])
    starts = word_starts(ids, candidates, continuation)
    assert starts.numpy().astype(int).tolist() == [[0, 1, 0, 1, 0, 1, 1, 0, 0, 0]]


def test_tokens_are_as_many_as_asked_for_and_candidates():
    _, candidates = _random_rows(200, 24, 0)
    counts = np.arange(200, dtype=np.int32) % 9
    chosen = choose_tokens(candidates, counts, 8, SEED).numpy()
    assert not (chosen & ~candidates).any()
    np.testing.assert_array_equal(chosen.sum(1), np.minimum(counts, candidates.sum(1)))


def test_every_set_of_tokens_is_equally_likely():
    n = 12_000
    candidates = np.tile([False, True, True, True, False, True], (n, 1))
    chosen = choose_tokens(candidates, np.full(n, 2, np.int32), 2, SEED).numpy()
    sets, counts = np.unique(chosen, axis=0, return_counts=True)
    assert len(sets) == 6
    np.testing.assert_allclose(counts / n, 1 / 6, atol=4 * (5 / 36 / n) ** 0.5)


def test_words_equal_the_plain_loop():
    starts, candidates = _random_rows(300, 30, 1)
    counts = np.random.default_rng(2).integers(0, 12, 300).astype(np.int32)
    chosen = tf.function(choose_words)(starts, candidates, counts, SEED).numpy()
    keys = iter((bits([starts.sum()], SEED) // 2).numpy())
    for row in range(300):
        words = twins.words(starts[row], candidates[row])
        twin = twins.choose_words(words, list(itertools.islice(keys, len(words))), counts[row])
        assert np.flatnonzero(chosen[row]).tolist() == twin


def test_a_word_too_long_is_left_out_and_the_next_ones_are_tried():
    starts = tf.constant([[True, False, False, True, True, False]])
    for seed in range(20):
        chosen = choose_words(starts, tf.ones_like(starts), tf.constant([2]), fold(seed)).numpy()
        assert chosen.tolist() in ([[0, 0, 0, 1, 0, 0]], [[0, 0, 0, 0, 1, 1]])
    nothing = choose_words(starts[:, :3], tf.ones([1, 3], tf.bool), tf.constant([2]), SEED)
    assert not nothing.numpy().any()


def test_words_of_no_rows_and_of_rows_without_words():
    none = np.zeros((0, 8), bool)
    assert choose_words(none, none, np.zeros(0, np.int32), SEED).shape == (0, 8)
    empty = np.zeros((3, 8), bool)
    assert not choose_words(empty, empty, np.ones(3, np.int32), SEED).numpy().any()
    lengths = np.ones((3, 8), np.int32)
    assert (choose_spans(empty, empty, np.ones(3, np.int32), lengths, SEED).numpy() == -1).all()


def test_spans_equal_the_plain_loop():
    starts, candidates = _random_rows(200, 30, 3)
    counts = np.random.default_rng(4).integers(0, 16, 200).astype(np.int32)
    lengths = span_lengths([200, 30], fold(9))
    anchors = tf.function(choose_spans)(starts, candidates, counts, lengths, SEED).numpy()
    keys = (bits([200, 30], SEED) // 2).numpy()
    for row in range(200):
        words = twins.words(starts[row], candidates[row])
        twin = twins.choose_spans(words, keys[row], lengths[row].numpy(), counts[row])
        assert {int(at): int(anchors[row, at]) for at in np.flatnonzero(anchors[row] >= 0)} == twin


def test_spans_stop_at_the_separator_at_chosen_words_and_at_the_count():
    candidates = np.array([[True, True, True, False, True, True]])
    lengths = np.full((1, 6), 10, np.int32)
    seen = set()
    for seed in range(40):
        anchors = choose_spans(candidates, candidates, np.array([4], np.int32), lengths, fold(seed))
        assert (anchors.numpy() >= 0).sum() == 4
        seen.add(tuple(anchors.numpy()[0].tolist()))
    # A whole segment, then what is left of the count; and a span that stops at a chosen word.
    assert seen & {(0, 0, 0, -1, 4, -1), (0, 0, 0, -1, -1, 5)}
    assert seen & {(0, 1, 1, -1, 4, -1), (0, 1, 1, -1, -1, 5)}


def test_span_lengths_are_geometric():
    n = 40_000
    lengths = span_lengths([n // 4, 4], SEED).numpy()
    assert lengths.dtype == np.int32
    shares = np.bincount(lengths.ravel(), minlength=11)[1:] / n
    expected = 0.2 * 0.8 ** np.arange(10) / (1 - 0.8**10)
    np.testing.assert_allclose(shares, expected, atol=4 * (0.25 / n) ** 0.5)
    np.testing.assert_allclose(lengths.mean(), 3.8, atol=0.06)
