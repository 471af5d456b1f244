import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.pipelines.masking import PAPER_REPLACEMENT, Replacement, mask_rows, prediction_counts
from bert_tf.pipelines.randomness import fold


class Vocabulary:
    """15 pieces; 10 to 14 continue a word."""

    vocab_size, pad_id, cls_id, sep_id, mask_id = 15, 0, 2, 3, 4
    continuation = np.arange(15) >= 10


# Words: 5-10, 6, 7-11-12 | 13 (cut off from its word), 8, 9-14.
ROW = [2, 5, 10, 6, 7, 11, 12, 3, 13, 8, 9, 14, 3, 0, 0, 0]
WORDS = [(1, 2), (3,), (4, 5, 6), (8,), (9,), (10, 11)]
CANDIDATES = sorted(sum(WORDS, ()))
MASKINGS = ["token", "whole_word", "span"]


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
    return [masked[key].numpy() for key in (
        features.INPUT_WORD_IDS,
        features.MASKED_LM_POSITIONS,
        features.MASKED_LM_IDS,
        features.MASKED_LM_WEIGHTS,
    )]  # fmt: skip


@pytest.mark.parametrize("masking", MASKINGS)
def test_all_masked(masking):
    seen, positions, ids, weights = _numpy(
        _mask(tf.constant([ROW]), prob=1.0, masking=masking, replacement=Replacement(1.0, 0.0))
    )
    assert seen.tolist() == [[2, 4, 4, 4, 4, 4, 4, 3, 4, 4, 4, 4, 3, 0, 0, 0]]
    assert positions.tolist() == [[*CANDIDATES, 0, 0]]
    assert ids.tolist() == [[5, 10, 6, 7, 11, 12, 13, 8, 9, 14, 0, 0]]
    assert weights.tolist() == [[1.0] * 10 + [0.0] * 2]


@pytest.mark.parametrize("masking", MASKINGS)
def test_none_replaced(masking):
    seen, _, ids, weights = _numpy(
        _mask(tf.constant([ROW]), prob=1.0, masking=masking, replacement=Replacement(0.0, 0.0))
    )
    assert seen.tolist() == [ROW]
    assert ids.tolist() == [[5, 10, 6, 7, 11, 12, 13, 8, 9, 14, 0, 0]]
    assert weights.sum() == 10


def test_rate_zero_predicts_one_token():
    _, positions, _, weights = _numpy(_mask(tf.constant([ROW] * 200), prob=0.0, predictions=3))
    assert weights.tolist() == [[1.0, 0.0, 0.0]] * 200
    assert set(positions[:, 0]) == set(CANDIDATES)
    assert not positions[:, 1:].any()


def test_more_predictions_than_positions():
    _, positions, _, weights = _numpy(_mask(tf.constant([ROW]), prob=1.0, predictions=20))
    assert positions.tolist() == [[*CANDIDATES, *[0] * 10]]
    assert weights.sum() == 10


@pytest.mark.parametrize("masking", MASKINGS)
def test_original_ids_and_untouched_positions(masking):
    rows = tf.constant([ROW] * 64)
    seen, positions, ids, weights = _numpy(_mask(rows, prob=0.4, predictions=5, masking=masking))
    assert weights.sum(1).max() <= 5
    for row in range(64):
        chosen = positions[row][weights[row] == 1]
        assert (np.diff(chosen) > 0).all()
        assert set(chosen) <= set(CANDIDATES)
        assert ids[row][weights[row] == 1].tolist() == [ROW[at] for at in chosen]
        assert not ids[row][weights[row] == 0].any()
        untouched = np.setdiff1d(np.arange(16), chosen)
        assert seen[row][untouched].tolist() == [ROW[at] for at in untouched]


