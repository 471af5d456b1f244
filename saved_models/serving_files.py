"""Files next to the SavedModel in an export: samples, and configuration of TensorFlow Serving.

Samples are examples for clients, warm-up requests for the server, and input for ``verification``.
Each sample has three files: SIGNATURE.N.json with the REST bodies, and SIGNATURE.N.request.pb and
SIGNATURE.N.response.pb with the ``PredictRequest`` and ``PredictResponse``.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import named_tensor_pb2

from bert_tf.answering.export_options import ExportOptions
from bert_tf.answering.signatures import Requests, Signature

from .replay import to_array, to_json

_BATCHING = """\
# Batching configuration for TensorFlow Serving. Start the server with
#   --enable_batching --enable_per_model_batching_parameters
# or, to use a copy for all models, with --enable_batching --batching_parameters_file=FILE.

# Maximum number of rows per batch. Larger requests are rejected.
max_batch_size {{ value: {largest_batch} }}
{allowed}
# Maximum number of microseconds that the first request of a batch waits for others. The default is
# short compared with the time per row; a longer time fills batches better if requests are rare.
batch_timeout_micros {{ value: 2000 }}

# Maximum number of waiting batches; further requests fail immediately (UNAVAILABLE).
max_enqueued_batches {{ value: 100 }}

# num_batch_threads, the number of parallel batches, is by default the number of CPU cores. All
# models of a server share it, and it is only read from --batching_parameters_file.

# Do not set enable_large_batch_splitting: the parts of a split request would be padded to different
# sizes, and the server could not concatenate their outputs.

