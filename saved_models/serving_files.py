"""The files of an export that TensorFlow Serving itself reads, beside the SavedModel."""

import re
from collections.abc import Iterable, Mapping

import tensorflow as tf

from bert_tf.untrusted import quote

from .samples import Sample
from .served import Signature
from .serving_protos import predict_request, prediction_log

# Where the server looks for them, in a version's directory.
WARM_UP = "assets.extra/tf_serving_warmup_requests"
BATCHING = "batching_params.pbtxt"
# What a person passes to the server, of some version's directory.
MODEL_CONFIG = "assets.extra/model.config"

_LARGEST_BATCH = 64
_BATCHING = """\
# How TensorFlow Serving joins requests that arrive together into one batch. It reads this file
# when it is started with
#   --enable_batching --enable_per_model_batching_parameters
# or, with --enable_batching --batching_parameters_file=FILE, a copy of it for all its models.

# The most rows of a batch. A request of more rows is refused.
max_batch_size {{ value: {largest_batch} }}

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
_INPUTS_OF_ONE_SIZE = "# Every input is one string a row, so any requests can share a batch.\n"
_INPUTS_OF_SEVERAL_SIZES = """\
#
# So with batching on, requests that share a batch need equal sizes behind the batch, or all of them
# fail (FAILED_PRECONDITION). That concerns {names}:
# their clients pad to one size. Inputs of one string a row share batches with any.
"""

_MODEL_CONFIG = """\
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


def check_name(name: str) -> None:
    """Checks that a model's name can stand in an address and be a folder.

    Raises:
        ValueError: it cannot.

    >>> check_name("my model")
    Traceback (most recent call last):
    ...
    ValueError: The name is 'my model': expected letters, digits, ".", "_" and "-", a letter or a \
digit first, as it is part of the address that clients ask.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", name):
        raise ValueError(
            f'The name is {quote(name)}: expected letters, digits, ".", "_" and "-", a letter or a '
            "digit first, as it is part of the address that clients ask."
        )


def write_warm_up(path: str, samples: Iterable[Sample], model_name: str) -> None:
    """Writes the requests that the server asks itself before it takes a version into service.

    Of each signature that is its first sample, of a few short rows: it is what runs a graph once
    that the first client would wait for. The longest rows would have every start of a server wait
    for as long as they take. Samples without rows, or of more than a batch has, are left out: a
    server that batches refuses them, and with a refused request the version.

    Args:
        path: the file, TFRecords of ``PredictionLog``.
        samples: the requests; their answers are not written.
        model_name: what the server calls the model.
    """
    with tf.io.TFRecordWriter(path) as writer:
        for sample in samples:
            if sample.number == 0 and 0 < sample.batch_size <= _LARGEST_BATCH:
                request = predict_request(model_name, sample.signature, sample.inputs)
                writer.write(prediction_log(request))


def batching_parameters(signatures: Mapping[str, Signature]) -> str:
    """The text of ``BatchingParameters``, commented.

    Args:
        signatures: by name.
    """
    of_several_sizes = [
        f"`{key}` of `{name}`"
        for name, signature in signatures.items()
        for key, spec in signature.inputs.items()
        if len(spec.shape) > 1
    ]
    inputs = _INPUTS_OF_ONE_SIZE
    if of_several_sizes:
        inputs = _INPUTS_OF_SEVERAL_SIZES.format(names=",\n# ".join(of_several_sizes))
    return _BATCHING.format(largest_batch=_LARGEST_BATCH, inputs=inputs)


def model_config(name: str) -> str:
    """The text of a ``ModelServerConfig`` for one model, commented."""
    return _MODEL_CONFIG.format(name=name)
