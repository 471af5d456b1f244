"""Scores of a whole set's predictions: of classes, of numbers, of tags.

A score is one row of ``CLASS_SCORES``, ``BINARY_SCORES``, ``MULTILABEL_SCORES``, ``ERRORS`` or
``NUMBER_SCORES``: what ``--metric`` may name, what an evaluation reports and what is better follow
from it. All are computed in float64, not averaged over batches, of labels and predictions in that
order, (N,) each, N at least 1. A correlation or R2 is undefined, NaN, if all labels are equal: no
predictions could have another score. Where a definition otherwise divides by zero the score is 0.0,
as in GLUE's own evaluation: a model that predicts one class for everything compares as having
learned nothing. (scipy returns NaN for equal predictions too, scikit-learn 0.0 in either case.)

A row of a set is what is drawn at random when the set is put together: a text, a question, a
sentence of tags.

Letters: N rows, C classes.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Score = Callable[[NDArray[Any], NDArray[Any]], float]
# The mean loss on a set, as training has it, without the weights of classes.
LOSS = "loss"
# The scores that every class has: each is the beginning of a name, as ``f1_spam``.
CLASS_METRICS = ("precision", "recall", "f1")


@dataclasses.dataclass(frozen=True)
class ClassScore:
    """Precision, recall and F1 of a class, each 0.0 to 1.0, and 0.0 where it divides by zero.

    The numbers say how often the class, or an entity of a type, is true, is predicted, is both.
    """

    num_true: int
    num_predicted: int
    num_correct: int

    @property
    def precision(self) -> float:
        """The share of what is predicted that is correct."""
        return self.num_correct / self.num_predicted if self.num_predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of what is true that is found."""
        return self.num_correct / self.num_true if self.num_true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        both = self.num_true + self.num_predicted
        return 2 * self.num_correct / both if both else 0.0

    def to_dict(self) -> dict[str, float]:
        """The three scores and the three counts, ready for a row of a table."""
        return {
            **{name: getattr(self, name) for name in CLASS_METRICS},
            "true": self.num_true,
            "predicted": self.num_predicted,
            "correct": self.num_correct,
        }


def total(classes: Iterable[ClassScore]) -> ClassScore:
    """The counts of several classes together."""
    return ClassScore(*np.sum([(0, 0, 0), *map(dataclasses.astuple, classes)], axis=0).tolist())


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A set's predictions compared with its labels.

    ``count`` is N. ``scores`` has each score by its name, ``classes`` each class's counts.
    ``right`` (N,) says which rows are right, of tags alone.
    """

    count: int
    scores: Mapping[str, float]
    classes: Mapping[str, ClassScore] = dataclasses.field(default_factory=dict)
    right: NDArray[np.bool_] | None = None

    def select(self, names: Iterable[str]) -> dict[str, float]:
        """Scores by name, those of a class (``f1_NAME``) too; a name without one is left out."""
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
    """The scores that a table of functions gives, and the mean of the losses (N,)."""
    scores = {name: compute(true, predicted) for name, compute in table.items()}
    return Comparison(len(true), scores | _mean_loss(losses))


def _mean_loss(losses: NDArray[Any] | None) -> dict[str, float]:
    return {} if losses is None else {LOSS: losses.mean()}


# === A class each ===


def accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """The share of the rows whose label is predicted."""
    true, predicted = _ids(labels, predictions)
    return float((true == predicted).mean())


def f1(labels: ArrayLike, predictions: ArrayLike) -> float:
    """F1 of class 1 against class 0, as MRPC and QQP report it: 2 TP / (2 TP + FP + FN).

    0.0 where class 1 is neither true nor predicted anywhere.
    """
    true, predicted = _ids(labels, predictions)
    positives = int(true.sum() + predicted.sum())  # 2 TP + FP + FN
    return float(2 * (true & predicted).sum() / max(positives, 1))


def macro_f1(labels: ArrayLike, predictions: ArrayLike) -> float:
    """The mean F1 of the classes that are true or predicted somewhere."""
    true, predicted = _ids(labels, predictions)
    classes, ids = np.unique(np.concatenate([true, predicted]), return_inverse=True)
    # 2 TP + FP + FN of each class, which is never 0: there may be too many for a column each.
    positives = np.bincount(ids)
    true_positives = np.bincount(ids[: true.size][true == predicted], minlength=classes.size)
    return float(np.mean(2 * true_positives / positives))


def matthews_correlation(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Matthews' correlation coefficient, -1.0 to 1.0, for two classes or more.

    For more than two it is Gorodkin's R_K ("Comparing two K-category assignments by a K-category
    correlation coefficient", 2004), which equals Matthews' for two. NaN if all labels are of one
    class, 0.0 if only all predictions are.
    """
    true, predicted = _ids(labels, predictions)
    if np.ptp(true) == 0:
        return math.nan
    classes, ids = np.unique(np.concatenate([true, predicted]), return_inverse=True)
    rows, columns = (
        np.bincount(part, minlength=classes.size).astype(np.float64)
        for part in (ids[: true.size], ids[true.size :])
    )
    total, right = float(true.size), float((true == predicted).sum())
    covariance = right * total - rows @ columns
    spread = np.sqrt(total**2 - rows @ rows) * np.sqrt(total**2 - columns @ columns)
    return float(covariance / spread) if spread > 0 else 0.0


