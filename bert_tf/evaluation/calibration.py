"""Probabilities that mean what they say: a temperature for the logits, and how far they are off.

Dividing a network's logits by one number, the temperature, changes no prediction of a class, and
brings its probabilities nearer to how often they are right (Guo et al., "On Calibration of Modern
Neural Networks", 2017).

Letters: N decisions, C classes.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bert_tf.answering.class_probabilities import log_probabilities, multilabel_probabilities

# The logarithm of the temperature is 0 give or take 1 before anything is seen: a few rows move it
# little, and a model that is never wrong does not become infinitely sure.
_COLDEST, _HOTTEST = 0.05, 20.0
BINS = 10
_STEPS = 100
_PRECISION = 1e-10
# Number of logits that are converted to float64 at a time, to bound the memory.
_MAX_BLOCK = 1 << 22
# Of fewer decisions a temperature, or an error, is mostly chance.
FEW = 100


def fit_temperature(logits: NDArray[Any], labels: NDArray[Any]) -> float:
    """The temperature of the least loss, 0.05 to 20; logits (N, C), ids of classes (N,).

    The loss is the sum of the negative log-likelihoods and half the square of the temperature's
    logarithm. By Newton's method, kept within bounds by bisection.
    """
    blocks = _blocks(logits)

    def shifted(block: slice) -> NDArray[np.float64]:
        rows = logits[block]
        return rows.astype(np.float64) - rows.max(1, keepdims=True)

    def moments(block: slice, inverse: float) -> NDArray[np.float64]:
        """Sums over rows of the mean, of the mean square and of the squared mean."""
        values = shifted(block)
        odds = np.exp(inverse * values)
        probabilities = odds / odds.sum(1, keepdims=True)
        means = (probabilities * values).sum(1)
        return np.array([means.sum(), (probabilities * values**2).sum(), (means**2).sum()])

    true_logits = sum(
        shifted(block)[np.arange(len(labels[block])), labels[block]].sum() for block in blocks
    )
    # In the logarithm of 1 / temperature.
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


def _blocks(logits: NDArray[Any]) -> list[slice]:
    """Slices of the rows of logits (N, C) that are converted to float64 at a time."""
    size = max(1, _MAX_BLOCK // logits.shape[1])
    return [slice(first, first + size) for first in range(0, len(logits), size)]


class Bin(NamedTuple):
    """Decisions of like probability: how many, their mean probability, the share that is so."""

    decisions: int
    confidence: float
    fraction: float


class Reliability(NamedTuple):
    """Probabilities against what is so: bins of equal width from 0 to 1, those that are empty out.

    ``error`` is the expected calibration error, the mean distance of a bin's probability from its
    share, weighted by its count; ``loss`` the mean negative log-likelihood.
    """

    error: float
    loss: float
    bins: tuple[Bin, ...]


def reliability(probabilities: NDArray[Any], holds: NDArray[Any], loss: float) -> Reliability:
    """Puts decisions into bins: what each was given, (N,), and whether it is so, (N,)."""
    indices = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    counts = np.bincount(indices, minlength=BINS)
    sums, hits = (np.bincount(indices, values, BINS) for values in (probabilities, holds * 1.0))
    bins = tuple(
        Bin(int(count), float(total / count), float(hit / count))
        for count, total, hit in zip(counts, sums, hits, strict=True)
        if count
    )
    error = sum(one.decisions * abs(one.confidence - one.fraction) for one in bins) / len(indices)
    return Reliability(float(error), float(loss), bins)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Effect of a temperature on the probabilities of a set; ``count`` is N."""

    temperature: float
    count: int
    raw: Reliability
    calibrated: Reliability

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: the temperature, the errors and the losses."""
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
    """Calibration of examples of one class each; logits (N, C), ids of classes (N,)."""

    def measure(divisor: float) -> Reliability:
        greatest, is_right, true_logits = np.zeros([3, len(labels)])
        for block in _blocks(logits):
            logs = log_probabilities(logits[block], divisor).numpy()
            greatest[block] = logs.max(1)
            is_right[block] = logs.argmax(1) == labels[block]
            true_logits[block] = logs[np.arange(len(logs)), labels[block]]
        return reliability(np.exp(greatest), is_right, -true_logits.mean())

    return Calibration(temperature, len(labels), measure(1.0), measure(temperature))


def calibrate_multilabel(
    logits: NDArray[Any], holds: NDArray[Any], temperature: float
) -> Calibration:
    """Calibration of examples of any number of classes each; (N, C) both."""

    def measure(divisor: float) -> Reliability:
        scaled = logits.astype(np.float64) / divisor
        losses = np.logaddexp(0, np.where(holds == 1, -scaled, scaled))
        probabilities = multilabel_probabilities(logits, divisor).numpy()
        return reliability(probabilities.ravel(), holds.ravel(), losses.mean())

    return Calibration(temperature, logits.size, measure(1.0), measure(temperature))


def as_two_classes(logits: NDArray[Any]) -> NDArray[Any]:
    """Logits of classes that hold or do not, (N, C), as those of two classes each, (N * C, 2)."""
    return np.stack([np.zeros(logits.size), logits.astype(np.float64).ravel()], 1)
