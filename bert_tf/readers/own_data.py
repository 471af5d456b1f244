"""A user's own tables of texts to classify, score, tag or compare, their columns named.

The tables' forms are those of ``tables``. A column for the labels makes the file one
to train or evaluate on; ``None`` in its place makes it one to predict, whatever else it holds.
``text_columns`` are the column of the text, or the two of a pair; not all texts of a row may be
empty. Without an ``id_column`` the ids count the rows from 0. ``skip_bad_rows`` leaves out bad rows
and lists them, instead of an error at the first.
"""

import collections
import dataclasses
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from bert_tf.untrusted import listed, quote

from .entities import entity_labels, find_odd_tags, is_tag
from .entity_spans import by_utf16, tags_of_spans, word_places
from .examples import (
    BadRowError,
    BadRows,
    ClassName,
    ExampleSet,
    NoTextError,
    Place,
    SimilarityExample,
    TaggedExample,
    TextExample,
    filled_text,
    known_name,
    number,
    place_name,
    row_id,
    shown,
    sorted_names,
    text,
)
from .tables import Row, TableFile, read_columns

RowT = TypeVar("RowT")
_Label = str | float | tuple[str, ...]
_LABELS_SHOWN = 5
# Texts that programs write for a missing value.
_MISSING = frozenset({"nan", "null", "none", "na", "n/a", "#n/a", "<na>", "nil", "-100", "-"})
# Invisible characters, but for joiners, which words of some languages need.
_HIDDEN = re.compile("[\xad\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_YES_AND_NO = frozenset({"0", "1", "false", "true"})
_FLOAT = re.compile(r"-?\d+\.0")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
# Fewer classes than these are no cause to ask whether the column is the right one.
_MANY_CLASSES = 20
_ALMOST_ALL = 0.97
# Marks of other programs in texts, and what to do where most of the first thousand have them.
_MARKS = {
    r"(?s)\[CLS\]|.*\[SEP\]": "hold '[CLS]' or '[SEP]', which are read as letters in brackets: "
    "leave them out, and give two texts as two columns (--text_columns=first,second)",
    "b['\"]": "begin with b and a quote, as Python shows bytes: decode them when they are written",
}
_LAST_FIELD = re.compile(r"[,;\t|]([^,;\t|\n]*)\n")
# Of fewer examples a share says little.
_FEW_EXAMPLES = 20


def read_classification(
    path: str | TableFile,
    *,
    text_columns: Sequence[str],
    label_column: str | None,
    id_column: str | None = None,
    labels: Sequence[str] | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[TextExample]:
    """Reads texts of which each belongs to one class.

    ``label_column`` has the class's name (in JSON lines text, a whole number, true or false); white
    space around it does not count. ``labels`` are the classes there may be, as a train file's
    ``labels``; if None, those that are there, whole numbers by value and all else by characters.
    """
    known = None if labels is None else dict.fromkeys(labels)

    def read_label(value: Any, what: str) -> str:
        return known_name(value, what, known)

    return _read_texts(
        path, text_columns, label_column, id_column, read_label, labels, skip_bad_rows
    )


def read_multilabel(
    path: str | TableFile,
    *,
    text_columns: Sequence[str],
    label_column: str | None,
    separator: str = ",",
    id_column: str | None = None,
    labels: Sequence[str] | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[TextExample]:
    """Reads texts of which each belongs to any number of classes, none included.

    ``label_column`` has the names with a ``separator`` between them, or in JSON lines a list; a
    label is a tuple of names in the row's order, each once.
    """
    if not separator:
        raise ValueError("The separator of labels is empty: expected a character such as ','.")
    known = None if labels is None else dict.fromkeys(labels)

    def read_label(value: Any, what: str) -> tuple[str, ...]:
        if isinstance(value, ClassName):
            value = [value]
        elif isinstance(value, str):
            value = value.split(separator) if value.strip() else []
        if not isinstance(value, list):
            raise BadRowError(f"expected names of classes that hold in {what}, got {shown(value)}")
        names = [known_name(item, what, known) for item in value]
        if len({*names}) < len(names) and _YES_AND_NO.issuperset(map(str.lower, names)):
            raise BadRowError(
                f"expected the names of the classes that hold in {what}, got {shown(value)}, which "
                "seems to say of each class whether it does: write the names (or the places, as "
                "[1] for [0, 1, 0]) of those that do"
            )
        return tuple(dict.fromkeys(names))

    return _read_texts(
        path, text_columns, label_column, id_column, read_label, labels, skip_bad_rows
    )


def read_regression(
    path: str | TableFile,
    *,
    text_columns: Sequence[str],
    label_column: str | None,
    id_column: str | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[TextExample]:
    """Reads texts of which each has a finite number: a label is a float, ``labels`` is ()."""
    return _read_texts(path, text_columns, label_column, id_column, number, (), skip_bad_rows)


def read_similarity(
    path: str | TableFile,
    *,
    anchor_column: str,
    other_columns: Sequence[str],
    label_column: str | None = None,
    id_column: str | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[SimilarityExample]:
    """Reads pairs of texts with a score, pairs that belong together, or triples.

    ``other_columns`` name one column, of the text that is compared with the anchor, or two: of a
    text that belongs to the anchor, and of one that does not. ``label_column`` has a pair's score,
    a finite number; without it the two belong together, or are to be predicted.
    """
    if isinstance(other_columns, str) or len(other_columns) not in (1, 2):
        raise ValueError(
            f"other_columns is {other_columns!r}: expected a list of one or two names."
        )
    if label_column is not None and len(other_columns) > 1:
        raise ValueError(
            f"The column {label_column!r} has a score, and a score is of two texts: name two text "
            f"columns, not {anchor_column}, {', '.join(other_columns)}; or no column of scores."
        )
    bad = BadRows.of(str(path), skip_bad_rows)
    names = [anchor_column, *other_columns]

    def make_example(row: Row) -> SimilarityExample:
        example_id, label, *texts = row.values
        return SimilarityExample(
            row_id(example_id, row.number),
            tuple(filled_text(t, f"column {n!r}") for n, t in zip(names, texts, strict=True)),
            None if label_column is None else number(label, f"column {label_column!r}"),
        )

    rows = read_columns(path, [id_column, label_column, *names], bad)
    return ExampleSet(bad.collect(rows, make_example), (), bad.skipped)


def _read_texts(
    path: str | TableFile,
    text_columns: Sequence[str],
    label_column: str | None,
    id_column: str | None,
    read_label: Callable[[Any, str], _Label],
    labels: Sequence[str] | None,
    skip_bad_rows: bool | BadRows,
) -> ExampleSet[TextExample]:
    if isinstance(text_columns, str) or len(text_columns) not in (1, 2):
        raise ValueError(f"text_columns is {text_columns!r}: expected a list of one or two names.")
    bad = BadRows.of(str(path), skip_bad_rows)
    places = _LabelPlaces()

    def make_example(row: Row) -> TextExample:
        example = text_example(row, text_columns)
        if label_column is None:
            return example
        label = read_label(row.values[-1], f"column {label_column!r}")
        places.add(_names(label))
        return TextExample(example.id, example.text_a, example.text_b, label)

    columns = [id_column, *text_columns, label_column]
    rows = places.follow(read_columns(path, columns, bad))
    items = bad.collect(rows, make_example)
    notes: tuple[str, ...] = ()
    if labels is None:
        labels = sorted_names(places.counts)
        if places.counts and label_column is not None:
            labelled = [] if isinstance(items[0].label, str) else [_names(i.label) for i in items]
            notes = _class_notes(str(path), label_column, places, len(items), {*map(len, labelled)})
        notes += _text_notes(str(path), items, {*places.counts})
    return ExampleSet(items, tuple(labels), bad.skipped, notes)


def text_example(row: Row, text_columns: Sequence[str]) -> TextExample:
    """Makes an example without a label of a row's id and one or two texts; ignores the rest."""
    example_id, *texts = row.values[: 1 + len(text_columns)]
    what = [f"column {name!r}" for name in text_columns]
    text_a, *second = map(text, texts, what)
    if not any(second):
        is_visible = filled_text(text_a, what[0]).isprintable()  # a blank is, too
        if not (is_visible or any(map(str.isprintable, text_a.replace(" ", "")))):
            raise NoTextError(f"expected text in {what[0]}, got only invisible characters")
    return TextExample(row_id(example_id, row.number), text_a, second[0] if second else None, None)


def _names(label: _Label | None) -> tuple[str, ...]:
    if isinstance(label, str):
        return (label,)
    return label if isinstance(label, tuple) else ()


def read_tagging(
    path: str | TableFile,
    *,
    words_column: str = "words",
    tags_column: str | None = "tags",
    character_spans: bool = False,
    id_column: str | None = None,
    labels: Sequence[str] | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[TaggedExample]:
    """Reads sentences, each a document of its own, with a tag for each word.

    Both columns hold, in JSON lines, a list or, anywhere, a text that white space separates into
    words. A row without words, with an empty word, or with more or fewer tags than words is bad.

    With ``character_spans`` ``words_column`` holds a text, whose words are the tokenizer's, and
    ``tags_column`` a list of its entities, ``{"start": 0, "end": 3, "label": "PER"}``: the first
    character and the one behind the last, and the type. The tags are those of IOB2. A row is bad
    whose entities overlap, are not of whole words, or have a ``text`` that is elsewhere.
    """
    bad = BadRows.of(str(path), skip_bad_rows)
    known = None if labels is None else dict.fromkeys(labels)
    types = None if labels is None else {label[2:]: None for label in labels if label != "O"}
    words_are, tags_are = f"column {words_column!r}", f"column {tags_column!r}"
    places = _LabelPlaces()
    spans: set[tuple[str, str]] = set()  # their texts by characters, and by UTF-16 units

    def make_example(row: Row) -> TaggedExample:
        example_id, words, tags = row.values
        name = row_id(example_id, row.number)
        found_tags: tuple[str, ...] | None = None
        if character_spans:
            whole = filled_text(words, words_are)
            words_at = word_places(whole)
            found = tuple(whole[start:end] for start, end in words_at)
            example = TaggedExample(name, found, None, row.number, whole, words_at)
            if not found:
                raise NoTextError(f"expected text in {words_are}, got only invisible characters")
            if tags_column is not None:
                found_tags = tags_of_spans(whole, tags, words_at, types, tags_are)
                ends = ((s["start"], s["end"]) for s in ([] if whole.isascii() else tags))
                spans.update((whole[a:b], whole[slice(*by_utf16(whole, a, b))]) for a, b in ends)
        else:
            found = tuple(filled_text(word, words_are) for word in _list(words, words_are))
            if not found:
                raise NoTextError(f"expected words in {words_are}, got none")
            example = TaggedExample(name, found, None, document=row.number)
            if tags_column is not None:
                tags = _list(tags, tags_are)
                if any(isinstance(tag, dict) for tag in tags):
                    raise BadRowError(
                        f"expected tags in {tags_are}, got {shown(tags[0])}, which is for "
                        "--character_spans"
                    )
                found_tags = tuple(known_name(tag, tags_are, known) for tag in tags)
                if len(found_tags) != len(found):
                    raise BadRowError(
                        f"expected a tag for each of {len(found)} words, got {len(found_tags)}"
                    )
        places.add(found_tags or ())
        return dataclasses.replace(example, tags=found_tags)

    rows = read_columns(path, [id_column, words_column, tags_column], bad)
    items = bad.collect(places.follow(rows), make_example)
    notes = _tag_notes(str(path), places) if labels is None else ()
    entities = {here for here, meant in spans if here == meant}
    moved = [pair for pair in spans if pair[0] not in entities and pair[1] in entities]
    if len(moved) > sum(here != meant and here in entities for here, meant in spans):
        notes += (
            f"{path}: spans behind an emoji seem to count UTF-16 units, as browsers do: "
            f"{shown(min(moved)[0])} is read, {shown(min(moved)[1])} meant; count characters.",
        )
    if labels is None:
        labels = sorted_names(places.counts)
        if character_spans and tags_column is not None:
            labels = entity_labels(labels, "IOB2")
    return ExampleSet(items, tuple(labels), bad.skipped, notes)


def is_word(text: str) -> bool:
    r"""True if ``read_tagging`` reads a text as one word, and as it is, from a text of words.

    >>> is_word("York"), is_word("New York"), is_word("1\u00a0000")
    (True, False, False)
    """
    return _list(text, "") == [text] and bool(text.strip("\0"))


def _list(value: Any, what: str) -> list[Any]:
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list):
        return value
    raise BadRowError(f"expected a list in {what}, got {shown(value)}")


# === Sentences on labels that are read as they are, and may not be meant; none is an error ===


class _LabelPlaces:
    """Count of each label in a file, and the place of its first row."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.first: dict[str, str] = {}
        self._place: Place = 0

    def follow(self, rows: Iterable[tuple[Place, RowT]]) -> Iterator[tuple[Place, RowT]]:
        """Yields pairs of a place and a row, and remembers the place of the newest."""
        for self._place, row in rows:
            yield self._place, row

    def add(self, labels: Iterable[str]) -> None:
        """Counts the labels of the newest row."""
        for label in labels:
            self.counts[label] += 1
            self.first.setdefault(label, place_name(self._place))

    def shown(self, labels: Iterable[str]) -> str:
        """Names labels with their first places."""
        return listed((f"{quote(label)} ({self.first[label]})" for label in labels), _LABELS_SHOWN)


def _tag_notes(path: str, places: _LabelPlaces) -> tuple[str, ...]:
    """Notes on tags that look like tags of entities and are not."""
    odd = find_odd_tags(places.counts)
    if not odd:
        return tuple(_look_notes(path, places))
    if any(is_tag(tag) and tag != "O" for tag in places.counts):
        return (
            f"{path}: most tags are those of entities, but not {places.shown(odd)}: they count as "
            "O where entities are scored; correct them if they are misspelt.",
        )
    return (
        f"{path}: the tags look like those of entities and are none, such as {places.shown(odd)}: "
        "words are scored, not entities; spell them O, B-TYPE and I-TYPE.",
    )


def _class_notes(
    path: str, column: str, places: _LabelPlaces, num_examples: int, several: set[int]
) -> tuple[str, ...]:
    """Notes where nearly all examples have one class, or names do not look like classes.

    ``several`` are how many classes examples have, where each may have several.
    """
    counts = places.counts
    notes = _look_notes(path, places)
    if not several:
        notes += _share_notes(counts, num_examples)
    if 2 * len(counts) > num_examples and len(counts) >= _MANY_CLASSES and not several:
        notes.append(
            f"{column} has {len(counts):,} classes in {num_examples:,} examples: is it the column "
            "to learn (--label_column)?"
        )
    if column in counts:
        notes.append(
            f"{path}, {places.first[column]}: the class {quote(column)} is the column's own "
            "name: if files were joined, remove the line with the names."
        )
    missing = [name for name in counts if name.lower() in _MISSING]
    lists = [name for name in counts if several and (name[0] == "[" or name[-1] == "]")]
    are_yes_or_no = several in ({1}, {2}) and _YES_AND_NO.issuperset(map(str.lower, counts))
    floats = len(counts) > 1 and all(map(_FLOAT.fullmatch, counts))
    numbers = not several and len(counts) >= _MANY_CLASSES and all(map(_NUMBER.fullmatch, counts))
    said: list[tuple[Iterable[str], str]] = [
        (missing, "where they stand for no label, remove those rows."),
        (
            lists,
            "they look like pieces of lists: write the names alone with --label_separator between "
            "them, or lists in a .jsonl.",
        ),
        (
            counts if are_yes_or_no else (),
            "if they say whether a class holds, and other columns or places whether others do, "
            "write the names of those that hold into one column, --label_separator between them.",
        ),
        (
            counts if floats else (),
            "numbers become so where a column had gaps: write 0 for 0.0 if predictions should, and "
            "--task=regression learns numbers.",
        ),
        (
            counts if numbers and not floats else (),
            f"if all {len(counts):,} are amounts and no codes, --task=regression learns which of "
            "them are near each other.",
        ),
    ]
    for names, what in said:
        if names:
            notes.append(f"{path}: {places.shown(names)} count as classes: {what}")
    return tuple(notes)


def _look_notes(path: str, places: _LabelPlaces) -> list[str]:
    """Notes on names with invisible characters, and on names that look alike."""
    seen = {name: _HIDDEN.sub("", unicodedata.normalize("NFKC", name)) for name in places.counts}
    looks = {name: " ".join(text.casefold().split()) for name, text in seen.items()}
    alike = collections.Counter(looks.values())
    odd = [name for name in looks if alike[looks[name]] > 1 or _HIDDEN.search(name)]
    said = "look alike or hold characters that are not seen: spell each class in one way"
    return [f"{path}: {places.shown(odd)} count as classes, and {said}."] if odd else []


def _share_notes(counts: Mapping[str, int], num_examples: int) -> list[str]:
    name, count = max(counts.items(), key=lambda item: item[1])
    few = num_examples < _FEW_EXAMPLES or len(counts) == 1
    if few or count < _ALMOST_ALL * num_examples:
        return []
    return [
        f"{count / num_examples:.1%} of the examples have the class {quote(name)}, so the accuracy "
        "says little: judge by macro_f1 or matthews_correlation, and try --class_weights=balanced."
    ]


def _text_notes(path: str, items: Sequence[TextExample], classes: set[str]) -> tuple[str, ...]:
    """Notes on texts that hold other programs' marks, or the rows behind a stray quote."""
    first = [item.text_a for item in items[:1000]]
    has = {mark: sum(re.match(mark, text) is not None for text in first) for mark in _MARKS}
    notes = [
        f"{path}: most texts {_MARKS[m]}." for m, count in has.items() if 2 * count > len(first)
    ]
    several = isinstance(items[0].label, tuple)
    parts = {name: re.split("[;|] *" if several else "[,;|] *", name) for name in classes}
    joined = [name for name in parts if parts[name][1:] and (several or classes >= {*parts[name]})]
    if joined:
        remedy = "--label_separator says what separates" if several else "--task=multilabel learns"
        notes.append(f"{path}: {listed(joined, 5)} are one class each: {remedy} several.")
    rows = [i.id for i in items if "\n" in i.text_a and classes & {*_LAST_FIELD.findall(i.text_a)}]
    if rows:
        notes.append(
            f"{path}: lines inside of {len(rows):,} texts end with a class, as rows do (the first "
            f"text is row {rows[0]}): is there a quote too much, or one missing?"
        )
    return tuple(notes)
