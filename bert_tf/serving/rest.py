"""TensorFlow Serving's REST API: paths, requests, replies and errors.

Paths, bodies, status codes and the messages of common errors are those of TensorFlow Serving, so
that its clients work with this server. Source: https://www.tensorflow.org/tfx/serving/api_rest, and
http_rest_api_util.cc, json_tensor.cc, classifier.cc and get_model_status_impl.cc of TensorFlow
Serving. Only functions that need TensorFlow import it.

Signatures are represented as ``SignatureDef`` JSON, as in the metadata reply.
"""

import base64
import contextlib
import dataclasses
import functools
import gc
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson

from bert_tf.io.untrusted import parse_json

Tensors = dict[str, np.ndarray]
_MODEL = "/v1/models/([^/:]+)(?:/versions/([0-9]{1,18}))?"
_PATHS = {
    "POST": re.compile(f"{_MODEL}:(classify|regress|predict)", re.IGNORECASE),
    "GET": re.compile(f"{_MODEL}(?:/(metadata))?", re.IGNORECASE),
}
_MAX_VALUE_LENGTH = 200
# Integers that may exceed 64 bits, which orjson would read as floats.
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
# Maximum number of values in a reply, about 200 MB of JSON.
_MAX_VALUES = 10_000_000
_DTYPES: dict[str, Any] = {
    **{"DT_STRING": object, "DT_BOOL": np.bool_, "DT_FLOAT": np.float32, "DT_DOUBLE": np.float64},
    **{f"DT_{kind}INT{size}": np.dtype(f"{kind}int{size}".lower())
       for kind in ("", "U") for size in (8, 16, 32, 64)},
}  # fmt: skip
# Outputs of signatures for ``tf.Example``s; dtype and ``tf.train.Feature`` field by JSON type.
_OUTPUTS = {"classify": {"classes", "scores"}, "regress": {"outputs"}}
_BYTES = ("DT_STRING", "bytes_list")
_FIELDS = {float: ("DT_FLOAT", "float_list"), int: ("DT_INT64", "int64_list")}
_JSON_TYPES: dict[type, str] = {
    **{dict: "Object", list: "Array", str: "String", int: "Number", float: "Number"},
    **{bool: "Bool", type(None): "Null"},
}


class RestError(Exception):
    """Error that is returned to the client.

    Args:
        status: HTTP status code.
        message: Error message.
        retry_after: Number of seconds after which the client may retry.
    """

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


@dataclasses.dataclass(frozen=True)
class Request:
    """Parsed predict, classify or regress request.

    Attributes:
        signature: Name of the signature.
        inputs: Inputs by name. Strings are ``bytes`` in object arrays.
        reply: Function that converts the outputs to the reply.
        outputs: Names of the requested outputs, or ``None`` for all.
    """

    signature: str
    inputs: Tensors
    reply: Callable[[Tensors], dict[str, Any]]
    outputs: frozenset[str] | None = None


# === Paths ===


def parse_action(method: str, path: str, name: str, version: int) -> str:
    """Returns the action that a path requests from the served model.

    The actions are ``status``, ``metadata``, ``predict``, ``classify`` and ``regress``.
    """
    method = "GET" if method == "HEAD" else method
    match = method in _PATHS and _PATHS[method].fullmatch(path)
    if not match:
        is_api_path = path.lower().startswith("/v1/")
        raise RestError(400 if is_api_path else 404, f"Malformed request: {method} {path}")
    requested_name, number, action = match.groups()
    if requested_name == name and int(number or version) == version:
        return (action or "status").lower()
    if action:
        subject = f"Specific({requested_name}, {number})" if number else f"Latest({requested_name})"
        raise RestError(404, f"Servable not found for request: {subject}")
    subject = f"version {number}" if number else "any versions"
    raise RestError(404, f"Could not find {subject} of model {requested_name}")


def status_reply(version: int) -> dict[str, Any]:
    """Returns the status reply for an available version."""
    status = {"error_code": "OK", "error_message": ""}
    served = {"version": str(version), "state": "AVAILABLE", "status": status}
    return {"model_version_status": [served]}


