"""``:classify`` and ``:regress`` requests, with ``tf.Example``s as JSON.

Source: https://www.tensorflow.org/tfx/serving/api_rest, and json_tensor.cc and classifier.cc of
TensorFlow Serving.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from . import rest
from .rest import Request, RestError, Tensors

_INPUT = "inputs"
_OUTPUTS = {"classify": {"classes", "scores"}, "regress": {"outputs"}}
# Dtype and ``tf.train.Feature`` field by type of JSON value.
_BYTES = ("DT_STRING", "bytes_list")
_FIELDS = {float: ("DT_FLOAT", "float_list"), int: ("DT_INT64", "int64_list")}


def parse_examples(action: str, body: bytes, signatures: Mapping[str, Any], limit: int) -> Request:
    """Parses the body of ``:classify`` or ``:regress``, with at most ``limit`` examples."""
    document = rest.parse_document(body)
    name = rest.get_signature_name(document, signatures)
    inputs, outputs = signatures[name]["inputs"], signatures[name]["outputs"]
    if inputs.keys() != {_INPUT} or not outputs.keys() <= _OUTPUTS[action]:
        raise RestError(
            400, f"The signature {name} does not support :{action}. Set signature_name."
        )
    examples, context = document.get("examples"), document.get("context", {})
    if not isinstance(examples, list) or not examples:
        raise RestError(400, "Expecting 'examples' value to be an list/array with values")
    rest.check_rows(examples, limit)
    for example in (context, *examples):
        if not isinstance(example, dict):
            raise RestError(
                400, f"Example must be JSON object but got {rest.format_value(example)}"
            )
    serialized = [_serialized({**context, **example}) for example in examples]
    return Request(name, {_INPUT: np.array(serialized, object)}, _reply)


def _serialized(example: dict[str, Any]) -> bytes:
    # JSON strings can contain lone surrogates, which are not valid in the names of a tf.Example.
    rest.to_array([*example], "DT_STRING")
    features = {name: _feature(value) for name, value in example.items()}
    return tf.train.Example(features={"feature": features}).SerializeToString()


def _feature(content: Any) -> tf.train.Feature:
    values = content if isinstance(content, list) else [content]
    if not values:
        return tf.train.Feature()
    if any(isinstance(value, list) for value in values):
        raise rest.invalid_value(content, "Expecting one value or a flat list per feature")
    dtype, field = _FIELDS.get(type(values[0]), _BYTES)
    return tf.train.Feature(**{field: {"value": rest.to_array(values, dtype).tolist()}})


def _reply(outputs: Tensors) -> dict[str, Any]:
    """Returns the reply with the classes and scores, or the value, of each example."""
    if "outputs" in outputs:
        return {"results": rest.to_json_values(outputs["outputs"])}
    scores = rest.to_json_values(outputs["scores"])
    classes = outputs.get("classes")
    names = [[""] * len(row) for row in scores] if classes is None else rest.to_json_values(classes)
    return {
        "results": [
            [list(pair) for pair in zip(*row, strict=True)]
            for row in zip(names, scores, strict=True)
        ]
    }
