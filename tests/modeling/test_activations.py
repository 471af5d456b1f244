import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling.activations import get_activation

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