def metadata_reply(name: str, version: int, signatures: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata reply with the signatures of the model."""
    return {
        "model_spec": {"name": name, "signature_name": "", "version": str(version)},
        "metadata": {"signature_def": {"signature_def": dict(signatures)}},
    }


# === Requests ===


def parse_predict(body: bytes, signatures: Mapping[str, Any], limit: int) -> Request:
    """Parses the body of ``:predict``, with at most ``limit`` rows.

    As in TensorFlow Serving's gRPC API, ``output_filter`` is a list of output names.
    """
    document = _parse_document(body)
    name = _get_signature_name(document, signatures)
    inputs, outputs = signatures[name]["inputs"], signatures[name]["outputs"]
    outputs_filter = _parse_output_filter(document.get("output_filter"), outputs)
    is_row = "instances" in document
    if is_row and "inputs" in document:
        problem = "expecting only one of 'inputs' or 'instances' keys to exist "
        raise _invalid_value(document, f"Not formatted correctly {problem}")
    if is_row:
        _check_rows(document["instances"], limit)
        columns = _columns_of_rows(document["instances"], inputs)
    elif "inputs" in document:
        columns = _columns_by_name(document["inputs"], inputs)
    else:
        raise _bad_request("Missing 'inputs' or 'instances' key")
    for key in inputs:
        _check_rows(columns[key], limit)
    tensors = {key: _tensor(key, columns[key], info) for key, info in inputs.items()}
    reply = functools.partial(predict_reply, is_row=is_row, is_single=len(outputs) == 1)
    return Request(name, tensors, reply, outputs_filter)


def parse_examples(action: str, body: bytes, signatures: Mapping[str, Any], limit: int) -> Request:
    """Parses the body of ``:classify`` or ``:regress``, with at most ``limit`` examples."""
    document = _parse_document(body)
    name = _get_signature_name(document, signatures)
    inputs, outputs = signatures[name]["inputs"], signatures[name]["outputs"]
    if inputs.keys() != {"inputs"} or not outputs.keys() <= _OUTPUTS[action]:
        raise _bad_request(f"The signature {name} does not support :{action}. Set signature_name.")
    examples, context = document.get("examples"), document.get("context", {})
    if not isinstance(examples, list) or not examples:
        raise _bad_request("Expecting 'examples' value to be an list/array with values")
    _check_rows(examples, limit)
    for example in (context, *examples):
        if not isinstance(example, dict):
            raise _bad_request(f"Example must be JSON object but got {_format_value(example)}")
    serialized = [_serialized({**context, **example}) for example in examples]
    return Request(name, {"inputs": np.array(serialized, object)}, _examples_reply)


def _serialized(example: dict[str, Any]) -> bytes:
    """Converts an example in JSON to a ``tf.Example``."""
    from tensorflow.core.example.example_pb2 import Example  # Imports TensorFlow.

    # JSON strings can contain lone surrogates, which are not valid in the names of a tf.Example.
    to_array([*example], "DT_STRING")
    message = Example()
    for name, content in example.items():
        feature = message.features.feature[name]
        values = content if isinstance(content, list) else [content]
        if any(isinstance(value, list) for value in values):
            raise _invalid_value(content, "Expecting one value or a flat list per feature")
        if values:
            dtype, field = _FIELDS.get(type(values[0]), _BYTES)
            getattr(feature, field).value.extend(to_array(values, dtype).tolist())
    return message.SerializeToString()


def _check_rows(value: Any, limit: int) -> None:
    """Checks the number of rows before they are converted."""
    if isinstance(value, list) and len(value) > limit:
        raise _bad_request(f"The request has {len(value)} rows, more than {limit} (--max_rows).")


def _parse_output_filter(names: Any, outputs: Mapping[str, Any]) -> frozenset[str] | None:
    if names is None or names == []:
        return None
    if not isinstance(names, list):
        raise _invalid_value(names, "Expecting 'output_filter' to be a list")
    for name in names:
        if not isinstance(name, str) or name not in outputs:
            raise _bad_request(
                f"output tensor alias not found in signature: {_format_value(name)} Outputs "
                f"expected to be in the set {{{','.join(sorted(outputs))}}}."
            )
    return frozenset(names)


def _parse_document(body: bytes) -> dict[str, Any]:
    """Parses a body, which must be a JSON object."""
    if not body:
        raise _bad_request("JSON Parse error: The document is empty")
    try:
        document = _parse_json(body)
    except ValueError as error:
        raise _bad_request(f"JSON Parse error: {error}") from error
    if not isinstance(document, dict):
        raise _invalid_value(document, "Is not object")
    return document


def _parse_json(body: bytes) -> Any:
    """Parses JSON with orjson, or with ``parse_json`` if it is not strict JSON."""
    gc.disable()  # Repeated garbage collections would scan the growing lists.
    try:
        if not _LONG_NUMBER.search(body):
            with contextlib.suppress(orjson.JSONDecodeError):
                return orjson.loads(body)
        # The body may contain UTF-16, a byte order mark, NaN, lone surrogates, or invalid JSON.
        return parse_json(body, "the body")
    finally:
        gc.enable()


def _get_signature_name(document: dict[str, Any], signatures: Mapping[str, Any]) -> str:
    """Returns the name of the request's signature, by default ``serving_default``."""
    name = document.get("signature_name", "")
    if name == "":
        name = "serving_default"
    if not isinstance(name, str) or name not in signatures:
        raise _bad_request(
            f"Serving signature name: {_format_value(name)} not found in signature def"
        )
    return name


def _columns_by_name(value: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the input values by name for a request with ``inputs``."""
    if not isinstance(value, dict) or _is_base64(value):
        return _only_column("inputs is a plain value/list, but expecting an object", value, inputs)
    for name in inputs:
        if name not in value:
            raise _bad_request(f"Missing named input: {name} in 'inputs' object.")
    return value


def _columns_of_rows(rows: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the input values by name for a request with ``instances``."""
    if not isinstance(rows, list) or not rows:
        raise _invalid_value(rows, "Expecting 'instances' to be a list with values")
    if not isinstance(rows[0], dict) or _is_base64(rows[0]):
        problem = "instances is a plain list, but expecting list of objects"
        return _only_column(problem, rows, inputs)
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or row.keys() != inputs.keys():
            raise _bad_request(
                f"Failed to process element: {number} of 'instances' list. JSON object: "
                f"{_format_value(row)} keys must be equal to: {','.join(sorted(inputs))}"
            )
    return {name: [row[name] for row in rows] for name in inputs}


def _only_column(problem: str, value: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    if len(inputs) > 1:
        raise _bad_request(f"{problem} as multiple input tensors required as per tensorinfo_map")
    return dict.fromkeys(inputs, value)


# === Values ===


def _tensor(name: str, value: Any, info: Mapping[str, Any]) -> np.ndarray:
    sizes, is_any = dimensions(info), info["tensor_shape"]["unknown_rank"]
    shape, first = [], value
    while isinstance(first, list):  # Rejects wrong nesting before it is converted to an array.
        shape.append(len(first))
        first = first[0] if first else None
    tensor = to_array(value, info["dtype"]) if is_any or len(shape) == len(sizes) else None
    shape = shape if tensor is None else [*tensor.shape]
    fits = len(shape) == len(sizes) and all(map(lambda size, got: size in (-1, got), sizes, shape))
    if tensor is None or not (is_any or fits):
        raise _bad_request(f"{name}: expected the shape {sizes} (-1 is any size), got {shape}.")
    return tensor


def to_array(value: Any, dtype: str) -> np.ndarray:
    """Converts nested lists of equal sizes to an array of a dtype such as ``DT_FLOAT``."""
    if dtype not in _DTYPES:
        raise RestError(501, f"Conversion of JSON Value: {_format_value(value)} to type: {dtype}")
    # Lists of different sizes or depths remain lists within the object array.
    leaves, kind = np.array(value, object), np.dtype(_DTYPES[dtype])
    if kind.kind in "iu" and {*map(type, leaves.flat)} == {int}:  # A fast path for ids.
        limits = np.iinfo(kind)
        if limits.min <= leaves.min() and leaves.max() <= limits.max:
            return leaves.astype(kind)
    converted = [_to_scalar(leaf, dtype) for leaf in leaves.ravel()]
    return np.array(converted, kind).reshape(leaves.shape)


def _to_scalar(value: Any, dtype: str) -> Any:
    if isinstance(value, list):
        problem = "all lists at one level must have the same size"
        raise _invalid_value(value, f"Encountered list at unexpected size or level: {problem}")
    kind = np.dtype(_DTYPES[dtype])
    if kind.hasobject and isinstance(value, str | dict):
        return _to_bytes(value)
    if not _fits_dtype(value, kind):
        expected = dtype.removeprefix("DT_").lower()
        problem = f"Type: {_JSON_TYPES[type(value)]} is not of expected type: {expected}"
        raise _invalid_value(value, problem)
    return value


def _fits_dtype(value: Any, kind: np.dtype) -> bool:
    """Returns whether a dtype can store a JSON value: integers exactly, floats with rounding."""
    if kind.kind in "iu":
        return type(value) is int and bool(np.iinfo(kind).min <= value <= np.iinfo(kind).max)
    if kind.kind == "f" and type(value) is int:
        return abs(value) < 2 ** (np.finfo(kind).nmant + 1)
    if kind.kind == "f" and type(value) is float:
        return not math.isfinite(value) or abs(value) <= float(np.finfo(kind).max)
    return kind == np.bool_ and isinstance(value, bool)


def _is_base64(value: dict[str, Any]) -> bool:
    return value.keys() == {"b64"} and isinstance(value["b64"], str)


def _to_bytes(value: str | dict[str, Any]) -> bytes:
    try:
        if isinstance(value, str):
            return value.encode()
        if _is_base64(value):
            text = value["b64"].rstrip("=")
            return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:  # A lone surrogate, or invalid base64.
        pass
    raise _invalid_value(value, "is not a string, or not formatted correctly for base64 data")


def dimensions(info: Mapping[str, Any]) -> list[int]:
    """Returns the shape of an input or output, with -1 for any size."""
    return [int(dim["size"]) for dim in info["tensor_shape"].get("dim", ())]


def count_rows(tensors: Tensors) -> int:
    """Returns the number of rows of inputs or outputs."""
    return max((len(tensor) for tensor in tensors.values() if tensor.ndim), default=1)


def _bad_request(message: str) -> RestError:
    return RestError(400, message)


def _invalid_value(value: Any, problem: str) -> RestError:
    """Returns the error for an invalid JSON value."""
    return _bad_request(f"JSON Value: {_format_value(value)} {problem}")


def _format_value(value: Any) -> str:
    """Formats and shortens a JSON value for an error message."""
    text = "".join(itertools.islice(json.JSONEncoder().iterencode(value), _MAX_VALUE_LENGTH))
    return text if len(text) < _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}..."


# === Replies ===


def predict_reply(outputs: Tensors, *, is_row: bool, is_single: bool) -> dict[str, Any]:
    """Returns the reply to ``:predict``, which ``encode`` converts to JSON.

    Args:
        outputs: Outputs by name.
        is_row: Whether the reply is in row format (``predictions``).
        is_single: Whether the signature has only one output, whose name the reply omits.
    """
    values = sum(array.size for array in outputs.values())
    if values > _MAX_VALUES:
        raise RestError(
            429,
            f"The reply would have {values:,} values, more than {_MAX_VALUES:,}. Send fewer rows.",
        )
    rows = {array.shape[:1] for array in outputs.values()}
    if is_row and (len(rows) > 1 or () in rows):
        raise _bad_request(
            f"Tensor names: {', '.join(sorted(outputs))} have inconsistent batch size. Send "
            "'inputs' instead of 'instances'."
        )
    columns = {name: _column(name, array) for name, array in sorted(outputs.items())}
    if is_single:
        return {"predictions" if is_row else "outputs": next(iter(columns.values()))}
    if not is_row:
        return {"outputs": columns}
    by_row = zip(*columns.values(), strict=True)
    return {"predictions": [dict(zip(columns, row, strict=True)) for row in by_row]}


def _examples_reply(outputs: Tensors) -> dict[str, Any]:
    """Returns the reply with the classes and scores, or the value, of each example."""
    if "outputs" in outputs:
        return {"results": to_json_values(outputs["outputs"])}
    scores = to_json_values(outputs["scores"])
    classes = outputs.get("classes")
    names = [[""] * len(row) for row in scores] if classes is None else to_json_values(classes)
    return {
        "results": [
            [list(pair) for pair in zip(*row, strict=True)]
            for row in zip(names, scores, strict=True)
        ]
    }


def _column(name: str, array: np.ndarray) -> Any:
    if array.dtype == object and name.endswith("_bytes"):
        return _as_base64(array.tolist())
    return to_json_values(array)


def to_json_values(array: np.ndarray) -> Any:
    """Converts an array for ``encode``, with the same digits as ``replay.to_json``."""
    is_float = array.dtype in (np.float32, np.float64)
    if array.dtype.kind in "iub" or (is_float and np.isfinite(array).all()):
        return np.ascontiguousarray(array) if array.ndim else array[()]
    from bert_tf.saved_models.replay import to_json  # Imports TensorFlow.

    return _encode_non_finite(to_json(array))


def _encode_non_finite(value: Any) -> Any:
    """Converts NaN and infinities to the literals that TensorFlow Serving writes."""
    if isinstance(value, list):
        return [_encode_non_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return orjson.Fragment(json.dumps(value))
    return value


def _as_base64(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_base64(item) for item in value]
    return {"b64": base64.b64encode(value).decode("ascii")}


def encode(reply: dict[str, Any]) -> bytes:
    """Encodes a reply, which may contain arrays from ``to_json_values``, as JSON."""
    return orjson.dumps(reply, option=orjson.OPT_SERIALIZE_NUMPY)
