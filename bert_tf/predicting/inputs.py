"""Reader of unlabeled files, which checks all rows and then yields chunks of examples.

A file is a table that ``readers.tables`` reads, or has the native format of the task type.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bert_tf.evaluation.prediction_files import TABLES, check_columns
from bert_tf.io.messages import listed
from bert_tf.readers.examples import BadRow, BadRowError, BadRows, ExampleSet, TextExample
from bert_tf.readers.own_data import text_example
from bert_tf.readers.table_formats import LINES, LINES_COLUMN, is_in_memory
from bert_tf.readers.tables import SUFFIXES, TableFile, is_table, read_columns
from bert_tf.tasks.registry import KINDS
from bert_tf.tasks.task import FormReader
from bert_tf.tasks.task_file import TaskFile
from bert_tf.tasks.texts.task import TextTask

_CHUNK = 2048


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Examples in a file.

    Attributes:
        count: Number of examples.
        skipped: One message per bad row.
        chunks: Yields the examples and bad rows in order. Each call reads texts again, so memory
            usage does not grow with the file.
        has_columns: Whether the columns have names.
    """

    count: int
    skipped: list[str]
    chunks: Callable[[], Iterator[list[Any]]]
    has_columns: bool = True

    @classmethod
    def from_items(cls, items: Sequence[Any]) -> "Inputs":
        """Creates inputs from valid examples in memory."""
        return cls(len(items), [], lambda: iter([list(items)]))

    def valid(self) -> Iterator[Any]:
        """Yields the examples without the bad rows."""
        for items in self.chunks():
            yield from (item for item in items if not isinstance(item, BadRow))

    def check_keeps_columns(self, path: str, suffix: str = ".jsonl") -> None:
        """Checks that input and output support ``--keep_columns``."""
        if not self.has_columns:
            raise ValueError(
                f"--keep_columns requires a table with column names, got {path}. Remove the flag, "
                f"or use {', '.join(SUFFIXES)} with --text_columns."
            )
        if suffix not in TABLES:
            raise ValueError(
                f"--keep_columns requires a table as --output, got {suffix}. Use the suffix "
                f"{' or '.join(TABLES)}."
            )


def read_inputs(
    task: TaskFile,
    source: str | TableFile,
    text_columns: Sequence[str] | None = None,
    id_column: str | None = None,
    skip_bad_rows: bool = False,
    output_suffix: str | None = None,
) -> Inputs:
    """Reads and checks the examples to predict in a file; ignores labels.

    Rows without text are always skipped and listed.

    Args:
        task: Task of the model.
        source: Path of the file.
        text_columns: Columns of the texts; by default those of the training table or, without one,
            the first of the task type's ``in_memory_columns`` that the table has.
        id_column: Column of the ids; by default that of the training table.
        skip_bad_rows: Whether to skip all bad rows instead of raising an error.
        output_suffix: Suffix of the output file if it contains all columns. Rows that this format
            cannot store are bad rows.
    """
    kind, table = KINDS[task.kind], TableFile.from_path(source)
    path = table.path
    check = None
    if output_suffix is not None:
        check = functools.partial(check_columns, suffix=output_suffix)
    new_bad_rows = functools.partial(
        BadRows, path, skip_bad_rows, bad_rows_get_a_record=True, check_row=check
    )
    form = _native_reader(task, table, text_columns)
    if form is not None:
        bad = new_bad_rows()
        options = {"encoding": table.encoding, "skip_bad_rows": bad}
        examples = form.read(path, labels=None, labelled=False, **options)
        return _in_memory(examples, bad, task, has_columns=form.is_table)
    if not (table.suffix or is_table(path)):
        raise ValueError(
            f"{path} does not have the suffix of a table ({', '.join(SUFFIXES)}). Pass "
            "--input_format, such as lines for one text per line."
        )
    if table.suffix == LINES:
        text_columns = text_columns or [LINES_COLUMN]
    columns = _columns(task, table, text_columns)
    columns["id_column"] = id_column or _id_column(task, table)
    new_bad_rows = functools.partial(new_bad_rows, id_column=columns["id_column"])
    if issubclass(kind, TextTask):
        return _texts(table, new_bad_rows, columns["text_columns"], columns["id_column"])
    bad = new_bad_rows()
    examples = kind.read(table, label_column=None, skip_bad_rows=bad, **columns)
    return _in_memory(examples, bad, task)


