import itertools
import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.pretraining import pairing
from bert_tf.pipelines.pretraining.pairing import (
    PairDraws,
    chunk_documents,
    cut_long_sentences,
    draw_pairs,
    draw_targets,
    pair_sentences,
    without_empty,
)
from bert_tf.pipelines.randomness import fold

from . import twins as twins


def _tokens(lengths):
    flat = [length for document in lengths for length in document]
    return without_empty(
        tf.range(sum(flat)),
        tf.constant(flat, tf.int64),
        tf.constant(list(map(len, lengths)), tf.int64),
    )


def _tensors(*draws):
    dtypes = (tf.int64, tf.int64, tf.bool, tf.int64, tf.int64)
    return PairDraws(*(tf.constant(v, dtype) for v, dtype in zip(draws, dtypes, strict=True)))


LAST = 2**32 - 1  # draws the last choice; 0 draws the first


def test_pairs_of_hand_computed_example():
    # Tokens 0-1, 2-4, 5-5 and 6-7 are document 0; 8-11 and 12-13 document 1; 14 document 2.
    tokens = _tokens([[2, 3, 1, 2], [4, 2], [1]])
    draws = _tensors(
        [6, 6, 6],
        # By sentence: end of A, whether B is random, and document and start of B.
        [LAST, 0, 0, 0, LAST, 0, 0],
        [False, True, False, True, True, False, False],
        [0, 0, 0, LAST, LAST, 0, LAST],
        [0, 0, 0, 0, 0, LAST, LAST],
    )
    pairs = pair_sentences(tokens, draws)
    np.testing.assert_array_equal(
        np.stack(pairs, 1),
        [
            (0, 5, 5, 6, 0),  # three sentences fill 6; A is the first two, and B follows
            (6, 8, 14, 15, 1),  # one is left, so B is random: 4 tokens are missing, 1 is found
            (8, 12, 14, 15, 1),  # two of document 1; B is random, so the second is put back
            (12, 14, 6, 8, 1),  # and is a chunk; last sentence of the first other document
            (14, 15, 12, 14, 1),
        ],
    )


# In a graph, with any lengths.
_PAIR = tf.function(pair_sentences, autograph=False, reduce_retracing=True)


@pytest.mark.parametrize("sentence_length", ["short", "long"])
@pytest.mark.parametrize("number", range(12))
def test_pairs_match_plain_loop(number, sentence_length):
    generator = random.Random(number)
    max_tokens = generator.choice([2, 3, 9, 10, 40])
    max_length = generator.choice([12, 200] if sentence_length == "long" else [12])
    sizes = [generator.choice([1, 1, 2, 5, 30]) for _ in range(generator.randint(1, 7))]
    if number == 0:
        sizes += [3000, 1, 2]
    lengths = [[generator.randint(1, max_length) for _ in range(size)] for size in sizes]
    targets = twins.draw_targets(lengths, max_tokens, 0.5, generator)
    tokens, pieces, cut, cut_targets = _tokens(lengths), None, lengths, targets
    if sentence_length == "long":
        cut, cut_targets, pieces = twins.cut(lengths, targets, max_tokens)
        tokens, found = cut_long_sentences(tokens, tf.constant(targets, tf.int64), max_tokens)
        assert found.numpy().tolist() == cut_targets
        assert tokens.is_piece.numpy().tolist() == list(itertools.chain(*pieces))
    draws = cut_targets, *twins.draw_in_advance(cut, max_tokens, 0.5, generator)[1:]
    pairs = _PAIR(tokens, _tensors(*draws))
    assert np.stack(pairs, 1).tolist() == [list(row) for row in twins.pairs(cut, draws, pieces)]


def test_cut_long_sentences_of_hand_computed_example():
    # At most 8 tokens: in document 0, only the sentence of 20 is split, at the target of 7; the
    # target of document 1 is raised to 2, a quarter of 8; document 2 is unchanged.
    tokens, targets = cut_long_sentences(
        _tokens([[3, 20, 8], [9], [8, 1]]), tf.constant([7, 1, 1], tf.int64), 8
    )
    lengths = [3, *[3] * 6, 2, 8, *[1] * 9, 8, 1]
    np.testing.assert_array_equal(np.diff(tokens.token_splits), lengths)
    np.testing.assert_array_equal(tokens.sentence_splits, [0, 9, 18, 20])
    assert tokens.is_piece.numpy().tolist() == [0, *[1] * 7, 0, *[1] * 9, 0, 0]
    assert targets.numpy().tolist() == [7, 2, 1]


def test_draws_are_uniform_and_uncorrelated():
    draws = draw_pairs(20_000, draw_targets(3, 10, 0.0, fold(1)), fold(2))
    assert draws.targets.numpy().tolist() == [10, 10, 10]
    np.testing.assert_allclose(np.mean(draws.random_next), 0.5, atol=4 * 0.5 / 20_000**0.5)
    drawn = [draws.segment_ends, draws.other_documents, draws.other_starts]
    correlation = np.corrcoef(np.stack([*drawn, draws.random_next]).astype(np.float64))
    np.testing.assert_allclose(correlation, np.eye(4), atol=4 / 20_000**0.5)


def test_distribution_of_short_targets():
    n = 20_000
    always = draw_targets(n, 6, 1.0, fold(2)).numpy()
    fractions = np.bincount(always, minlength=7) / n
    np.testing.assert_allclose(fractions, [0, 0, *[0.2] * 5], atol=4 * (0.16 / n) ** 0.5)
    sometimes = draw_targets(n, 1000, 0.1, fold(2)).numpy()
    expected = 0.1 * 998 / 999
    np.testing.assert_allclose(
        np.mean(sometimes < 1000), expected, atol=4 * (expected * 0.9 / n) ** 0.5
    )


def test_short_target_is_raised_if_document_has_too_many_chunks(monkeypatch):
    monkeypatch.setattr(pairing, "_MAX_RUNS", 3)
    tokens = _tokens([[3, 4, 2], [1], [5]])
    # Runs of rows with room for three tokens, and for two.
    for max_tokens, expected in ((3, [3, 3, 3, 1, 2, 2, 1]), (2, [2, 2, 2, 2, 1, 1, 2, 2, 1])):
        chunks = chunk_documents(tokens, tf.constant([2, 2, 2], tf.int64), max_tokens)
        assert (chunks.a_end - chunks.a_start).numpy().tolist() == expected
