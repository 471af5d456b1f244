"""The activations that a ``BertConfig`` may name, with GELU's gradient written out.

TensorFlow composes GELU of elementwise operations, each a pass over memory, and differentiates each
of them; in bfloat16 that takes twice the time of the gradient below. At inference the exact GELU is
written as TensorFlow's graph optimiser knows it: behind a matrix product and its bias it is then
part of the same operation, and a bfloat16 encoder a tenth faster.
"""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

_SQRT_HALF = math.sqrt(0.5)
_INVERSE_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715

Activation = Callable[[Any, bool], Any]


def _exact_gelu(x: Any) -> tuple[Any, Any]:
    """GELU(x) = x * Phi(x), Phi the normal distribution function; and its gradient."""
    phi = ops.erf(x * _SQRT_HALF) * 0.5 + 0.5

    def gradient(upstream: Any) -> Any:
        density = ops.exp(ops.square(x) * -0.5) * _INVERSE_SQRT_2PI
        return upstream * (phi + x * density)

    return x * phi, gradient


def _fusable_exact_gelu(x: Any) -> Any:
    return (x * 0.5) * (ops.erf(x * _SQRT_HALF) + 1.0)


def _tanh_gelu(x: Any) -> tuple[Any, Any]:
    """Hendrycks and Gimpel's approximation of GELU by tanh; and its gradient."""
    # tanh is 1 from far below 20 on; without a limit the square would be infinite in float16.
    square = ops.minimum(ops.square(x), 400.0)
    tanh = ops.tanh(x * (square * (_SQRT_2_OVER_PI * _CUBIC) + _SQRT_2_OVER_PI))
    phi = tanh * 0.5 + 0.5

    def gradient(upstream: Any) -> Any:
        # phi' = (1 - tanh^2) / 2 * inner' = 2 * phi * (1 - phi) * inner'
        inner = square * (6.0 * _SQRT_2_OVER_PI * _CUBIC) + 2.0 * _SQRT_2_OVER_PI
        return upstream * (phi + x * (phi * (1.0 - phi)) * inner)

    return x * phi, gradient


# For training, with the gradient; and for inference.
_TANH = (_tanh_gelu, lambda x: _tanh_gelu(x)[0])
_GELUS = {
    "gelu": (_exact_gelu, _fusable_exact_gelu),
    "gelu_new": _TANH,
    "gelu_pytorch_tanh": _TANH,
    "gelu_approximate": _TANH,
}


def get_activation(name: str) -> Activation:
    """The activation that a config names, as a function of a tensor and ``training``."""
    if name not in _GELUS:
        function = keras.activations.get(name)
        return lambda x, training: function(x)
    trained, inferred = _GELUS[name]
    return lambda x, training: ops.custom_gradient(trained)(x) if training else inferred(x)
