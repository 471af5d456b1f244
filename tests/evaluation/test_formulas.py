"""Metrics against literals, scikit-learn and scipy."""

import functools
import itertools
import math

import numpy as np
import pytest

from bert_tf.evaluation.formulas import (
    confusion_matrix,
    f1,
    macro_f1,
    matthews_correlation,
    pearson_correlation,
    r2_score,
    spearman_correlation,
)

LABELS = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
PREDICTIONS = [1, 1, 1, 0, 1, 1, 0, 0, 0, 0]  # 3 TP, 1 FN, 2 FP, 4 TN


def test_literals():
    assert f1(LABELS, PREDICTIONS) == pytest.approx(6 / 9)
    assert matthews_correlation(LABELS, PREDICTIONS) == pytest.approx(10 / math.sqrt(600))
    assert confusion_matrix(LABELS, PREDICTIONS, 3).tolist() == [[4, 2, 0], [1, 3, 0], [0, 0, 0]]


def _random(seed, num_classes, shape=(57,)):
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=shape)
    noise = rng.integers(num_classes, size=shape)
    return labels, np.where(rng.random(shape) < 0.5, labels, noise)


def test_matthews_of_many_examples_does_not_overflow():
    labels = np.arange(200_000) % 2
    predictions = (np.arange(200_000) % 20 == 0) ^ labels  # every twentieth is wrong
    predictions = predictions.astype(np.int32)
    # 0 is called 1 ten thousand times, 1 never 0; 9.9e19 is more than an int64 holds.
    expected = (9e4 * 1e5) / math.sqrt(1.1e5 * 1e5 * 1e5 * 9e4)
    assert matthews_correlation(labels, predictions) == pytest.approx(expected)


def test_macro_f1_is_over_the_classes_that_occur():
    # 0: one of two found; 3: found, and once too often; 9: only predicted.
    assert macro_f1([0, 0, 3], [0, 3, 3]) == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert macro_f1([0, 0, 3], [0, 9, 3]) == pytest.approx((2 / 3 + 1 + 0) / 3)


@pytest.mark.parametrize("labels, predictions", itertools.permutations([[0] * 4, [0, 1, 0, 1]], 2))
def test_one_class_for_everything(labels, predictions):
    assert matthews_correlation(labels, predictions) == 0.0
    assert matthews_correlation([2] * 4, [2] * 4) == 0.0
    assert f1(labels, predictions) == 0.0
    assert f1([0, 0], [0, 0]) == 0.0


def test_a_number_that_is_none():
    with pytest.raises(ValueError, match="predictions are finite numbers, got nan at 1 and 2 such"):
        spearman_correlation([1.0, 2.0, 3.0], [1.0, math.nan, math.inf])


@pytest.mark.parity
@pytest.mark.parametrize("seed", range(5))
def test_equals_scikit_learn(seed):
    theirs = pytest.importorskip("sklearn.metrics")
    near = functools.partial(pytest.approx, abs=1e-12)
    given = _random(seed, 2)
    assert f1(*given) == near(theirs.f1_score(*given))
    for num_classes in (2, 3, 6):
        given = _random(seed, num_classes)
        correlation = matthews_correlation(*given)
        assert correlation == near(theirs.matthews_corrcoef(*given))
        # Which numbers name the classes does not matter.
        assert matthews_correlation(*(7 - 3 * ids for ids in given)) == near(correlation)
        counts = confusion_matrix(*given, num_classes)
        expected = theirs.confusion_matrix(*given, labels=range(num_classes))
        np.testing.assert_array_equal(counts, expected)
        assert macro_f1(*given) == near(theirs.f1_score(*given, average="macro"))
    for given in (([0, 0, 1], [0, 0, 0]), ([0, 0], [0, 0]), ([1, 1], [0, 1])):
        assert matthews_correlation(*given) == theirs.matthews_corrcoef(*given)
        assert f1(*given) == pytest.approx(theirs.f1_score(*given, zero_division=0))


# === Numbers ===


def _scores(seed, size=83):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 26, size) / 5  # STS-B's steps, and so ties
    return labels, (labels + rng.normal(size=size)).round(1)


def test_literals_of_correlations():
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0], [5.0, 6.0, 7.0, 8.0, 7.0]
    assert pearson_correlation(x, y) == pytest.approx(6 / math.sqrt(52))
    # Ranks 1, 2, 3.5, 5, 3.5: the two sevens share the third and the fourth.
    assert spearman_correlation(x, y) == pytest.approx(8 / math.sqrt(95))
    assert pearson_correlation(x, [-3 * value for value in x]) == pytest.approx(-1.0)
    assert spearman_correlation(x, [math.exp(-value) for value in x]) == pytest.approx(-1.0)


def test_explained_variance():
    assert r2_score([1.0, 2.0, 3.0, 6.0], [2.0, 2.0, 2.0, 2.0]) == pytest.approx(-4 / 14)
    assert r2_score([1.0, 3.0], [2.0, 2.0]) == 0.0
    assert r2_score([1.0, 3.0], [1.0, 3.0]) == 1.0
    assert r2_score([5.0, 5.0], [5.0, 5.0]) == 0.0


def test_float64_whatever_comes():
    # In float32 the offset would swallow the differences' digits.
    labels = np.arange(100, dtype=np.float32)
    predictions = labels + np.float32(1e6)
    assert pearson_correlation(labels, predictions) == pytest.approx(1.0, abs=1e-13)
    assert -1.0 <= pearson_correlation(labels, -labels) <= 1.0


@pytest.mark.parametrize("metric", [pearson_correlation, spearman_correlation])
def test_one_number_for_everything(metric):
    # The mean of these differs from each of them in the last digit.
    constant = [0.1] * 7
    assert np.mean(constant) != 0.1 or np.std(constant) != 0
    varied = [0.3, 1.0, 2.0, 0.5, 0.7, 4.0, 5.0]
    assert metric(varied, constant) == 0.0
    assert metric(constant, varied) == 0.0
    assert metric([2.5], [1.0]) == 0.0


@pytest.mark.parity
@pytest.mark.parametrize("seed", range(5))
def test_equals_scipy(seed):
    stats = pytest.importorskip("scipy.stats")
    given = _scores(seed)
    pearson, spearman = stats.pearsonr(*given).statistic, stats.spearmanr(*given).statistic
    assert pearson_correlation(*given) == pytest.approx(pearson, abs=1e-12)
    assert spearman_correlation(*given) == pytest.approx(spearman, abs=1e-12)
    assert len(set(given[1])) < len(given[1]) and abs(pearson - spearman) > 1e-4
