"""Texts with a class each, or with any number of classes.

Letters: N examples, C classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf.modeling import BertClassifier
from bert_tf.modeling.base import PROBABILITY_THRESHOLD
from bert_tf.tasks.examples import TextExample
from bert_tf.tasks.glue import glue_scores
from bert_tf.tasks.glue_tasks import GLUE_TASKS
from bert_tf.tasks.metrics import (
    accuracy,
    confusion_matrix,
    macro_f1,
    matthews_correlation,
    multilabel_f1,
)

from .inference import log_softmax
from .task import Evaluation, is_constant
from .text_kinds import Prediction, TextKind, label_fault, worst_mistakes

_HALF = 0.5


class ClassKind(TextKind):
    """One class each.

    Scores are GLUE's for a task of GLUE; else ``accuracy``, ``macro_f1`` (the mean over the classes
    that are true or predicted somewhere) and ``matthews_correlation``.

    Args:
        labels: the classes' names in the order of their ids.
        glue: a key of ``GLUE_TASKS``, or ``None``.
    """

    model_class = BertClassifier

    def __init__(self, labels: Sequence[str], glue: str | None = None) -> None:
        self.model_arguments = {"num_classes": len(labels)}
        self.headline = GLUE_TASKS[glue].headline if glue else "accuracy"
        self._labels = list(labels)
        self._ids: dict[Any, int] = {label: number for number, label in enumerate(labels)}
        self._glue = glue

    def find_fault(self, item: TextExample) -> str | None:
        """Every label is a class's name."""
        return None if item.label in self._ids else label_fault(item, "the name of a class")

    def targets(self, items: Sequence[TextExample]) -> np.ndarray:
        """The classes' ids, (N,) int32."""
        return np.array([self._ids[item.label] for item in items], np.int32)

    def compile_arguments(self) -> dict[str, Any]:
        """Cross-entropy, and accuracy."""
        return {
            "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "metrics": [keras.metrics.SparseCategoricalAccuracy("accuracy")],
        }

    def evaluate(
        self,
        items: Sequence[TextExample],
        outputs: np.ndarray,
        thresholds: Mapping[str, float] | None = None,
    ) -> Evaluation:
        """From logits, (N, C); there is no threshold."""
        true, log_probabilities = self.targets(items), log_softmax(outputs)
        predicted = log_probabilities.argmax(1)
        count = len(self._labels)
        if self._glue:
            scores = glue_scores(self._glue, true, predicted)
        else:
            scores = {
                "accuracy": accuracy(true, predicted),
                "macro_f1": macro_f1(true, predicted),
                "matthews_correlation": matthews_correlation(true, predicted),
            }
        losses = -log_probabilities[np.arange(len(items)), true]
        return Evaluation(
            scores=scores,
            constant=is_constant(true, predicted),
            mistakes=worst_mistakes(
                items,
                losses,
                true != predicted,
                lambda at: (self._labels[true[at]], self._labels[predicted[at]]),
            ),
            confusion=confusion_matrix(true, predicted, count),
        )

    def predictions(
        self, outputs: np.ndarray, thresholds: Mapping[str, float]
    ) -> Iterator[Prediction]:
        """The likeliest class; there is no threshold."""
        for row in np.exp(log_softmax(outputs)):
            yield Prediction(self._labels[row.argmax()], _named(self._labels, row))


