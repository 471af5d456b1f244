"""A user's own tables of texts to classify, score, tag, compare or choose among, columns named.

The tables' forms are those of ``tables``. A column for the labels makes the file one
to train or evaluate on; ``None`` in its place makes it one to predict, whatever else it holds.
``text_columns`` are the column of the text, or the two of a pair; not all texts of a row may be
empty. Without an ``id_column`` the ids count the rows from 0. ``skip_bad_rows`` leaves out bad rows
and lists them, instead of an error at the first.
"""

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from . import notes
from .entities import characters_of_utf16_span, entity_labels, tags_of_spans, word_places
from .examples import (
    BadRowError,
    BadRows,
    ChoiceExample,
    ClassName,
    ExampleSet,
    NoTextError,
    SimilarityExample,
    TaggedExample,
    TextExample,
    filled_text,
    known_name,
    number,
    row_id,
    shown,
    sorted_names,
    spelt_list,
    text,
    whole_number,
)
from .tables import Row, TableFile, read_columns, read_rows

_Label = str | float | tuple[str, ...]


# === Texts ===


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

    ``labels`` are the classes there may be, as a train file's ``labels``; if None, those that are
    there, whole numbers by value and all else by characters.
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
    label_separator: str = ",",
    id_column: str | None = None,
    labels: Sequence[str] | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[TextExample]:
    """Reads texts of which each belongs to any number of classes, none included.

    ``label_column`` has the names with a ``label_separator`` between them, or a list or, in a .csv,
    its spelling; a label is a tuple of names in the row's order, each once.
    """
    if not label_separator:
        raise ValueError("The separator of labels is empty: expected a character such as ','.")
    known = None if labels is None else dict.fromkeys(labels)

    def read_label(value: Any, what: str) -> tuple[str, ...]:
        value = spelt_list(value, what, of_numbers=True)
        if isinstance(value, ClassName):
            value = [value]
        elif isinstance(value, str):
            value = value.split(label_separator) if value.strip() else []
        if not isinstance(value, list):
            raise BadRowError(f"expected names of classes that hold in {what}, got {shown(value)}")
        names = [known_name(item, what, known) for item in value]
        if len({*names}) < len(names) and notes.YES_AND_NO.issuperset(map(str.lower, names)):
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


def _read_texts(
    path: str | TableFile,
    text_columns: Sequence[str],
    label_column: str | None,
    id_column: str | None,
    read_label: Callable[[Any, str], _Label],
    labels: Sequence[str] | None,
    skip_bad_rows: bool | BadRows,
) -> ExampleSet[TextExample]:
    bad = BadRows.of(str(path), skip_bad_rows)
    places = notes.LabelPlaces()
    *what, label_what = (f"column {name!r}" for name in (*text_columns, label_column))

    def make_example(row: Row) -> TextExample:
        example = text_example(row, what)
        if label_column is None:
            return example
        label = read_label(row.values[-1], label_what)
        if not isinstance(label, float):
            places.add([label] if isinstance(label, str) else label, bad.place)
        return TextExample(example.id, example.text_a, example.text_b, label)

    rows = read_columns(path, [id_column, *text_columns, label_column], bad)
    items = bad.collect(rows, make_example)
    sentences: list[str] = []
    if labels is None:
        labels = sorted_names(places.counts)
        if label_column is not None and labels:
            sentences += notes.class_notes(str(path), label_column, places, items)
        if items:
            sentences += notes.text_notes(str(path), items, labels)
    return ExampleSet(items, tuple(labels), bad.skipped, tuple(sentences))


def text_example(row: Row, what: Sequence[str]) -> TextExample:
    """Makes an example without a label of a row's id and one or two texts; ignores the rest.

    ``what`` names each text in errors, as "column 'text'".
    """
    example_id, *texts = row.values[: 1 + len(what)]
    text_a, *second = map(text, texts, what)
    if not any(second):
        is_visible = filled_text(text_a, what[0]).isprintable()  # a blank is, too
        if not (is_visible or any(map(str.isprintable, text_a.replace(" ", "")))):
            raise NoTextError(f"expected text in {what[0]}, got only invisible characters")
    return TextExample(row_id(example_id, row.number), text_a, second[0] if second else None, None)


