"""How far chance could have moved a score: the bootstrap, McNemar, and Student's t over seeds.

A set's rows are drawn again with replacement, as many as there are, and scored: the scores' spread
is what another set of the same kind and size would have shown (Efron, "Bootstrap methods: another
look at the jackknife", 1979). The draws are a function of the seed and the number of rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .judging import Metric

RESAMPLES = 1000
CONFIDENCE = 0.95


class Interval(NamedTuple):
    """The middle 95% of a score over resampled rows."""

    low: float
    high: float


def resampled(
    metrics: Sequence[Metric], count: int, *, seed: int = 0, resamples: int = RESAMPLES
) -> NDArray[np.float64]:
    """Scores of resampled rows, (resamples, len(metrics)); each draw is the same for all metrics.

    ``count`` is the number of rows.
    """
    generator = np.random.Generator(np.random.PCG64([seed, count]))
    found = np.empty([resamples, len(metrics)])
    for scores in found:
        rows = generator.integers(0, count, count)
        scores[:] = [metric(rows) for metric in metrics]
    return found


def bootstrap(metric: Metric, count: int, *, seed: int = 0) -> Interval:
    """A score's interval by the percentile method."""
    return percentiles(resampled([metric], count, seed=seed)[:, 0])


def percentiles(scores: NDArray[np.float64]) -> Interval:
    """The middle 95% of resampled scores."""
    rest = 100 * (1 - CONFIDENCE) / 2
    return Interval(*(float(value) for value in np.percentile(scores, [rest, 100 - rest])))


def mcnemar(only_first: int, only_second: int) -> float:
    """The p-value of McNemar's exact test, two-sided.

    Of the rows that just one of two models has right, ``only_first`` and ``only_second`` are how
    many the first has and how many the second. Were both as good, a coin would have decided each:
    it is the chance of a split at least as uneven. 1.0 where there are none.

    Source: McNemar, "Note on the sampling error of the difference between correlated proportions or
    percentages", 1947, with the binomial distribution in place of its normal approximation.
    """
    total = only_first + only_second
    # Whole numbers, as floats end at 2**1024: the ways to choose k of the rows, of every k.
    ways = chosen = 1
    for k in range(1, min(only_first, only_second) + 1):
        chosen = chosen * (total - k + 1) // k
        ways += chosen
    return min(1.0, 2 * ways / 2**total)
