import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling.attention import MASKED_SCORE, SelfAttention, attention_bias
from bert_tf.modeling.token_rows import TokenRows
from tests.modeling.conftest import TINY, randomise, weights_by_path
from tests.modeling.numpy_bert import attend

MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], "int32")


def attend_batch(layer, hidden, mask, training=False):
    """The layer on (B, S, H)."""
    rows = TokenRows(mask, without_padding=False)
    matrix = rows.from_batch(tf.convert_to_tensor(hidden))
    return rows.to_batch(layer(matrix, mask, rows=rows, training=training))


def make(dtype="float64"):
    layer = SelfAttention(TINY, name="attention", dtype=dtype)
    layer.build()
    hidden = np.random.default_rng(3).normal(size=(2, 5, 8))
    return randomise(layer), hidden


def test_bias_is_0_for_real_keys_and_the_same_for_every_query():
    bias = attention_bias(MASK[1:], "float32")
    np.testing.assert_array_equal(bias, [[[[0.0, 0.0, 0.0, MASKED_SCORE, MASKED_SCORE]]]])


def test_equals_a_loop():
    layer, hidden = make()
    outputs = attend_batch(layer, hidden, MASK)
    weights = weights_by_path(layer)
    for b in range(2):
        expected = attend(hidden[b], MASK[b], weights, "attention/", heads=2)
        np.testing.assert_allclose(outputs[b], expected, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_a_padded_key_has_no_influence_at_all(dtype):
    layer, hidden = make(dtype)
    other = hidden.copy()
    other[1, 3:] = 100.0
    first, second = (attend_batch(layer, states, MASK).numpy() for states in (hidden, other))
    np.testing.assert_array_equal(first[1, :3], second[1, :3])
    assert (first[1, 3:] != second[1, 3:]).any()


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_a_row_of_nothing_but_padding_is_finite(dtype):
    layer, hidden = make(dtype)
    outputs = attend_batch(layer, hidden, 0 * MASK)
    assert np.isfinite(tf.cast(outputs, "float32")).all()


def test_dropout_acts_on_the_weights():
    config = dataclasses.replace(TINY, attention_probs_dropout_prob=0.5)
    layer = SelfAttention(config)
    layer.build()
    identity = np.eye(8, dtype="float32")
    # Equal scores, values of 1, an output projection that changes nothing: each output is
    # the sum of the weights that were kept, each 1/5, times 2.
    layer.query_key_value.kernel.assign(np.zeros((8, 24)))
    layer.query_key_value.bias.assign(np.ones(24))
    layer.attention_output.kernel.assign(identity)
    outputs = attend_batch(layer, np.ones((2, 5, 8)), 0 * MASK + 1, training=True).numpy()
    steps = outputs / 0.4
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-5)
    assert len(np.unique(np.round(steps))) > 2
    heads = outputs.reshape(2, 5, 2, 4)  # one decision per head and key, not per component
    np.testing.assert_allclose(heads, heads[..., :1].repeat(4, axis=-1), atol=1e-6)
    assert np.abs(heads[:, :, 0] - heads[:, :, 1]).max() > 0.1


def test_config_round_trip():
    layer = SelfAttention.from_config(SelfAttention(TINY, name="a").get_config())
    assert (layer.config, layer.name) == (TINY, "a")
