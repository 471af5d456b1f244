import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling.transformer import TransformerBlock
from tests.modeling.conftest import TINY, randomise


def make(**changes):
    config = dataclasses.replace(TINY, **changes)
    block = TransformerBlock(config, dtype="float64")
    hidden = tf.constant(np.random.default_rng(4).normal(size=(2, 5, 8)))
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], "int32")
    block.build()
    return randomise(block), hidden, mask


def test_without_sublayers_it_is_two_normalisations():
    block, hidden, mask = make()
    for dense in (block.attention.attention_output, block.feed_forward_output):
        dense.kernel.assign(np.zeros(dense.kernel.shape))
        dense.bias.assign(np.zeros(dense.bias.shape))
    expected = block.output_layer_norm(block.attention_layer_norm(hidden))
    np.testing.assert_allclose(block(hidden, mask), expected, atol=1e-12)


def test_written_gradients_equal_derived_ones():
    # Training takes the written gradients of GELU and layer normalisation, inference does not;
    # at rate 0 the two compute the same function.
    block, hidden, mask = make(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    gradients = []
    for training in (False, True):
        with tf.GradientTape() as tape:
            tape.watch(hidden)
            outputs = block(hidden, mask, training=training)
            total = tf.reduce_sum(outputs * tf.range(8, dtype="float64"))
        sources = [hidden, *(v.value for v in block.trainable_variables)]
        gradients.append(tape.gradient(total, sources))
    assert len(gradients[0]) == 1 + 12
    for derived, written in zip(*gradients, strict=True):
        np.testing.assert_allclose(written, derived, atol=1e-10)


def test_training_without_padding_computes_the_same():
    block, hidden, mask = make(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
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
    block.trains_without_padding = True
    without, gradients = trained()
    np.testing.assert_allclose(without[real], with_padding[real], atol=1e-12)
    np.testing.assert_array_equal(without[~real], 0.0)
    assert np.abs(with_padding[~real]).min() > 0.0
    for got, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-12)
    # Only training leaves padding out.
    np.testing.assert_allclose(block(hidden, mask), with_padding, atol=1e-12)


@pytest.mark.parametrize("activation", ["gelu_new", "relu"])
def test_activation_is_the_config_s(activation):
    block, hidden, mask = make()
    other, _, _ = make(hidden_act=activation)
    assert np.abs(block(hidden, mask) - other(hidden, mask)).max() > 1e-5


def test_config_round_trip():
    block = TransformerBlock.from_config(TransformerBlock(TINY, name="b").get_config())
    assert (block.config, block.name) == (TINY, "b")
