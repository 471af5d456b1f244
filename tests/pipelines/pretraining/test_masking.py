import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.pretraining.masking import (
    PAPER_REPLACEMENT,
    Replacement,
    choose_tokens,
    choose_words,
    mask_rows,
    predict_next,
    prediction_counts,
)
from bert_tf.pipelines.randomness import bits, fold

from . import twins as twins

SEED = fold(5)


def _random_rows(rows, length, seed):
    """Rows of words of one to five tokens in two segments, with [CLS], [SEP] and padding."""
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


def test_choose_tokens_draws_every_set_equally_often():
    n = 12_000
    candidates = np.tile([False, True, True, True, False, True], (n, 1))
    chosen = choose_tokens(candidates, np.full(n, 2, np.int32), 2, SEED).numpy()
    sets, counts = np.unique(chosen, axis=0, return_counts=True)
    assert len(sets) == 6
    np.testing.assert_allclose(counts / n, 1 / 6, atol=4 * (5 / 36 / n) ** 0.5)


def test_choose_words_matches_plain_loop():
    starts, candidates = _random_rows(300, 30, 1)
    counts = np.random.default_rng(2).integers(0, 12, 300).astype(np.int32)
    chosen = choose_words(starts, candidates, counts, SEED).numpy()
    keys = iter((bits([starts.sum()], SEED) // 2).numpy())
    for row in range(300):
        words = twins.words(starts[row], candidates[row])
        twin = twins.choose_words(words, list(itertools.islice(keys, len(words))), counts[row])
        assert np.flatnonzero(chosen[row]).tolist() == twin


@pytest.mark.parametrize("rows", [0, 3])
def test_choose_words_of_empty_rows(rows):
    empty, counts = np.zeros((rows, 8), bool), np.ones(rows, np.int32)
    chosen = choose_words(empty, empty, counts, SEED).numpy()
    assert chosen.shape == (rows, 8) and not chosen.any()


class Vocabulary:
    """15 pieces; 10 to 14 continue a word."""

    vocab_size, pad_id, cls_id, sep_id, mask_id = 15, 0, 2, 3, 4
    continuation = np.arange(15) >= 10


# Words: 5-10, 6, 7-11-12 | 13 (split from its word), 8, 9-14.
ROW = [2, 5, 10, 6, 7, 11, 12, 3, 13, 8, 9, 14, 3, 0, 0, 0]
WORDS = [(1, 2), (3,), (4, 5, 6), (8,), (9,), (10, 11)]
CANDIDATES = sorted(sum(WORDS, ()))
MASKINGS = ["token", "whole_word"]
KEYS = ("input_word_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


def _mask(rows, seed=0, predictions=12, prob=0.15, masking="token", replacement=PAPER_REPLACEMENT):
    return mask_rows(
        rows,
        Vocabulary(),
        max_predictions_per_seq=predictions,
        masked_lm_prob=prob,
        masking=masking,
        replacement=replacement,
        seed=fold(seed),
    )


def _numpy(masked):
    return [masked[key].numpy() for key in KEYS]


@pytest.mark.parametrize("masking", MASKINGS)
@pytest.mark.parametrize("rate", [1.0, 0.0])
def test_replacement_of_all_or_no_tokens(masking, rate):
    seen, positions, ids, weights = _numpy(
        _mask(tf.constant([ROW]), prob=1.0, masking=masking, replacement=Replacement(rate, 0.0))
    )
    assert seen.tolist() == [[2, 4, 4, 4, 4, 4, 4, 3, 4, 4, 4, 4, 3, 0, 0, 0] if rate else ROW]
    assert positions.tolist() == [[*CANDIDATES, 0, 0]]
    assert ids.tolist() == [[5, 10, 6, 7, 11, 12, 13, 8, 9, 14, 0, 0]]
    assert weights.tolist() == [[1.0] * 10 + [0.0] * 2]


def test_zero_probability_predicts_one_token_and_positions_are_padded():
    _, positions, _, weights = _numpy(_mask(tf.constant([ROW] * 200), prob=0.0, predictions=3))
    assert weights.tolist() == [[1.0, 0.0, 0.0]] * 200
    assert set(positions[:, 0]) == set(CANDIDATES)
    assert not positions[:, 1:].any()
    _, positions, _, weights = _numpy(_mask(tf.constant([ROW]), prob=1.0, predictions=20))
    assert positions.tolist() == [[*CANDIDATES, *[0] * 10]] and weights.sum() == 10


@pytest.mark.parametrize("masking", MASKINGS)
def test_only_chosen_positions_change_and_words_stay_whole(masking):
    rows, numbers = tf.constant([ROW] * 300), set()
    masked = _numpy(_mask(rows, prob=0.4, predictions=5, masking=masking))
    for seen, positions, ids, weights in zip(*masked, strict=True):
        chosen = positions[weights == 1]
        assert (np.diff(chosen) > 0).all()
        assert set(chosen) <= set(CANDIDATES)
        assert ids[weights == 1].tolist() == [ROW[at] for at in chosen]
        assert not ids[weights == 0].any()
        untouched = np.setdiff1d(np.arange(16), chosen)
        assert seen[untouched].tolist() == [ROW[at] for at in untouched]
        chosen_set = set(chosen.tolist())
        assert masking == "token" or all(
            chosen_set.issuperset(word) or chosen_set.isdisjoint(word) for word in WORDS
        )
        numbers.add(len(chosen))
    assert numbers <= {4, 5} and 5 in numbers


def test_replacement_fractions():
    n = 1000
    seen, positions, ids, weights = _numpy(_mask(tf.constant([ROW] * n), prob=1.0))
    assert weights.sum() == 10 * n
    now = np.take_along_axis(seen, positions[:, :10], 1)
    before, size = ids[:, :10], 10 * n
    # A random token equals [MASK] or the original with probability 1/15 each.
    for fraction, expected in [
        (np.mean(now == 4), 0.8 + 0.1 / 15),
        (np.mean(now == before), 0.1 + 0.1 / 15),
    ]:
        assert abs(fraction - expected) < 4 * (expected * (1 - expected) / size) ** 0.5
    other = now[(now != 4) & (now != before)]
    assert set(other) == set(range(15)) - {4}  # including special tokens, as in Google's script


def test_prediction_counts_match_google():
    lengths = np.arange(129)
    for prob, limit in [(0.15, 20), (0.15, 10), (0.1, 20), (0.5, 64), (0.0, 5), (1.0, 128)]:
        counts = prediction_counts(tf.constant(lengths), 128, limit, prob).numpy()
        assert counts[0] == 0
        for n in lengths[1:]:
            assert counts[n] == min(limit, max(1, round(int(n) * prob)))
    assert prediction_counts(tf.constant([10, 30]), 128, 20, 0.25).numpy().tolist() == [2, 8]


def test_unknown_masking_raises_error():
    message = "^masking: expected one of token, whole_word, got 'words'.$"
    with pytest.raises(ValueError, match=message):
        _mask(tf.constant([ROW]), masking="words")


def test_every_token_predicts_the_next():
    rows = tf.constant([[2, 7, 8, 3, 0, 0], [2, 5, 6, 7, 8, 3], [2, 3, 0, 0, 0, 0]])
    found = predict_next(rows, Vocabulary())
    assert {key: value.numpy().tolist() for key, value in found.items()} == {
        "input_word_ids": rows.numpy().tolist(),
        "masked_lm_positions": [[0, 1, 2, 0, 0], [0, 1, 2, 3, 4], [0, 0, 0, 0, 0]],
        "masked_lm_ids": [[7, 8, 3, 0, 0], [5, 6, 7, 8, 3], [3, 0, 0, 0, 0]],
        "masked_lm_weights": [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]],
    }
