"""Basic layers: dense, normalization, activation, dropout.

They replace Keras layers that round too early or need more time or memory.
"""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.graph_gradients import custom_gradient, owned_by_graph

# === Initial values ===

_create: contextvars.ContextVar[Callable[[Any, Any], Any] | None] = contextvars.ContextVar(
    "_create", default=None
)


@contextlib.contextmanager
def initial_values(create: Callable[[Any, Any], Any]) -> Iterator[None]:
    """Creates matrices with ``create(shape, dtype)`` instead of drawing them, to be assigned later.

    Drawing weights takes longer than reading them from a checkpoint.
    """
    token = _create.set(create)
    try:
        yield
    finally:
        _create.reset(token)


class _Initializer(keras.initializers.TruncatedNormal):
    """Truncated normal distribution that supports ``initial_values``."""

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        """Returns the initial value of a weight."""
        create = _create.get() or super().__call__
        return create(shape, dtype)


def new_initializer(config: BertConfig) -> keras.initializers.Initializer:
    """Creates a truncated normal initializer with the config's ``initializer_range``.

    Each variable needs its own initializer; otherwise variables of equal shape get equal values.
    """
    return _Initializer(stddev=config.initializer_range)


# === Dense ===


def new_logits(
    config: BertConfig, units: int, name: str, policy: keras.DTypePolicy
) -> keras.layers.Dense:
    """Creates a task's output layer, which computes in float32 or float64."""
    return keras.layers.Dense(
        units,
        kernel_initializer=new_initializer(config),
        name=name,
        dtype=logits_dtype(policy.compute_dtype),
    )


def logits_dtype(dtype: str) -> str:
    """Returns the dtype of logits: float32, or float64 for a float64 input."""
    return str(keras.backend.result_type(dtype, "float32"))


def cast_to_logits_dtype(x: Any) -> Any:
    """Casts a tensor to the dtype of logits."""
    return ops.cast(x, logits_dtype(keras.backend.standardize_dtype(x.dtype)))


def add_bias(x: Any, bias: Any) -> tuple[Any, Any]:
    """Adds a bias (W,) to a tensor (..., W); also returns the gradient function."""
    return ops.add(x, bias), lambda upstream: (upstream, bias_gradient(upstream, bias.dtype))


def _add(x: Any, y: Any) -> tuple[Any, Any]:
    return ops.add(x, y), lambda upstream: (upstream, upstream)


def add_residual(x: Any, dropout: Callable[..., Any], residual: Any, training: bool) -> Any:
    """Adds a residual of the same shape to a tensor after dropout.

    TensorFlow's own gradient is slower: with an unknown number of rows, it compares shapes on the
    host.
    """
    x = dropout(x, training=training)
    return custom_gradient(_add)(x, residual) if training else x + residual


def bias_gradient(upstream: Any, dtype: Any) -> Any:
    """Sums gradients (..., W) to (W,), in float32 or float64."""
    rows = ops.reshape(cast_to_logits_dtype(upstream), (-1, upstream.shape[-1]))
    return ops.cast(ops.sum(rows, axis=0), dtype)


class _Dense(keras.layers.Dense):
    """Dense layer whose bias gradient is summed in float32 or float64.

    TensorFlow's CPU kernel adds bfloat16 values one by one: the sum of 4,096 ones is 256, because
    257 is not representable. TensorFlow's GPU kernel uses atomic operations.
    """

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        """Quantizes the layer without Keras' type check, which rejects subclasses."""
        super().quantize(*args, **{**kwargs, "type_check": False})

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Computes (..., units) from (..., W)."""
        # All devices are listed, because JAX fails if it is queried for GPUs and has none.
        devices = keras.distribution.list_devices() if training else []
        device_types = {name.partition(":")[0] for name in devices}
        is_narrow = self.compute_dtype != logits_dtype(self.compute_dtype)
        if not ("gpu" in device_types or (is_narrow and device_types == {"cpu"})):
            return super().call(inputs, training=training)
        products = ops.matmul(inputs, self.kernel)
        return custom_gradient(add_bias)(products, ops.cast(self.bias, products.dtype))


# The dtype for computing with ids and positions. TensorFlow computes int32 operations on the host,
# so a GPU would wait for copies.
INDEX_DTYPE = "int64"


class BertLayer(keras.layers.Layer):
    """Layer with sizes, dropout rates and initializers from a ``BertConfig``."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config

    def new_dense(self, units: int, name: str) -> keras.layers.Dense:
        """Creates a dense layer in this layer's dtype, with BERT's initializers."""
        return _Dense(
            units,
            kernel_initializer=new_initializer(self.config),
            name=name,
            dtype=self.dtype_policy,
        )

    def new_norm(self, name: str) -> "LayerNorm":
        """Creates a layer normalization in this layer's dtype."""
        return LayerNorm(self.config.layer_norm_eps, name=name, dtype=self.dtype_policy)

    def new_dropout(self, rate: float, seed_generator: Any, name: str) -> "Dropout":
        """Creates a dropout layer in this layer's dtype."""
        return Dropout(rate, seed_generator, name=name, dtype=self.dtype_policy)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments for serialization, without shared objects."""
        return {**super().get_config(), "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates the layer from the result of ``get_config``."""
        return cls(**{**config, "config": BertConfig.from_dict(config["config"])})


