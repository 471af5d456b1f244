"""``task.json``: the task settings of a fine-tuned model, read for prediction and export.

The model directory also contains the weights, vocabulary, labels and thresholds
(``checkpoints.model_directory``).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_tf.answering.export_options import ExportOptions
from bert_tf.cli import flag_fields
from bert_tf.io.messages import listed, quote

from .registry import KINDS
from .task import Task

if TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint
    from bert_tf.modeling.base import BertModel

_FORMAT_VERSION = 1

# Column options that all task types have.
_COLUMNS = {
    "text_columns": flag_fields.words(None, ""),
    "label_column": flag_fields.string(None, ""),
    "id_column": flag_fields.string(None, ""),
}


@dataclasses.dataclass(frozen=True)
class TaskFile:
    """Settings of a task.

    Attributes:
        kind: Name of the task type.
        name: Name of the task for messages.
        max_seq_length: Maximum number of tokens per row.
        columns: Options for reading tables: ``text_columns``, ``label_column``, ``id_column`` and
            those of the task type. Empty if the training data have a published format.
        options: Saved options of the task type.
    """

    kind: str
    name: str
    max_seq_length: int
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def to_json(task: TaskFile) -> dict[str, Any]:
    """Returns the contents of ``task.json``."""
    return {"format_version": _FORMAT_VERSION, **dataclasses.asdict(task)}


def load_task_file(checkpoint: Checkpoint) -> TaskFile | None:
    """Returns the task settings of a checkpoint, or ``None`` if it has none."""
    task = checkpoint.task
    return None if task is None else read_task_file(task, checkpoint.path)


def read_task_file(contents: Mapping[str, Any], directory: str) -> TaskFile:
    """Validates the contents of ``task.json``."""
    from bert_tf.checkpoints.model_directory import TASK

    path, values = os.path.join(directory, TASK), dict(contents)
    if values.pop("format_version", None) != _FORMAT_VERSION:
        raise ValueError(
            f"{path}: format_version is not {_FORMAT_VERSION}, so another version of bert_tf "
            "wrote the file. Fine-tune again."
        )
    expected = {field.name for field in dataclasses.fields(TaskFile)}
    if values.keys() != expected:
        raise ValueError(
            f"{path}: expected the keys {', '.join(sorted(expected))}, got "
            f"{listed(sorted(values))}. Fine-tune again."
        )
    name = values["kind"]
    if not isinstance(name, str) or name not in KINDS:
        raise ValueError(
            f"{path}: kind is {quote(name)}, expected one of {', '.join(KINDS)}. Run the command "
            "from the program that registers the task type, or fine-tune again."
        )
    for key, expectation in _find_problems(KINDS[name], values):
        raise ValueError(f"{path}: {key}, expected {expectation}. Fine-tune again.")
    return TaskFile(**values)


def _find_problems(kind: type[Task], values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields a description of each invalid value, and what was expected."""
    length = values["max_seq_length"]
    if not isinstance(values["name"], str):
        yield f"name is {quote(values['name'])}", "a string"
    if type(length) is not int or not 1 <= length < 2**31:
        yield f"max_seq_length is {quote(length)}", f"an integer from 1 to {2**31 - 1:,}"
    for key in ("columns", "options"):
        if not isinstance(values[key], dict):
            yield f"{key} is {quote(values[key])}", "an object"
    minimum, maximum = kind.num_texts
    texts = values["columns"].get("text_columns")
    if "text_columns" in values["columns"] and not (
        isinstance(texts, list)
        and minimum <= len(texts) <= maximum
        and all(isinstance(name, str) for name in texts)
    ):
        yield (
            f"text_columns is {quote(texts)}",
            f"a list of {minimum} to {maximum:,} column names",
        )
    columns = {**_COLUMNS, **kind.option_fields(only="tables")}
    yield from _find_value_problems(values["columns"], columns)
    yield from _find_value_problems(values["options"], kind.option_fields(saved_in_task_file=True))


def _find_value_problems(
    values: Mapping[str, Any], fields: Mapping[str, dataclasses.Field[Any]]
) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if key not in fields:
            yield f"{quote(key)} is unknown", ", ".join(fields) or "nothing"
        elif expected := flag_fields.expected_value(fields[key], value):
            yield f"{key} is {quote(value)}", expected


def kinds_for_class(model_class: type[BertModel], *, embeds: bool) -> list[type[Task]]:
    """Returns the task types that can train a model class; ``embeds`` includes embedding tasks."""
    kinds = (kind for kind in KINDS.values() if embeds or not kind.embeds)
    return [k for k in kinds if model_class.__name__ in (k.model, k.alternative_model)]


def default_kind(kinds: Sequence[type[Task]], *, multi_label: bool) -> type[Task]:
    """Returns the task type of a model without a ``task.json``."""
    return next((kind for kind in kinds if kind.multi_label == multi_label), kinds[0])


def export_options(task: TaskFile | None) -> ExportOptions:
    """Returns the export options that match a model's training; defaults if it has no task."""
    if task is None:
        return ExportOptions()
    known = {field.name for field in dataclasses.fields(ExportOptions)}
    reads_pairs = KINDS[task.kind].num_texts == (1, 2)
    return ExportOptions(
        max_seq_length=task.max_seq_length,
        pair=reads_pairs and len(task.columns.get("text_columns", ())) == 2,
        **{name: value for name, value in task.options.items() if name in known},
    )
