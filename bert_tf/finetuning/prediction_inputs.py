"""Unlabelled files as ``predict`` reads them: in chunks, each row checked before the first is run.

| kind                                    | files                                                |
|-----------------------------------------|------------------------------------------------------|
| classification, multilabel, regression  | tables                                               |
| tagging                                 | tables; else CoNLL's columns, of which the first     |
| multiple_choice                         | tables; of a task of SWAG's or CODAH's, their form   |
| squad                                   | tables; else SQuAD's JSON                            |

Tables end in .tsv, .csv or .jsonl, or in one of these and .gz.
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bert_tf.tasks.conll import read_conll
from bert_tf.tasks.examples import BadRow, BadRowError, BadRows, Examples, TextExample
from bert_tf.tasks.multiple_choice import read_choices, read_codah, read_swag
from bert_tf.tasks.own_data import read_tagging, text_example
from bert_tf.tasks.squad import read_questions, read_squad
from bert_tf.tasks.tables import read_columns
from bert_tf.untrusted import listed

from .settings import is_table
from .task_file import TaskFile

_CHUNK = 2048
_COLUMNS = {
    "tagging": "WORDS",
    "multiple_choice": "CONTEXT,CHOICE,...",
    "squad": "QUESTION,CONTEXT",
}


@dataclasses.dataclass(frozen=True)
class Inputs:
    """A file's examples.

    Attributes:
        count: how many there are.
        skipped: a sentence for each bad row.
        chunks: gives the examples, and in their places the bad rows (``BadRow``), in the order of
            the file, some thousand at a time. Texts are read anew with each call and not kept, so
            that the memory does not grow with the file.
    """

    count: int
    skipped: list[str]
    chunks: Callable[[], Iterator[list[Any]]]


def read_inputs(
    task: TaskFile,
    path: str,
    *,
    text_columns: Sequence[str] | None = None,
    id_column: str | None = None,
    encoding: str = "utf-8",
    skip_bad_rows: bool = False,
) -> Inputs:
    """Reads and checks a file to predict; labels that it may have are not looked at.

    Args:
        task: what the model was trained for.
        path: see the table above, and the kind's reader.
        text_columns: a table's columns, instead of those that the model was trained with.
        id_column: the column of ids; by default the training table's, where the file has it, and
            else the rows are counted from 0.
        encoding: of CoNLL's files.
        skip_bad_rows: list bad rows, instead of an error at the first. Rows without text are listed
            anyway.

    Raises:
        ValueError: the columns are not known, or are not those of a row that the model was trained
            with, or as the kind's reader.
        OSError: the file cannot be read.
    """
    has_named_columns = is_table(path) and (text_columns is not None or not _has_own_form(task))
    other_form = _other_form(task)
    if other_form is not None and not has_named_columns:
        bad = BadRows(path, skip_bad_rows, answers_all=True)
        return _kept(other_form(path, encoding, bad), bad, task)
    columns = _columns(task, path, text_columns)
    columns["id_column"] = id_column = id_column or _id_column(task, path)

    def new_bad_rows() -> BadRows:
        return BadRows(path, skip_bad_rows, answers_all=True, id_column=id_column)

    bad = new_bad_rows()
    if task.kind == "tagging":
        found: Examples[Any] = read_tagging(path, tags_column=None, skip_bad_rows=bad, **columns)
    elif task.kind == "multiple_choice":
        found = read_choices(path, label_column=None, skip_bad_rows=bad, **columns)
    elif task.kind == "squad":
        found = read_questions(path, answers_column=None, skip_bad_rows=bad, **columns)
    else:
        return _texts(path, new_bad_rows, **columns)
    return _kept(found, bad, task)


def _kept(examples: Examples[Any], bad: BadRows, task: TaskFile) -> Inputs:
    items: list[Any] = []
    rows = collections.deque(bad.rows)
    for number, item in enumerate(examples.items):
        while rows and rows[0].before <= number:
            items.append(rows.popleft())
        items.append(item)
    items += rows
    # A document's sentences must stay together to be each other's context.
    size = max(1, len(items)) if task.options.get("document_context") else _CHUNK

    def chunks() -> Iterator[list[Any]]:
        for begin in range(0, len(items), size):
            yield items[begin : begin + size]

    return Inputs(len(examples.items), bad.skipped, chunks)


# === Files of a form of their own ===

_Reader = Callable[[str, str, BadRows], Examples[Any]]


def _has_own_form(task: TaskFile) -> bool:
    """Whether the task was trained on tables of a published form."""
    return task.kind == "multiple_choice" and not task.columns and task.name in ("swag", "codah")


def _other_form(task: TaskFile) -> _Reader | None:
    """The reader of files that are no tables, or none with named columns."""
    if task.kind == "tagging":
        return lambda path, encoding, bad: read_conll(
            path, encoding=encoding, labelled=False, skip_bad_rows=bad
        )
    if task.kind == "squad":
        return lambda path, encoding, bad: read_squad(path, labelled=False, skip_bad_rows=bad)
    if _has_own_form(task) and task.name == "swag":
        return lambda path, encoding, bad: read_swag(path, labelled=False, skip_bad_rows=bad)
    if _has_own_form(task):
        return lambda path, encoding, bad: read_codah(path, skip_bad_rows=bad)
    return None


# === Tables ===


def _columns(task: TaskFile, path: str, names: Sequence[str] | None) -> dict[str, Any]:
    """The arguments of the kind's reader that name what the model reads."""
    wanted = {
        "tagging": ("words_column",),
        "multiple_choice": ("context_column", "choice_columns"),
        "squad": ("question_column", "context_column"),
    }.get(task.kind, ("text_columns",))
    if names is None:
        if any(name not in task.columns for name in wanted):
            raise ValueError(
                f"The model does not say which columns of {path} to read: name them, "
                f"--text_columns={_COLUMNS.get(task.kind, 'A or A,B')}."
            )
        return {name: task.columns[name] for name in wanted}
    if task.kind == "multiple_choice":
        given: Sequence[Any] = (names[0], names[1:]) if len(names) > 1 else ()
    else:
        given = names if len(wanted) > 1 or task.kind == "tagging" else (names,)
    if len(given) != len(wanted):
        raise ValueError(
            f"--text_columns={','.join(names)}: expected {_COLUMNS[task.kind]} for {task.kind}."
        )
    trained = task.columns.get("text_columns")
    if trained and len(trained) != len(names):
        forms = ("single texts", "pairs of texts")
        raise ValueError(
            f"--text_columns={','.join(names)}: the model was trained on {forms[len(trained) - 1]} "
            f"({listed(trained)}): name {'one column' if len(trained) == 1 else 'two columns'}."
        )
    return dict(zip(wanted, given, strict=True))


