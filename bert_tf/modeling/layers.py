"""The layers of which all others are made: dense, normalised, activated, dropped out, pooled.

Keras' own are replaced where they round too early or take more time or memory.
"""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import keras
from keras import ops

from bert_tf.choices import POOLINGS
from bert_tf.config import BertConfig
from bert_tf.graph_gradients import custom_gradient, owned_by_graph

# === Dense ===


def new_initializer(config: BertConfig) -> keras.initializers.Initializer:
    """A truncated normal of the config's range.

    Each variable takes a new one: one instance would start variables of equal shape equally.
    """
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def new_logits(
    config: BertConfig, units: int, name: str, policy: keras.DTypePolicy
) -> keras.layers.Dense:
    """A task's output layer: dense, in float32 at least, its kernel drawn as BERT's are."""
    return keras.layers.Dense(
        units,
        kernel_initializer=new_initializer(config),
        name=name,
        dtype=logits_dtype(policy.compute_dtype),
    )


def logits_dtype(dtype: str) -> str:
    """The dtype of logits: float32 at least."""
    return str(keras.backend.result_type(dtype, "float32"))


def cast_to_logits_dtype(x: Any) -> Any:
    """A tensor in the dtype of logits."""
    return ops.cast(x, logits_dtype(keras.backend.standardize_dtype(x.dtype)))


def add_bias(x: Any, bias: Any) -> tuple[Any, Any]:
    """(..., W) + (W,), and the gradients of both."""
    return ops.add(x, bias), lambda upstream: (upstream, bias_gradient(upstream, bias.dtype))


def _add(x: Any, y: Any) -> tuple[Any, Any]:
    return ops.add(x, y), lambda upstream: (upstream, upstream)


def add_residual(x: Any, dropout: Callable[..., Any], residual: Any, training: bool) -> Any:
    """The sum of two tensors of one shape, the first of them dropped out.

    Where the number of rows is not known when a step is traced, TensorFlow's own gradient compares
    shapes on the host and sums over no axis.
    """
    x = dropout(x, training=training)
    return custom_gradient(_add)(x, residual) if training else x + residual


def bias_gradient(upstream: Any, dtype: Any) -> Any:
    """(..., W) -> (W,), summed in float32 at least."""
    rows = ops.reshape(cast_to_logits_dtype(upstream), (-1, upstream.shape[-1]))
    return ops.cast(ops.sum(rows, axis=0), dtype)


class _Dense(keras.layers.Dense):
    """A dense layer whose bias's gradient is summed over the rows in float32 at least.

    TensorFlow's kernel for it adds bfloat16 numbers one by one: on a CPU 4,096 ones make 256, where
    the type's steps become 2, and on a GPU by atomic operations.
    """

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        """Quantizes the layer without the check of its type, by which Keras refuses subclasses."""
        super().quantize(*args, **{**kwargs, "type_check": False})

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """(..., W) -> (..., units)."""
        # JAX fails if it is asked for GPUs where there are none.
        devices = keras.distribution.list_devices() if training else []
        kinds = {name.partition(":")[0] for name in devices}
        is_narrow = self.compute_dtype != logits_dtype(self.compute_dtype)
        if not ("gpu" in kinds or (is_narrow and kinds == {"cpu"})):
            return super().call(inputs, training=training)
        products = ops.matmul(inputs, self.kernel)
        return custom_gradient(add_bias)(products, ops.cast(self.bias, products.dtype))


# The dtype of what is computed with ids and places: TensorFlow computes with int32 on the host, as
# it does with shapes, and a GPU would wait for copies there and back.
INDEX_DTYPE = "int64"