def _native_reader(
    task: TaskFile, table: TableFile, text_columns: Sequence[str] | None
) -> FormReader | None:
    """Returns the reader of the native format; ``None`` if the file is read as a table."""
    kind = KINDS[task.kind]
    form = kind.native_reader(task.name, task.columns)
    if form is None or table.suffix is not None or is_in_memory(table.path):
        return None
    is_native = not kind.is_table_file(table.path) or (form.is_table and text_columns is None)
    return form if is_native else None


def _in_memory(
    examples: ExampleSet[Any], bad: BadRows, task: TaskFile, *, has_columns: bool = True
) -> Inputs:
    """Merges examples in memory and bad rows in the order of the file."""
    items: list[Any] = []
    bad_rows = collections.deque(bad.rows)
    for number, item in enumerate(examples.items):
        while bad_rows and bad_rows[0].before <= number:
            items.append(bad_rows.popleft())
        items.append(item)
    items += bad_rows
    # The sentences of a document serve as context for each other, so chunks must not split them.
    size = max(1, len(items)) if task.options.get("document_context") else _CHUNK

    def chunks() -> Iterator[list[Any]]:
        for begin in range(0, len(items), size):
            yield items[begin : begin + size]

    return Inputs(len(examples.items), bad.skipped, chunks, has_columns)


# === Tables ===


def _columns(task: TaskFile, table: TableFile, names: Sequence[str] | None) -> dict[str, Any]:
    """Returns the keyword arguments of the task type's reader."""
    kind, trained = KINDS[task.kind], task.columns.get("text_columns")
    options = {
        name: task.columns[name]
        for name in kind.option_fields(only="tables")
        if name in task.columns
    }
    if names is None:
        defaults = (found for found in kind.in_memory_columns if _has_columns(table, found))
        texts = trained or next(defaults, None)
        if texts is None:
            raise ValueError(
                f"--text_columns: expected {kind.text_form}, got none. Pass the names of these "
                f"columns in {table.path}; the model does not define them."
            )
        return {"text_columns": list(texts), **options}
    minimum, maximum = kind.num_texts
    if not minimum <= len(names) <= maximum:
        raise ValueError(
            f"--text_columns={','.join(names)}: expected {kind.text_form} for {task.kind}."
        )
    if trained and issubclass(kind, TextTask) and len(trained) != len(names):
        expected = "one column" if len(trained) == 1 else "two columns"
        raise ValueError(
            f"--text_columns={','.join(names)}: expected {expected}, because the model was trained "
            f"on {listed(trained)}."
        )
    return {"text_columns": list(names), **options}


def _id_column(task: TaskFile, table: TableFile) -> str | None:
    """Returns the id column of the training table if the file also has it."""
    name: str | None = task.columns.get("id_column")
    return name if name is not None and _has_columns(table, [name]) else None


def _has_columns(table: TableFile, names: Sequence[str]) -> bool:
    """Returns whether a table has all columns."""
    try:
        # Bad rows do not prove that a column is missing.
        row = next(read_columns(table, names, BadRows(table.path, skip=True)), None)
    except ValueError:
        return False
    # The header of a table without valid rows contains the columns; typed formats have no header.
    return row is not None or not table.has_typed_fields


def _texts(
    table: TableFile,
    new_bad_rows: Callable[[], BadRows],
    text_columns: Sequence[str],
    id_column: str | None,
) -> Inputs:
    bad = new_bad_rows()
    count = sum(1 for _ in _read_texts(table, text_columns, id_column, bad)) - len(bad.rows)

    def chunks() -> Iterator[list[TextExample | BadRow]]:
        rows = _read_texts(table, text_columns, id_column, new_bad_rows())
        while chunk := list(itertools.islice(rows, _CHUNK)):
            yield chunk

    return Inputs(count, bad.skipped, chunks)


def _read_texts(
    table: TableFile, text_columns: Sequence[str], id_column: str | None, bad: BadRows
) -> Iterator[TextExample | BadRow]:
    reported = 0
    fields = [f"column {name!r}" for name in text_columns]
    for location, row in read_columns(table, [id_column, *text_columns], bad):
        yield from bad.rows[reported:]
        reported = len(bad.rows)
        try:
            yield text_example(row, fields)
        except BadRowError as error:
            bad.report(location, error)
    yield from bad.rows[reported:]
