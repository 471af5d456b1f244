import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling.transformer import LayerNorm


def make(shape, dtype="float64"):
    layer = LayerNorm(1e-12, dtype=dtype)
    layer.build(shape)
    rng = np.random.default_rng(1)
    layer.gamma.assign(rng.normal(size=shape[-1:]) + 1.0)
    layer.beta.assign(rng.normal(size=shape[-1:]))
    return layer, rng.normal(size=shape) * 3.0 + 2.0


def test_half_precision_is_normalised_in_float32():
    layer, _ = make((1, 64), "mixed_bfloat16")
    layer.gamma.assign(np.ones(64))
    layer.beta.assign(np.zeros(64))
    # 256 and 257 are one number in bfloat16: a sum that was rounded first would be constant.
    x = np.where(np.arange(64) % 2, 257.0, 256.0).astype("float32")[None]
    y = layer(x)
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    np.testing.assert_array_equal(tf.cast(y, "float32"), np.where(x == 257.0, 1.0, -1.0))


def test_large_mean_does_not_cancel():
    layer = LayerNorm(1e-12)
    x = np.array([[4096.0, 4097.0, 4098.0, 4099.0]], "float32")
    expected = np.array([[-1.5, -0.5, 0.5, 1.5]]) / np.sqrt(1.25)
    np.testing.assert_allclose(layer(x), expected, atol=1e-6)
