"""Expected weights of each model, and conversion of their layouts and dtypes."""

import dataclasses
import random

import keras
import ml_dtypes
import numpy as np
import pytest

from bert_tf import modeling
from bert_tf.checkpoints import weights
from bert_tf.checkpoints.checkpoint import ModelSpec
from bert_tf.checkpoints.weights import assign, build_model, split_variables
from tests.checkpoints import small_checkpoints as small

DEFAULT_SPECS = [
    ModelSpec(modeling.BertEncoder, {}),
    ModelSpec(modeling.BertPretrainer, {}),
    ModelSpec(modeling.BertPretrainer, {"nsp": False}),
    ModelSpec(modeling.BertPretrainer, {"nsp": False, "pooler": True}),
    ModelSpec(modeling.BertTokenClassifier, {"num_classes": 2}),
    ModelSpec(modeling.BertTokenClassifier, {"num_classes": 2, "pooler": True}),
    ModelSpec(modeling.BertSpanPredictor, {}),
    ModelSpec(modeling.BertFeatureTagger, {"num_classes": 2, "variant": "last", "lstm_units": 3}),
]


@pytest.mark.parametrize("spec", DEFAULT_SPECS, ids=str)
def test_expected_weights_equal_built_model(spec):
    model = build_model(dataclasses.replace(small.CONFIG, num_hidden_layers=1), spec)
    tensors = small.make_checkpoint(spec, model.config).tensors
    arrays = {name: tensor.read() for name, tensor in tensors.items()}
    shapes = {name: array.shape for name, array in small.fused(arrays).items()}
    assert shapes == {name: array.shape for name, array in small.variables_of(model).items()}
    assert spec.has_pooler == any(name.startswith("pooler/") for name in shapes)


def test_assigned_weights_are_cast():
    checkpoint = small.make_checkpoint(small.MODELS["encoder"], dtype=ml_dtypes.bfloat16)
    model = build_model(small.CONFIG, small.MODELS["encoder"], dtype="mixed_bfloat16")
    assign(model, checkpoint.tensors)
    expected = {name: array.astype("float32") for name, array in small.read_all(checkpoint).items()}
    small.assert_bit_equal(small.variables_of(model), small.fused(expected))


def test_model_without_initial_values_draws_only_seeds(monkeypatch):
    generators = random.Random(5), random.Random(5)
    spec = small.MODELS["classifier"]
    drawn = build_model(small.CONFIG, spec, None, generators[0])
    with monkeypatch.context() as patch:
        patch.setattr(keras.initializers.TruncatedNormal, "__call__", None)
        undrawn = build_model(small.CONFIG, spec, None, generators[1], initialize=False)
    # The seeds of dropout follow those of the weights.
    assert generators[0].getstate() == generators[1].getstate() != random.Random(5).getstate()
    shapes = {name: array.shape for name, array in small.variables_of(drawn).items()}
    assert shapes == {name: array.shape for name, array in small.variables_of(undrawn).items()}
    # Code that reinitializes a layer of a loaded model calls its initializer.
    dense = undrawn.encoder.pooler.dense
    np.testing.assert_array_equal(
        dense.kernel_initializer(dense.kernel.shape),
        drawn.encoder.pooler.dense.kernel,
    )


@pytest.mark.parametrize("shape", [(8, 23), (8, 8), (25,), ()])
def test_wrong_width_of_fused_weight_raises_error(shape):
    found = {
        "layer_0/attention/query_key_value/kernel": small.stored("there", np.zeros(shape, "f"))
    }
    message = r"^file: there: expected 24 columns \(3 \* hidden_size\), got the shape \(.*\)"
    with pytest.raises(ValueError, match=message):
        split_variables(small.CONFIG, small.MODELS["encoder"], found, "file")


@pytest.mark.parametrize("chunk", [16, 1 << 20])
@pytest.mark.parametrize("dtype", ["float32", ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(7, 3), (5,), (2, 3, 4), (), (0, 4), (1, 1)])
def test_to_tensor_is_exact(monkeypatch, shape, dtype, chunk):
    monkeypatch.setattr(weights, "_CHUNK_BYTES", chunk)
    values = (np.random.default_rng(0).normal(size=shape) * 100).astype(dtype)
    for view in (np.asarray, np.transpose, lambda a: a[..., 1:]) if shape else (np.asarray,):
        array = view(values.copy())
        tensor, bits = weights.to_tensor(array), array.tobytes()
        array.fill(1)  # the tensor does not share memory with the array
        assert tensor.shape == array.shape and tensor.dtype.as_numpy_dtype == array.dtype.type
        assert tensor.numpy().tobytes() == bits
