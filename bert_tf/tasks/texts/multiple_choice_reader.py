"""Readers of multiple choice examples from user tables and SWAG's files.

Sources: BERT (2018), section 4.4; SWAG (Zellers et al., 2018).
"""

from collections.abc import Sequence
from typing import Any

from bert_tf.readers import examples as read
from bert_tf.readers.examples import BadRowError, BadRows, ChoiceExample, ExampleSet, quoted
from bert_tf.readers.tables import Row, TableFile, read_columns, read_rows

_MAX_CHOICES = 1000
_COUNTED = "(choices count from 0, not from 1 or A)"


def read_choices(
    path: str | TableFile,
    *,
    text_columns: Sequence[str],
    label_column: str | None,
    id_column: str | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[ChoiceExample]:
    """Reads contexts and their choices from a table.

    ``text_columns`` are the context and either two or more choices or one column with a list of
    choices. ``label_column`` contains the index of the correct choice.
    """
    bad = BadRows.from_option(str(path), skip_bad_rows)

    def make_example(row: Row) -> ChoiceExample:
        example_id, label, context, *choices = row.values
        if len(choices) == 1:
            choices = read.parse_list(choices[0], f"column {text_columns[1]!r}")
            if not isinstance(choices, list) or not 2 <= len(choices) <= _MAX_CHOICES:
                raise BadRowError(
                    f"expected a list of 2 to {_MAX_CHOICES:,} choices in column "
                    f"{text_columns[1]!r}, got {quoted(choices)}"
                )
        name = read.row_id(example_id, row.number)
        return _choice_example(name, context, choices, label, label_column is not None)

    columns = [id_column, label_column, *text_columns]
    items = bad.collect(read_columns(path, columns, bad), make_example)
    return ExampleSet(items, (), bad.skipped, tuple(choice_notes(str(path), items)))


def read_swag(
    path: str, *, labelled: bool = True, skip_bad_rows: bool | BadRows = False
) -> ExampleSet[ChoiceExample]:
    """Reads a CSV file of SWAG: ``train.csv``, ``val.csv`` or ``test.csv``, not a ``_full`` file.

    The context is ``sent1``; each choice is ``sent2`` followed by one of ``ending0`` to
    ``ending3``.
    """
    bad = BadRows.from_option(str(path), skip_bad_rows)

    def make_example(row: Row) -> ChoiceExample:
        context, beginning, *endings, label = row.values
        choices = [
            f"{beginning} {read.non_empty_text(end, 'an ending')}".lstrip() for end in endings
        ]
        return _choice_example(str(row.number), context, choices, label, labelled)

    endings = (f"ending{number}" for number in range(4))
    columns = ["sent1", "sent2", *endings, "label" if labelled else None]
    rows = read_columns(TableFile(str(path), suffix=".csv"), columns, bad)
    return ExampleSet(bad.collect(rows, make_example), (), bad.skipped)


def swag_has_labels(path: str) -> bool:
    """Returns whether a SWAG file has labels; only the test file has none."""
    return "label" in next(read_rows(TableFile(str(path), suffix=".csv")), {})


def _choice_example(
    example_id: str, context: Any, choices: Sequence[Any], label: Any, labelled: bool
) -> ChoiceExample:
    return ChoiceExample(
        example_id,
        read.non_empty_text(context, "the context"),
        tuple(read.non_empty_text(text, f"choice {i}") for i, text in enumerate(choices)),
        read.integer(label, f"the label {_COUNTED}", len(choices) - 1) if labelled else None,
    )


def choice_notes(path: str, items: Sequence[ChoiceExample]) -> list[str]:
    """Returns a note if the labels seem to count from 1."""
    # With this many rows, a label 0 is missing by chance in one of a thousand files.
    many = [7 * len(item.choices) for item in items if item.label]
    if not len(many) == len(items) >= max(many, default=1):
        return []
    return [
        f"{path}: no label is 0, but choices count from 0. If the labels count from 1, subtract 1."
    ]
