"""Sentences on labels that are read as they are, and may not be meant.

None of them is an error: each may be what the user wants.
"""

import collections
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from bert_tf.untrusted import listed, quote

from .entities import find_odd_tags, is_tag

RowT = TypeVar("RowT")
_SHOWN = 5
# What programs write where there is no value.
_MISSING = frozenset({"nan", "null", "none", "na", "n/a", "#n/a", "<na>", "nil"})
_FLOAT = re.compile(r"-?\d+\.0")
# Fewer classes than these are no cause to ask whether the column is the right one.
_MANY_CLASSES = 20
_ALMOST_ALL = 0.97
# Of fewer examples a share says little.
_FEW_EXAMPLES = 20


class LabelPlaces:
    """How often each label stands in a file, and where it does first."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.lines: dict[str, int] = {}
        self._line = 0

    def follow(self, rows: Iterable[tuple[int, RowT]]) -> Iterator[tuple[int, RowT]]:
        """Gives pairs of a line and a row, and keeps the line of the newest."""
        for self._line, row in rows:
            yield self._line, row

    def add(self, labels: Iterable[str]) -> None:
        """Counts the labels of the newest row."""
        for label in labels:
            self.counts[label] += 1
            self.lines.setdefault(label, self._line)

    def shown(self, labels: Iterable[str]) -> str:
        """Names labels with their first lines."""
        return listed((f"{quote(label)} (line {self.lines[label]})" for label in labels), _SHOWN)


def tag_notes(path: str, places: LabelPlaces) -> tuple[str, ...]:
    """What to say of tags of which nearly all, or none quite, are tags of entities."""
    odd = find_odd_tags(places.counts)
    if not odd:
        return ()
    if any(is_tag(tag) and tag != "O" for tag in places.counts):
        return (
            f"{path}: most tags are those of entities, but not {places.shown(odd)}: they count as "
            "O where entities are scored; correct them if they are misspelt.",
        )
    return (
        f"{path}: the tags look like those of entities and are none, such as {places.shown(odd)}: "
        "words are scored, not entities; spell them O, B-TYPE and I-TYPE.",
    )


def class_notes(
    path: str, column: str, places: LabelPlaces, num_examples: int, *, several: bool
) -> tuple[str, ...]:
    """What to say of classes: that are one alone, or nearly; or that are no names of classes.

    Args:
        path: the file.
        column: the labels'.
        places: of the classes.
        num_examples: how many there are.
        several: whether an example may have several classes.
    """
    counts = places.counts
    notes = []
    if not several:
        notes += _share_notes(column, counts, num_examples)
    if 2 * len(counts) > num_examples and len(counts) >= _MANY_CLASSES and not several:
        notes.append(
            f"{column} has {len(counts):,} classes in {num_examples:,} examples: is it the column "
            "to learn (--label_column)?"
        )
    if column in counts:
        notes.append(
            f"{path}, line {places.lines[column]}: the class {quote(column)} is the column's own "
            "name: if files were joined, remove the line with the names."
        )
    missing = [name for name in counts if name.lower() in _MISSING]
    if missing:
        notes.append(
            f"{path}: {places.shown(missing)} count as classes: where they stand for no label, "
            "remove those rows."
        )
    lists = [name for name in counts if name.startswith("[") or name.endswith("]")]
    if several and lists:
        notes.append(
            f"{path}: {places.shown(lists)} count as classes, and look like pieces of lists: write "
            "the names alone with --label_separator between them, or lists in a .jsonl."
        )
    if len(counts) > 1 and all(_FLOAT.fullmatch(name) for name in counts):
        notes.append(
            f"{path}: the classes are called {places.shown(counts)}, as numbers become where a "
            "column had gaps: write 0 for 0.0 if predictions should, and --task=regression learns "
            "numbers."
        )
    return tuple(notes)


def _share_notes(column: str, counts: Mapping[str, int], num_examples: int) -> list[str]:
    name, count = max(counts.items(), key=lambda item: item[1])
    if len(counts) == 1:
        return [
            f"Every example has the class {quote(name)}: there is nothing to learn; is {column} "
            "the column to learn (--label_column), and the file whole?"
        ]
    if count < _ALMOST_ALL * num_examples or num_examples < _FEW_EXAMPLES:
        return []
    return [
        f"{count / num_examples:.1%} of the examples have the class {quote(name)}, so the accuracy "
        "says little: judge by macro_f1 or matthews_correlation, and try --class_weights=balanced."
    ]
