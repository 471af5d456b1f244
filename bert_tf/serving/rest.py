"""TensorFlow Serving's REST interface: addresses, requests to tensors, tensors to replies, errors.

Clients cannot tell this server from that one, so its sentences and codes are Serving's. Source:
https://www.tensorflow.org/tfx/serving/api_rest, and of TensorFlow Serving http_rest_api_util.cc,
json_tensor.cc and get_model_status_impl.cc. Nothing here loads TensorFlow.

A signature is a ``SignatureDef`` as JSON, as the metadata have it.
"""

import base64
import dataclasses
import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.saved_models.replay import to_json
from bert_tf.untrusted import parse_json

SERVING_DEFAULT = "serving_default"
Tensors = dict[str, np.ndarray]
_POSTED = re.compile(
    r"/v1/models/([^/:]+)(?:/versions/([0-9]+)|/labels/([^/:]+))?:(classify|regress|predict)", re.I
)
_GOT = re.compile(
    r"/v1/models(?:/([^/:]+))?(?:/versions/([0-9]+)|/labels/([^/:]+))?(?:/(metadata))?", re.I
)
_LARGEST_VERSION = 2**63 - 1
_LONGEST_VALUE = 200
_MOST_DIMENSIONS = 32
# Numbers of an answer: some 200 MB as JSON.
_MOST_VALUES = 10_000_000
_DTYPES: dict[str, Any] = {
    **{"DT_STRING": object, "DT_BOOL": np.bool_, "DT_FLOAT": np.float32, "DT_DOUBLE": np.float64},
    **{f"DT_{kind}INT{size}": np.dtype(f"{kind}int{size}".lower())
       for kind in ("", "U") for size in (8, 16, 32, 64)},
}  # fmt: skip
_JSON_TYPES = {dict: "Object", list: "Array", str: "String", int: "Number", float: "Number"}
_CONSTANTS = {None: "Null", True: "True", False: "False"}


class RestError(Exception):
    """A reply that is an error, by HTTP's status code and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def _invalid(sentence: str) -> RestError:
    return RestError(400, sentence)


@dataclasses.dataclass(frozen=True)
class Request:
    """A request to a signature; the inputs' strings are ``bytes``, in arrays of objects."""

    signature: str
    inputs: Tensors
    is_row: bool  # in the format of rows: predictions, not outputs


# === Addresses ===


def action_of(method: str, path: str, name: str, version: int) -> str:
    """The action that an address asks of the one model that is served under a name.

    One of ``status``, ``metadata``, ``predict``, ``classify`` and ``regress``.
    """
    pattern = {"POST": _POSTED, "GET": _GOT}.get(method)
    match = pattern and pattern.fullmatch(path)
    if not match:
        raise _invalid(f"Malformed request: {method} {path}")
    asked, number, label, action = match.groups()
    action = (action or "status").lower()
    if asked is None:
        raise _invalid("Missing model name in request.")
    if number and int(number[:30]) > _LARGEST_VERSION:
        raise _invalid(f"Failed to convert version: {number} to numeric.")
    if label:
        raise _invalid(f"Unrecognized servable version label: {label}")
    if asked != name or (number and int(number) != version):
        if action != "status":
            which = f"Specific({asked}, {int(number)})" if number else f"Latest({asked})"
            raise RestError(404, f"Servable not found for request: {which}")
        which = f"version {int(number)}" if number else "any versions"
        raise RestError(404, f"Could not find {which} of model {asked}")
    return action


def status_reply(version: int) -> dict[str, Any]:
    """Status of a model whose version is served."""
    status = {"error_code": "OK", "error_message": ""}
    return {
        "model_version_status": [
            {"version": str(version), "state": "AVAILABLE", "status": status}
        ]
    }  # fmt: skip