class ClassesKind(TextKind):
    """Any number of classes each.

    A class holds where its probability is at least a threshold: one that is given, or the one that
    gives the greatest micro F1 on the set. ``micro_f1`` and ``macro_f1`` are by that threshold,
    ``micro_f1_at_0.5`` and ``macro_f1_at_0.5`` by one that was not chosen. A mistake's loss is the
    sum over the classes.

    Args:
        labels: the classes' names in the order of their ids.
    """

    model_class = BertClassifier
    headline = "micro_f1"

    def __init__(self, labels: Sequence[str]) -> None:
        self.model_arguments = {"num_classes": len(labels)}
        self._labels = list(labels)
        self._ids: dict[Any, int] = {label: number for number, label in enumerate(labels)}

    def find_fault(self, item: TextExample) -> str | None:
        """Every label is a tuple of classes' names."""
        names = _tuple(item.label)
        good = names is item.label and all(name in self._ids for name in names)
        return None if good else label_fault(item, "a tuple of classes' names")

    def targets(self, items: Sequence[TextExample]) -> np.ndarray:
        """(N, C) int32, 1 where a class holds."""
        targets = np.zeros([len(items), len(self._labels)], np.int32)
        for row, item in zip(targets, items, strict=True):
            row[[self._ids[name] for name in _tuple(item.label)]] = 1
        return targets

    def compile_arguments(self) -> dict[str, Any]:
        """The mean of the classes' cross-entropies, and the share of classes that are right."""
        return {
            "loss": keras.losses.BinaryCrossentropy(from_logits=True),
            # A logit of 0 is a probability of a half.
            "metrics": [keras.metrics.BinaryAccuracy("accuracy", threshold=0.0)],
        }

    def evaluate(
        self,
        items: Sequence[TextExample],
        outputs: np.ndarray,
        thresholds: Mapping[str, float] | None = None,
    ) -> Evaluation:
        """From logits, (N, C)."""
        true, logits = self.targets(items), outputs.astype(np.float64)
        probabilities = _sigmoid(logits)
        if thresholds is None:
            threshold = best_threshold(true, probabilities)
        else:
            threshold = thresholds.get(PROBABILITY_THRESHOLD, _HALF)
        predicted = (probabilities >= threshold).astype(int)
        by_half = (probabilities >= _HALF).astype(int)
        losses = np.logaddexp(0, np.where(true == 1, -logits, logits)).sum(1)
        return Evaluation(
            scores={
                "micro_f1": multilabel_f1(true, predicted, "micro"),
                "macro_f1": multilabel_f1(true, predicted, "macro"),
                "micro_f1_at_0.5": multilabel_f1(true, by_half, "micro"),
                "macro_f1_at_0.5": multilabel_f1(true, by_half, "macro"),
            },
            constant=is_constant(true, predicted),
            mistakes=worst_mistakes(
                items,
                losses,
                (true != predicted).any(1),
                lambda at: (self._shown(true[at]), self._shown(predicted[at])),
            ),
            thresholds={PROBABILITY_THRESHOLD: threshold},
        )

    def predictions(
        self, outputs: np.ndarray, thresholds: Mapping[str, float]
    ) -> Iterator[Prediction]:
        """The classes whose probability is at least the threshold, 0.5 where it is not given."""
        threshold = thresholds.get(PROBABILITY_THRESHOLD, _HALF)
        for row in _sigmoid(outputs.astype(np.float64)):
            yield Prediction(self._names(row >= threshold), _named(self._labels, row))

    def _names(self, holds: np.ndarray) -> list[str]:
        return [label for label, flag in zip(self._labels, holds, strict=True) if flag]

    def _shown(self, holds: np.ndarray) -> str:
        return ", ".join(self._names(holds)) or "(none)"


def best_threshold(true: np.ndarray, probabilities: np.ndarray) -> float:
    """The threshold of the greatest micro F1: what is at least as probable counts as holding.

    It lies half-way between two of the probabilities. Of several that are as good, it is the one
    nearest to 0.5.

    Args:
        true: (N, C), 1 where a class holds, else 0.
        probabilities: (N, C), from 0 to 1.

    Returns:
        More than 0, and at most 1; 0.5 where no class holds anywhere.

    >>> best_threshold(np.array([[1, 0], [1, 0]]), np.array([[0.75, 0.25], [0.5, 0.125]]))
    0.375
    """
    holds, ranked = true.ravel(), probabilities.ravel().astype(np.float64)
    order = np.argsort(-ranked, kind="stable")
    holds, ranked = holds[order], ranked[order]
    # The last of each run of equal probabilities: they hold together, or not at all.
    ends = np.flatnonzero(np.diff(ranked, append=-1.0))
    true_positives = np.cumsum(holds)[ends]
    f1 = 2 * true_positives / (ends + 1 + holds.sum())
    cuts = (ranked[ends] + np.append(ranked[ends[1:]], 0.0)) / 2
    best = np.flatnonzero(f1 == f1.max())
    if not holds.any():
        return _HALF
    # Where half-way is not between (0 and 0, or neighbouring floats) the probability itself is.
    cuts = np.where(cuts > 0, cuts, np.finfo(np.float64).tiny)
    return float(cuts[best[np.argmin(np.abs(cuts[best] - _HALF))]])


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    probabilities: np.ndarray = np.exp(-np.logaddexp(0, -logits))
    return probabilities


def _named(labels: Sequence[str], row: np.ndarray) -> dict[str, float]:
    return dict(zip(labels, row.tolist(), strict=True))


def _tuple(label: Any) -> tuple[str, ...]:
    return label if isinstance(label, tuple) else ()
