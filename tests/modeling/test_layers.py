"""Activations, layer normalization and dropout."""

import dataclasses
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertClassifier, BertPretrainer, BertSpanPredictor, seed_variables
from bert_tf.modeling.layers import (
    Dropout,
    LayerNorm,
    StepPlan,
    get_activation,
    step_plan_scope,
)
from tests.modeling.conftest import TINY, made, make_batch

POINTS = np.array([-30.0, -3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0, 30.0])


def exact(x):
    return x * 0.5 * math.erfc(-x / math.sqrt(2.0))


def by_tanh(x):
    return 0.5 * x * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("name", "definition"),
    [
        ("gelu", exact),
        ("gelu_new", by_tanh),
        ("gelu_pytorch_tanh", by_tanh),
        ("gelu_approximate", by_tanh),
        ("relu", lambda x: max(x, 0.0)),
        ("silu", lambda x: x / (1.0 + math.exp(-x))),
        ("swish", lambda x: x / (1.0 + math.exp(-x))),
        ("tanh", math.tanh),
        ("linear", lambda x: x),
    ],
)
def test_values_and_gradients(name, definition, training):
    x = tf.constant(POINTS)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = get_activation(name)(x, training)
    np.testing.assert_allclose(y, [definition(v) for v in POINTS], atol=1e-12)
    step = 1e-6
    slopes = [(definition(v + step) - definition(v - step)) / (2 * step) for v in POINTS]
    away_from_kinks = POINTS != 0.0 if name == "relu" else slice(None)
    np.testing.assert_allclose(
        tape.gradient(y, x).numpy()[away_from_kinks], np.array(slopes)[away_from_kinks], atol=1e-8
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["gelu", "gelu_new"])
def test_extreme_values_stay_finite_in_half_precision(name, dtype):
    x = tf.cast(tf.constant([-1000.0, -60.0, 60.0, 1000.0]), dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = get_activation(name)(x, True)
    slope = tape.gradient(y, x)
    np.testing.assert_array_equal(tf.cast(y, "float32"), [0.0, 0.0, 60.0, 1000.0])
    np.testing.assert_array_equal(tf.cast(slope, "float32"), [0.0, 0.0, 1.0, 1.0])


def test_half_precision_is_normalized_in_float32():
    layer = LayerNorm(1e-12, dtype="mixed_bfloat16")
    # 256 and 257 are equal in bfloat16, so a sum that is rounded first would be constant.
    x = np.where(np.arange(64) % 2, 257.0, 256.0).astype("float32")[None]
    y = layer(x)
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    np.testing.assert_array_equal(tf.cast(y, "float32"), np.where(x == 257.0, 1.0, -1.0))


def test_large_mean_is_accurate():
    layer = LayerNorm(1e-12)
    x = np.array([[4096.0, 4097.0, 4098.0, 4099.0]], "float32")
    expected = np.array([[-1.5, -0.5, 0.5, 1.5]]) / np.sqrt(1.25)
    np.testing.assert_allclose(layer(x), expected, atol=1e-6)


def generator(seed=7):
    return keras.random.SeedGenerator(seed, name="dropout_seed")


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_its_rate_and_the_mean_also_of_gradients(rate):
    x = tf.ones(200_001)  # odd: the last word of random bits is half used
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = Dropout(rate, generator())(x, training=True)
    np.testing.assert_array_equal(tape.gradient(y, x), y)  # the same mask
    y, count = y.numpy(), len(x)
    dropped = np.mean(y == 0.0)
    # Five standard deviations of a binomial fraction.
    assert abs(dropped - rate) < 5 * np.sqrt(rate * (1 - rate) / count)
    levels = round(rate * 65536)
    np.testing.assert_array_equal(np.unique(y), np.float32([0.0, 65536 / (65536 - levels)]))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.15, 0.2, 0.5, 0.9, 0.999])
def test_mean_dropout_factor_is_exactly_1(rate, dtype):
    """The dtype may not represent the scale: 1 / 0.9 is 1.109375 in bfloat16."""
    plan = StepPlan(draw=lambda shape, generator: lambda level: tf.range(65_536) >= level)
    layer = Dropout(rate, generator(), dtype=dtype)
    x = tf.ones([65_536], dtype)
    with step_plan_scope(plan), tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
    gradient = tf.cast(tape.gradient(y, x), "float64")
    np.testing.assert_array_equal(gradient, tf.cast(y, "float64"))
    assert np.sum(gradient) == 65_536
    assert np.sum(gradient == 0) == round(rate * 65_536)
    assert np.abs(gradient[gradient != 0] * (1 - layer.dropped / 65_536) - 1).max() < 2**-7


def test_both_halves_of_a_random_word_and_neighboring_seeds_are_independent():
    rate, pairs = 0.25, 100_000
    layer = Dropout(rate, generator())
    first, second = (
        layer(np.ones((pairs, 2), "float32"), training=True).numpy() == 0.0 for _ in range(2)
    )
    tolerance = 5 * np.sqrt(rate * (1 - rate) / pairs)
    np.testing.assert_allclose(first.mean(axis=0), rate, atol=tolerance)
    assert abs(first.all(axis=1).mean() - rate**2) < tolerance
    assert abs(np.mean(first & second) - rate**2) < tolerance


def test_rate_out_of_range_or_rounded_to_1():
    for rate in (-0.1, 1.0):
        message = f"dropout={rate}: expected at least 0 and less than 1"
        with pytest.raises(ValueError, match=message):
            Dropout(rate)
    y = Dropout(1.0 - 1e-9, generator())(np.ones(1_000_000, "float32"), training=True).numpy()
    np.testing.assert_array_equal(np.unique(y), [0.0, 65536.0])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_dynamic_shape_in_a_graph_equals_eager(jit_compile):
    spec = tf.TensorSpec((3, 5) if jit_compile else (None, None), tf.float32)
    layer = Dropout(0.5, generator())
    state = layer.seed_generator.state

    @tf.function(input_signature=[spec], jit_compile=jit_compile)
    def in_graph(x):
        with keras.StatelessScope(state_mapping=[(state, tf.constant([3, 4], tf.int64))]):
            return layer(x, training=True)

    x = np.ones((3, 5), "float32")
    with keras.StatelessScope(state_mapping=[(state, tf.constant([3, 4], tf.int64))]):
        eager = layer(x, training=True)
    np.testing.assert_array_equal(in_graph(x), eager)


@pytest.mark.parametrize(
    ("model_class", "arguments", "own"),
    [
        (BertPretrainer, {}, 0),
        (BertClassifier, {"num_classes": 3}, 1),  # before the classifier
        (BertSpanPredictor, {}, 0),  # no dropout before the dense layer
    ],
)
def test_each_dropout_layer_draws_a_seed(model_class, arguments, own):
    model = made(model_class, **arguments)
    (seed,) = seed_variables(model)
    with keras.StatelessScope(state_mapping=[(seed, tf.constant([1, 0], tf.int64))]) as scope:
        model(make_batch(), training=True)
    # embeddings; attention weights, attention output and feed-forward output of each block
    np.testing.assert_array_equal(scope.get_current_value(seed), [1, 1 + 3 * 2 + own])


def test_model_without_dropout_has_a_seed():
    config = dataclasses.replace(TINY, hidden_dropout_prob=0.0)
    assert len(seed_variables(BertPretrainer(config))) == 1