def metadata_reply(name: str, version: int, signatures: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of a model: its signatures."""
    return {
        "model_spec": {"name": name, "signature_name": "", "version": str(version)},
        "metadata": {"signature_def": {"signature_def": dict(signatures)}},
    }


# === Requests ===


def parse_predict(body: bytes, signatures: Mapping[str, Any]) -> Request:
    """The request of a body of ``:predict``."""
    document = document_of(body)
    name = signature_name_of(document)
    if name not in signatures:
        raise _invalid(f'Serving signature name: "{cut(name)}" not found in signature def')
    inputs = signatures[name]["inputs"]
    if not inputs:
        raise _invalid(f"Failed to get input map for signature: {name}")
    is_row = "instances" in document
    if is_row and "inputs" in document:
        sentence = "Not formatted correctly expecting only one of 'inputs' or 'instances' keys"
        raise _invalid(f"JSON Value: {shown(document)} {sentence} to exist ")
    if is_row:
        tensors = _from_instances(document, inputs)
    elif "inputs" in document:
        tensors = _from_inputs(document["inputs"], inputs)
    else:
        raise _invalid("Missing 'inputs' or 'instances' key")
    for key, tensor in tensors.items():
        _check_shape(key, tensor, inputs[key])
    return Request(name, tensors, is_row)


def document_of(body: bytes) -> dict[str, Any]:
    """A body's JSON, an object."""
    if not body:
        raise _invalid("JSON Parse error: The document is empty")
    try:
        document = parse_json(body, "the body")
    except ValueError as error:
        raise _invalid(f"JSON Parse error: {error}") from error
    if not isinstance(document, dict):
        raise _invalid(f"JSON Value: {shown(document)} Is not object")
    return document


def signature_name_of(document: dict[str, Any]) -> str:
    """The signature that a request names, or the default."""
    name = document.get("signature_name", SERVING_DEFAULT)
    if not isinstance(name, str):
        raise _invalid(
            f"JSON Value: {shown(document)} not formatted correctly. 'signature_name' key must be "
            "a string value."
        )
    return name or SERVING_DEFAULT


def _from_inputs(value: Any, inputs: Mapping[str, Any]) -> Tensors:
    if isinstance(value, dict) and not is_base64(value):
        for name in inputs:
            if name not in value:
                raise _invalid(f"Missing named input: {name} in 'inputs' object.")
        return {name: _tensor(value[name], info) for name, info in inputs.items()}
    if len(inputs) > 1:
        raise _invalid(
            "inputs is a plain value/list, but expecting an object as multiple input tensors "
            "required as per tensorinfo_map"
        )
    return {name: _tensor(value, info) for name, info in inputs.items()}


def _from_instances(document: dict[str, Any], inputs: Mapping[str, Any]) -> Tensors:
    instances = document["instances"]
    if not isinstance(instances, list):
        raise _invalid(
            f"JSON Value: {shown(document)} Excepting 'instances' to be an list/array"
        )  # sic
    if not instances:
        raise _invalid(f"JSON Value: {shown(document)} No values in 'instances' array")
    are_objects = isinstance(instances[0], dict) and not is_base64(instances[0])
    if len(inputs) > 1 and not isinstance(instances[0], dict):
        raise _invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            "required as per tensorinfo_map"
        )
    columns: dict[str, list[np.ndarray]] = {name: [] for name in inputs}
    for number, instance in enumerate(instances):
        if (isinstance(instance, dict) and not is_base64(instance)) != are_objects:
            expected = "object but got list" if are_objects else "value/list but got object"
            raise _invalid(f"Expecting {expected} at item {number} of input list")
        named = instance if are_objects else {next(iter(inputs)): instance}
        for name, value in named.items():
            try:
                _add_instance(columns, name, value, inputs)
            except RestError as error:
                of_key = f" key: {cut(name)}" * are_objects
                raise _invalid(
                    f"Failed to process element: {number}{of_key} of 'instances' list. Error: "
                    f"INVALID_ARGUMENT: {error}"
                ) from error
        if named.keys() != inputs.keys():
            raise _invalid(
                f"Failed to process element: {number} of 'instances' list. JSON object: "
                f"{shown(instance)} keys must be equal to: {','.join(sorted(inputs))}"
            )
    return {name: np.stack(column) for name, column in columns.items()}


def _add_instance(
    columns: dict[str, list[np.ndarray]], name: str, value: Any, inputs: Mapping[str, Any]
) -> None:
    if name not in inputs:
        raise _invalid(f"JSON object: does not have named input: {cut(name)}")
    tensor, column = _tensor(value, inputs[name]), columns[name]
    if column and column[0].size != tensor.size:
        raise _invalid(f"Expecting tensor size: {column[0].size} but got: {tensor.size}")
    if column and column[0].shape != tensor.shape:
        raise _invalid(
            f"Expecting shape {_listed(column[0].shape)} but got: {_listed(tensor.shape)}"
        )
    column.append(tensor)


def _tensor(value: Any, info: Mapping[str, Any]) -> np.ndarray:
    """A JSON value as an input's array, whose shape its first elements tell."""
    dtype = info["dtype"]
    if dtype not in _DTYPES:
        raise RestError(501, f"Conversion of JSON Value: {shown(value)} to type: {_name(dtype)}")
    shape: list[int] = []
    first = value
    while isinstance(first, list):
        shape.append(len(first))
        if len(shape) > _MOST_DIMENSIONS:
            raise _invalid(f"Encountered list at unexpected level: {len(shape)}")
        first = first[0] if first else None
    values: list[Any] = []
    _fill(value, 0, shape, dtype, values)
    array = np.empty(len(values), _DTYPES[dtype])
    array[:] = values
    return array.reshape(shape)