def _id_column(task: TaskFile, path: str) -> str | None:
    """The training table's column of ids, where the file has one, too."""
    name: str | None = task.columns.get("id_column")
    if name is None:
        return None
    try:
        # A bad row does not say that there are no ids.
        found = next(read_columns(path, [name], BadRows(path, skip=True)), None)
    except ValueError:
        return None
    # A table without a good row has the column all the same; JSON lines have none to say it.
    has_header = not path.lower().removesuffix(".gz").endswith(".jsonl")
    return name if found or has_header else None


def _texts(
    path: str,
    new_bad_rows: Callable[[], BadRows],
    *,
    text_columns: Sequence[str],
    id_column: str | None,
) -> Inputs:
    if len(text_columns) not in (1, 2):
        raise ValueError(f"--text_columns={','.join(text_columns)}: expected one or two columns.")
    bad = new_bad_rows()
    count = sum(1 for _ in _read_texts(path, text_columns, id_column, bad)) - len(bad.rows)

    def chunks() -> Iterator[list[TextExample | BadRow]]:
        rows = _read_texts(path, text_columns, id_column, new_bad_rows())
        while chunk := list(itertools.islice(rows, _CHUNK)):
            yield chunk

    return Inputs(count, bad.skipped, chunks)


def _read_texts(
    path: str, text_columns: Sequence[str], id_column: str | None, bad: BadRows
) -> Iterator[TextExample | BadRow]:
    told = 0
    for place, row in read_columns(path, [id_column, *text_columns], bad):
        yield from bad.rows[told:]
        told = len(bad.rows)
        try:
            yield text_example(row, text_columns)
        except BadRowError as error:
            bad.report(place, error)
    yield from bad.rows[told:]
