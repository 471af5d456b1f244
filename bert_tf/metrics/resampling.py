"""How far chance could have moved a score: the bootstrap, McNemar, and Student's t over seeds.

A set's rows are drawn again with replacement, as many as there are, and scored: the scores' spread
is what another set of the same kind and size would have shown (Efron, "Bootstrap methods: another
look at the jackknife", 1979). The draws are a function of the seed and the number of rows.
"""

import math
import statistics
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


# The middle 95% of Student's t ends here, by degrees of freedom from 1.
_T = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]
_T += [2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101]


class Mean(NamedTuple):
    """The mean of a score over seeds, with its standard error, 0 of a single seed."""

    mean: float
    error: float
    seeds: int

    def differs(self, other: "Mean") -> bool:
        """Whether chance among seeds hardly explains the difference: Student's t test at 5%.

        Both are of at most ten seeds and of one spread. Two single seeds say nothing.
        """
        freedom = self.seeds + other.seeds - 2
        squares = sum(one.error**2 * one.seeds * (one.seeds - 1) for one in (self, other))
        error = math.sqrt(squares / max(freedom, 1) * (1 / self.seeds + 1 / other.seeds))
        return freedom > 0 and abs(self.mean - other.mean) > _T[freedom - 1] * error


def mean_over_seeds(scores: Sequence[float]) -> Mean:
    """The mean of one score or more."""
    error = statistics.stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else 0.0
    return Mean(statistics.fmean(scores), error, len(scores))