def _fill(value: Any, level: int, shape: list[int], dtype: str, values: list[Any]) -> None:
    if not isinstance(value, list):
        if level != len(shape):
            raise _invalid(
                f"JSON Value: {shown(value)} found at incorrect level: {level + 1} in the JSON "
                f"DOM. Expected at level: {len(shape)}"
            )
        values.append(scalar(value, dtype))
        return
    if level >= len(shape):
        raise _invalid(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(value) != shape[level]:
        raise _invalid(
            f"Encountered list at unexpected size: {len(value)} at level: {level} expected size: "
            f"{shape[level]}"
        )
    for item in value:
        _fill(item, level + 1, shape, dtype, values)


def scalar(value: Any, dtype: str) -> Any:
    """A JSON value as one of a tensor of a ``dtype``, such as ``DT_STRING``."""
    kind = np.dtype(_DTYPES[dtype])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind.kind == "O" and isinstance(value, dict):
        return from_base64(value)
    if kind.kind == "O" and isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise _invalid("JSON Parse error: The surrogate pair in string is invalid.") from error
    if kind == np.bool_ and isinstance(value, bool):
        return value
    if kind.kind in "iu" and type(value) is int and _fits(value, kind):
        return value
    if kind.kind == "f" and is_number:
        _check_lossless(value, kind)
        return value
    raise _invalid(
        f"JSON Value: {shown(value)} Type: {type_name_of(value)} is not of expected type: "
        f"{_name(dtype)}"
    )


def type_name_of(value: Any) -> str:
    """The name of a JSON value's type."""
    if value is None or isinstance(value, bool):
        return _CONSTANTS[value]
    return _JSON_TYPES[type(value)]


def _fits(value: int, kind: np.dtype) -> bool:
    return bool(np.iinfo(kind).min <= value <= np.iinfo(kind).max)


def _check_lossless(value: Any, kind: np.dtype) -> None:
    if isinstance(value, int):
        fits = abs(value) < 2 ** (np.finfo(kind).nmant + 1)
    else:
        fits = not math.isfinite(value) or abs(value) <= float(np.finfo(kind).max)
    if not fits:
        target = "float" if kind == np.float32 else "double"
        raise _invalid(
            f"Cannot convert JSON value: {shown(value)} to {target} without loss of precision."
        )


def is_base64(value: Any) -> bool:
    """True if a JSON value stands for bytes."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def from_base64(value: dict[str, Any]) -> bytes:
    """The bytes that a JSON value stands for."""
    if not is_base64(value):
        raise _invalid(f"JSON Value: {shown(value)} not formatted correctly for base64 data")
    text = value["b64"].rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:
        raise _invalid("Unable to base64 decode") from error


def _check_shape(name: str, tensor: np.ndarray, info: Mapping[str, Any]) -> None:
    if info["tensor_shape"]["unknown_rank"]:
        return
    sizes = dimensions(info)
    is_right = len(sizes) == tensor.ndim and all(
        size in (-1, got) for size, got in zip(sizes, tensor.shape, strict=True)
    )
    if not is_right:
        raise _invalid(
            f"Expected {name} of shape {_listed(sizes)}, -1 for any size, and got "
            f"{_listed(tensor.shape)}."
        )


def dimensions(info: Mapping[str, Any]) -> list[int]:
    """Sizes of an input or output of a signature; -1 is any."""
    return [int(dim["size"]) for dim in info["tensor_shape"].get("dim", ())]


def _listed(sizes: Any) -> str:
    return f"[{','.join(map(str, sizes))}]"


def _name(dtype: str) -> str:
    return dtype.removeprefix("DT_").lower()


def shown(value: Any) -> str:
    """A JSON value, or its beginning, as errors show it."""
    return cut(json.dumps(value, indent=4, ensure_ascii=True))


def cut(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


# === Replies ===


def predict_reply(outputs: Tensors, *, is_row: bool) -> dict[str, Any]:
    """The reply to ``:predict``, without the name of a single output."""
    most = sum(array.size for array in outputs.values())
    if most > _MOST_VALUES:
        raise RestError(
            429,
            f"The answer has {most:,} values, and the most is {_MOST_VALUES:,}: ask fewer rows.",
        )
    columns = {name: _column(name, array) for name, array in sorted(outputs.items())}
    if not is_row:
        return {"outputs": columns if len(columns) > 1 else next(iter(columns.values()))}
    rows = -1
    for name, array in sorted(outputs.items()):
        if not array.ndim:
            raise _invalid(f"Tensor name: {name} has no shape information ")
        if rows not in (-1, len(array)):
            raise _invalid(
                f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {rows}"
            )
        rows = len(array)
    if len(columns) == 1:
        return {"predictions": next(iter(columns.values()))}
    values = zip(*columns.values(), strict=True)
    return {"predictions": [dict(zip(columns, row, strict=True)) for row in values]}


def _column(name: str, array: np.ndarray) -> Any:
    if array.dtype == object and name.endswith("_bytes"):
        return _as_base64(array.tolist())
    return to_json(array)


def _as_base64(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_base64(item) for item in value]
    return {"b64": base64.b64encode(value).decode("ascii")}
