"""Blocks that are computed again for the backward pass: the same gradients, the same masks."""

import functools
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.modeling import BertEncoder, seed_variables
from bert_tf.modeling.transformer import TransformerBlock


@functools.cache
def _built():
    random.seed(1)
    config = BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=6, hidden_dropout_prob=0.3,
        attention_probs_dropout_prob=0.3, initializer_range=0.5,
    )  # fmt: skip
    return BertEncoder(config)


def _encoder(recomputes=False):
    encoder = _built()
    encoder.recomputes_blocks = recomputes
    return encoder


def _gradients(encoder, seed=(3, 4)):
    """Output, gradients by path, and the seed's value behind the call."""
    random = np.random.default_rng(0)
    ids = random.integers(0, 20, (4, 6), np.int32)
    mask = (np.arange(6) < [[6], [4], [2], [5]]).astype(np.int32)
    inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": 0 * ids}
    (state,) = seed_variables(encoder)
    towards = tf.constant(random.normal(size=(4, 6, 8)), tf.float32)
    variables = [variable.value for variable in encoder.trainable_variables]

    scope = keras.StatelessScope(state_mapping=[(state, tf.constant(seed, tf.int64))])
    with tf.GradientTape() as tape, scope:
        output = encoder(inputs, training=True)["sequence_output"]
        loss = tf.reduce_sum(output * towards)
    gradients = tape.gradient(loss, variables)
    drawn = scope.get_current_value(state)
    return output, [tf.convert_to_tensor(g) for g in gradients if g is not None], drawn


def test_gradients_and_masks_are_the_same():
    encoder = _encoder()
    output, expected, drawn = _gradients(encoder)
    other, *_ = _gradients(encoder, seed=(3, 5))
    assert np.abs(output - other).max() > 0.1, "the masks have to matter"
    encoder.recomputes_blocks = True
    assert encoder.recomputes_blocks
    again, gradients, drawn_again = _gradients(encoder)
    np.testing.assert_allclose(again, output, rtol=0, atol=1e-6)
    assert drawn_again.numpy().tolist() == drawn.numpy().tolist() == [3, 4 + 1 + 3]
    assert len(gradients) == len(expected) > 12
    for ours, theirs in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6 * np.abs(theirs).max())


def test_the_forward_pass_keeps_no_activation():
    """Counted by the products that the gradient's graph has: those of the blocks come twice."""

    def products(recomputes):
        encoder = _encoder(recomputes)
        traced = tf.function(lambda: _gradients(encoder)[:2], autograph=False)
        graph = traced.get_concrete_function().graph
        return sum(op.type == "MatMul" for op in graph.get_operations())

    assert products(True) - products(False) == 4


def test_another_backend_is_refused(monkeypatch):
    block = TransformerBlock(_encoder().config)
    block.recomputes = True
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="on Keras' TensorFlow backend only, this one is jax: le"):
        block(np.zeros((1, 2, 8), np.float32), np.ones((1, 2), np.int32), training=True)