class Confusion(NamedTuple):
    """Counts of the pairs of a true and a predicted class that occur, (P,) int64 each.

    A matrix of all classes would need C * C counts.
    """

    true: NDArray[np.int64]
    predicted: NDArray[np.int64]
    counts: NDArray[np.int64]

    def matrix(self, num_classes: int) -> NDArray[np.int64]:
        """Counts, (C, C): row i, column j is how often class j is predicted for class i."""
        counts = np.zeros([num_classes, num_classes], np.int64)
        counts[self.true, self.predicted] = self.counts
        return counts


def count_confusions(labels: ArrayLike, predictions: ArrayLike) -> Confusion:
    """Counts how often each class is predicted for each; ids of classes (N,) each."""
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
# Of two classes alone.
BINARY_SCORES: Mapping[str, Score] = {"f1": f1}


def compare_classes(
    true: NDArray[Any],
    predicted: NDArray[Any],
    labels: Sequence[str],
    losses: NDArray[Any] | None = None,
) -> Comparison:
    """Compares ids of classes (N,), one an example; with two classes, ``f1`` is that of class 1."""
    table = {**CLASS_SCORES, **(BINARY_SCORES if len(labels) == 2 else {})}
    counts = [
        np.bincount(ids, minlength=len(labels))
        for ids in (true, predicted, true[true == predicted])
    ]
    classes = _classes(labels, np.stack(counts, 1))
    return dataclasses.replace(compare(table, true, predicted, losses), classes=classes)


def _classes(labels: Sequence[str], counts: NDArray[np.int64]) -> dict[str, ClassScore]:
    """Counts (C, 3) by class: how often it is true, is predicted, is both."""
    return {label: ClassScore(*row) for label, row in zip(labels, counts.tolist(), strict=True)}


# === Any number of classes each ===


def _mean_f1(classes: Collection[ClassScore]) -> float:
    return float(np.mean([one.f1 for one in classes]))


MULTILABEL_SCORES: Mapping[str, Callable[[Collection[ClassScore]], float]] = {
    "micro_f1": lambda classes: total(classes).f1,
    "macro_f1": _mean_f1,
}
# Ends the names of scores by a threshold that no set has decided.
HALF = 0.5
AT_HALF = f"_at_{HALF}"


def compare_multilabel(
    true: NDArray[Any],
    predicted: NDArray[Any],
    labels: Sequence[str],
    losses: NDArray[Any] | None = None,
    suffix: str = "",
) -> Comparison:
    """Compares any number of classes each, (N, C), 1 = holds; ``suffix`` ends scores' names."""
    counts = np.stack([true, predicted, true * predicted], 2).astype(np.int64).sum(0)
    classes = _classes(labels, counts)
    scores = {name + suffix: score(classes.values()) for name, score in MULTILABEL_SCORES.items()}
    return Comparison(len(true), scores | _mean_loss(losses), classes)


# === A number each ===


