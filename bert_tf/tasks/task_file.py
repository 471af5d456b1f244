"""``task.json``: what a fine-tuned model's directory says of its task, for ``predict``.

The model, its vocabulary, labels and thresholds (``checkpoints.model_directory``) are next to it:
the directory is all that predictions need.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.model_directory import TASK
from bert_tf.untrusted import listed, quote

from .kinds import KINDS, OBJECT, TEXT, Check, size

_FORMAT_VERSION = 1
# Keys of the file, with their checks.
_TASK = {"kind": TEXT, "name": TEXT, "max_seq_length": size(), "columns": OBJECT, "options": OBJECT}


@dataclasses.dataclass(frozen=True)
class TaskFile:
    """A task's settings.

    ``name`` is for messages. ``columns`` are the arguments of the kind's reader of tables that name
    columns, {} for a task that was read from files of its own form; ``options`` are the task's.
    """

    kind: str
    name: str
    max_seq_length: int
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def to_json(task: TaskFile) -> dict[str, Any]:
    """Contents of ``task.json``."""
    return {"format_version": _FORMAT_VERSION, **dataclasses.asdict(task)}


def task_of(checkpoint: Checkpoint) -> TaskFile | None:
    """Contents of a checkpoint's ``task.json``; ``None`` without one."""
    if checkpoint.task is None:
        return None
    path, values = os.path.join(checkpoint.path, TASK), dict(checkpoint.task)
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
    if not isinstance(kind, str) or kind not in KINDS:  # the keys of the rest depend on it
        raise ValueError(
            f"{path}: kind is {quote(kind)}, expected one of {', '.join(KINDS)}; fine-tune again."
        )
    _check_values(path, values, _TASK)
    _check_values(path, values["columns"], KINDS[kind].columns)
    _check_values(path, values["options"], KINDS[kind].options)


def _check_values(path: str, values: Mapping[str, Any], expected: Mapping[str, Check]) -> None:
    for key, value in values.items():
        if key not in expected:
            raise ValueError(
                f"{path}: {quote(key)} is not known: expected {', '.join(expected) or 'nothing'}; "
                "it was written by another version of this library, or fine-tune again."
            )
        what, is_good = expected[key]
        if not is_good(value):
            raise ValueError(f"{path}: {key} is {quote(value)}, expected {what}; fine-tune again.")