def read_similarity(
    path: str | TableFile,
    *,
    text_columns: Sequence[str],
    label_column: str | None = None,
    id_column: str | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[SimilarityExample]:
    """Reads pairs of texts with a score, pairs that belong together, or triples.

    ``text_columns`` are those of two texts, or of an anchor, a text that belongs to it and one that
    does not. ``label_column`` has a pair's score, a finite number; without it the two belong
    together, or are to be predicted.
    """
    if label_column is not None and len(text_columns) > 2:
        raise ValueError(
            f"The column {label_column!r} has a score, and a score is of two texts: name two text "
            f"columns, not {', '.join(text_columns)}; or no column of scores."
        )
    bad = BadRows.of(str(path), skip_bad_rows)
    what = [f"column {name!r}" for name in text_columns]

    def make_example(row: Row) -> SimilarityExample:
        example_id, label, *texts = row.values
        return SimilarityExample(
            row_id(example_id, row.number),
            tuple(map(filled_text, texts, what)),
            None if label_column is None else number(label, f"column {label_column!r}"),
        )

    rows = read_columns(path, [id_column, label_column, *text_columns], bad)
    return ExampleSet(bad.collect(rows, make_example), (), bad.skipped)


# === Tagged words ===


def read_tagging(
    path: str | TableFile,
    *,
    text_columns: Sequence[str] = ("words",),
    label_column: str | None = "tags",
    character_spans: bool = False,
    id_column: str | None = None,
    labels: Sequence[str] | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[TaggedExample]:
    """Reads sentences, each a document of its own, with a tag for each word.

    The column of words and that of tags hold a list, its spelling as Python, NumPy or JSON print
    it, or a text that white space separates. With
    ``character_spans`` the former holds a text, whose words are the tokenizer's, and the latter a
    list of its entities, as ``tags_of_spans`` takes them; the tags are of IOB2.
    """
    bad = BadRows.of(str(path), skip_bad_rows)
    known = None if labels is None else dict.fromkeys(labels)
    types = None if labels is None else {label[2:]: None for label in labels if label != "O"}
    (words_column,) = text_columns
    words_are, tags_are = f"column {words_column!r}", f"column {label_column!r}"
    places = notes.LabelPlaces()
    spans: set[tuple[str, str]] = set()  # their texts by characters, and by UTF-16 units

    def of_spans(example_id: str, number: int, value: Any, entities: Any) -> TaggedExample:
        whole = filled_text(value, words_are)
        words_at = word_places(whole)
        words = tuple(whole[start:end] for start, end in words_at)
        if not words:
            raise NoTextError(f"expected text in {words_are}, got only invisible characters")
        tags = None
        if label_column is not None:
            tags = tags_of_spans(whole, entities, words_at, types, tags_are)
            words_from, words_to = ({*places} for places in zip(*words_at, strict=True))
            for span in [] if whole.isascii() else entities:
                start, end = span["start"], span["end"]
                first, last = characters_of_utf16_span(whole, start, end)
                # Of a span that its text or the words' ends decide, units are not meant.
                may_be_units = span.get("text") != whole[start:end] and (
                    (first, last) == (start, end) or (first in words_from and last in words_to)
                )
                spans.add((whole[start:end], whole[first:last] if may_be_units else ""))
        return TaggedExample(example_id, words, tags, number, whole, words_at)

    def of_words(example_id: str, number: int, value: Any, tagged: Any) -> TaggedExample:
        words = tuple(filled_text(word, words_are) for word in _list(value, words_are))
        if not words:
            raise NoTextError(f"expected words in {words_are}, got none")
        tags = None
        if label_column is not None:
            tagged = _list(spelt_list(tagged, tags_are, of_numbers=True), tags_are)
            if any(isinstance(tag, dict) for tag in tagged):
                raise BadRowError(
                    f"expected tags in {tags_are}, got {shown(tagged[0])}, which is for "
                    "--character_spans"
                )
            tags = tuple(known_name(tag, tags_are, known) for tag in tagged)
            if len(tags) != len(words):
                raise BadRowError(f"expected a tag for each of {len(words)} words, got {len(tags)}")
        return TaggedExample(example_id, words, tags, number)

    def make_example(row: Row) -> TaggedExample:
        example_id, value, tagged = row.values
        make = of_spans if character_spans else of_words
        example = make(row_id(example_id, row.number), row.number, value, tagged)
        places.add(example.tags or (), bad.place)
        return example

    rows = read_columns(path, [id_column, words_column, label_column], bad)
    items = bad.collect(rows, make_example)
    sentences = notes.tag_notes(str(path), places) if labels is None else []
    if not character_spans:
        sentences += _lone_words(path, items, (words_column, label_column))
    sentences += notes.span_notes(str(path), spans)
    if labels is None:
        labels = sorted_names(places.counts)
        if character_spans and label_column is not None:
            labels = entity_labels(labels, "IOB2")
    return ExampleSet(items, tuple(labels), bad.skipped, tuple(sentences))


_SENTENCE_COLUMN = re.compile(
    r"sent(ence)?s?[\W_]*((id|no|num|number|idx|index)\W*)?", re.IGNORECASE
)


def _lone_words(
    path: str | TableFile, items: Sequence[TaggedExample], columns_read: Sequence[str | None]
) -> list[str]:
    """A note on rows of one word; a ``ValueError`` where a column says which are a sentence."""
    if len(items) < 2 or any(len(item.words) > 1 for item in items):
        return []
    columns = next(filter(None, read_rows(path)), {})
    for column in filter(_SENTENCE_COLUMN.fullmatch, columns):
        if column in columns_read:
            continue
        names = {str(row.get(column)) for row in read_rows(path)} - {"None", ""}
        if len(names) < len(items):
            raise ValueError(
                f"{path} has a word in each row, and the column {column!r} says which of them are "
                "a sentence: expected a row for each sentence, with lists of its words and tags, "
                f"as pandas makes them by frame[{column!r}] = frame[{column!r}].ffill() and "
                f"frame.groupby({column!r}, sort=False).agg(list).reset_index()."
            )
    return [
        f"{path}: each row has one word, and is read as a sentence of that word alone: if several "
        "rows are a sentence, give one row for it, with lists of its words and tags."
    ]


def is_word(text: str) -> bool:
    r"""True if ``read_tagging`` reads a text as one word, and as it is, from a text of words.

    >>> is_word("York"), is_word("New York"), is_word("1\u00a0000")
    (True, False, False)
    """
    with contextlib.suppress(BadRowError):
        return _list(text, "") == [text] and bool(text.strip("\0"))
    return False


def _list(value: Any, what: str) -> list[Any]:
    value = spelt_list(value, what)
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list):
        return value
    raise BadRowError(f"expected a list in {what}, got {shown(value)}")


# === Choices: BERT (2018), section 4.4; SWAG (Zellers et al., 2018) for its files ===

_MOST_CHOICES = 1000
_COUNTED = "(choices count from 0, not from 1 or A)"


def read_choices(
    path: str | TableFile,
    *,
    text_columns: Sequence[str],
    label_column: str | None,
    id_column: str | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[ChoiceExample]:
    """Reads contexts, each with choices of what may follow it.

    ``text_columns`` are the context's and at least two of continuations or the one that holds them
    in a list. ``label_column`` has the right one's number, counted from 0.
    """
    bad = BadRows.of(str(path), skip_bad_rows)

    def make_example(row: Row) -> ChoiceExample:
        example_id, label, context, *choices = row.values
        if len(choices) == 1:
            choices = spelt_list(choices[0], f"column {text_columns[1]!r}")
            if not isinstance(choices, list) or not 2 <= len(choices) <= _MOST_CHOICES:
                raise BadRowError(
                    f"expected a list of 2 to {_MOST_CHOICES:,} choices in column "
                    f"{text_columns[1]!r}, got {shown(choices)}"
                )
        name = row_id(example_id, row.number)
        return _choice_example(name, context, choices, label, label_column is not None)

    columns = [id_column, label_column, *text_columns]
    items = bad.collect(read_columns(path, columns, bad), make_example)
    return ExampleSet(items, (), bad.skipped, tuple(notes.choice_notes(str(path), items)))


def read_swag(
    path: str, *, labelled: bool = True, skip_bad_rows: bool | BadRows = False
) -> ExampleSet[ChoiceExample]:
    """Reads SWAG's csv (``train.csv``, ``val.csv``, ``test.csv``; not the ``_full`` ones).

    The context is ``sent1``; each choice is ``sent2`` and one of ``ending0`` to ``ending3``.
    """
    bad = BadRows.of(str(path), skip_bad_rows)

    def make_example(row: Row) -> ChoiceExample:
        context, beginning, *endings, label = row.values
        choices = [f"{beginning} {filled_text(end, 'an ending')}".lstrip() for end in endings]
        return _choice_example(str(row.number), context, choices, label, labelled)

    endings = (f"ending{number}" for number in range(4))
    columns = ["sent1", "sent2", *endings, "label" if labelled else None]
    rows = read_columns(TableFile(str(path), suffix=".csv"), columns, bad)
    return ExampleSet(bad.collect(rows, make_example), (), bad.skipped)


def swag_has_labels(path: str) -> bool:
    """True if a file of SWAG's has labels, as all but the test file."""
    return "label" in next(read_rows(TableFile(str(path), suffix=".csv")), {})


def _choice_example(
    example_id: str, context: Any, choices: Sequence[Any], label: Any, labelled: bool
) -> ChoiceExample:
    return ChoiceExample(
        example_id,
        filled_text(context, "the context"),
        tuple(filled_text(choice, f"choice {at}") for at, choice in enumerate(choices)),
        whole_number(label, f"the label {_COUNTED}", len(choices) - 1) if labelled else None,
    )
