"""What follows from a kind's declarations: its flags, its tables, the models that it trains."""

import dataclasses
from typing import TYPE_CHECKING, Any

from bert_tf.readers import tables

from .task import Task

if TYPE_CHECKING:
    from bert_tf.modeling.base import BertModel


def option_fields(kind: type[Task]) -> dict[str, dataclasses.Field[Any]]:
    """Returns the fields of a task type's options by name."""
    return {field.name: field for field in dataclasses.fields(kind.Options)}


def table_options(kind: type[Task]) -> list[str]:
    """Returns the names of the options for reading tables."""
    fields = option_fields(kind).items()
    return [name for name, field in fields if field.metadata["only"] == "tables"]


def saved_options(kind: type[Task], options: Any) -> dict[str, Any]:
    """Returns the options that ``task.json`` stores for prediction and export."""
    fields = option_fields(kind).items()
    return {name: getattr(options, name) for name, f in fields if f.metadata["saved_in_task_file"]}


def is_table_file(kind: type[Task], path: str) -> bool:
    """Returns whether a path is the name of a table for the task type."""
    is_json = path.lower().removesuffix(".gz").endswith(".json")
    return tables.is_table(path) and not (kind.reads_native_format and is_json)


def trains(kind: type[Task], model_class: "type[BertModel]") -> bool:
    """Returns whether models of a class can be trained for the task type."""
    return model_class.__name__ in (kind.model, kind.alternative_model)
