"""What follows from a kind's declarations: its flags, its tables, the models that it trains."""

import dataclasses
from typing import TYPE_CHECKING, Any

from bert_tf.readers import tables

from .task import Task

if TYPE_CHECKING:
    from bert_tf.modeling.base import BertModel


def option_fields(kind: type[Task]) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a kind's options, by their names."""
    return {field.name: field for field in dataclasses.fields(kind.Options)}


def table_options(kind: type[Task]) -> list[str]:
    """Names of the options that say how a table is read."""
    fields = option_fields(kind).items()
    return [name for name, field in fields if field.metadata["only"] == "tables"]


def saved_options(kind: type[Task], options: Any) -> dict[str, Any]:
    """The options that ``task.json`` keeps for predictions and exports."""
    fields = option_fields(kind).items()
    return {name: getattr(options, name) for name, f in fields if f.metadata["saved_in_task_file"]}


def is_table_file(kind: type[Task], path: str) -> bool:
    """True if a path's name is that of a table of the kind."""
    is_json = path.lower().removesuffix(".gz").endswith(".json")
    return tables.is_table(path) and not (kind.reads_native_format and is_json)


def trains(kind: type[Task], model_class: "type[BertModel]") -> bool:
    """True if a model of the class may have been trained for the kind."""
    return model_class.__name__ in (kind.model, kind.alternative_model)
