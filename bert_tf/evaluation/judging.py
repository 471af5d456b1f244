"""Predictions of a set compared with its labels: every score.

A row is what is drawn at random when a set is put together: a text, a question, a sentence of tags.

Letters: N rows, C classes, W words.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_tf.readers.entities import Entity, find_all

from . import formulas as metrics
from .formulas import CLASS_METRICS, ClassScore


@dataclasses.dataclass(frozen=True)
class Judged:
    """A set's predictions, compared.

    ``count`` is N. ``metrics`` has each score by its name. ``right`` (N,) says which rows are
    right, ``None`` where nobody asks. ``classes`` has each class's counts.
    """

    count: int
    metrics: Mapping[str, float]
    right: NDArray[np.bool_] | None = None
    classes: Mapping[str, ClassScore] = dataclasses.field(default_factory=dict)

    def scores(self, names: Iterable[str]) -> dict[str, float]:
        """Scores by name, those of a class (``f1_NAME``) too; a name without one is left out."""
        found = {}
        for name in names:
            kind, _, label = name.partition("_")
            if name in self.metrics:
                found[name] = float(self.metrics[name])
            elif kind in CLASS_METRICS and label in self.classes:
                found[name] = float(getattr(self.classes[label], kind))
        return found


def judge_classes(
    true: NDArray[Any],
    predicted: NDArray[Any],
    labels: Sequence[str],
    losses: NDArray[Any] | None = None,
) -> Judged:
    """A class each: ids (N,); of two classes ``f1`` is that of class 1."""
    right, size = true == predicted, len(labels)
    totals = [np.bincount(ids, minlength=size) for ids in (true, predicted, true[right])]
    found = {
        "accuracy": right.mean(),
        "macro_f1": metrics.macro_f1(true, predicted),
        "matthews_correlation": metrics.matthews_correlation(true, predicted),
    }
    if size == 2:
        found["f1"] = metrics.f1(true, predicted)
    return Judged(
        len(true),
        {**found, **_mean_loss(losses)},
        classes={
            label: ClassScore(*map(int, row)) for label, *row in zip(labels, *totals, strict=True)
        },
    )


def judge_choices(true: NDArray[Any], predicted: NDArray[Any], losses: NDArray[Any]) -> Judged:
    """A choice each: numbers (N,), which mean nothing from one row to the next."""
    return Judged(len(true), {"accuracy": (true == predicted).mean(), **_mean_loss(losses)})


def judge_several(
    true: NDArray[Any],
    predicted: NDArray[Any],
    labels: Sequence[str],
    losses: NDArray[Any] | None = None,
    suffix: str = "",
) -> Judged:
    """Any number of classes each, (N, C), 1 where one holds; ``suffix`` ends the scores' names."""
    counts = np.stack([true, predicted, true * predicted], 2).astype(np.int64).sum(0)
    return Judged(
        len(true),
        {
            f"micro_f1{suffix}": ClassScore(*counts.sum(0).tolist()).f1,
            f"macro_f1{suffix}": _f1_of(counts).mean(),
            **_mean_loss(losses),
        },
        classes={n: ClassScore(*row) for n, row in zip(labels, counts.tolist(), strict=True)},
    )


def judge_numbers(
    true: NDArray[Any], predicted: NDArray[Any], losses: NDArray[Any] | None = None
) -> Judged:
    """A number each, (N,) float64; errors are in the numbers' own units."""
    errors = true - predicted
    return Judged(
        len(true),
        {
            "pearson": metrics.pearson_correlation(true, predicted),
            "spearman": metrics.spearman_correlation(true, predicted),
            "mean_squared_error": (errors**2).mean(),
            "root_mean_squared_error": np.sqrt((errors**2).mean()),
            "mean_absolute_error": np.abs(errors).mean(),
            "r2": metrics.r2_score(true, predicted),
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
    counts = {kind: [0, 0, 0] for kind in kinds}
    for gold, found in entities:
        for column, part in enumerate((gold, found, set(gold) & set(found))):
            for entity in part:
                counts[entity.type][column] += 1
    classes = {kind: ClassScore(*row) for kind, row in counts.items()}
    every = metrics.total(classes.values())
    return Judged(
        len(true),
        {
            **{kind: getattr(every, kind) for kind in ("f1", "precision", "recall")},
            **{f"f1_{kind}": score.f1 for kind, score in classes.items()},
            **_of_words(true, predicted, losses),
        },
        np.array([gold == found for gold, found in entities]),
        classes,
    )


def judge_tags(true: Tags, predicted: Tags, losses: NDArray[Any] | None = None) -> Judged:
    """Tags that are none of entities, those of a sentence a row; as ``judge_entities``.

    A sentence is right where all of its tags are.
    """
    names = sorted({tag for tags in (*true, *predicted) for tag in tags})
    ids = {name: number for number, name in enumerate(names)}
    counts = np.zeros([len(names), 3], np.int64)
    for gold, found in zip(true, predicted, strict=True):
        for one, other in zip(gold, found, strict=True):
            counts[ids[one], 0] += 1
            counts[ids[other], 1] += 1
            counts[ids[one], 2] += one == other
    return Judged(
        len(true),
        {**_of_words(true, predicted, losses), "macro_f1": _f1_of(counts).mean()},
        np.array([list(gold) == list(found) for gold, found in zip(true, predicted, strict=True)]),
        {n: ClassScore(*row) for n, row in zip(names, counts.tolist(), strict=True)},
    )


def _f1_of(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each class's F1, (C,), of how often it is true, is predicted, is both, (C, 3)."""
    true, predicted, correct = counts.T
    f1: NDArray[np.float64] = 2 * correct / np.maximum(true + predicted, 1)
    return f1


def _mean_loss(losses: NDArray[Any] | None) -> dict[str, float]:
    return {} if losses is None else {"loss": losses.mean()}


def _of_words(true: Tags, predicted: Tags, losses: NDArray[Any] | None) -> dict[str, float]:
    words = sum(map(len, true))
    pairs = zip(true, predicted, strict=True)
    correct = sum(sum(map(str.__eq__, gold, found)) for gold, found in pairs)
    found = {"accuracy": correct / words}
    return found if losses is None else {**found, "loss": losses.sum() / words}