# Do not set pad_variable_length_inputs: it pads with the first value of a tensor, which for
# input_mask is 1, the value of real tokens.
{inputs}"""
_ALLOWED = """
# Batch sizes. Smaller batches are padded with copies of a row; outputs for copies are dropped.
"""
_STRING_INPUTS = "# All inputs are one string per row, so any requests can share a batch.\n"
_TENSOR_INPUTS = """\
#
# With batching, requests in a batch need equal sizes in all other dimensions; otherwise all of them
# fail (FAILED_PRECONDITION). Clients must pad these inputs to the same size:
# {names}.
# Inputs of one string per row can share a batch with any other request.
"""

# ``ModelServerConfig`` template for one model.
MODEL_CONFIG = """\
# For tensorflow_model_server --model_config_file=FILE. base_path is the parent directory of the
# versions, as seen by the server (in a container, the mount point).
model_config_list {{
  config {{
    name: "{name}"
    base_path: "/models/{name}"
    model_platform: "tensorflow"
  }}
}}
"""


def batching_parameters(signatures: Mapping[str, Signature], options: ExportOptions) -> str:
    """Returns ``BatchingParameters`` in text format with comments."""
    variable_inputs = [
        f"`{key}` of `{name}`"
        for name, signature in signatures.items()
        for key, spec in signature.inputs.items()
        if len(spec.shape) > 1
    ]
    inputs = _STRING_INPUTS
    if variable_inputs:
        inputs = _TENSOR_INPUTS.format(names=",\n# ".join(variable_inputs))
    allowed = [f"allowed_batch_sizes: {size}\n" for size in options.allowed_batch_sizes]
    return _BATCHING.format(
        largest_batch=options.largest_batch,
        allowed="".join([_ALLOWED, *allowed]) if allowed else "",
        inputs=inputs,
    )


def limits(options: ExportOptions) -> str:
    """Returns a description of request limits for the model card, or an empty string."""
    limits_by_unit = {
        "rows per request": options.max_rows,
        "bytes of strings per row": options.max_bytes,
    }
    parts = [f"{limit:,} {unit}" for unit, limit in limits_by_unit.items() if limit is not None]
    if not parts:
        return ""
    return (
        f"Limits: {', '.join(parts)}. Larger requests fail (INVALID_ARGUMENT), together with all "
        "requests in their batch."
    )


# === Samples ===


@dataclasses.dataclass(frozen=True)
class Sample:
    """Request to a signature and its response.

    Attributes:
        signature: Name of the signature.
        number: Index among the samples of the signature.
        inputs: Inputs by name. Strings are ``bytes`` in object arrays.
        outputs: Outputs by name.
    """

    signature: str
    number: int
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]

    @property
    def batch_size(self) -> int:
        """Number of rows of the request."""
        return len(next(iter(self.inputs.values())))

    def rest_request(self, rows: int | None = None) -> dict[str, Any]:
        """Returns the body of the REST request in column format, for the first ``rows``."""
        inputs = {name: to_json(value[:rows]) for name, value in self.inputs.items()}
        return {"signature_name": self.signature, "inputs": inputs}

    def rest_response(self) -> dict[str, Any]:
        """Returns the body of the REST response, which omits the name of a single output."""
        outputs = {name: to_json(value) for name, value in self.outputs.items()}
        return {"outputs": outputs if len(outputs) > 1 else next(iter(outputs.values()))}


def run_samples(
    name: str, function: Callable[..., Any], specs: Mapping[str, tf.TensorSpec], requests: Requests
) -> list[Sample]:
    """Runs a signature with requests whose inputs have the given ``specs``."""
    samples = []
    for number, columns in enumerate(requests):
        inputs = {key: to_array(values, specs[key]) for key, values in columns.items()}
        answer = function(**{key: tf.constant(value) for key, value in inputs.items()})
        outputs = {key: value.numpy() for key, value in answer.items()}
        for key, value in outputs.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise ValueError(
                    f"Output {key} of the signature {name} is not finite (sample {number}). The "
                    "weights are damaged, or training diverged."
                )
        samples.append(Sample(name, number, inputs, outputs))
    return samples


def write_samples(folder: str, samples: Iterable[Sample], model_name: str) -> None:
    """Writes samples into a new directory."""
    tf.io.gfile.makedirs(folder)
    for sample in samples:
        content = {
            "signature_name": sample.signature,
            "request": sample.rest_request(),
            "response": sample.rest_response(),
        }
        names = (model_name, sample.signature)
        files = {
            "json": f"{json.dumps(content, ensure_ascii=False)}\n".encode(),
            "request.pb": predict_request(*names, sample.inputs),
            "response.pb": predict_response(*names, sample.outputs),
        }
        for suffix, written in files.items():
            path = os.path.join(folder, f"{sample.signature}.{sample.number}.{suffix}")
            with tf.io.gfile.GFile(path, "wb") as file:
                file.write(written)


def write_warm_up(
    path: str, samples: Iterable[Sample], model_name: str, largest_batch: int
) -> None:
    """Writes the warm-up requests of TensorFlow Serving, TFRecords of ``PredictionLog``.

    Only the first sample of each signature is written, because further samples would delay every
    start. It is omitted if it has more rows than a server with batching accepts.
    """
    with tf.io.TFRecordWriter(path) as writer:
        for sample in samples:
            if sample.number == 0 and 0 < sample.batch_size <= largest_batch:
                request = predict_request(model_name, sample.signature, sample.inputs)
                writer.write(prediction_log(request))


def predict_request(
    model_name: str, signature_name: str, inputs: Mapping[str, np.ndarray]
) -> bytes:
    """Encodes a ``PredictRequest`` of the gRPC API; strings are ``bytes`` in object arrays."""
    return _field(1, _model_spec(model_name, signature_name)) + _tensors(2, inputs)


def predict_response(
    model_name: str, signature_name: str, outputs: Mapping[str, np.ndarray]
) -> bytes:
    """Encodes a ``PredictResponse`` of the gRPC API."""
    return _tensors(1, outputs) + _field(2, _model_spec(model_name, signature_name))


def prediction_log(request: bytes) -> bytes:
    """Encodes a ``PredictionLog`` with a ``PredictRequest``, a warm-up record."""
    return _field(6, _field(1, request))


def _model_spec(model_name: str, signature_name: str) -> bytes:
    return _field(1, model_name.encode()) + _field(3, signature_name.encode())


def _tensors(number: int, tensors: Mapping[str, np.ndarray]) -> bytes:
    """Encodes a field of type ``map<string, TensorProto>``."""
    entries = []
    for name, array in sorted(tensors.items()):
        proto = tf.make_tensor_proto(array, tf.dtypes.as_dtype(array.dtype), array.shape)
        entries.append(named_tensor_pb2.NamedTensorProto(name=name, tensor=proto))
    return b"".join(_field(number, entry.SerializeToString()) for entry in entries)


def _field(number: int, content: bytes) -> bytes:
    """Encodes a field of strings or messages (wire type 2)."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Encodes an integer as a varint."""
    low_bits, rest = value & 0x7F, value >> 7
    return bytes([low_bits | 0x80]) + _varint(rest) if rest else bytes([low_bits])
