"""Calibration of class probabilities by temperature scaling.

Dividing logits by a temperature preserves predictions and brings probabilities closer to observed
frequencies (Guo et al., "On Calibration of Modern Neural Networks", 2017).

Dimensions: N decisions, C classes.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bert_tf.answering.classes import log_probabilities, multilabel_probabilities

# Bounds of the temperature. The standard normal prior on its logarithm keeps the temperature finite
# for a model without errors, and near 1 if there are few rows.
_COLDEST, _HOTTEST = 0.05, 20.0
BINS = 10
_STEPS = 100
_PRECISION = 1e-10
# Number of logits that are converted to float64 at a time, to bound the memory.
_MAX_BLOCK = 1 << 22
# With fewer decisions than this, a temperature or a calibration error is mostly noise.
FEW = 100


def fit_temperature(logits: NDArray[Any], labels: NDArray[Any]) -> float:
    """Returns the temperature that minimizes the loss, between 0.05 and 20.

    The loss is the sum of the negative log-likelihoods plus half the squared logarithm of the
    temperature. It is minimized by Newton's method, with bisection as a fallback.

    Args:
        logits: Logits, shape (N, C).
        labels: Class ids, shape (N,).
    """
    blocks = row_blocks(logits)

    def shifted(block: slice) -> NDArray[np.float64]:
        rows = logits[block]
        return rows.astype(np.float64) - rows.max(1, keepdims=True)

    def moments(block: slice, inverse: float) -> NDArray[np.float64]:
        """Returns the sums over rows of each row's mean, mean square and squared mean."""
        values = shifted(block)
        odds = np.exp(inverse * values)
        probabilities = odds / odds.sum(1, keepdims=True)
        means = (probabilities * values).sum(1)
        return np.array([means.sum(), (probabilities * values**2).sum(), (means**2).sum()])

    true_logits = sum(
        shifted(block)[np.arange(len(labels[block])), labels[block]].sum() for block in blocks
    )
    # The search is over the logarithm of 1 / temperature.
    low, high = -np.log(_HOTTEST), -np.log(_COLDEST)
    x = 0.0
    for _ in range(_STEPS):
        inverse = np.exp(x)
        mean, squares, squared = np.sum([moments(b, inverse) for b in blocks], axis=0)
        slope = inverse * (mean - true_logits) + x
        curvature = inverse**2 * (squares - squared)
        curvature += inverse * (mean - true_logits) + 1
        low, high = (low, x) if slope > 0 else (x, high)
        step = x - slope / curvature if curvature > 0 else low
        following = step if low < step < high else (low + high) / 2
        if abs(following - x) < _PRECISION:
            break
        x = following
    return float(np.clip(np.exp(-x), _COLDEST, _HOTTEST))


def row_blocks(logits: NDArray[Any]) -> list[slice]:
    """Splits the rows of logits (N, C) into slices that can be converted to float64."""
    size = max(1, _MAX_BLOCK // logits.shape[1])
    return [slice(first, first + size) for first in range(0, len(logits), size)]


class Bin(NamedTuple):
    """Decisions of similar probability: their number, mean probability and fraction true."""

    decisions: int
    confidence: float
    fraction: float


class Reliability(NamedTuple):
    """Reliability of predicted probabilities, measured in bins of equal width from 0 to 1.

    Attributes:
        error: Expected calibration error: the mean distance between a bin's probability and its
            fraction of decisions whose class is correct, weighted by bin size.
        loss: Mean negative log-likelihood.
        bins: The non-empty bins, in ascending order of probability.
    """

    error: float
    loss: float
    bins: tuple[Bin, ...]


def reliability(probabilities: NDArray[Any], is_true: NDArray[Any], loss: float) -> Reliability:
    """Groups decisions into bins by probability.

    Args:
        probabilities: Predicted probability of each decision, shape (N,).
        is_true: Whether each decision is true, shape (N,).
        loss: Mean negative log-likelihood.
    """
    indices = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    counts = np.bincount(indices, minlength=BINS)
    sums, hits = (np.bincount(indices, values, BINS) for values in (probabilities, is_true * 1.0))
    bins = tuple(
        Bin(int(count), float(total / count), float(hit / count))
        for count, total, hit in zip(counts, sums, hits, strict=True)
        if count
    )
    error = sum(group.decisions * abs(group.confidence - group.fraction) for group in bins)
    return Reliability(float(error / len(indices)), float(loss), bins)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Effect of a temperature on the predicted probabilities of ``count`` decisions."""

    temperature: float
    count: int
    raw: Reliability
    calibrated: Reliability

    def to_dict(self) -> dict[str, Any]:
        """Returns the temperature, the errors and the losses as JSON values."""
        return {
            "temperature": self.temperature,
            "decisions": self.count,
            **{
                name: {"expected_calibration_error": side.error, "loss": side.loss}
                for name, side in (("raw", self.raw), ("calibrated", self.calibrated))
            },
        }


def calibrate_classes(
    logits: NDArray[Any], labels: NDArray[Any], temperature: float
) -> Calibration:
    """Measures the calibration of single-label predictions.

    Args:
        logits: Logits, shape (N, C).
        labels: Class ids, shape (N,).
        temperature: Temperature to compare with 1.
    """

    def measure(divisor: float) -> Reliability:
        greatest, is_correct, true_logits = np.zeros([3, len(labels)])
        for block in row_blocks(logits):
            logs = log_probabilities(logits[block], divisor).numpy()
            greatest[block] = logs.max(1)
            is_correct[block] = logs.argmax(1) == labels[block]
            true_logits[block] = logs[np.arange(len(logs)), labels[block]]
        return reliability(np.exp(greatest), is_correct, -true_logits.mean())

    return Calibration(temperature, len(labels), measure(1.0), measure(temperature))


def calibrate_multilabel(
    logits: NDArray[Any], is_true: NDArray[Any], temperature: float
) -> Calibration:
    """Measures the calibration of multi-label predictions.

    Args:
        logits: Logits, shape (N, C).
        is_true: Whether each class applies, shape (N, C).
        temperature: Temperature to compare with 1.
    """

    def measure(divisor: float) -> Reliability:
        scaled = logits.astype(np.float64) / divisor
        losses = np.logaddexp(0, np.where(is_true == 1, -scaled, scaled))
        probabilities = multilabel_probabilities(logits, divisor).numpy()
        return reliability(probabilities.ravel(), is_true.ravel(), losses.mean())

    return Calibration(temperature, logits.size, measure(1.0), measure(temperature))


def as_two_classes(logits: NDArray[Any]) -> NDArray[Any]:
    """Converts multi-label logits (N, C) to logits of two classes each, shape (N * C, 2)."""
    return np.stack([np.zeros(logits.size), logits.astype(np.float64).ravel()], 1)
