"""The endpoints that TensorFlow Hub's text encoders have, for whoever loads an export in Python.

Beside the signatures, which are flat and for servers, a loaded export has functions as attributes
that take and return what a Hub encoder does
(https://www.tensorflow.org/hub/common_saved_model_apis/text):

    loaded = tf.saved_model.load(path)  # keep it: it holds the variables
    states = loaded.encoder(dict(input_word_ids=..., input_mask=..., input_type_ids=...))

``keras.layers.TFSMLayer(path, call_endpoint="encoder", call_training_endpoint="encoder_training")``
is a layer that can be trained further. Keras names its variables with a colon, so that optimizers
with slots of their own (Adam) cannot be built on it; ``keras.optimizers.SGD`` can.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf import features

from .served import Served
from .tokens import block_name, flat_outputs

ENCODER = "encoder"
ENCODER_TRAINING = "encoder_training"


def endpoints(served: Served) -> dict[str, Any]:
    """The functions that a loaded export has as attributes, traced.

    Each takes a dict of ``input_word_ids``, ``input_mask`` and ``input_type_ids``, (B, S) int32,
    and returns a dict of float32: ``sequence_output`` (B, S, H); ``encoder_outputs``, a list of
    every block's (B, S, H), the lowest first; ``pooled_output`` (B, H) where there is a pooler;
    ``default`` (B, H), the pooled output, or without a pooler the last block's state of the first
    token.

    Both functions read the variables of a float32 storage, so that what is trained through one is
    seen by the other; signatures that compute in bfloat16 read a copy, made when the export is
    loaded.

    Args:
        served: the model.

    Returns:
        ``encoder``, at inference; and where the weights are stored in float32 ``encoder_training``,
        with dropout: what was rounded is no start for further training.
    """
    if served.options.weights != "float32":
        return {ENCODER: _endpoint(served.encode)}
    encoder = served.model.encoder
    reads_variables = served.options.precision == "float32"
    return {
        ENCODER: _endpoint(
            served.encode if reads_variables else lambda inputs: encoder(inputs, training=False)
        ),
        ENCODER_TRAINING: _endpoint(lambda inputs: encoder(inputs, training=True)),
    }


def _endpoint(encode: Callable[[Mapping[str, tf.Tensor]], Any]) -> Any:
    specification = {
        key: tf.TensorSpec([None, None], feature.dtype, name=key)
        for key, feature in features.ENCODER_FEATURES.items()
    }

    def run(inputs: Mapping[str, tf.Tensor]) -> dict[str, Any]:
        outputs = encode(inputs)
        found: dict[str, Any] = flat_outputs(outputs)
        blocks = range(len(outputs[features.ENCODER_OUTPUTS]))
        found[features.ENCODER_OUTPUTS] = [found.pop(block_name(number)) for number in blocks]
        return found

    return tf.function(run, input_signature=[specification], autograph=False)
