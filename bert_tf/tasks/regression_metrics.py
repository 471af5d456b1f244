"""Metrics of numbers: Pearson's and Spearman's correlation and R squared, in NumPy float64."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def pearson_correlation(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Pearson's correlation coefficient, -1.0 to 1.0.

    0.0 where all labels or all predictions are equal, and so for a single example: the definition
    divides by zero there (scipy gives NaN). A model that predicts one number for everything has
    learned nothing, 0.0 compares as that with other runs, and JSON has no NaN.

    Args:
        labels: (N,), the true numbers, N at least 1.
        predictions: (N,), the model's.

    Raises:
        ValueError: the shapes differ or are not (N,), N is 0, or a number is not finite.

    >>> round(pearson_correlation([1.0, 2.0, 3.0], [2.0, 3.0, 7.0]), 4)
    0.9449
    """
    return _correlation(*_check_numbers(labels, predictions))


def spearman_correlation(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Spearman's rank correlation coefficient, -1.0 to 1.0: Pearson's of the ranks.

    Equal numbers share the mean of their ranks. Arguments, errors and 0.0 are those of
    ``pearson_correlation``.

    >>> round(spearman_correlation([1.0, 2.0, 3.0], [2.0, 3.0, 7.0]), 4)
    1.0
    """
    true, predicted = _check_numbers(labels, predictions)
    return _correlation(_ranks(true), _ranks(predicted))


def r2_score(labels: ArrayLike, predictions: ArrayLike) -> float:
    """The share of the labels' variance that predictions explain, 1.0 at most.

    Always to say the labels' mean gives 0.0, and what is worse than that a negative number. 0.0
    where all labels are equal: the definition divides by zero there. Arguments and errors are those
    of ``pearson_correlation``.

    >>> r2_score([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
    0.5
    """
    true, predicted = _check_numbers(labels, predictions)
    if np.ptp(true) == 0:
        return 0.0
    return float(1 - ((true - predicted) ** 2).sum() / ((true - true.mean()) ** 2).sum())


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    # The last rank of each distinct number, less half the way to its first.
    ranks: NDArray[np.float64] = np.cumsum(counts) - (counts - 1) / 2
    return ranks[places]


def _correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    # Not by the variance: the mean's rounding leaves a little of it to equal numbers.
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    x, y = _unit(x), _unit(y)
    return float(np.clip(x @ y, -1.0, 1.0))


def _unit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    centered = values - values.mean()
    unit: NDArray[np.float64] = centered / np.linalg.norm(centered)
    return unit


def _check_numbers(
    labels: ArrayLike, predictions: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    true, predicted = np.asarray(labels, np.float64), np.asarray(predictions, np.float64)
    if true.shape != predicted.shape or true.ndim != 1 or not true.size:
        raise ValueError(
            "labels and predictions are of one shape (N,) with at least one entry, got "
            f"{true.shape} and {predicted.shape}."
        )
    for name, values in (("labels", true), ("predictions", predicted)):
        wrong: NDArray[Any] = np.flatnonzero(~np.isfinite(values))
        if wrong.size:
            raise ValueError(
                f"{name} are finite numbers, got {values[wrong[0]]} at {wrong[0]} and "
                f"{wrong.size} such in all."
            )
    return true, predicted