def pearson_correlation(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Pearson's correlation coefficient, -1.0 to 1.0.

    NaN if all labels are equal, as for a single example; 0.0 if only all predictions are.
    """
    x, y = _numbers(labels, predictions)
    # Not by the variance: the mean's rounding leaves a little of it to equal numbers.
    if np.ptp(x) == 0:
        return math.nan
    if np.ptp(y) == 0:
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    cosine = (x / np.linalg.norm(x)) @ (y / np.linalg.norm(y))
    return float(np.clip(cosine, -1.0, 1.0))


def spearman_correlation(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Spearman's rank correlation, -1.0 to 1.0: Pearson's of the ranks, which equals share."""
    true, predicted = _numbers(labels, predictions)
    return pearson_correlation(ranks(true), ranks(predicted))


def r2_score(labels: ArrayLike, predictions: ArrayLike) -> float:
    """The share of the labels' variance that predictions explain, 1.0 at most.

    Predicting the labels' mean everywhere gives 0.0, anything worse a negative number. NaN if all
    labels are equal.
    """
    true, predicted = _numbers(labels, predictions)
    if np.ptp(true) == 0:
        return math.nan
    return float(1 - ((true - predicted) ** 2).sum() / ((true - true.mean()) ** 2).sum())


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rank of each number, from 1; of equal ones the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    # The last rank of each distinct number, less half the way to its first.
    means: NDArray[np.float64] = np.cumsum(counts) - (counts - 1) / 2
    return means[inverse]


def _numbers(labels: ArrayLike, predictions: ArrayLike) -> list[NDArray[np.float64]]:
    return [np.asarray(values, np.float64) for values in (labels, predictions)]


# In the numbers' own units.
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
# Those without a unit.
CORRELATIONS = {name: NUMBER_SCORES[name] for name in ("spearman", "pearson")}


# === Tags of words ===

Tags = Sequence[Sequence[str]]
ENTITY_SCORES = ("f1", "precision", "recall")
TAG_SCORES = ("accuracy", "macro_f1")


def compare_entities(
    true: Tags,
    predicted: Tags,
    entities: Sequence[tuple[Sequence[Any], Sequence[Any]]],
    losses: NDArray[Any] | None = None,
) -> Comparison:
    """Compares tags of entities, a sentence a row; ``losses`` (N,) are sums over its words.

    ``entities`` has those of each sentence, the true and the predicted; a sentence is right where
    they are equal.
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
    """Compares tags of other kinds, a sentence a row; a sentence's must all be right."""
    names = sorted({tag for tags in (*true, *predicted) for tag in tags})
    ids = {name: number for number, name in enumerate(names)}
    gold, predictions = (
        np.array([ids[tag] for tags in rows for tag in tags]) for rows in (true, predicted)
    )
    classes = compare_classes(gold, predictions, names).classes
    scores = {**_word_scores(true, predicted, losses), "macro_f1": _mean_f1(classes.values())}
    right = [list(row) == list(other) for row, other in zip(true, predicted, strict=True)]
    return Comparison(len(true), scores, classes, np.array(right))


def _word_scores(true: Tags, predicted: Tags, losses: NDArray[Any] | None) -> dict[str, float]:
    pairs = zip(true, predicted, strict=True)
    right = [one == other for row in pairs for one, other in zip(*row, strict=True)]
    scores = {"accuracy": sum(right) / len(right)}
    return scores if losses is None else {**scores, LOSS: losses.sum() / len(right)}


# === Scores for people ===

# Of these less is better, of all others more.
LOWER_IS_BETTER = frozenset({LOSS, *ERRORS})
# A score is a fraction of 1, except for the official ones of questions, which count to 100 (one
# of these two is always among them), and for losses and errors, which have units of their own.
_AMONG_PERCENTAGES = frozenset({"exact", "exact_match"})


def json_scores(scores: Mapping[str, Any]) -> dict[str, float | None]:
    """Returns scores as JSON has them: ``None`` for an undefined one, since JSON has no NaN."""
    return {name: None if math.isnan(value) else float(value) for name, value in scores.items()}


def rank(name: str, scores: Mapping[str, float | None]) -> tuple[float, float]:
    """Orders evaluations by the score of a name, equal ones by their loss: the greater is better.

    Undefined scores, ``None``, are equal.

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
    """A score for people, among the names of all scores that are reported with it.

    A fraction has three decimals, what counts to 100 has two; errors are in the labels' units.
    """
    if value is None or math.isnan(value):
        return "undefined"
    if name in LOWER_IS_BETTER:
        return f"{value:.4g}"
    return f"{value:.3f}" if _AMONG_PERCENTAGES.isdisjoint(names) else f"{value:.2f}"
