"""Intervals and tests against SciPy and against what is known of their distributions."""

import math

import numpy as np
import pytest

from bert_tf.metrics.formulas import spearman_correlation
from bert_tf.metrics.judging import judge_classes
from bert_tf.metrics.resampling import (
    bootstrap,
    mcnemar,
    percentiles,
    resampled,
)


def test_a_shares_interval_is_the_binomials():
    right = np.arange(400) < 300

    def share(rows):
        return float(right[rows].mean())

    low, high = bootstrap(share, 400)
    error = math.sqrt(0.75 * 0.25 / 400)
    # A percentile of 1,000 draws is off by a tenth of the deviation, some times.
    assert (low - 0.75) / error == pytest.approx(-1.96, abs=0.25)
    assert (high - 0.75) / error == pytest.approx(1.96, abs=0.25)
    assert bootstrap(share, 400) == (low, high)
    assert bootstrap(share, 400, seed=1) != (low, high)


def test_both_models_are_scored_on_the_same_rows():
    rng = np.random.default_rng(3)
    true, first = rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    judged = [judge_classes(true, column, ["a", "b"]) for column in (first, first)]
    scores = resampled([one.metrics["accuracy"] for one in judged], 200)
    np.testing.assert_array_equal(scores[:, 0], scores[:, 1])
    assert scores.shape == (1000, 2) and len(set(scores[:, 0])) > 10


def test_no_spread():
    assert bootstrap(lambda rows: 1.0, 7) == (1.0, 1.0)
    assert percentiles(np.arange(1001.0)) == pytest.approx((25.0, 975.0))


@pytest.mark.parity
def test_intervals_equal_scipys():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(5)
    x = rng.normal(size=150)
    y = x + rng.normal(size=150)
    low, high = bootstrap(lambda rows: spearman_correlation(x[rows], y[rows]), 150)
    theirs = stats.bootstrap(
        (x, y),
        lambda *pair: stats.spearmanr(*pair).statistic,
        paired=True,
        vectorized=False,
        method="percentile",
        n_resamples=1000,
        rng=np.random.default_rng(6),
    )
    # Other draws: the ends' own deviation is some 5% of the width.
    width = high - low
    assert low == pytest.approx(theirs.confidence_interval.low, abs=0.15 * width)
    assert high == pytest.approx(theirs.confidence_interval.high, abs=0.15 * width)


@pytest.mark.parity
@pytest.mark.parametrize("only", [(0, 0), (3, 3), (0, 7), (12, 30), (4000, 4150)])
def test_mcnemar_is_the_binomial_test(only):
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(only[0], sum(only)).pvalue if sum(only) else 1.0
    assert mcnemar(*only) == pytest.approx(expected, rel=1e-9)
    assert mcnemar(*reversed(only)) == mcnemar(*only)
