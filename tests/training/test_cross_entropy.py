"""The losses, compared with literals and TensorFlow's kernel in double precision."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.pretraining import objective
from bert_tf.training import cross_entropy

from .conftest import random_batch


def expected_sums(logits, labels, weights):
    """Returns the loss, weight and correct sums, computed by TensorFlow's kernel in float64."""
    logits, weights = tf.cast(logits, tf.float64), tf.cast(weights, tf.float64)
    nll = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    hits = tf.cast(tf.argmax(logits, -1) == tf.cast(labels, tf.int64), tf.float64)
    return [float(tf.reduce_sum(weights * x)) for x in (nll, tf.ones_like(nll), hits)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_sums_equal_kernel_for_large_logits_and_low_precision(scale, dtype):
    random = np.random.default_rng(0)
    logits = tf.cast(random.normal(size=(4, 5, 7)) * scale, dtype)
    ids = random.integers(0, 7, (4, 5), np.int32)
    weights = random.integers(0, 2, (4, 5)).astype(np.float32)
    sums = cross_entropy.weighted_sums(logits, tf.constant(ids), tf.constant(weights))
    expected = expected_sums(logits, ids, weights)
    assert sums.loss.dtype == tf.float32
    np.testing.assert_allclose([float(s) for s in sums], expected, rtol=1e-5)


@pytest.mark.parametrize("device_type", ["CPU", "TPU"])
def test_gradient_equals_library_kernel(device_type):
    logits = 5.0 * tf.random.stateless_normal((3, 4, 9), (5, 6))
    labels = tf.constant(np.random.default_rng(1).integers(0, 9, (3, 4), np.int32))
    weights = tf.random.stateless_uniform((3, 4), (7, 8))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(logits)
        ours = cross_entropy.weighted_sums(logits, labels, weights, device_type).loss
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        theirs = tf.reduce_sum(weights * nll)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    np.testing.assert_allclose(
        tape.gradient(ours, logits), tape.gradient(theirs, logits), atol=1e-6
    )


@pytest.mark.parametrize("count", [0, 1, 6])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_of_states_equal_sums_of_logits(count, dtype):
    """Labels include duplicates; weights include 0 and 0.5."""
    states, table = (
        tf.cast(tf.random.stateless_normal(shape, (1, 2)), dtype) for shape in ((count, 4), (9, 4))
    )
    bias = tf.random.stateless_normal((9,), (3, 4))
    labels = tf.constant([2, 8, 2, 0, 5, 2][:count], tf.int32)
    weights = tf.constant([1.0, 1.0, 0.5, 0.0, 1.0, 1.0][:count], tf.float32)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([states, table, bias])
        ours = cross_entropy.predicted_sums(states, table, bias, labels, weights)
        logits = tf.matmul(states, table, transpose_b=True)
        theirs = cross_entropy.weighted_sums(tf.cast(logits, "float32") + bias, labels, weights)
        loss, expected_loss = 3.0 * ours.loss, 3.0 * theirs.loss
    rounding = 1e-6 if dtype == "float32" else 2e-2
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    for source in (states, table, bias):
        ours, theirs = (tape.gradient(total, source) for total in (loss, expected_loss))
        assert ours.dtype == source.dtype
        ours, theirs = (np.asarray(tf.cast(x, "float32")) for x in (ours, theirs))
        np.testing.assert_allclose(
            ours, theirs, atol=rounding * max(1.0, abs(theirs).max(initial=0))
        )


def test_padding_does_not_count_as_token():
    batch = {key: tf.constant(value) for key, value in random_batch(0, rows=6).items()}
    sums = objective.batch_sums({features.MASKED_LM_LOGITS: tf.zeros((6, 3, 11))}, batch)
    assert float(sums.tokens) == batch[features.INPUT_MASK].numpy().sum()


def test_means_use_epsilon_of_reference():
    sums = objective.PretrainingSums(*[tf.constant(1.0)] * 7)
    assert objective.mean_loss(sums, tf.constant(0.0), tf.constant(0.0)).numpy() == np.float32(1e5)
