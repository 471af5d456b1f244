import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling.heads import MaskedLMHead, NextSentenceHead, Pooler
from tests.modeling.conftest import TINY, randomise


def test_pooler_reads_the_first_token_only():
    pooler = Pooler(TINY, dtype="float64")
    hidden = np.random.default_rng(0).normal(size=(2, 3, 8))
    pooler(hidden)
    randomise(pooler)
    kernel, bias = pooler.dense.get_weights()
    np.testing.assert_allclose(pooler(hidden), np.tanh(hidden[:, 0] @ kernel + bias), atol=1e-12)


def test_positions_are_gathered_row_by_row():
    table = keras.Variable(np.eye(15, 8))
    head = MaskedLMHead(TINY, table, dtype="float32")
    hidden = np.random.default_rng(0).normal(size=(2, 4, 8)).astype("float32")
    positions = np.array([[0, 3, 3], [2, 1, 0]], "int32")
    logits = head(hidden, positions).numpy()
    assert logits.shape == (2, 3, 15)
    everywhere = head(hidden, np.tile(np.arange(4, dtype="int32"), (2, 1))).numpy()
    for b in range(2):
        np.testing.assert_allclose(logits[b], everywhere[b, positions[b]], atol=1e-6)
    np.testing.assert_array_equal(logits[0, 1], logits[0, 2])


def test_the_table_is_used_and_not_owned():
    table = keras.Variable(np.eye(15, 8))
    head = MaskedLMHead(TINY, table)
    hidden, positions = np.ones((1, 2, 8), "float32"), np.zeros((1, 1), "int32")
    with tf.GradientTape() as tape:
        logits = head(hidden, positions)
    assert tape.gradient(logits, table.value) is not None
    assert all(weight is not table for weight in head.weights)
    assert len(head.weights) == 5


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float32", "float32"), ("mixed_bfloat16", "float32"), ("float64", "float64")],
)
def test_logits_are_float32_at_least(dtype, expected):
    table = keras.Variable(np.eye(15, 8), dtype=keras.DTypePolicy(dtype).variable_dtype)
    head = MaskedLMHead(TINY, table, dtype=dtype)
    hidden = keras.ops.ones((1, 2, 8), keras.DTypePolicy(dtype).compute_dtype)
    logits = head(hidden, np.zeros((1, 1), "int32"))
    assert keras.backend.standardize_dtype(logits.dtype) == expected
    pair = NextSentenceHead(TINY, dtype=dtype)(hidden[:, 0])
    assert keras.backend.standardize_dtype(pair.dtype) == expected
    symbolic = head(keras.KerasTensor((None, None, 8)), keras.KerasTensor((None, None), "int32"))
    assert (symbolic.shape, symbolic.dtype) == ((None, None, 15), expected)


def test_output_bias_is_not_rounded():
    table = keras.Variable(np.zeros((15, 8)))
    head = MaskedLMHead(TINY, table, dtype="mixed_bfloat16")
    inputs = np.ones((1, 2, 8), "float32"), np.zeros((1, 1), "int32")
    head(*inputs)
    bias = np.linspace(1.0, 1.001, 15).astype("float32")  # one number in bfloat16
    head.output_bias.assign(bias)
    np.testing.assert_array_equal(head(*inputs)[0, 0], bias)
