"""Transformer blocks: rows of tokens, attention, recomputation."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertEncoder, seed_variables
from bert_tf.modeling.transformer import SelfAttention, TokenRows, TransformerBlock
from tests.modeling.conftest import TINY, encoder_batch, made, randomize

MASK = np.array([[1, 1, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0]], "int32")


def test_graph_with_dynamic_sizes():
    signature = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None, 2])]

    @tf.function(input_signature=signature)
    def roundtrip(mask, batch):
        rows = TokenRows(mask, without_padding=True)
        return rows.to_batch(2.0 * rows.from_batch(batch))

    for mask in (MASK, MASK[:1, :2], 0 * MASK):
        batch = np.ones((*mask.shape, 2), "float32")
        kept = mask | (np.arange(mask.shape[1]) == 0)
        np.testing.assert_array_equal(roundtrip(mask, batch), 2 * batch * kept[:, :, None])


MASK_ATTENTION = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], "int32")


def attend_batch(layer, hidden, mask, training=False):
    """Applies the layer to (B, S, H)."""
    rows = TokenRows(mask)
    matrix = rows.from_batch(tf.convert_to_tensor(hidden))
    return rows.to_batch(layer(matrix, rows=rows, training=training))


def make(dtype="float64"):
    layer = SelfAttention(TINY, name="attention", dtype=dtype)
    layer.build()
    hidden = np.random.default_rng(3).normal(size=(2, 5, 8))
    return randomize(layer), hidden


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_padded_keys_have_no_effect_and_only_padding_is_finite(dtype):
    layer, hidden = make(dtype)
    other = hidden.copy()
    other[1, 3:] = 100.0
    first, second = (
        attend_batch(layer, states, MASK_ATTENTION).numpy() for states in (hidden, other)
    )
    np.testing.assert_array_equal(first[1, :3], second[1, :3])
    assert (first[1, 3:] != second[1, 3:]).any()
    outputs = attend_batch(layer, hidden, 0 * MASK_ATTENTION)
    assert np.isfinite(tf.cast(outputs, "float32")).all()


def test_dropout_of_attention_weights():
    config = dataclasses.replace(TINY, attention_probs_dropout_prob=0.5)
    layer = SelfAttention(config)
    layer.build()
    identity = np.eye(8, dtype="float32")
    # With equal scores, values of 1 and an identity output projection, each output is the sum of
    # the remaining weights, each 1/5, times 2.
    layer.query_key_value.kernel.assign(np.zeros((8, 24)))
    layer.query_key_value.bias.assign(np.ones(24))
    layer.attention_output.kernel.assign(identity)
    outputs = attend_batch(layer, np.ones((2, 5, 8)), 0 * MASK_ATTENTION + 1, training=True).numpy()
    steps = outputs / 0.4
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-5)
    assert len(np.unique(np.round(steps))) > 2
    heads = outputs.reshape(2, 5, 2, 4)  # one decision per head and key, not per component
    np.testing.assert_allclose(heads, heads[..., :1].repeat(4, axis=-1), atol=1e-6)
    assert np.abs(heads[:, :, 0] - heads[:, :, 1]).max() > 0.1


def make_of_transformer(**changes):
    config = dataclasses.replace(TINY, **changes)
    block = TransformerBlock(config, dtype="float64")
    hidden = tf.constant(np.random.default_rng(4).normal(size=(2, 5, 8)))
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], "int32")
    block.build()
    return randomize(block), hidden, mask


@pytest.mark.parametrize(
    ("device", "recomputes", "slow_sums"), [("cpu", False, 4), ("gpu", True, 0)]
)
def test_explicit_gradients_equal_automatic_ones(device, recomputes, slow_sums, monkeypatch):
    # Training uses explicit gradients of GELU and layer normalization, and on a GPU of the biases;
    # inference does not. With rate 0, both compute the same function.
    monkeypatch.setattr(keras.distribution, "list_devices", lambda: ["cpu:0", f"{device}:0"])
    block, hidden, mask = make_of_transformer(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    gradients, sums = [], []
    for training in (False, True):
        block.plan.recomputes_blocks = training and recomputes

        @functools.partial(tf.function, autograph=False)
        def differentiated(training=training):
            with tf.GradientTape() as tape:
                tape.watch(hidden)
                outputs = block(hidden, mask, training=training)
                total = tf.reduce_sum(outputs * tf.range(8, dtype="float64"))
            sources = [hidden, *(v.value for v in block.trainable_variables)]
            return tape.gradient(total, sources)

        gradients.append(differentiated())
        operations = differentiated.get_concrete_function().graph.get_operations()
        sums.append(sum(operation.type == "BiasAddGrad" for operation in operations))
    assert len(gradients[0]) == 1 + 12 and sums == [4, slow_sums]
    for derived, written in zip(*gradients, strict=True):
        np.testing.assert_allclose(written, derived, atol=1e-10)


def test_training_without_padding():
    block, hidden, mask = make_of_transformer(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    real = mask.astype(bool)
    weights = mask[:, :, None] * np.random.default_rng(5).normal(size=(2, 5, 8))

    def trained():
        with tf.GradientTape() as tape:
            tape.watch(hidden)
            outputs = block(hidden, mask, training=True)
            total = tf.reduce_sum(outputs * weights)
        sources = [hidden, *(v.value for v in block.trainable_variables)]
        return outputs.numpy(), tape.gradient(total, sources)

    with_padding, expected = trained()
    block.plan.trains_without_padding = True
    without, gradients = trained()
    np.testing.assert_allclose(without[real], with_padding[real], atol=1e-12)
    np.testing.assert_array_equal(without[~real], 0.0)
    assert np.abs(with_padding[~real]).min() > 0.0
    for got, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-12)
    # Only training skips padding, or only inference.
    np.testing.assert_allclose(block(hidden, mask), with_padding, atol=1e-12)
    block.plan.trains_without_padding, block.plan.infers_without_padding = False, True
    np.testing.assert_array_equal(block(hidden, mask), without)
    np.testing.assert_allclose(block(hidden, mask, training=True), with_padding, atol=1e-12)


@pytest.mark.parametrize("activation", ["gelu_new", "relu"])
def test_activation_of_config(activation):
    block, hidden, mask = make_of_transformer()
    other, _, _ = make_of_transformer(hidden_act=activation)
    assert np.abs(block(hidden, mask) - other(hidden, mask)).max() > 1e-5


# === Blocks that are computed again for the backward pass ===

DROPPED = dataclasses.replace(
    TINY, num_hidden_layers=1, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3
)


def differentiate(encoder, seed=(3, 4)):
    """Returns the output, the gradients and the seed after the call."""
    batch = encoder_batch(batch=4)
    (state,) = seed_variables(encoder)
    output_gradient = tf.constant(np.random.default_rng(0).normal(size=(4, 6, 8)), tf.float32)
    variables = [variable.value for variable in encoder.trainable_variables]
    scope = keras.StatelessScope(state_mapping=[(state, tf.constant(seed, tf.int64))])
    with tf.GradientTape() as tape, scope:
        output = encoder(batch, training=True)["sequence_output"]
        loss = tf.reduce_sum(output * output_gradient)
    gradients = tape.gradient(loss, variables)
    drawn = scope.get_current_value(state)
    return output, [tf.convert_to_tensor(g) for g in gradients if g is not None], drawn


def test_recomputation_has_same_gradients_and_masks(monkeypatch):
    encoder = made(BertEncoder, DROPPED)
    output, expected, drawn = differentiate(encoder)
    other, *_ = differentiate(encoder, seed=(3, 5))
    assert np.abs(output - other).max() > 0.1, "the masks have to matter"
    monkeypatch.setattr(encoder, "recomputes_blocks", True)
    again, gradients, drawn_again = differentiate(encoder)
    np.testing.assert_allclose(again, output, rtol=0, atol=1e-5)
    assert drawn_again.numpy().tolist() == drawn.numpy().tolist() == [3, 4 + 1 + 3]
    assert len(gradients) == len(expected) > 12
    for ours, theirs in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5 * np.abs(theirs).max())


def test_recomputation_stores_no_activation(monkeypatch):
    """The graph of the gradient contains the matrix products of the blocks twice."""
    encoder, products = made(BertEncoder, DROPPED), []
    for recomputes in (True, False):
        monkeypatch.setattr(encoder, "recomputes_blocks", recomputes)
        traced = tf.function(lambda: differentiate(encoder)[:2], autograph=False)
        operations = traced.get_concrete_function().graph.get_operations()
        products.append(sum(operation.type == "MatMul" for operation in operations))
    assert products[0] - products[1] == 4


def test_other_backends_are_rejected(monkeypatch):
    block = TransformerBlock(TINY)
    block.plan.recomputes_blocks = True
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    message = "expected the TensorFlow backend of Keras, got jax. Set it to False"
    with pytest.raises(ValueError, match=message):
        block(np.zeros((1, 2, 8), np.float32), np.ones((1, 2), np.int32), training=True)
