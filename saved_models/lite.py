"""The signature ``tokens`` for TF Lite, whose built-in operations are all that it takes."""

import os
import tempfile
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf import features
from bert_tf.choices import QUANTIZATIONS
from bert_tf.files import check_new
from bert_tf.modeling import BertEncoder

from .embeddings import flat_outputs
from .precision import copy_model
from .served import Served
from .serving_files import write_bytes

SIGNATURE = "tokens"


def write_tokens(served: Served, path: str, quantize: str = "none") -> int:
    """Writes a model's encoder in float32, for any batch and length; returns the file's size.

    With "int8" the products of matrices are in int8 too ("dynamic range" quantisation).
    """
    if quantize not in QUANTIZATIONS:
        raise ValueError(f"quantize is {quantize!r}: expected one of {', '.join(QUANTIZATIONS)}.")
    check_new(path)
    converted = _convert(copy_model(served.model.encoder, "float32"), quantize)
    write_bytes(path, converted)
    return len(converted)


def _convert(encoder: BertEncoder, quantize: str) -> bytes:
    specification = {
        key: tf.TensorSpec([None, None], feature.dtype, name=key)
        for key, feature in features.ENCODER_FEATURES.items()
    }

    @tf.function(autograph=False)
    def run(**inputs: tf.Tensor) -> Mapping[str, tf.Tensor]:
        return flat_outputs(
            encoder(inputs, training=False), inputs[features.INPUT_MASK], encoder.config
        )

    root = tf.Module()
    root.weights = [variable.value for variable in encoder.weights]
    root.run = run
    with tempfile.TemporaryDirectory() as folder:
        directory = os.path.join(folder, "tokens")
        signatures = {SIGNATURE: run.get_concrete_function(**specification)}
        tf.saved_model.save(root, directory, signatures=signatures)
        converter: Any = tf.lite.TFLiteConverter.from_saved_model(directory)
        if quantize != "none":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if quantize == "float16":
            converter.target_spec.supported_types = [tf.float16]
        return bytes(converter.convert())
