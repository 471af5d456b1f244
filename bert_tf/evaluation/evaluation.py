"""Evaluation of a model on one data set: scores, and mistakes.

Letters: N examples, C classes.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.modeling.base import TEMPERATURE

from .calibration import Calibration, fit_temperature
from .scores import Comparison

Thresholds = Mapping[str, float]
_MOST_MISTAKES = 50


@dataclasses.dataclass(frozen=True)
class Mistake:
    """An example that the model got wrong, for a person to read.

    ``texts`` has the example's texts by their names, ``""`` for an only one. ``loss`` is the
    negative log-likelihood of what was expected, or the squared error. ``probabilities`` are those
    of what was expected and of what was predicted, where one of several was to be chosen.
    """

    id: str
    texts: Mapping[str, str]
    expected: str
    predicted: str
    loss: float
    probabilities: tuple[float, float] | None = None

    @property
    def text(self) -> str:
        """All texts, each on a line."""
        return joined(self.texts)


def joined(texts: Mapping[str, str]) -> str:
    """Named texts as one, each on a line."""
    return "\n".join(texts.values())


def temperature_of(thresholds: Thresholds | None, logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature that is given, or with ``None`` that of logits (N, C) and ids (N,)."""
    if thresholds is None:
        return fit_temperature(logits, labels)
    return thresholds.get(TEMPERATURE, 1.0)


def is_constant(true: np.ndarray, predicted: np.ndarray) -> bool:
    """True if all predictions are one though the labels are not."""
    return bool((predicted == predicted[0]).all() and (true != true[0]).any())


def worst_mistakes(
    items: Sequence[Any],
    losses: np.ndarray,
    wrong: np.ndarray,
    show: Callable[[int], tuple[Mapping[str, str], str, str]],
    log_probabilities: np.ndarray | None = None,
) -> list[Mistake]:
    """The wrong examples, (N,) bool, of the greatest losses, at most 50, the greatest first.

    ``show`` gives, for an example's number, its texts, what was expected and what was predicted.
    ``log_probabilities`` (N, C) are those of the choices, of which the likeliest was predicted and
    ``losses`` has what was expected.
    """

    def probabilities(at: int) -> tuple[float, float] | None:
        if log_probabilities is None:
            return None
        return math.exp(-losses[at]), math.exp(log_probabilities[at].max())

    numbers = np.flatnonzero(wrong)
    order = np.argsort(-losses[numbers], kind="stable")[:_MOST_MISTAKES]
    return [
        Mistake(items[at].id, *show(at), float(losses[at]), probabilities(at))
        for at in numbers[order]
    ]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A model on one data set.

    Scores are fractions of 1, or 0 to 100 where the official script says so; ``comparison`` has
    those of each class. ``constant`` says that the run has collapsed: every
    prediction is the same and should not be, or what ``constant_means`` says. ``confusion`` is
    (C, C) counts, row = expected, column = predicted. ``thresholds`` are those of the scores, by
    name, such as SQuAD's ``null``, and the temperature of the probabilities: decided on this set,
    or given. ``calibrate`` compares the probabilities with what is so.
    """

    scores: Mapping[str, float]
    constant: bool
    mistakes: Sequence[Mistake] = ()
    confusion: Any = None
    thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    constant_means: str = "every prediction is the same"
    calibrate: Callable[[], Calibration] | None = None
    comparison: Comparison | None = None
