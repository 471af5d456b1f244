"""``:classify`` and ``:regress``: examples as JSON to ``tf.Example``s, and the replies.

Source: https://www.tensorflow.org/tfx/serving/api_rest; TensorFlow Serving's json_tensor.cc and
classifier.cc.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.saved_models.replay import to_json

from . import rest
from .rest import Request, RestError, Tensors

_INPUT = "inputs"
_OUTPUTS = {"classify": {"classes", "scores"}, "regress": {"outputs"}}


def parse_examples(body: bytes, action: str, signatures: Mapping[str, Any]) -> Request:
    """The request of a body of ``:classify`` or ``:regress``."""
    document = rest.document_of(body)
    name = rest.signature_name_of(document)
    examples = document.get("examples")
    if not isinstance(examples, list) or not examples:
        wrong = {
            "examples" not in document: "key 'examples' is expected and was not found",
            examples == []: "'examples' value is an empty array",
        }.get(True, "Expecting 'examples' value to be an list/array")
        raise RestError(400, f"JSON Value: {rest.shown(document)} {wrong}")
    if name not in signatures:
        raise RestError(400, f"No signature was found with the name: {rest.cut(name)}")
    inputs, outputs = signatures[name]["inputs"], signatures[name]["outputs"]
    if inputs.keys() != {_INPUT} or not outputs.keys() <= _OUTPUTS[action]:
        raise RestError(
            400, f"The signature {name} is not for :{action}: name one that is by signature_name."
        )
    context = _features(document.get("context", {}))
    serialized = np.empty(len(examples), object)
    for place, example in enumerate(examples):
        features = {**context, **_features(example)}
        made = tf.train.Example()
        for key, feature in features.items():
            made.features.feature[key].CopyFrom(feature)
        serialized[place] = made.SerializeToString()
    return Request(name, {_INPUT: serialized}, is_row=True)


def _features(example: Any) -> dict[str, tf.train.Feature]:
    if not isinstance(example, dict):
        raise RestError(
            400, f"Example must be JSON object but got JSON {rest.type_name_of(example)}"
        )
    return {name: _feature(name, value) for name, value in example.items()}


def _feature(name: str, content: Any) -> tf.train.Feature:
    feature, kinds = tf.train.Feature(), set()
    for value in content if isinstance(content, list) else [content]:
        if isinstance(value, str) or rest.is_base64(value):
            feature.bytes_list.value.append(rest.scalar(value, "DT_STRING"))
        elif isinstance(value, float):
            feature.float_list.value.append(rest.scalar(value, "DT_FLOAT"))
        elif isinstance(value, int):  # true and false are 1 and 0
            feature.int64_list.value.append(rest.scalar(int(value), "DT_INT64"))
        else:
            raise RestError(
                400,
                f"Feature: {rest.cut(name)} has element with unexpected JSON type: "
                f"{rest.type_name_of(value)}",
            )
        kinds.add(feature.WhichOneof("kind"))
    if len(kinds) > 1:
        raise RestError(400, f"Unexpected element type in feature: {rest.cut(name)}")
    return feature


def results_reply(outputs: Tensors) -> dict[str, Any]:
    """The reply: of each example its classes with their scores, or its number."""
    if "outputs" in outputs:
        return {"results": to_json(outputs["outputs"])}
    scores = to_json(outputs["scores"])
    if "classes" in outputs:
        classes = to_json(outputs["classes"])
    else:
        classes = [[""] * len(row) for row in scores]
    return {
        "results": [
            [list(pair) for pair in zip(*row, strict=True)]
            for row in zip(classes, scores, strict=True)
        ]
    }
