"""Two files' predictions of one set compared with what was expected, cell by cell.

Each function takes what was expected and two columns of predictions, as files hold them.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.readers.entities import odd_tags_of_entities
from bert_tf.readers.examples import sorted_names

from .judging import (
    Judged,
    judge_answers,
    judge_choices,
    judge_classes,
    judge_entities,
    judge_numbers,
    judge_several,
    judge_tags,
)
from .squad_scores import score_answer

Column = Sequence[Any]
Both = tuple[Judged, Judged]


def classes(expected: Column, *predicted: Column) -> Both:
    """A class each."""
    labels = sorted_names(str(name) for column in (expected, *predicted) for name in column)
    ids = {name: number for number, name in enumerate(labels)}
    true, *found = (
        np.array([ids[str(name)] for name in column]) for column in (expected, *predicted)
    )
    return judge_classes(true, found[0], labels), judge_classes(true, found[1], labels)


def several(expected: Column, *predicted: Column) -> Both:
    """Any number of classes each: a list, or a cell of names."""
    rows = [[_names(cell) for cell in column] for column in (expected, *predicted)]
    labels = sorted({name for column in rows for names in column for name in names})
    true, *found = (
        np.array([[label in names for label in labels] for names in column], np.int64)
        for column in rows
    )
    return judge_several(true, found[0], labels), judge_several(true, found[1], labels)


def cell_of_names(names: Sequence[str]) -> str:
    """A list of names as a cell of a table: between commas, or in JSON where that would mislead.

    >>> cell_of_names(["food", "drinks"]), cell_of_names(["food, drinks"])
    ('food,drinks', '["food, drinks"]')
    """
    plain = not any("," in name or name.startswith("[") for name in names)
    return ",".join(names) if plain else json.dumps(names, ensure_ascii=False)


def _names(cell: Any) -> list[str]:
    """The names that ``cell_of_names`` wrote, or a list of them."""
    if isinstance(cell, str) and cell.startswith("["):
        with contextlib.suppress(ValueError):
            cell = json.loads(cell)
    if isinstance(cell, list):
        return list(map(str, cell))
    return [name for name in str(cell).split(",") if name]


def numbers(expected: Column, *predicted: Column) -> Both:
    """A number each."""
    try:
        true, *found = (np.array(column, np.float64) for column in (expected, *predicted))
    except (TypeError, ValueError) as error:
        raise ValueError(f"A cell is no number: {error}.") from error
    return judge_numbers(true, found[0]), judge_numbers(true, found[1])


def choices(expected: Column, *predicted: Column) -> Both:
    """A choice each."""
    true, *found = (np.array(list(map(str, column))) for column in (expected, *predicted))
    return judge_choices(true, found[0]), judge_choices(true, found[1])


def tags(expected: Column, *predicted: Column) -> Both:
    """The tags of a sentence each: a list, or tags between blanks."""
    true, *found = (
        [cell if isinstance(cell, list) else str(cell).split() for cell in column]
        for column in (expected, *predicted)
    )
    for row, *others in zip(true, *found, strict=True):
        if any(len(other) != len(row) for other in others):
            raise ValueError(f"A sentence has {len(row)} expected tags, and other predicted ones.")
    counts = Counter(tag for tags in true for tag in tags)
    labels = {tag for column in (true, *found) for tags in column for tag in tags}
    odd = odd_tags_of_entities(labels, counts)
    if odd is None:
        return judge_tags(true, found[0]), judge_tags(true, found[1])
    first, second = (judge_entities(true, tags, odd_tags=odd) for tags in found)
    return first, second


def answers(expected: Column, *predicted: Column) -> Both:
    """An answer each; what is expected is a list of all that are right, () for none."""
    gold = [cell if isinstance(cell, list) else [str(cell)] for cell in expected]
    version = "1.1" if all(gold) else "2.0"
    first, second = (
        judge_answers(
            *np.array(
                [score_answer(str(p), g, version) for p, g in zip(found, gold, strict=True)]
            ).T,
            version=version,
        )
        for found in predicted
    )
    return first, second
