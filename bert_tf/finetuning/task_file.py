"""``task.json``: what a fine-tuned model's directory says of its task, for ``predict``.

Beside it lie the model, its vocabulary, labels and thresholds (``interchange.model_directory``), so
that the directory is all that predictions need.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.files import read_json_object, write_json
from bert_tf.untrusted import listed, quote

NAME = "task.json"
KINDS = ("classification", "multilabel", "regression", "tagging", "multiple_choice", "squad")
_FORMAT_VERSION = 1
_MOST_ANSWERS = 1000  # of a question; the memory grows with their square
_MOST = 2**31 - 1  # what TensorFlow's int32 holds

_Test = Callable[[Any], bool]


def _size(most: int = _MOST) -> tuple[str, _Test]:
    return (
        f"a whole number from 1 to {most:,}",
        lambda value: type(value) is int and 1 <= value <= most,
    )


def _names(least: int, most: int) -> tuple[str, _Test]:
    return (
        f"a list of {least} to {most:,} columns' names",
        lambda value: (
            isinstance(value, list)
            and least <= len(value) <= most
            and all(isinstance(name, str) for name in value)
        ),
    )


_TEXT: tuple[str, _Test] = ("a text", lambda value: isinstance(value, str))
_FILLED: tuple[str, _Test] = ("a text", lambda value: isinstance(value, str) and value != "")
_TEXT_OR_NULL: tuple[str, _Test] = ("a text or null", lambda value: isinstance(value, str | None))
_FLAG: tuple[str, _Test] = ("true or false", lambda value: isinstance(value, bool))
_OBJECT: tuple[str, _Test] = ("an object", lambda value: isinstance(value, dict))

# What the file may say: by key, the words for it and the test of it.
_TASK = {
    "kind": _TEXT,
    "name": _TEXT,
    "max_seq_length": _size(),
    "columns": _OBJECT,
    "options": _OBJECT,
}
_TEXTS = {
    "text_columns": _names(1, 2),
    "label_column": _TEXT_OR_NULL,
    "id_column": _TEXT_OR_NULL,
}
_COLUMNS: dict[str, dict[str, tuple[str, _Test]]] = {
    "classification": _TEXTS,
    "multilabel": {**_TEXTS, "separator": _FILLED},
    "regression": _TEXTS,
    "tagging": {"words_column": _TEXT, "tags_column": _TEXT_OR_NULL, "id_column": _TEXT_OR_NULL},
    "multiple_choice": {
        "context_column": _TEXT,
        "choice_columns": _names(1, 1000),
        "label_column": _TEXT_OR_NULL,
        "id_column": _TEXT_OR_NULL,
    },
    "squad": {
        "question_column": _TEXT,
        "context_column": _TEXT,
        "answers_column": _TEXT_OR_NULL,
        "answer_start_column": _TEXT_OR_NULL,
        "title_column": _TEXT_OR_NULL,
        "id_column": _TEXT_OR_NULL,
    },
}
_OPTIONS: dict[str, dict[str, tuple[str, _Test]]] = {
    "tagging": {"document_context": _FLAG},
    "squad": {
        "doc_stride": _size(),
        "max_query_length": _size(),
        "n_best_size": _size(_MOST_ANSWERS),
        "max_answer_length": _size(),
        "with_null": _FLAG,
    },
}


@dataclasses.dataclass(frozen=True)
class TaskFile:
    """A task's settings.

    Attributes:
        kind: one of ``KINDS``.
        name: for messages: "SST-2", or what the user calls it.
        max_seq_length: the most tokens of a row.
        columns: the arguments that name columns, of the kind's reader of tables:
            ``own_data.read_classification``, ``read_multilabel``, ``read_regression`` and
            ``read_tagging``, ``multiple_choice.read_choices``, ``squad.read_questions``.
            For a task that was read from files of its own form (CoNLL's, SQuAD's), {}.
        options: of the task, besides: ``doc_stride`` and ``max_query_length``, for example.
    """

    kind: str
    name: str
    max_seq_length: int
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def write_task_file(folder: str, task: TaskFile) -> str:
    """Writes ``task.json`` into a folder and returns its path."""
    path = os.path.join(folder, NAME)
    write_json(path, to_json(task))
    return path


def to_json(task: TaskFile) -> dict[str, Any]:
    """What ``task.json`` holds."""
    return {"format_version": _FORMAT_VERSION, **dataclasses.asdict(task)}


def read_task_file(folder: str) -> TaskFile | None:
    """Reads the ``task.json`` of a folder.

    Returns:
        What it says; ``None`` where there is none.

    Raises:
        ValueError: the file is damaged, or of another version of this library.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> columns = {"text_columns": ["review"], "label_column": "stars"}
    >>> path = write_task_file(folder, TaskFile("classification", "reviews", 128, columns))
    >>> read_task_file(folder).columns["text_columns"]
    ['review']
    """
    path = os.path.join(folder, NAME)
    if not tf.io.gfile.exists(path):
        return None
    values = read_json_object(path)
    if values.pop("format_version", None) != _FORMAT_VERSION:
        raise ValueError(
            f"{path}: format_version is not {_FORMAT_VERSION}: it was written by another version "
            "of this library; fine-tune again."
        )
    expected = {field.name for field in dataclasses.fields(TaskFile)}
    if values.keys() != expected:
        raise ValueError(
            f"{path}: expected the keys {', '.join(sorted(expected))}, got "
            f"{listed(sorted(values))}; fine-tune again."
        )
    _check(path, values)
    return TaskFile(**values)


def _check(path: str, values: Mapping[str, Any]) -> None:
    kind = values["kind"]
    if kind not in KINDS:  # the keys of the rest depend on it
        raise ValueError(
            f"{path}: kind is {quote(kind)}, expected one of {', '.join(KINDS)}; fine-tune again."
        )
    _check_values(path, values, _TASK)
    _check_values(path, values["columns"], _COLUMNS[kind])
    _check_values(path, values["options"], _OPTIONS.get(kind, {}))


def _check_values(
    path: str, values: Mapping[str, Any], expected: Mapping[str, tuple[str, _Test]]
) -> None:
    for key, value in values.items():
        if key not in expected:
            raise ValueError(
                f"{path}: {quote(key)} is not known: expected {', '.join(expected) or 'nothing'}; "
                "it was written by another version of this library, or fine-tune again."
            )
        what, is_good = expected[key]
        if not is_good(value):
            raise ValueError(f"{path}: {key} is {quote(value)}, expected {what}; fine-tune again.")