class BertLayer(keras.layers.Layer):
    """A layer whose sizes, rates and initial values come from a ``BertConfig``."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config

    def new_dense(self, units: int, name: str) -> keras.layers.Dense:
        """A dense layer in this layer's dtype that starts as BERT's do; its bias starts at 0."""
        return _Dense(
            units,
            kernel_initializer=new_initializer(self.config),
            name=name,
            dtype=self.dtype_policy,
        )

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON; what layers share is the model's to give."""
        return {**super().get_config(), "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The layer that ``get_config`` describes."""
        return cls(**{**config, "config": BertConfig.from_dict(config["config"])})


# === Normalisation ===


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerNorm(keras.layers.Layer):
    """Normalises over the last axis, in float32 at least, then scales and shifts (Ba et al. 2016).

    ``keras.layers.LayerNormalization`` scales before it subtracts the mean, which cancels badly
    where the mean is large against the deviation.
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
        normalize_rows = _normalize_with_gradient(self.epsilon)
        if training:
            outputs = custom_gradient(normalize_rows)(x, gamma, beta)
        else:
            outputs, _ = normalize_rows(x, gamma, beta)
        return ops.cast(outputs, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "epsilon": self.epsilon}


def _normalize_with_gradient(epsilon: float) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    barrier = current_plan().barrier

    def mean(x: Any) -> Any:
        if barrier is None:
            return ops.mean(x, axis=-1, keepdims=True)
        # Kept, so that the gradient's parts are computed from inputs alone: else XLA writes their
        # product with the normalised input, float32 and as large as that, to memory. As shares,
        # x / W each, or a kernel would divide behind the barrier.
        return barrier(ops.sum(x * (1.0 / x.shape[-1]), axis=-1, keepdims=True))

    def normalize_rows(x: Any, gamma: Any, beta: Any) -> tuple[Any, Any]:
        centered = x - mean(x)
        inverse = ops.rsqrt(mean(ops.square(centered)) + epsilon)
        normal = centered * inverse

        def gradient(upstream: Any) -> tuple[Any, Any, Any]:
            # With n the normalised input and g = upstream * gamma:
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
# GELU's gradient is written out: TensorFlow differentiates each of the elementwise operations that
# GELU is composed of, which in bfloat16 takes twice the time. At inference the exact GELU is as
# TensorFlow's graph optimiser knows it: behind a matrix product and its bias it is part of the same
# operation, and a bfloat16 encoder a tenth faster.

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
        if name in ("silu", "swish"):  # TensorFlow has a custom gradient of it
            function = owned_by_graph(function)
        return lambda x, training: function(x)
    in_training, in_inference = _GELUS[name]

    def activation(x: Any, training: bool) -> Any:
        return custom_gradient(in_training)(x) if training else in_inference(x)

    return activation


# === Dropout ===

LEVELS = 1 << 16  # what sixteen random bits distinguish

# Takes a shape and a generator, and draws sixteen bits for each element. Returns a function of a
# level: whether an element's bits are at least that number, bool of that shape.
Draw = Callable[[Sequence[Any], keras.random.SeedGenerator], Callable[[int], Any]]


def draw_in_pairs(shape: Sequence[Any], generator: Any) -> Callable[[int], Any]:
    """Draws two elements a word, for CPUs: a device that tiles arrays pads two columns to 128."""
    count = 1
    for size in shape:
        count = count * size
    # (ceil(count / 2), 1) words of 32 bits -> (ceil(count / 2), 2) uniform int16
    words = keras.random.randint(
        ((count + 1) // 2, 1), -(2**31), 2**31 - 1, "int32", seed=generator
    )
    # By way of uint32: a GPU's kernel for another shape of int32 numbers runs on the host.
    draws = ops.reshape(ops.view(ops.view(words, "uint32"), "int16"), (-1,))
    if not isinstance(count, int) or count % 2:
        draws = draws[:count]
    return lambda level: ops.reshape(draws >= level - LEVELS // 2, shape)


class Seed:
    """One value of a generator: each ``next`` returns it again."""

    def __init__(self, generator: keras.random.SeedGenerator) -> None:
        self._value = generator.next()

    def next(self) -> Any:
        """(2,), the same each time."""
        return self._value


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Layer):
    """Sets elements to 0 at a given rate in [0, 1) and scales the others, in training only.

    Unlike ``keras.layers.Dropout`` it can share its seeds with other layers, and it draws sixteen
    random bits an element where Keras draws thirty-two: drawing is most of dropout's cost on a CPU.
    The rate is rounded to a multiple of 1/65536, and the scale is that of the rounded rate. Where
    the inputs' dtype cannot represent the scale, each kept element draws one of the two nearest
    numbers, such that their expected value is the scale: rounded, it would bias every activation.
    """

    def __init__(
        self, rate: float, seed_generator: keras.random.SeedGenerator | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"The dropout rate must be at least 0 and less than 1, got {rate}.")
        self.supports_masking = True
        self.rate = rate
        self.seed_generator = seed_generator or keras.random.SeedGenerator(name="dropout_seed")
        self.built = True

    def call(self, inputs: Any, training: bool | None = False, seed: "Seed | None" = None) -> Any:
        """Drops elements of a float tensor of any shape; outside training, returns it as it is.

        ``seed``, of a mask that is drawn twice, stands in for the generator's next one.
        """
        if not training or self.dropped == 0:
            return inputs
        generator = seed or self.seed_generator
        is_at_least = current_plan().draw(ops.shape(inputs), generator)
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        lower, upper, num_upper = _representable_scales(self.dropped, dtype)
        scale = ops.cast(lower, dtype)
        # One product in each direction: what multiplies holds the scale already.
        factors = ops.zeros_like(scale)
        if num_upper:
            factors = ops.where(is_at_least(self.dropped), ops.cast(upper, dtype), factors)
        factors = ops.where(is_at_least(self.dropped + num_upper), scale, factors)
        drop = custom_gradient(lambda x: (x * factors, lambda upstream: upstream * factors))
        return drop(inputs)

    @property
    def dropped(self) -> int:
        """Number of the levels that drop an element."""
        return min(round(self.rate * LEVELS), LEVELS - 1)

    @property
    def scale(self) -> float:
        """Factor of the elements that are kept."""
        return _scale(self.dropped)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The input's shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """The rate; the seed generator is the model's to give."""
        return {**super().get_config(), "rate": self.rate}


def _scale(dropped: int) -> float:
    return LEVELS / (LEVELS - dropped)


# Binary digits of a number's significand.
_DIGITS = {"bfloat16": 8, "float16": 11}


def _representable_scales(dropped: int, dtype: str) -> tuple[float, float, int]:
    """The two numbers of a dtype next to the scale, and the number of kept levels of the upper one.

    The factors of all levels add up to ``LEVELS`` exactly.
    """
    scale = _scale(dropped)
    if dtype not in _DIGITS:
        return scale, scale, 0
    step = 2.0 ** (math.frexp(scale)[1] - _DIGITS[dtype])
    lower = math.floor(scale / step) * step
    return lower, lower + step, round((LEVELS - (LEVELS - dropped) * lower) / step)


def seed_variables(model: keras.Model) -> list[Any]:
    """The state variables of the model's seed generators, in the order of its layers.

    Each of the library's models has exactly one, of shape (2,); int64, under JAX uint32. Dropout is
    a pure function of its value, so a training loop needs no random state of its own::

        seeds = [(variable, seed) for variable in seed_variables(model)]
        with keras.StatelessScope(state_mapping=seeds):
            outputs = model(batch, training=True)

    Each dropout of a call adds 1 to the second number: seeds of other steps and replicas differ in
    the first, or are hashed.
    """
    weights = {id(variable) for variable in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


# === What depends on the step in which layers are called ===


class StepPlan(NamedTuple):
    """How layers compute in a training's step, by its device and by what compiles it.

    Attributes:
        draw: how the masks of dropout are drawn.
        take_rows: how rows of a matrix are taken by their numbers, none negative.
        barrier: a function that returns a tensor unchanged, behind which XLA does not look, so that
            it keeps the tensor; ``None`` if XLA does not compile the step for a GPU or a TPU.
        blocks: a ``transformer.ComputePlan`` for the blocks that it suits; ``None``: for none.
    """

    draw: Draw = draw_in_pairs
    take_rows: Callable[[Any, Any], Any] = functools.partial(ops.take, axis=0)
    barrier: Callable[[Any], Any] | None = None
    blocks: Any = None


_plan: contextvars.ContextVar[StepPlan | None] = contextvars.ContextVar("_plan", default=None)


def current_plan() -> StepPlan:
    """The plan of the step that is traced; outside of a training's step, the default."""
    return _plan.get() or StepPlan()


@contextlib.contextmanager
def step_plan_scope(plan: StepPlan) -> Iterator[None]:
    """A context in which layers follow a plan."""
    token = _plan.set(plan)
    try:
        yield
    finally:
        _plan.reset(token)


# === Pooling: the vectors of a text's tokens to one ===


def pool(states: Any, mask: Any, pooling: str) -> Any:
    """(B, S, H) states and the (B, S) mask, 1 = real -> (B, H); ``none`` gives the states.

    Over all real tokens, [CLS] and [SEP] among them, as sentence-transformers does (Reimers and
    Gurevych 2019, section 3): so its models give the embeddings that they were trained for.
    """
    if pooling not in POOLINGS:
        raise ValueError(f"pooling is {pooling!r}, expected one of {', '.join(POOLINGS)}.")
    if pooling == "none":
        return states
    if pooling == "cls":
        return states[:, 0]
    if pooling == "last":
        return _last_token_state(states, mask)
    # (B, S, 1)
    is_real = ops.cast(mask, "bool")[:, :, None]
    if pooling == "max":
        return ops.max(ops.where(is_real, states, ops.cast(-float("inf"), states.dtype)), axis=1)
    # Chosen, not multiplied by 0: what padding has may be infinite.
    total = ops.sum(ops.where(is_real, states, ops.zeros_like(states)), axis=1)
    return total / ops.cast(ops.sum(mask, axis=1)[:, None], states.dtype)


def _last_token_state(states: Any, mask: Any) -> Any:
    """(B, S, H) -> (B, H): the last real token's state; a row of nothing but padding: the first."""
    batch, sequence, width = ops.shape(states)
    places = ops.max(mask * ops.arange(sequence, dtype=mask.dtype), axis=1)
    places = places + ops.arange(batch, dtype=mask.dtype) * ops.cast(sequence, mask.dtype)
    return ops.take(ops.reshape(states, (-1, width)), places, axis=0)


def normalize(vectors: Any) -> Any:
    """Scales vectors (..., H) to the Euclidean length 1; a vector of zeros stays one."""
    return ops.normalize(vectors, axis=-1, order=2)


class Pooling(keras.layers.Layer):
    """Pooling for a head without a pooler: the mean or maximum over a text's tokens.

    It computes in float32 at least: a sum of hundreds of states loses digits in less.
    """

    def __init__(self, pooling: str, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.pooling = pooling

    def call(self, hidden: Any, real_tokens: Any) -> Any:
        """(B, S, H) states and the (B, S) mask -> (B, H)."""
        # The first token counts as real, so that a row of nothing but padding gives numbers too.
        mask = ops.concatenate([ops.ones_like(real_tokens[:, :1]), real_tokens[:, 1:]], axis=1)
        states = ops.cast(hidden, keras.backend.result_type(hidden.dtype, "float32"))
        return pool(states, mask, self.pooling)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {**super().get_config(), "pooling": self.pooling}
