"""Correlations against literals, plain loops and scipy."""

import math

import numpy as np
import pytest

from bert_tf.tasks.regression_metrics import pearson_correlation, r2_score, spearman_correlation


def _pearson(x, y):
    mean_x, mean_y = math.fsum(x) / len(x), math.fsum(y) / len(y)
    shared = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return shared / math.sqrt(
        math.fsum((a - mean_x) ** 2 for a in x) * math.fsum((b - mean_y) ** 2 for b in y)
    )


def _ranks(values):
    ranks = []
    for value in values:
        lower = sum(other < value for other in values)
        equal = sum(other == value for other in values)
        ranks.append(sum(range(lower + 1, lower + equal + 1)) / equal)
    return ranks


def _scores(seed, size=83):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 26, size) / 5  # STS-B's steps, and so ties
    return labels, (labels + rng.normal(size=size)).round(1)


def test_literals():
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


@pytest.mark.parametrize("seed", range(3))
def test_against_loops(seed):
    labels, predictions = _scores(seed)
    expected = _pearson(labels.tolist(), predictions.tolist())
    assert pearson_correlation(labels, predictions) == pytest.approx(expected, abs=1e-12)
    ranked = _pearson(_ranks(labels.tolist()), _ranks(predictions.tolist()))
    assert spearman_correlation(labels, predictions) == pytest.approx(ranked, abs=1e-12)
    assert len(set(predictions)) < len(predictions) and abs(expected - ranked) > 1e-4


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


@pytest.mark.parametrize("metric", [pearson_correlation, spearman_correlation])
def test_what_is_no_input(metric):
    with pytest.raises(ValueError) as caught:
        metric([1.0, 2.0], [1.0])
    assert str(caught.value) == (
        "labels and predictions are of one shape (N,) with at least one entry, got (2,) and (1,)."
    )
    with pytest.raises(ValueError) as caught:
        metric([1.0, 2.0, 3.0], [1.0, math.nan, math.inf])
    assert str(caught.value) == (
        "predictions are finite numbers, got nan at 1 and 2 such in all."
    )  # fmt: skip


@pytest.mark.parity
@pytest.mark.parametrize("seed", range(5))
def test_equals_scipy(seed):
    stats = pytest.importorskip("scipy.stats")
    labels, predictions = _scores(seed)
    assert pearson_correlation(labels, predictions) == pytest.approx(
        stats.pearsonr(labels, predictions).statistic, abs=1e-12
    )
    assert spearman_correlation(labels, predictions) == pytest.approx(
        stats.spearmanr(labels, predictions).statistic, abs=1e-12
    )
