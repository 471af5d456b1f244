"""Scores of predicted classes, regression values, entities and tags.

The tables ``CLASS_SCORES``, ``BINARY_SCORES``, ``ERRORS`` and ``NUMBER_SCORES`` map the names of
scores to functions. Each function takes labels and predictions, in this order, of shape (N,) with N
at least 1. Scores are computed in float64 over the whole data set, not averaged over batches.

A correlation or R2 is NaN if all labels are equal. All other divisions by zero result in 0.0, as in
GLUE's evaluation: constant predictions get the score of a model that has learned nothing. (For
constant predictions, SciPy returns NaN; scikit-learn returns 0.0 in both cases.)

A row is a text, a question or a tagged sentence.

Dimensions: N rows, C classes.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Score = Callable[[NDArray[Any], NDArray[Any]], float]
# Mean loss on a data set, computed as in training but without class weights.
LOSS = "loss"
# Scores of each class. Names such as ``f1_spam`` combine a score and a class.
CLASS_METRICS = ("precision", "recall", "f1")


@dataclasses.dataclass(frozen=True)
class ClassScore:
    """Precision, recall and F1 of a class or entity type, 0.0 if a denominator is zero.

    Attributes:
        num_true: Number of labels of the class.
        num_predicted: Number of predictions of the class.
        num_correct: Number of correct predictions of the class.
    """

    num_true: int
    num_predicted: int
    num_correct: int

    @property
    def precision(self) -> float:
        """Fraction of the predictions of the class that are correct."""
        return self.num_correct / self.num_predicted if self.num_predicted else 0.0

    @property
    def recall(self) -> float:
        """Fraction of the labels of the class that are predicted correctly."""
        return self.num_correct / self.num_true if self.num_true else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        both = self.num_true + self.num_predicted
        return 2 * self.num_correct / both if both else 0.0

    def to_dict(self) -> dict[str, float]:
        """Returns the scores and counts as a table row."""
        return {
            **{name: getattr(self, name) for name in CLASS_METRICS},
            "true": self.num_true,
            "predicted": self.num_predicted,
            "correct": self.num_correct,
        }


def total(classes: Iterable[ClassScore]) -> ClassScore:
    """Adds up the counts of several classes."""
    return ClassScore(*np.sum([(0, 0, 0), *map(dataclasses.astuple, classes)], axis=0).tolist())


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Comparison of predictions with the labels of a data set.

    Attributes:
        count: Number of rows.
        scores: Scores by name.
        classes: Counts by class.
        is_correct: Whether each row is correct, shape (N,); only for entities and tags.
    """

    count: int
    scores: Mapping[str, float]
    classes: Mapping[str, ClassScore] = dataclasses.field(default_factory=dict)
    is_correct: NDArray[np.bool_] | None = None

    def select(self, names: Iterable[str]) -> dict[str, float]:
        """Returns the scores with these names, which may be names of class scores (``f1_NAME``)."""
        scores = {}
        for name in names:
            metric, _, label = name.partition("_")
            if name in self.scores:
                scores[name] = float(self.scores[name])
            elif metric in CLASS_METRICS and label in self.classes:
                scores[name] = float(getattr(self.classes[label], metric))
        return scores


def compare(
    table: Mapping[str, Score],
    true: NDArray[Any],
    predicted: NDArray[Any],
    losses: NDArray[Any] | None = None,
) -> Comparison:
    """Computes the scores in a table of functions, and the mean of the losses, shape (N,)."""
    scores = {name: compute(true, predicted) for name, compute in table.items()}
    return Comparison(len(true), scores | _mean_loss(losses))


def _mean_loss(losses: NDArray[Any] | None) -> dict[str, float]:
    return {} if losses is None else {LOSS: losses.mean()}


# === Single-label classification ===


def accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns the fraction of correct predictions."""
    true, predicted = _ids(labels, predictions)
    return float((true == predicted).mean())


def f1(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns the F1 of class 1, as reported for MRPC and QQP: 2 TP / (2 TP + FP + FN).

    It is 0.0 if class 1 occurs neither in the labels nor in the predictions.
    """
    true, predicted = _ids(labels, predictions)
    positives = int(true.sum() + predicted.sum())  # 2 TP + FP + FN
    return float(2 * (true & predicted).sum() / max(positives, 1))


def macro_f1(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns the mean F1 of the classes that occur among the labels or the predictions."""
    true, predicted = _ids(labels, predictions)
    classes, ids = np.unique(np.concatenate([true, predicted]), return_inverse=True)
    # 2 TP + FP + FN of each class, which is never 0. Counting ids avoids a C-column matrix.
    positives = np.bincount(ids)
    true_positives = np.bincount(ids[: true.size][true == predicted], minlength=classes.size)
    return float(np.mean(2 * true_positives / positives))


def matthews_correlation(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns Matthews' correlation coefficient for two or more classes, between -1.0 and 1.0.

    For more than two classes, it is Gorodkin's R_K ("Comparing two K-category assignments by a
    K-category correlation coefficient", 2004). It is NaN if all labels are equal, and 0.0 if only
    the predictions are all equal.
    """
    true, predicted = _ids(labels, predictions)
    if np.ptp(true) == 0:
        return math.nan
    classes, ids = np.unique(np.concatenate([true, predicted]), return_inverse=True)
    rows, columns = (
        np.bincount(part, minlength=classes.size).astype(np.float64)
        for part in (ids[: true.size], ids[true.size :])
    )
    total, num_correct = float(true.size), float((true == predicted).sum())
    covariance = num_correct * total - rows @ columns
    spread = np.sqrt(total**2 - rows @ rows) * np.sqrt(total**2 - columns @ columns)
    return float(covariance / spread) if spread > 0 else 0.0


class Confusion(NamedTuple):
    """The pairs of a true and a predicted class that occur, and their counts, (P,) int64 each.

    Unlike a matrix, the pairs do not need C * C counts.
    """

    true: NDArray[np.int64]
    predicted: NDArray[np.int64]
    counts: NDArray[np.int64]

    def matrix(self, num_classes: int) -> NDArray[np.int64]:
        """Returns counts of shape (C, C): rows are true classes, columns predicted classes."""
        counts = np.zeros([num_classes, num_classes], np.int64)
        counts[self.true, self.predicted] = self.counts
        return counts


def count_confusions(labels: ArrayLike, predictions: ArrayLike) -> Confusion:
    """Counts the pairs of true and predicted class ids, shape (N,) each."""
    (true, predicted), counts = np.unique(_ids(labels, predictions), axis=1, return_counts=True)
    return Confusion(true, predicted, counts)


def _ids(labels: ArrayLike, predictions: ArrayLike) -> list[NDArray[np.int64]]:
    return [np.asarray(ids).astype(np.int64) for ids in (labels, predictions)]


CHOICE_SCORES: Mapping[str, Score] = {"accuracy": accuracy}
CLASS_SCORES: Mapping[str, Score] = {
    **CHOICE_SCORES,
    "macro_f1": macro_f1,
    "matthews_correlation": matthews_correlation,
}
# Scores for exactly two classes.
BINARY_SCORES: Mapping[str, Score] = {"f1": f1}


def compare_classes(
    true: NDArray[Any],
    predicted: NDArray[Any],
    labels: Sequence[str],
    losses: NDArray[Any] | None = None,
) -> Comparison:
    """Compares class ids, shape (N,); for two classes, ``f1`` is the F1 of class 1."""
    table = {**CLASS_SCORES, **(BINARY_SCORES if len(labels) == 2 else {})}
    counts = [
        np.bincount(ids, minlength=len(labels))
        for ids in (true, predicted, true[true == predicted])
    ]
    classes = _classes(labels, np.stack(counts, 1))
    return dataclasses.replace(compare(table, true, predicted, losses), classes=classes)


def _classes(labels: Sequence[str], counts: NDArray[np.int64]) -> dict[str, ClassScore]:
    """Converts counts (C, 3) of true, predicted and correct rows to scores by class."""
    return {label: ClassScore(*row) for label, row in zip(labels, counts.tolist(), strict=True)}


# === Multi-label classification ===


def _mean_f1(classes: Collection[ClassScore]) -> float:
    return float(np.mean([label.f1 for label in classes]))


MULTILABEL_SCORES: Mapping[str, Callable[[Collection[ClassScore]], float]] = {
    "micro_f1": lambda classes: total(classes).f1,
    "macro_f1": _mean_f1,
}
# Suffix of the scores that use a fixed threshold.
HALF = 0.5
AT_HALF = f"_at_{HALF}"


def compare_multilabel(
    true: NDArray[Any],
    predicted: NDArray[Any],
    labels: Sequence[str],
    losses: NDArray[Any] | None = None,
    suffix: str = "",
) -> Comparison:
    """Compares 0/1 multi-label predictions (N, C); appends ``suffix`` to the score names."""
    counts = np.stack([true, predicted, true * predicted], 2).astype(np.int64).sum(0)
    classes = _classes(labels, counts)
    scores = {name + suffix: score(classes.values()) for name, score in MULTILABEL_SCORES.items()}
    return Comparison(len(true), scores | _mean_loss(losses), classes)


# === Regression ===


def pearson_correlation(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns Pearson's correlation coefficient, between -1.0 and 1.0.

    It is NaN if all labels are equal, and 0.0 if only the predictions are all equal.
    """
    x, y = _numbers(labels, predictions)
    # The variance is unsuitable for this check: rounding of the mean can make it positive.
    if np.ptp(x) == 0:
        return math.nan
    if np.ptp(y) == 0:
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    cosine = (x / np.linalg.norm(x)) @ (y / np.linalg.norm(y))
    return float(np.clip(cosine, -1.0, 1.0))


def spearman_correlation(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns Spearman's rank correlation, between -1.0 and 1.0; ties get their mean rank."""
    true, predicted = _numbers(labels, predictions)
    return pearson_correlation(ranks(true), ranks(predicted))


def r2_score(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns the coefficient of determination, at most 1.0, or NaN if all labels are equal.

    Predicting the mean of the labels scores 0.0; worse predictions have negative scores.
    """
    true, predicted = _numbers(labels, predictions)
    if np.ptp(true) == 0:
        return math.nan
    return float(1 - ((true - predicted) ** 2).sum() / ((true - true.mean()) ** 2).sum())


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the rank of each number, from 1; ties get their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    # Last rank of each distinct number, minus half the distance to its first rank.
    means: NDArray[np.float64] = np.cumsum(counts) - (counts - 1) / 2
    return means[inverse]


def _numbers(labels: ArrayLike, predictions: ArrayLike) -> list[NDArray[np.float64]]:
    return [np.asarray(values, np.float64) for values in (labels, predictions)]


# Errors in the units of the labels.
ERRORS: Mapping[str, Score] = {
    "mean_squared_error": lambda true, predicted: ((true - predicted) ** 2).mean(),
    "root_mean_squared_error": lambda true, predicted: np.sqrt(((true - predicted) ** 2).mean()),
    "mean_absolute_error": lambda true, predicted: np.abs(true - predicted).mean(),
}
NUMBER_SCORES: Mapping[str, Score] = {
    "pearson": pearson_correlation,
    "spearman": spearman_correlation,
    **ERRORS,
    "r2": r2_score,
}
# Scores without units.
CORRELATIONS = {name: NUMBER_SCORES[name] for name in ("spearman", "pearson")}


# === Entities and tags ===

Tags = Sequence[Sequence[str]]
ENTITY_SCORES = ("f1", "precision", "recall")
TAG_SCORES = ("accuracy", "macro_f1")


def compare_entities(
    true: Tags,
    predicted: Tags,
    entities: Sequence[tuple[Sequence[Any], Sequence[Any]]],
    losses: NDArray[Any] | None = None,
) -> Comparison:
    """Compares the entities and tags of sentences.

    Args:
        true: Tags of each sentence.
        predicted: Predicted tags of each sentence.
        entities: True and predicted entities of each sentence. A sentence is correct if its true
            and predicted entities are equal.
        losses: Sum of the losses of the words of each sentence, shape (N,).
    """
    counts: dict[str, NDArray[np.int64]] = {}
    for gold, predictions in entities:
        for column, part in enumerate((gold, predictions, set(gold) & set(predictions))):
            for entity in part:
                counts.setdefault(entity.type, np.zeros(3, np.int64))[column] += 1
    classes = {name: ClassScore(*counts[name].tolist()) for name in sorted(counts)}
    overall = total(classes.values())
    scores = {
        **{name: getattr(overall, name) for name in ENTITY_SCORES},
        **{f"f1_{name}": score.f1 for name, score in classes.items()},
        **_word_scores(true, predicted, losses),
    }
    return Comparison(len(true), scores, classes, np.array([g == f for g, f in entities]))


def compare_tags(true: Tags, predicted: Tags, losses: NDArray[Any] | None = None) -> Comparison:
    """Compares tags other than entities; a sentence is correct if all of its tags are correct."""
    names = sorted({tag for tags in (*true, *predicted) for tag in tags})
    ids = {name: number for number, name in enumerate(names)}
    gold, predictions = (
        np.array([ids[tag] for tags in rows for tag in tags]) for rows in (true, predicted)
    )
    classes = compare_classes(gold, predictions, names).classes
    scores = {**_word_scores(true, predicted, losses), "macro_f1": _mean_f1(classes.values())}
    pairs = zip(true, predicted, strict=True)
    is_correct = [list(labels) == list(predictions) for labels, predictions in pairs]
    return Comparison(len(true), scores, classes, np.array(is_correct))


def _word_scores(true: Tags, predicted: Tags, losses: NDArray[Any] | None) -> dict[str, float]:
    pairs = zip(true, predicted, strict=True)
    is_correct = [label == tag for row in pairs for label, tag in zip(*row, strict=True)]
    scores = {"accuracy": sum(is_correct) / len(is_correct)}
    return scores if losses is None else {**scores, LOSS: losses.sum() / len(is_correct)}


# === Formatting of scores ===

# Scores for which lower is better.
LOWER_IS_BETTER = frozenset({LOSS, *ERRORS})
# Official question answering scores, the only scores that are percentages.
_AMONG_PERCENTAGES = frozenset({"exact", "exact_match"})


def json_scores(scores: Mapping[str, Any]) -> dict[str, float | None]:
    """Returns scores as JSON values, with ``None`` in place of NaN."""
    return {name: None if math.isnan(value) else float(value) for name, value in scores.items()}


def rank(name: str, scores: Mapping[str, float | None]) -> tuple[float, float]:
    """Returns a key that sorts evaluations by a score, then by the loss, with the best last.

    Undefined scores are ``None``, and two undefined scores compare equal.

    >>> rank("f1", {"f1": 0.9, "loss": 0.3}) > rank("f1", {"f1": 0.9, "loss": 0.4})
    True
    """
    value, loss = scores[name], scores.get(LOSS)
    if value is None:
        value = -math.inf
    elif name in LOWER_IS_BETTER:
        value = -value
    return value, -(loss or 0.0)


def score_text(name: str, value: float | None, names: Collection[str]) -> str:
    """Formats a score, given the names of all scores that are reported with it.

    Percentages get two decimals, losses and errors four digits, and other scores three decimals.
    """
    if value is None or math.isnan(value):
        return "undefined"
    if name in LOWER_IS_BETTER:
        return f"{value:.4g}"
    return f"{value:.3f}" if _AMONG_PERCENTAGES.isdisjoint(names) else f"{value:.2f}"
