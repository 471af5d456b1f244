"""Unlabelled files as ``predict`` reads them: in chunks, each row checked before the first is run.

A file is a table of ``readers.tables``, or of the form of its own that the kind reads by
``Task.native_reader``.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bert_tf.evaluation.prediction_files import TABLES, check_columns
from bert_tf.io.wording import listed
from bert_tf.readers.examples import BadRow, BadRowError, BadRows, ExampleSet, TextExample
from bert_tf.readers.own_data import text_example
from bert_tf.readers.table_formats import LINES, LINES_COLUMN, is_in_memory
from bert_tf.readers.tables import SUFFIXES, TableFile, is_table, read_columns
from bert_tf.tasks.kinds import is_table_file, table_options
from bert_tf.tasks.registry import KINDS
from bert_tf.tasks.task import FormReader
from bert_tf.tasks.task_file import TaskFile
from bert_tf.tasks.texts.task import TextTask

_CHUNK = 2048


@dataclasses.dataclass(frozen=True)
class Inputs:
    """A file's examples: their number, and a sentence for each bad row.

    ``chunks`` gives the examples and bad rows in order. Texts are read anew with each call, so that
    the memory does not grow with the file. ``has_columns``: its columns have names.
    """

    count: int
    skipped: list[str]
    chunks: Callable[[], Iterator[list[Any]]]
    has_columns: bool = True

    @classmethod
    def from_items(cls, items: Sequence[Any]) -> "Inputs":
        """Examples that were read before, all of them good."""
        return cls(len(items), [], lambda: iter([list(items)]))

    def valid(self) -> Iterator[Any]:
        """Every example that is no bad row."""
        for items in self.chunks():
            yield from (item for item in items if not isinstance(item, BadRow))

    def check_keeps_columns(self, path: str, suffix: str = ".jsonl") -> None:
        """Checks that ``--keep_columns`` finds columns, and may write them."""
        if not self.has_columns:
            raise ValueError(
                f"--keep_columns is for tables with names of columns, and {path} is none: leave it "
                f"out, or name a file that ends in {', '.join(SUFFIXES)}, with --text_columns."
            )
        if suffix not in TABLES:
            raise ValueError(
                f"--keep_columns writes tables, and {suffix} holds none: name an --output that "
                f"ends in {' or '.join(TABLES)}."
            )


def read_inputs(
    task: TaskFile,
    source: str | TableFile,
    text_columns: Sequence[str] | None = None,
    id_column: str | None = None,
    skip_bad_rows: bool = False,
    output_suffix: str | None = None,
) -> Inputs:
    """Reads and checks a file to predict; its labels are ignored.

    The columns are by default the training's. Rows without text are always listed, and with
    ``skip_bad_rows`` all bad rows are, instead of an error at the first. A row is also bad if a
    table of ``output_suffix``, which all columns are written to, cannot store it.
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
            f"{path} has no table's ending ({', '.join(SUFFIXES)}): give --input_format, such as "
            "lines for a text on each line."
        )
    if table.suffix == LINES:
        text_columns = text_columns or [LINES_COLUMN]
    columns = _columns(task, path, text_columns)
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
    """Reader of a file in the kind's own form; ``None`` for a file that is read as a table."""
    kind = KINDS[task.kind]
    form = kind.native_reader(task.name, task.columns)
    if form is None or table.suffix is not None or is_in_memory(table.path):
        return None
    is_native = not is_table_file(kind, table.path) or (form.is_table and text_columns is None)
    return form if is_native else None


def _in_memory(
    examples: ExampleSet[Any], bad: BadRows, task: TaskFile, *, has_columns: bool = True
) -> Inputs:
    """Examples that were read whole, with the bad rows where they are in the file."""
    items: list[Any] = []
    bad_rows = collections.deque(bad.rows)
    for number, item in enumerate(examples.items):
        while bad_rows and bad_rows[0].before <= number:
            items.append(bad_rows.popleft())
        items.append(item)
    items += bad_rows
    # A document's sentences must stay together to be each other's context.
    size = max(1, len(items)) if task.options.get("document_context") else _CHUNK

    def chunks() -> Iterator[list[Any]]:
        for begin in range(0, len(items), size):
            yield items[begin : begin + size]

    return Inputs(len(examples.items), bad.skipped, chunks, has_columns)


# === Tables ===


def _columns(task: TaskFile, path: str, names: Sequence[str] | None) -> dict[str, Any]:
    """The arguments of the kind's reader that name what the model reads, and say how."""
    kind, trained = KINDS[task.kind], task.columns.get("text_columns")
    how = {name: task.columns[name] for name in table_options(kind) if name in task.columns}
    if names is None and trained is None:
        raise ValueError(
            f"The model does not say which columns of {path} to read: name them, "
            f"--text_columns={kind.text_form}."
        )
    if names is None:
        return {"text_columns": trained, **how}
    minimum, maximum = kind.num_texts
    if not minimum <= len(names) <= maximum:
        raise ValueError(
            f"--text_columns={','.join(names)}: expected {kind.text_form} for {task.kind}."
        )
    if trained and issubclass(kind, TextTask) and len(trained) != len(names):
        forms = ("single texts", "pairs of texts")
        raise ValueError(
            f"--text_columns={','.join(names)}: the model was trained on {forms[len(trained) - 1]} "
            f"({listed(trained)}): name {'one column' if len(trained) == 1 else 'two columns'}."
        )
    return {"text_columns": list(names), **how}


def _id_column(task: TaskFile, table: TableFile) -> str | None:
    """The training table's column of ids, where the file has one, too."""
    name: str | None = task.columns.get("id_column")
    if name is None:
        return None
    try:
        # A bad row does not say that there are no ids.
        row = next(read_columns(table, [name], BadRows(table.path, skip=True)), None)
    except ValueError:
        return None
    # A table without a good row has the column all the same; rows of values have none to say it.
    return name if row or not table.has_typed_fields else None


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
    what = [f"column {name!r}" for name in text_columns]
    for location, row in read_columns(table, [id_column, *text_columns], bad):
        yield from bad.rows[reported:]
        reported = len(bad.rows)
        try:
            yield text_example(row, what)
        except BadRowError as error:
            bad.report(location, error)
    yield from bad.rows[reported:]