@pytest.mark.parametrize("masking", ["whole_word", "span"])
def test_words_are_never_split(masking):
    _, positions, _, weights = _numpy(
        _mask(tf.constant([ROW] * 300), prob=0.4, predictions=5, masking=masking)
    )
    numbers = set()
    for row in range(300):
        chosen = set(positions[row][weights[row] == 1].tolist())
        assert all(chosen.issuperset(word) or chosen.isdisjoint(word) for word in WORDS)
        numbers.add(len(chosen))
    assert numbers <= {4, 5} and 5 in numbers


def test_shares_of_the_three_replacements():
    n = 1000
    seen, positions, ids, weights = _numpy(_mask(tf.constant([ROW] * n), prob=1.0))
    assert weights.sum() == 10 * n
    now = np.take_along_axis(seen, positions[:, :10], 1)
    before, size = ids[:, :10], 10 * n
    # A random token is [MASK] or the original one time in fifteen each.
    for share, expected in [
        (np.mean(now == 4), 0.8 + 0.1 / 15),
        (np.mean(now == before), 0.1 + 0.1 / 15),
    ]:
        assert abs(share - expected) < 4 * (expected * (1 - expected) / size) ** 0.5
    other = now[(now != 4) & (now != before)]
    assert set(other) == set(range(15)) - {4}  # Special tokens too, as in Google's script.


def test_random_tokens_are_uniform():
    n = 1500
    seen, positions, *_ = _numpy(
        _mask(tf.constant([ROW] * n), prob=1.0, replacement=Replacement(0.0, 1.0))
    )
    shares = np.bincount(np.take_along_axis(seen, positions[:, :10], 1).ravel()) / (10 * n)
    assert len(shares) == 15
    np.testing.assert_allclose(shares, 1 / 15, atol=4 * (14 / 225 / (10 * n)) ** 0.5)


def test_tokens_are_chosen_uniformly():
    n = 4000
    _, positions, _, weights = _numpy(_mask(tf.constant([ROW] * n), predictions=2))
    assert (weights.sum(1) == 2).all()  # round(0.15 * 13)
    shares = np.bincount(positions.ravel(), minlength=16)[CANDIDATES] / n
    np.testing.assert_allclose(shares, 0.2, atol=4 * (0.16 / n) ** 0.5)


@pytest.mark.parametrize(("masking", "shared"), [("token", False), ("span", True)])
def test_a_span_is_replaced_as_one(masking, shared):
    # One word of ten pieces: one span.
    row = [2, 5, *[10] * 9, 3]
    seen, *_ = _numpy(
        _mask(
            tf.constant([row] * 200), prob=1.0, masking=masking, replacement=Replacement(0.5, 0.0)
        )
    )
    masked = (seen[:, 1:-1] == 4).sum(1)
    assert (set(masked) == {0, 10}) is shared


def test_counts_are_googles():
    lengths = np.arange(129)
    for prob, most in [(0.15, 20), (0.15, 10), (0.1, 20), (0.5, 64), (0.0, 5), (1.0, 128)]:
        counts = prediction_counts(tf.constant(lengths), 128, most, prob).numpy()
        assert counts[0] == 0
        for n in lengths[1:]:
            assert counts[n] == min(most, max(1, round(int(n) * prob)))
    assert prediction_counts(tf.constant([10, 30]), 128, 20, 0.25).numpy().tolist() == [2, 8]


@pytest.mark.parametrize("masking", MASKINGS)
def test_same_in_a_dataset_other_with_another_seed(masking):
    rows = tf.constant([ROW] * 32)
    eager = _mask(rows, 1, masking=masking)
    (mapped,) = tf.data.Dataset.from_tensors(rows).map(lambda rows: _mask(rows, 1, masking=masking))
    for key, value in eager.items():
        np.testing.assert_array_equal(value, mapped[key])
    other = _mask(rows, 2, masking=masking)[features.MASKED_LM_POSITIONS]
    assert (eager[features.MASKED_LM_POSITIONS].numpy() != other.numpy()).any()


def test_unknown_masking():
    with pytest.raises(ValueError) as error:
        _mask(tf.constant([ROW]), masking="words")
    assert str(error.value) == "masking: expected one of token, whole_word, span; got 'words'."
