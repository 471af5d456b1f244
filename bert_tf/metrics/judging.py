"""Predictions of a set compared with its labels: every score, of all rows or of any of them.

A row is what is drawn at random when a set is put together: a text, a question, a sentence of tags.
Scores of resampled rows (``resampling``) and of two models' predictions of one set come from here.

Letters: N rows, C classes, W words.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_tf.readers.entities import Entity, find_all

from . import formulas as metrics
from .formulas import CLASS_METRICS, ClassScore

# Which rows: their numbers, any of them several times; or all.
Rows = NDArray[np.intp] | slice
ALL = slice(None)
Metric = Callable[[Rows], float]
# For each row, (N, 3): of one class how often it is true, is predicted, is both.
Counts = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Judged:
    """A set's predictions, compared.

    ``count`` is N. ``metrics`` gives each score, by its name, of any rows. ``right`` (N,) says
    which rows are right, ``None`` where no row is right or wrong, as of numbers. ``classes`` has
    each class's counts over all rows, and ``class_rows`` gives them row by row.
    """

    count: int
    metrics: Mapping[str, Metric]
    right: NDArray[np.bool_] | None = None
    classes: Mapping[str, ClassScore] = dataclasses.field(default_factory=dict)
    class_rows: Callable[[str], Counts] | None = None

    def metric(self, name: str) -> Metric | None:
        """A score of its name, those of a class (``f1_NAME``) among them; ``None``: has none."""
        if name in self.metrics:
            return self.metrics[name]
        kind, _, label = name.partition("_")
        if self.class_rows is None or kind not in CLASS_METRICS or label not in self.classes:
            return None
        counts = self.class_rows(label)
        return lambda rows: float(getattr(_total(counts[rows]), kind))

    def scores(self, names: Iterable[str]) -> dict[str, float]:
        """Scores of all rows; a name that there is no score of is left out."""
        found = {name: self.metric(name) for name in dict.fromkeys(names)}
        return {name: float(metric(ALL)) for name, metric in found.items() if metric is not None}


def judge_classes(
    true: NDArray[Any],
    predicted: NDArray[Any],
    labels: Sequence[str],
    losses: NDArray[Any] | None = None,
) -> Judged:
    """A class each: ids (N,); of two classes ``f1`` is that of class 1."""
    right = true == predicted

    def class_rows(label: str) -> Counts:
        number = labels.index(label)
        return np.stack([true == number, predicted == number, right & (true == number)], 1) * 1

    size = len(labels)
    totals = [np.bincount(ids, minlength=size) for ids in (true, predicted, true[right])]
    found = {
        "accuracy": lambda rows: float(right[rows].mean()),
        "macro_f1": _on(metrics.macro_f1, true, predicted),
        "matthews_correlation": _on(metrics.matthews_correlation, true, predicted),
    }
    if size == 2:
        found["f1"] = _on(metrics.f1, true, predicted)
    return Judged(
        len(true),
        {**found, **_mean_loss(losses)},
        right,
        {label: ClassScore(*map(int, row)) for label, *row in zip(labels, *totals, strict=True)},
        class_rows,
    )


def judge_choices(
    true: NDArray[Any], predicted: NDArray[Any], losses: NDArray[Any] | None = None
) -> Judged:
    """A choice each: numbers (N,), which mean nothing from one row to the next."""
    right = true == predicted
    return Judged(
        len(true), {"accuracy": lambda rows: float(right[rows].mean()), **_mean_loss(losses)}, right
    )


def judge_several(
    true: NDArray[Any],
    predicted: NDArray[Any],
    labels: Sequence[str],
    losses: NDArray[Any] | None = None,
    suffix: str = "",
) -> Judged:
    """Any number of classes each, (N, C), 1 where one holds; ``suffix`` ends the scores' names."""
    counts = np.stack([true, predicted, true * predicted], 2).astype(np.int64)
    by_row = counts.sum(1)
    names = list(labels)
    return Judged(
        len(true),
        {
            f"micro_f1{suffix}": lambda rows: _total(by_row[rows]).f1,
            f"macro_f1{suffix}": lambda rows: _macro_f1(counts[rows].sum(0)),
            **_mean_loss(losses),
        },
        (true == predicted).all(1),
        {n: ClassScore(*row) for n, row in zip(names, counts.sum(0).tolist(), strict=True)},
        lambda label: counts[:, names.index(label)],
    )


def judge_numbers(
    true: NDArray[Any], predicted: NDArray[Any], losses: NDArray[Any] | None = None
) -> Judged:
    """A number each, (N,) float64; errors are in the numbers' own units."""
    errors = true - predicted
    return Judged(
        len(true),
        {
            "pearson": _on(metrics.pearson_correlation, true, predicted),
            "spearman": _on(metrics.spearman_correlation, true, predicted),
            "mean_squared_error": lambda rows: float((errors[rows] ** 2).mean()),
            "root_mean_squared_error": lambda rows: float(np.sqrt((errors[rows] ** 2).mean())),
            "mean_absolute_error": lambda rows: float(np.abs(errors[rows]).mean()),
            "r2": _on(metrics.r2_score, true, predicted),
            **_mean_loss(losses),
        },
    )


