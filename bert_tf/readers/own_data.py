"""Readers of custom tables for classification and regression.

The readers share these arguments:

* ``path``: a table in a format of ``tables``;
* ``text_columns``: the column of the texts, or two columns for pairs; one text must not be empty;
* ``label_column``: the column of the labels; ``None`` for prediction input;
* ``id_column``: the column of the ids; by default, ids are row indices;
* ``labels``: the possible classes; by default, the classes in the file;
* ``skip_bad_rows``: whether to skip bad rows instead of raising an error.
"""

from collections.abc import Callable, Sequence
from typing import Any

from . import examples as read
from .data_warnings import YES_AND_NO, LabelCounts, class_notes
from .examples import BadRowError, BadRows, ClassName, ExampleSet, NoTextError, TextExample, quoted
from .tables import Row, TableFile, read_columns

_Label = str | float | tuple[str, ...]


def read_classification(
    path: str | TableFile,
    *,
    text_columns: Sequence[str],
    label_column: str | None,
    id_column: str | None = None,
    labels: Sequence[str] | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[TextExample]:
    """Reads texts or pairs with one class each."""
    known = None if labels is None else dict.fromkeys(labels)

    def read_label(value: Any, field: str) -> str:
        return read.known_name(value, field, known)

    return _read(path, text_columns, label_column, id_column, read_label, labels, skip_bad_rows)


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
    """Reads texts or pairs with any number of classes each.

    ``label_column`` contains names separated by ``label_separator``, or lists. Labels are tuples of
    distinct names.
    """
    if not label_separator:
        raise ValueError("--label_separator is empty: expected a character such as ','.")
    known = None if labels is None else dict.fromkeys(labels)

    def read_label(value: Any, field: str) -> tuple[str, ...]:
        value = read.parse_list(value, field, allow_numbers=True)
        if isinstance(value, ClassName):
            value = [value]
        elif isinstance(value, str):
            value = value.split(label_separator) if value.strip() else []
        if not isinstance(value, list):
            raise BadRowError(f"expected class names in {field}, got {quoted(value)}")
        names = [read.known_name(item, field, known) for item in value]
        if len({*names}) < len(names) and YES_AND_NO.issuperset(map(str.lower, names)):
            raise BadRowError(
                f"expected class names or ids in {field}, got {quoted(value)}, which looks like "
                "yes/no values (write [1] for [0, 1, 0])"
            )
        return tuple(dict.fromkeys(names))

    return _read(path, text_columns, label_column, id_column, read_label, labels, skip_bad_rows)


def read_regression(
    path: str | TableFile,
    *,
    text_columns: Sequence[str],
    label_column: str | None,
    id_column: str | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[TextExample]:
    """Reads texts or pairs that are labeled with finite numbers; labels are floats."""
    return _read(path, text_columns, label_column, id_column, read.number, (), skip_bad_rows)


def _read(
    path: str | TableFile,
    text_columns: Sequence[str],
    label_column: str | None,
    id_column: str | None,
    read_label: Callable[[Any, str], _Label],
    labels: Sequence[str] | None,
    skip_bad_rows: bool | BadRows,
) -> ExampleSet[TextExample]:
    bad = BadRows.from_option(str(path), skip_bad_rows)
    found = LabelCounts()
    *fields, label_field = (f"column {name!r}" for name in (*text_columns, label_column))

    def make_example(row: Row) -> TextExample:
        example = text_example(row, fields)
        if label_column is None:
            return example
        label = read_label(row.values[-1], label_field)
        if not isinstance(label, float):
            names = [label] if isinstance(label, str) else label
            found.add(names, bad.location, row.values[-1])
        return TextExample(example.id, example.text_a, example.text_b, label)

    rows = read_columns(path, [id_column, *text_columns, label_column], bad)
    items = bad.collect(rows, make_example)
    notes: list[str] = []
    if labels is None:
        labels = read.sorted_names(found.counts)
        if label_column is not None and labels:
            notes += class_notes(str(path), label_column, found, items)
    return ExampleSet(items, tuple(labels), bad.skipped, tuple(notes))


def text_example(row: Row, fields: Sequence[str]) -> TextExample:
    """Creates an unlabeled example from the id and the texts of a row.

    ``fields`` contains the name of each text in error messages, such as "column 'text'".
    """
    example_id, *texts = row.values[: 1 + len(fields)]
    text_a, *second = map(read.text, texts, fields)
    if not any(second):
        is_visible = read.non_empty_text(text_a, fields[0]).isprintable()
        if not (is_visible or any(map(str.isprintable, text_a.replace(" ", "")))):
            raise NoTextError(
                f"expected visible text in {fields[0]}, got only invisible characters"
            )
    return TextExample(
        read.row_id(example_id, row.number), text_a, second[0] if second else None, None
    )
