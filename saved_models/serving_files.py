"""The files of an export next to the SavedModel: samples, and what a server reads.

Samples show a client's author what to send, the server asks itself some before it takes a version
into service, and ``verification`` asks them again elsewhere. Each is three files, N counted from 0:
SIGNATURE.N.json has REST's bodies, SIGNATURE.N.request.pb and SIGNATURE.N.response.pb have the
``PredictRequest`` and the ``PredictResponse``.
"""

import json
import os
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import named_tensor_pb2

from bert_tf.answering.options import ExportOptions
from bert_tf.answering.signatures import Signature

from .samples import Sample

_BATCHING = """\
# How TensorFlow Serving joins requests that arrive together into one batch. It reads this file
# when it is started with
#   --enable_batching --enable_per_model_batching_parameters
# or, with --enable_batching --batching_parameters_file=FILE, a copy of it for all its models.

# The most rows of a batch. A request of more rows is refused.
max_batch_size {{ value: {largest_batch} }}
{allowed}
# How long the first request of a batch waits for others, in microseconds: short beside the time
# that a row takes. Longer fills batches better where requests are rare.
batch_timeout_micros {{ value: 2000 }}

# How many batches may wait; a request that finds the queue full fails at once (UNAVAILABLE).
max_enqueued_batches {{ value: 100 }}

# num_batch_threads, the batches that are run at once, is one for each processor by default. The
# server has one pool for all its models, and takes it from --batching_parameters_file alone.

# enable_large_batch_splitting has to stay off: the parts of a split request are padded apart, to
# different sizes, and the server could not join their answers.

# pad_variable_length_inputs has to stay off: it pads with the first number of a tensor, which for
# input_mask is 1, the mark of a real token.
{inputs}"""
_ALLOWED = """
# The sizes that batches are padded to, by copies of a row, whose answers nobody gets.
"""
_INPUTS_OF_ONE_SIZE = "# Every input is one string a row, so any requests can share a batch.\n"
_INPUTS_OF_SEVERAL_SIZES = """\
#
# So with batching on, requests that share a batch need equal sizes in all other dimensions, or all
# of them fail (FAILED_PRECONDITION). That concerns {names}:
# their clients pad to one size. Inputs of one string a row share batches with any.
"""

# A ``ModelServerConfig`` of one model, by its name.
MODEL_CONFIG = """\
# For tensorflow_model_server --model_config_file=FILE. base_path is the directory above the
# versions' numbered ones, as the server sees it: in a container, where it was mounted.
model_config_list {{
  config {{
    name: "{name}"
    base_path: "/models/{name}"
    model_platform: "tensorflow"
  }}
}}
"""


def batching_parameters(signatures: Mapping[str, Signature], options: ExportOptions) -> str:
    """The text of ``BatchingParameters``, commented."""
    variable_inputs = [
        f"`{key}` of `{name}`"
        for name, signature in signatures.items()
        for key, spec in signature.inputs.items()
        if len(spec.shape) > 1
    ]
    inputs = _INPUTS_OF_ONE_SIZE
    if variable_inputs:
        inputs = _INPUTS_OF_SEVERAL_SIZES.format(names=",\n# ".join(variable_inputs))
    allowed = [f"allowed_batch_sizes: {size}\n" for size in options.allowed_batch_sizes]
    return _BATCHING.format(
        largest_batch=options.largest_batch,
        allowed="".join([_ALLOWED, *allowed]) if allowed else "",
        inputs=inputs,
    )


def limits(options: ExportOptions) -> str:
    """The limits of requests, for the model card; "" where there are none."""
    limits_by_unit = {
        "rows in a request": options.max_rows,
        "bytes in a row's strings": options.max_bytes,
    }
    stated = [f"{limit:,} {unit}" for unit, limit in limits_by_unit.items() if limit is not None]
    if not stated:
        return ""
    return (
        f"Takes at most {', '.join(stated)}, and refuses more (INVALID_ARGUMENT). A request beyond "
        "a limit fails all requests that the server has joined with it into a batch."
    )


# === Samples ===


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
    """Writes the requests that the server asks itself, TFRecords of ``PredictionLog``.

    They are each signature's first sample, as long ones would delay every start. A server that
    batches refuses a version over a sample of no rows, or of more than a batch has.
    """
    with tf.io.TFRecordWriter(path) as writer:
        for sample in samples:
            if sample.number == 0 and 0 < sample.batch_size <= largest_batch:
                request = predict_request(model_name, sample.signature, sample.inputs)
                writer.write(prediction_log(request))


def predict_request(
    model_name: str, signature_name: str, inputs: Mapping[str, np.ndarray]
) -> bytes:
    """A ``PredictRequest``, as clients send it over gRPC; strings are objects, ``bytes`` each."""
    return _field(1, _model_spec(model_name, signature_name)) + _tensors(2, inputs)


def predict_response(
    model_name: str, signature_name: str, outputs: Mapping[str, np.ndarray]
) -> bytes:
    """A ``PredictResponse``, as the server answers; arguments as ``predict_request``'s."""
    return _tensors(1, outputs) + _field(2, _model_spec(model_name, signature_name))


def prediction_log(request: bytes) -> bytes:
    """A ``PredictionLog`` of a ``PredictRequest``: a record of warm-up requests."""
    return _field(6, _field(1, request))


def _model_spec(model_name: str, signature_name: str) -> bytes:
    return _field(1, model_name.encode()) + _field(3, signature_name.encode())


def _tensors(number: int, tensors: Mapping[str, np.ndarray]) -> bytes:
    """A field of type ``map<string, TensorProto>``, as entries, whose form this message has."""
    entries = []
    for name, array in sorted(tensors.items()):
        proto = tf.make_tensor_proto(array, tf.dtypes.as_dtype(array.dtype), array.shape)
        entries.append(named_tensor_pb2.NamedTensorProto(name=name, tensor=proto))
    return b"".join(_field(number, entry.SerializeToString()) for entry in entries)


def _field(number: int, content: bytes) -> bytes:
    """A field of strings or messages, whose wire type is 2."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; all bytes but the last have the eighth set."""
    low_bits, rest = value & 0x7F, value >> 7
    return bytes([low_bits | 0x80]) + _varint(rest) if rest else bytes([low_bits])
