"""Metrics of classes (F1, Matthews correlation) and of numbers (correlations, R squared).

All are computed in NumPy float64 over a whole data set, not averaged over batches. ``labels`` are
the true class ids or numbers and ``predictions`` the model's, in that order everywhere, (N,) each,
N at least 1; a number that is not finite is refused. Where a definition divides by zero the result
is 0.0, as in GLUE's own evaluation: a model that predicts one class for everything compares as
having learned nothing, and its result can be written as JSON, which has no NaN.
"""

import dataclasses
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Of these less is better, of all others more.
LOWER_IS_BETTER = frozenset(
    {"loss", "mean_squared_error", "root_mean_squared_error", "mean_absolute_error"}
)


def rank(name: str, value: float) -> float:
    """A score of a name as a number that is greater where the score is better."""
    return -value if name in LOWER_IS_BETTER else value


# A score is a fraction of 1, except for SQuAD's official ones, which count to 100 (one of these two
# is always among them), and for losses and errors, which have units of their own.
_AMONG_PERCENTAGES = frozenset({"exact", "exact_match"})


def score_text(name: str, value: float, names: Collection[str]) -> str:
    """A score for people, among the names of all metrics that are reported with it.

    A fraction has three decimals, what counts to 100 has two; errors are in the labels' units.

    >>> score_text("f1", 0.86744, ["f1"]), score_text("f1", 0.8, ["exact", "f1"])
    ('0.867', '0.80')
    >>> score_text("mean_absolute_error", 0.00012, ["mean_absolute_error"])
    '0.00012'
    """
    if name in LOWER_IS_BETTER:
        return f"{value:.4g}"
    return f"{value:.3f}" if _AMONG_PERCENTAGES.isdisjoint(names) else f"{value:.2f}"


# The scores that every class has: each is the beginning of a metric's name.
CLASS_METRICS = ("precision", "recall", "f1")


def class_metric_names(labels: Iterable[str]) -> list[str]:
    """The names of the classes' scores.

    >>> class_metric_names(["spam"])
    ['precision_spam', 'recall_spam', 'f1_spam']
    """
    return [f"{metric}_{label}" for label in labels for metric in CLASS_METRICS]


@dataclasses.dataclass(frozen=True)
class ClassScore:
    """Precision, recall and F1 of a class, each 0.0 to 1.0, and 0.0 where it divides by zero.

    ``num_true`` and ``num_predicted`` say how often the class, or an entity of a type, is true and
    is predicted, ``num_correct`` how often both.
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
            "precision": self.precision,
            "recall": self.recall,
            "f1": self.f1,
            "true": self.num_true,
            "predicted": self.num_predicted,
            "correct": self.num_correct,
        }


def total(scores: Iterable[ClassScore]) -> ClassScore:
    """The counts of several classes together."""
    counts = [(one.num_true, one.num_predicted, one.num_correct) for one in scores]
    return ClassScore(*(sum(column) for column in zip((0, 0, 0), *counts, strict=True)))


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
    correlation coefficient", 2004), which equals Matthews' for two. 0.0 where all labels or all
    predictions are of one class.
    """
    true, predicted = _ids(labels, predictions)
    classes, ids = np.unique(np.concatenate([true, predicted]), return_inverse=True)
    counts = confusion_matrix(ids[: true.size], ids[true.size :], classes.size).astype(np.float64)
    rows, columns, total = counts.sum(axis=1), counts.sum(axis=0), counts.sum()
    covariance = np.trace(counts) * total - rows @ columns
    spread = np.sqrt(total**2 - rows @ rows) * np.sqrt(total**2 - columns @ columns)
    return float(covariance / spread) if spread > 0 else 0.0


def confusion_matrix(
    labels: ArrayLike, predictions: ArrayLike, num_classes: int
) -> NDArray[np.int64]:
    """Counts, (num_classes, num_classes) int64: row i, column j is how many of i are called j."""
    true, predicted = _ids(labels, predictions)
    pairs = np.bincount(true * num_classes + predicted, minlength=num_classes**2)
    return pairs.reshape(num_classes, num_classes).astype(np.int64)


def _ids(labels: ArrayLike, predictions: ArrayLike) -> list[NDArray[np.int64]]:
    return [np.asarray(ids).astype(np.int64) for ids in (labels, predictions)]


# === Numbers ===


def pearson_correlation(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Pearson's correlation coefficient, -1.0 to 1.0.

    0.0 where all labels or all predictions are equal, and so for a single example (scipy: NaN).
    """
    return _correlation(*_check_numbers(labels, predictions))


def spearman_correlation(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Spearman's rank correlation, -1.0 to 1.0: Pearson's of the ranks, which equals share."""
    true, predicted = _check_numbers(labels, predictions)
    return _correlation(ranks(true), ranks(predicted))


def r2_score(labels: ArrayLike, predictions: ArrayLike) -> float:
    """The share of the labels' variance that predictions explain, 1.0 at most.

    Predicting the labels' mean everywhere gives 0.0, anything worse a negative number. 0.0 where
    all labels are equal.
    """
    true, predicted = _check_numbers(labels, predictions)
    if np.ptp(true) == 0:
        return 0.0
    return float(1 - ((true - predicted) ** 2).sum() / ((true - true.mean()) ** 2).sum())


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rank of each number, from 1; of equal ones the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    # The last rank of each distinct number, less half the way to its first.
    found: NDArray[np.float64] = np.cumsum(counts) - (counts - 1) / 2
    return found[places]


def _correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    # Not by the variance: the mean's rounding leaves a little of it to equal numbers.
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    cosine = (x / np.linalg.norm(x)) @ (y / np.linalg.norm(y))
    return float(np.clip(cosine, -1.0, 1.0))


def _check_numbers(
    labels: ArrayLike, predictions: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    true, predicted = np.asarray(labels, np.float64), np.asarray(predictions, np.float64)
    for name, values in (("labels", true), ("predictions", predicted)):
        wrong: NDArray[Any] = np.flatnonzero(~np.isfinite(values))
        if wrong.size:
            raise ValueError(
                f"{name} are finite numbers, got {values[wrong[0]]} at {wrong[0]} and "
                f"{wrong.size} such in all."
            )
    return true, predicted
