"""Multiple choice: SWAG's csv, and tables of a user's own.

Sources: BERT (2018), section 4.4: a context is segment A, a possible continuation segment B. SWAG
(Zellers et al., 2018) for the files.
"""

from collections.abc import Sequence
from typing import Any

from .examples import (
    BadRowError,
    BadRows,
    ChoiceExample,
    ExampleSet,
    filled_text,
    row_id,
    shown,
    whole_number,
)
from .tables import Row, TableFile, read_columns, read_rows

_MOST_CHOICES = 1000
_COUNTED = "(choices count from 0, not from 1 or A)"
_ENDINGS = tuple(f"ending{number}" for number in range(4))


def read_swag(
    path: str, *, labelled: bool = True, skip_bad_rows: bool | BadRows = False
) -> ExampleSet[ChoiceExample]:
    """Reads SWAG's csv (``train.csv``, ``val.csv``, ``test.csv``; not the ``_full`` ones).

    The context is ``sent1``; each choice is the beginning ``sent2`` and one of the four endings
    ``ending0`` to ``ending3``; ``labelled`` files have a ``label``, 0 to 3. Ids count the rows from
    0. Errors are those of ``tables.read_columns``, for missing texts and for other labels.
    """
    bad = BadRows.of(str(path), skip_bad_rows)

    def make_example(row: Row) -> ChoiceExample:
        context, beginning, *endings, label = row.values
        choices = [f"{beginning} {filled_text(end, 'an ending')}".lstrip() for end in endings]
        return _make_example(str(row.number), context, choices, label, labelled)

    columns = ["sent1", "sent2", *_ENDINGS, "label" if labelled else None]
    rows = read_columns(TableFile(str(path), suffix=".csv"), columns, bad)
    return ExampleSet(bad.collect(rows, make_example), (), bad.skipped)


def swag_has_labels(path: str) -> bool:
    """True if a file of SWAG's has labels, as all but the test file."""
    return "label" in next(read_rows(TableFile(str(path), suffix=".csv")), {})


def read_choices(
    path: str | TableFile,
    *,
    context_column: str,
    choice_columns: Sequence[str],
    label_column: str | None,
    id_column: str | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[ChoiceExample]:
    """Reads a user's own table (see ``tables.read_columns``) of contexts with choices.

    ``choice_columns`` are at least two columns of continuations or, in JSON lines, the one that
    holds them in a list, at least two in every row. ``label_column`` has the right one's
    number, counted from 0, and is None where it is to be predicted; without ``id_column`` ids count
    the rows from 0.
    """
    if isinstance(choice_columns, str) or not choice_columns:
        raise ValueError(
            f"choice_columns is {choice_columns!r}: expected a list of two names or more, or of "
            "the one that holds lists."
        )
    bad = BadRows.of(str(path), skip_bad_rows)

    def make_example(row: Row) -> ChoiceExample:
        example_id, context, label, *choices = row.values
        if len(choice_columns) == 1:
            choices = choices[0]
            if not isinstance(choices, list) or not 2 <= len(choices) <= _MOST_CHOICES:
                raise BadRowError(
                    f"expected a list of 2 to {_MOST_CHOICES:,} choices in column "
                    f"{choice_columns[0]!r}, got {shown(choices)}"
                )
        labelled, name = label_column is not None, row_id(example_id, row.number)
        return _make_example(name, context, choices, label, labelled)

    columns = [id_column, context_column, label_column, *choice_columns]
    items = bad.collect(read_columns(path, columns, bad), make_example)
    # Of so many rows, 0 is missing by chance in one file of a thousand.
    many = [7 * len(item.choices) for item in items if item.label]
    seems_1 = len(many) == len(items) >= max(many, default=1)
    note = f"{path}: no label is 0, and choices count from 0: where it counts from 1, subtract 1."
    return ExampleSet(items, (), bad.skipped, (note,) if seems_1 else ())


def _make_example(
    example_id: str, context: Any, choices: Sequence[Any], label: Any, labelled: bool
) -> ChoiceExample:
    return ChoiceExample(
        example_id,
        filled_text(context, "the context"),
        tuple(filled_text(choice, f"choice {at}") for at, choice in enumerate(choices)),
        whole_number(label, f"the label {_COUNTED}", len(choices) - 1) if labelled else None,
    )
