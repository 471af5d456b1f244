"""Weights as an export stores them, against what they were."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertPretrainer
from bert_tf.saved_models.weight_storage import StoredWeights, quantize

from .conftest import make


@pytest.mark.parametrize("axis", [0, 1])
def test_int8_is_half_a_step_off_at_most(axis):
    values = np.random.default_rng(7).normal(size=(50, 30)).astype(np.float32)
    values[:, 3] = 0
    values[4] *= 100
    integers, scales = quantize(values, axis)
    assert integers.dtype == np.int8 and scales.shape == ((1, 30), (50, 1))[axis]
    error = np.abs(integers * scales - values)
    assert (error <= scales * 0.501).all() and error.max() > 0.3 * scales.min()
    # The whole range is used, and both ends alike.
    assert (np.abs(integers.astype(int)).max(axis)[scales.reshape(-1) != 1] == 127).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("weights", ["float32", "bfloat16", "float16", "int8"])
def test_reads_what_was_stored(weights, dtype):
    model = make(BertPretrainer)
    storage = StoredWeights(model, weights)
    for variable in model.weights:
        value = variable.numpy()
        if value.ndim == 2 and weights == "int8":
            # A scale for each row of what is looked up, else for each output.
            integers, scales = quantize(value, axis=int(variable.path.endswith("_embeddings")))
            value = integers * scales
        elif value.ndim == 2:
            value = value.astype(getattr(ml_dtypes, weights, weights)).astype(np.float32)
        read = storage.read(variable, dtype)
        assert read.dtype == dtype
        expected = tf.cast(value, dtype)
        np.testing.assert_array_equal(tf.cast(read, tf.float32), tf.cast(expected, tf.float32))


def test_what_is_stored_as_it_is_read_is_the_models_own():
    model = make(BertPretrainer)
    storage = StoredWeights(model, "float32")
    model.weights[0].assign(tf.zeros_like(model.weights[0].value))
    assert not storage.read(model.weights[0], "float32").numpy().any()
    assert storage.resources() == ()
    # A second reading makes no second copy.
    for _ in range(2):
        storage.read(model.weights[1], "bfloat16")
    converted, variable = storage.resources()
    assert variable is model.weights[1].value and converted.read().dtype == tf.bfloat16
