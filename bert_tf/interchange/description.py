"""Which model a checkpoint is, as JSON, for formats that have no word for it."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from bert_tf.modeling import MODEL_CLASSES
from bert_tf.untrusted import is_number, one_line, quote

from .checkpoint import Checkpoint, ModelSpec, Tokenization

_FORMAT_VERSION = 1
KEYS = {
    *("format_version", "class_name", "arguments", "labels", "multi_label", "do_lower_case"),
    "thresholds",
}


class Description(NamedTuple):
    """What the JSON says.

    Attributes:
        model: the class and its constructor's arguments.
        labels: the classes' names; () where they have none.
        multi_label: whether several classes may hold at once.
        do_lower_case: how the tokenizer treats case; ``None`` where there is no tokenizer.
        thresholds: decided in fine-tuning, by name.
    """

    model: ModelSpec
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    do_lower_case: bool | None = None
    thresholds: Mapping[str, float] = MappingProxyType({})


def describe(
    model: ModelSpec,
    labels: tuple[str, ...] = (),
    multi_label: bool = False,
    tokenization: Tokenization | None = None,
    thresholds: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The JSON object of a model.

    >>> describe(ModelSpec(MODEL_CLASSES["BertRegressor"], {}))["class_name"]
    'BertRegressor'
    """
    values = {
        "format_version": _FORMAT_VERSION,
        "class_name": model.class_name,
        "arguments": dict(model.arguments),
        "labels": list(labels),
        "multi_label": multi_label,
        "do_lower_case": None if tokenization is None else tokenization.do_lower_case,
    }
    return {**values, "thresholds": dict(thresholds)} if thresholds else values


def describe_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    """The JSON object of a checkpoint's model."""
    return describe(
        checkpoint.model,
        checkpoint.labels,
        checkpoint.multi_label,
        checkpoint.tokenization,
        checkpoint.thresholds,
    )


def parse(values: Any, source: str) -> Description:
    """Reads the JSON object, every value checked.

    Args:
        values: the parsed JSON.
        source: what errors name as the place that the values came from.

    Raises:
        ValueError: a value is missing or is not what it has to be.
    """
    if not isinstance(values, Mapping):
        raise ValueError(
            f"{source}: expected an object that describes a model, got {quote(values)}."
        )
    if values.get("format_version") != _FORMAT_VERSION:
        raise ValueError(
            f"{source}: format_version is {quote(values.get('format_version'))}, expected "
            f"{_FORMAT_VERSION}: it was written by another version of this library."
        )
    model = check_model(values.get("class_name"), values.get("arguments"), source)
    labels = values.get("labels", [])
    classes = model.arguments.get("num_classes")
    if not isinstance(labels, list) or (labels and len(labels) != classes):
        raise ValueError(
            f"{source}: labels is {quote(labels)}, expected a list of {classes or 'no'} names."
        )
    lower, multi_label = values.get("do_lower_case"), values.get("multi_label", False)
    if not isinstance(lower, bool | None):
        raise ValueError(
            f"{source}: do_lower_case is {quote(lower)}, expected true, false or null."
        )
    if not isinstance(multi_label, bool):
        raise ValueError(f"{source}: multi_label is {quote(multi_label)}, expected true or false.")
    return Description(
        model,
        check_labels(labels, source),
        multi_label,
        lower,
        _thresholds(values.get("thresholds", {}), source),
    )


def _thresholds(values: Any, source: str) -> dict[str, float]:
    if not isinstance(values, Mapping) or not all(map(is_number, values.values())):
        raise ValueError(
            f"{source}: thresholds is {quote(values)}, expected an object of numbers by name."
        )
    return {str(name): float(value) for name, value in values.items()}


def check_labels(labels: Iterable[Any], source: str) -> tuple[str, ...]:
    """The names of classes, as a stranger's file gives them: texts, or numbers as text.

    Raises:
        ValueError: one is neither.
    """
    names = tuple(labels)
    for name in names:
        if not isinstance(name, str | int | float):
            raise ValueError(f"{source}: the label {quote(name)} is not a text.")
    return tuple(map(str, names))


def check_model(name: Any, arguments: Any, source: str) -> ModelSpec:
    """A model's class and arguments, as a stranger's file gives them, checked.

    Raises:
        ValueError: there is no such class, or it cannot be made with the arguments.
    """
    if not isinstance(name, str) or name not in MODEL_CLASSES:
        raise ValueError(
            f"{source}: class_name is {quote(name)}, expected one of {', '.join(MODEL_CLASSES)}."
        )
    if not isinstance(arguments, Mapping):
        raise ValueError(f"{source}: arguments is {quote(arguments)}, expected an object.")
    checks = MODEL_CLASSES[name].argument_checks
    for key, value in arguments.items():
        if key not in checks or not checks[key](value):
            argument = f"{one_line(key)}={quote(value)}"
            raise ValueError(f"{source}: {name} cannot be made with {argument}.")
    if "num_classes" in checks and "num_classes" not in arguments:
        raise ValueError(f"{source}: {name} needs num_classes among its arguments.")
    return ModelSpec(MODEL_CLASSES[name], dict(arguments))