def judge_similarities(true: NDArray[Any], cosines: NDArray[Any]) -> Judged:
    """Scores of pairs, (N,) float64, and their texts' cosines: only what has no unit."""
    metrics = judge_numbers(true, cosines).metrics
    return Judged(len(true), {name: metrics[name] for name in ("spearman", "pearson")})


Tags = Sequence[Sequence[str]]


def judge_entities(
    true: Tags,
    predicted: Tags,
    losses: NDArray[Any] | None = None,
    *,
    odd_tags: Collection[str] = (),
) -> Judged:
    """Tags of entities, those of a sentence a row; ``losses`` (N,) are sums over its words.

    A sentence is right where its entities are; ``odd_tags`` belong to none.
    """

    def entities_of(rows: Tags) -> list[list[Entity]]:
        return find_all([["O" if tag in odd_tags else tag for tag in row] for row in rows])

    entities = list(zip(entities_of(true), entities_of(predicted), strict=True))
    kinds = sorted({entity.type for row in entities for found in row for entity in found})
    by_kind = {kind: np.zeros([len(true), 3], np.int64) for kind in kinds}
    for number, (gold, found) in enumerate(entities):
        for column, part in enumerate((gold, found, set(gold) & set(found))):
            for entity in part:
                by_kind[entity.type][number, column] += 1
    counts = sum(by_kind.values(), np.zeros([len(true), 3], np.int64))
    return Judged(
        len(true),
        {
            **{kind: _of_class(counts, kind) for kind in ("f1", "precision", "recall")},
            **{f"f1_{kind}": _of_class(rows, "f1") for kind, rows in by_kind.items()},
            **_of_words(true, predicted, losses),
        },
        np.array([gold == found for gold, found in entities]),
        {kind: _total(rows) for kind, rows in by_kind.items()},
        by_kind.__getitem__,
    )


def judge_tags(true: Tags, predicted: Tags, losses: NDArray[Any] | None = None) -> Judged:
    """Tags that are none of entities, those of a sentence a row; as ``judge_entities``.

    A sentence is right where all of its tags are.
    """
    names = sorted({tag for tags in (*true, *predicted) for tag in tags})
    ids = {name: number for number, name in enumerate(names)}
    counts = np.zeros([len(true), len(names), 3], np.int64)
    for row, gold, found in zip(counts, true, predicted, strict=True):
        for one, other in zip(gold, found, strict=True):
            row[ids[one], 0] += 1
            row[ids[other], 1] += 1
            row[ids[one], 2] += one == other
    return Judged(
        len(true),
        {
            **_of_words(true, predicted, losses),
            "macro_f1": lambda rows: _macro_f1(counts[rows].sum(0), present=True),
        },
        np.array([list(gold) == list(found) for gold, found in zip(true, predicted, strict=True)]),
        {n: ClassScore(*row) for n, row in zip(names, counts.sum(0).tolist(), strict=True)},
        lambda label: counts[:, ids[label]],
    )


def judge_answers(
    exact: NDArray[Any], f1: NDArray[Any], losses: NDArray[Any] | None = None, *, version: str
) -> Judged:
    """Answers: of each question exact match and F1, (N,), 0 to 1, which become 0 to 100."""
    name = "exact_match" if version == "1.1" else "exact"
    return Judged(
        len(exact),
        {
            name: lambda rows: float(100 * exact[rows].mean()),
            "f1": lambda rows: float(100 * f1[rows].mean()),
            **_mean_loss(losses),
        },
        exact == 1,
    )


def _on(function: Callable[..., float], *columns: NDArray[Any]) -> Metric:
    return lambda rows: function(*(column[rows] for column in columns))


def _total(counts: Counts) -> ClassScore:
    return ClassScore(*counts.sum(0).tolist())


def _of_class(counts: Counts, kind: str) -> Metric:
    return lambda rows: float(getattr(_total(counts[rows]), kind))


def _macro_f1(counts: Counts, present: bool = False) -> float:
    """The mean F1 of classes, (C, 3), or of those that are true or predicted somewhere."""
    true, predicted, correct = counts.T
    f1 = 2 * correct / np.maximum(true + predicted, 1)
    return float(f1[true + predicted > 0].mean() if present else f1.mean())


def _mean_loss(losses: NDArray[Any] | None) -> dict[str, Metric]:
    return {} if losses is None else {"loss": lambda rows: float(losses[rows].mean())}


def _of_words(true: Tags, predicted: Tags, losses: NDArray[Any] | None) -> dict[str, Metric]:
    words = np.array([len(row) for row in true])
    correct = np.array(
        [sum(map(str.__eq__, gold, found)) for gold, found in zip(true, predicted, strict=True)]
    )

    def mean(values: NDArray[Any]) -> Metric:
        return lambda rows: float(values[rows].sum() / words[rows].sum())

    found = {"accuracy": mean(correct)}
    return found if losses is None else {**found, "loss": mean(losses)}
