"""Layer normalisation as BERT has it, with a gradient of few passes over memory."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerNorm(keras.layers.Layer):
    """Normalises over the last axis, then scales by ``gamma`` and adds ``beta`` (Ba et al. 2016).

    It computes in float32 at least, whatever the compute dtype, and subtracts the mean before it
    scales. ``keras.layers.LayerNormalization`` scales first, which cancels badly where the mean
    is large against the deviation. BERT's epsilon, added to the variance, is 1e-12.

    >>> [round(float(x), 3) for x in LayerNorm(1e-12)(ops.array([[1.0, 3.0, 5.0]]))[0]]
    [-1.225, 0.0, 1.225]
    """

    def __init__(self, epsilon: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.autocast = False  # a float32 sum is not to be rounded before it is normalised

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Makes ``gamma`` (H,) of ones and ``beta`` (H,) of zeros."""
        shape = (input_shape[-1],)
        self.gamma = self.add_weight(name="gamma", shape=shape, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=shape, initializer="zeros")

    def call(self, inputs: Any, training: bool | None = False) -> Any:
        """Normalises (..., H); the result has the layer's compute dtype."""
        dtype = keras.backend.result_type(inputs.dtype, "float32")
        x, gamma, beta = (ops.cast(v, dtype) for v in (inputs, self.gamma, self.beta))
        normalise = _normalise_and_gradient(self.epsilon)
        if training:
            outputs = ops.custom_gradient(normalise)(x, gamma, beta)
        else:
            outputs, _ = normalise(x, gamma, beta)
        return ops.cast(outputs, self.compute_dtype)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The input's shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "epsilon": self.epsilon}


def _normalise_and_gradient(epsilon: float) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    def normalise(x: Any, gamma: Any, beta: Any) -> tuple[Any, Any]:
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
        inverse = ops.rsqrt(variance + epsilon)
        normal = centred * inverse

        def gradient(upstream: Any) -> tuple[Any, Any, Any]:
            # With n the normalised input and g = upstream * gamma:
            # dx = inverse * (g - mean(g) - n * mean(g * n)), means over the last axis.
            rows = tuple(range(len(x.shape) - 1))
            product = upstream * normal
            along = upstream * gamma
            mean = ops.mean(along, axis=-1, keepdims=True)
            projection = ops.mean(product * gamma, axis=-1, keepdims=True)
            dx = (along - mean - normal * projection) * inverse
            return dx, ops.sum(product, axis=rows), ops.sum(upstream, axis=rows)

        return normal * gamma + beta, gradient

    return normalise
