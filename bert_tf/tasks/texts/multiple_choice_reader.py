"""Contexts with choices of what may follow, in a user's own tables and in SWAG's files.

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
    """Reads contexts, each with choices of what may follow it.

    ``text_columns`` are the context's and at least two of continuations or the one that holds them
    in a list. ``label_column`` has the right one's number, counted from 0.
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
    """Reads SWAG's csv (``train.csv``, ``val.csv``, ``test.csv``; not the ``_full`` ones).

    The context is ``sent1``; each choice is ``sent2`` and one of ``ending0`` to ``ending3``.
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
    """True if a file of SWAG's has labels, as all but the test file."""
    return "label" in next(read_rows(TableFile(str(path), suffix=".csv")), {})


def _choice_example(
    example_id: str, context: Any, choices: Sequence[Any], label: Any, labelled: bool
) -> ChoiceExample:
    return ChoiceExample(
        example_id,
        read.non_empty_text(context, "the context"),
        tuple(read.non_empty_text(choice, f"choice {at}") for at, choice in enumerate(choices)),
        read.integer(label, f"the label {_COUNTED}", len(choices) - 1) if labelled else None,
    )


def choice_notes(path: str, items: Sequence[ChoiceExample]) -> list[str]:
    """A note on labels that seem to count from 1."""
    # Of so many rows, 0 is missing by chance in one file of a thousand.
    many = [7 * len(item.choices) for item in items if item.label]
    if not len(many) == len(items) >= max(many, default=1):
        return []
    return [f"{path}: no label is 0, and choices count from 0: where it counts from 1, subtract 1."]