# === Normalization ===


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerNorm(keras.layers.Layer):
    """Layer normalization over the last axis, in float32 or float64 (Ba et al. 2016).

    ``keras.layers.LayerNormalization`` scales before it subtracts the mean, which is inaccurate if
    the mean is much larger than the standard deviation.
    """

    def __init__(self, epsilon: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.autocast = False  # float32 inputs must not be rounded before normalization

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates ``gamma`` (H,) with ones and ``beta`` (H,) with zeros."""
        shape = (input_shape[-1],)
        self.gamma = self.add_weight(name="gamma", shape=shape, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=shape, initializer="zeros")

    def call(self, inputs: Any, training: bool | None = False) -> Any:
        """Normalizes inputs (..., H) and returns them in the compute dtype."""
        dtype = keras.backend.result_type(inputs.dtype, "float32")
        x, gamma, beta = (ops.cast(v, dtype) for v in (inputs, self.gamma, self.beta))
        normalize_rows = _normalize_with_gradient(self.epsilon)
        if training:
            outputs = custom_gradient(normalize_rows)(x, gamma, beta)
        else:
            outputs, _ = normalize_rows(x, gamma, beta)
        return ops.cast(outputs, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments for serialization."""
        return {**super().get_config(), "epsilon": self.epsilon}


def _normalize_with_gradient(epsilon: float) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    barrier = current_plan().barrier

    def mean(x: Any) -> Any:
        if barrier is None:
            return ops.mean(x, axis=-1, keepdims=True)
        # The barrier makes the gradient reuse the mean. Otherwise XLA would store a float32 product
        # as large as the inputs. The division precedes the barrier to be part of the same kernel.
        return barrier(ops.sum(x * (1.0 / x.shape[-1]), axis=-1, keepdims=True))

    def normalize_rows(x: Any, gamma: Any, beta: Any) -> tuple[Any, Any]:
        centered = x - mean(x)
        inverse = ops.rsqrt(mean(ops.square(centered)) + epsilon)
        normal = centered * inverse

        def gradient(upstream: Any) -> tuple[Any, Any, Any]:
            # With n the normalized input and g = upstream * gamma:
            # dx = inverse * (g - mean(g) - n * mean(g * n)), means over the last axis.
            rows = tuple(range(len(x.shape) - 1))
            product = upstream * normal
            along = upstream * gamma
            level = ops.mean(along, axis=-1, keepdims=True)
            projection = ops.mean(product * gamma, axis=-1, keepdims=True)
            dx = (along - level - normal * projection) * inverse
            return dx, ops.sum(product, axis=rows), ops.sum(upstream, axis=rows)

        return normal * gamma + beta, gradient

    return normalize_rows


# === Activations ===
# The gradients are explicit: TensorFlow differentiates each elementwise operation of GELU, which
# takes twice the time in bfloat16. At inference, TensorFlow's graph optimizer fuses the exact GELU
# with a preceding matrix product and bias; a bfloat16 encoder is 10% faster.

_SQRT_HALF = math.sqrt(0.5)
_INVERSE_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715

Activation = Callable[[Any, bool], Any]


def _exact_gelu(x: Any) -> tuple[Any, Any]:
    """Computes GELU(x) = x * Phi(x), where Phi is the normal CDF; also returns the gradient."""
    phi = ops.erf(x * _SQRT_HALF) * 0.5 + 0.5

    def gradient(upstream: Any) -> Any:
        density = ops.exp(ops.square(x) * -0.5) * _INVERSE_SQRT_2PI
        return upstream * (phi + x * density)

    return x * phi, gradient


def _fusable_exact_gelu(x: Any) -> Any:
    return (x * 0.5) * (ops.erf(x * _SQRT_HALF) + 1.0)


def _tanh_gelu(x: Any) -> tuple[Any, Any]:
    """Computes GELU's tanh approximation (Hendrycks and Gimpel 2016); also returns the gradient."""
    # The limit keeps the square finite in float16. tanh is 1 far below |x| = 20.
    square = ops.minimum(ops.square(x), 400.0)
    tanh = ops.tanh(x * (square * (_SQRT_2_OVER_PI * _CUBIC) + _SQRT_2_OVER_PI))
    phi = tanh * 0.5 + 0.5

    def gradient(upstream: Any) -> Any:
        # phi' = (1 - tanh^2) / 2 * inner' = 2 * phi * (1 - phi) * inner'
        inner = square * (6.0 * _SQRT_2_OVER_PI * _CUBIC) + 2.0 * _SQRT_2_OVER_PI
        return upstream * (phi + x * (phi * (1.0 - phi)) * inner)

    return x * phi, gradient


# The function for training, which also returns the gradient, and the one for inference.
_TANH = (_tanh_gelu, lambda x: _tanh_gelu(x)[0])
_GELUS = {
    "gelu": (_exact_gelu, _fusable_exact_gelu),
    "gelu_new": _TANH,
    "gelu_pytorch_tanh": _TANH,
    "gelu_approximate": _TANH,
}


def get_activation(name: str) -> Activation:
    """Returns a config's activation as a function of a tensor and ``training``."""
    if name not in _GELUS:
        function = keras.activations.get(name)
        if name in ("silu", "swish"):  # they have a custom gradient
            function = owned_by_graph(function)
        return lambda x, training: function(x)
    in_training, in_inference = _GELUS[name]

    def activation(x: Any, training: bool) -> Any:
        return custom_gradient(in_training)(x) if training else in_inference(x)

    return activation


# === Dropout ===

LEVELS = 1 << 16  # number of values of sixteen random bits

# Draws sixteen random bits per element for a shape and a seed generator. Returns a function of a
# level that computes whether the bits of each element are at least that level.
Draw = Callable[[Sequence[Any], keras.random.SeedGenerator], Callable[[int], Any]]


def draw_in_pairs(shape: Sequence[Any], generator: Any) -> Callable[[int], Any]:
    """Draws two elements per 32-bit word; for CPUs, because TPUs pad two columns to 128."""
    count = 1
    for size in shape:
        count = count * size
    # (ceil(count / 2), 1) words of 32 bits -> (ceil(count / 2), 2) uniform int16
    words = keras.random.randint(
        ((count + 1) // 2, 1), -(2**31), 2**31 - 1, "int32", seed=generator
    )
    # The view goes through uint32, because a GPU reshapes int32 tensors on the host.
    draws = ops.reshape(ops.view(ops.view(words, "uint32"), "int16"), (-1,))
    if not isinstance(count, int) or count % 2:
        draws = draws[:count]
    return lambda level: ops.reshape(draws >= level - LEVELS // 2, shape)


class Seed:
    """Seed generator that returns the same value each time."""

    def __init__(self, generator: keras.random.SeedGenerator) -> None:
        self._value = generator.next()

    def next(self) -> Any:
        """Returns the seed (2,)."""
        return self._value


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Layer):
    """Dropout with shared seeds and sixteen random bits per element.

    Keras draws 32 bits per element, which is most of dropout's cost on a CPU. The rate is rounded
    to a multiple of 1/65536. If the inputs' dtype cannot represent the scale exactly, each
    remaining element is scaled by one of the two nearest representable values, chosen at random so
    that the expected scale is exact. A rounded scale would bias every activation.

    Args:
        rate: Dropout rate in [0, 1).
        seed_generator: Seed generator, which layers can share; by default a new one.
        **kwargs: ``name`` and ``dtype``, as for every Keras layer.
    """

    def __init__(
        self, rate: float, seed_generator: keras.random.SeedGenerator | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"dropout={rate}: expected at least 0 and less than 1.")
        self.supports_masking = True
        self.rate = rate
        self.seed_generator = seed_generator or keras.random.SeedGenerator(name="dropout_seed")
        self.built = True

    def call(self, inputs: Any, training: bool | None = False, seed: "Seed | None" = None) -> Any:
        """Applies dropout in training; otherwise returns the inputs.

        ``seed`` replaces the generator, so that the same mask can be drawn twice.
        """
        if not training or self.dropped == 0:
            return inputs
        generator = seed or self.seed_generator
        is_at_least = current_plan().draw(ops.shape(inputs), generator)
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        lower, upper, num_upper = _representable_scales(self.dropped, dtype)
        scale = ops.cast(lower, dtype)
        # The factors include the scale, so that each direction has only one product.
        factors = ops.zeros_like(scale)
        if num_upper:
            factors = ops.where(is_at_least(self.dropped), ops.cast(upper, dtype), factors)
        factors = ops.where(is_at_least(self.dropped + num_upper), scale, factors)
        drop = custom_gradient(lambda x: (x * factors, lambda upstream: upstream * factors))
        return drop(inputs)

    @property
    def dropped(self) -> int:
        """Number of levels at which an element is dropped."""
        return min(round(self.rate * LEVELS), LEVELS - 1)

    @property
    def scale(self) -> float:
        """Factor by which the remaining elements are multiplied."""
        return _scale(self.dropped)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the shape of the inputs."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments for serialization, without the seed generator."""
        return {**super().get_config(), "rate": self.rate}


def _scale(dropped: int) -> float:
    return LEVELS / (LEVELS - dropped)


# Binary digits of the significand.
_DIGITS = {"bfloat16": 8, "float16": 11}


def _representable_scales(dropped: int, dtype: str) -> tuple[float, float, int]:
    """Returns a dtype's two values next to the scale, and the number of levels with the upper one.

    The factors of all levels sum to exactly ``LEVELS``.
    """
    scale = _scale(dropped)
    if dtype not in _DIGITS:
        return scale, scale, 0
    step = 2.0 ** (math.frexp(scale)[1] - _DIGITS[dtype])
    lower = math.floor(scale / step) * step
    return lower, lower + step, round((LEVELS - (LEVELS - dropped) * lower) / step)


def seed_variables(model: keras.Model) -> list[Any]:
    """Returns the state variables of the model's seed generators.

    Each bert_tf model has one such variable, of shape (2,) and dtype int64 (uint32 with JAX).
    Dropout is a pure function of this value, so a custom training loop needs no other random
    state::

        seeds = [(variable, seed) for variable in seed_variables(model)]
        with keras.StatelessScope(state_mapping=seeds):
            outputs = model(batch, training=True)

    Each dropout layer adds 1 to the second value in a call. Seeds of different steps and replicas
    must differ in the first value, or be hashed.

    Args:
        model: A Keras model.

    Returns:
        List of variables, in the order of the layers.
    """
    weights = {id(variable) for variable in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


# === Plan of a training step ===


class StepPlan(NamedTuple):
    """Functions that layers call in a training step, chosen by device and compiler.

    Attributes:
        draw: Draws the dropout masks.
        take_rows: Takes rows of a matrix by nonnegative indices.
        barrier: Returns a tensor unchanged and makes XLA store it; ``None`` unless XLA compiles the
            step for a GPU or TPU.
        blocks: ``ComputePlan`` that replaces the plan of blocks that it supports, or ``None``.
    """

    draw: Draw = draw_in_pairs
    take_rows: Callable[[Any, Any], Any] = functools.partial(ops.take, axis=0)
    barrier: Callable[[Any], Any] | None = None
    blocks: Any = None


_plan: contextvars.ContextVar[StepPlan | None] = contextvars.ContextVar("_plan", default=None)


def current_plan() -> StepPlan:
    """Returns the plan of the training step that is being traced, or the default plan."""
    return _plan.get() or StepPlan()


@contextlib.contextmanager
def step_plan_scope(plan: StepPlan) -> Iterator[None]:
    """Makes layers use a plan within the context."""
    token = _plan.set(plan)
    try:
        yield
    finally:
        _plan.reset(token)
