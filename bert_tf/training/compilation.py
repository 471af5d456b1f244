"""Variants of the training step, and its dropout masks, for each device with and without XLA."""

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from bert_tf.graph_gradients import custom_gradient
from bert_tf.modeling.layers import (
    Draw,
    Seed,
    StepPlan,
    add_bias,
    add_residual,
    bias_gradient,
    draw_in_pairs,
)
from bert_tf.modeling.transformer import ComputePlan, attend_full_batch, score_scale, softmax

# === Stateless dropout masks ===
# A mask depends only on the run's seed, the step, the replica, the micro-batch, the index of the
# dropout layer and the position in the tensor, so checkpoints do not need to contain random state.


def dropout_seeds(
    seed: int, step: Any, replica: Any, micro_batch: Any, count: int, words: tf.DType = tf.int32
) -> tf.Tensor:
    """Returns independent seeds (count, 2) int64, one per seed generator.

    The seeds replace the counters of Keras' seed generators, because those counters are the same on
    all replicas and would have to be saved.

    >>> first, again = (dropout_seeds(7, 0, 0, 0, 1).numpy().tolist() for _ in range(2))
    >>> first == again, first == dropout_seeds(7, 0, 1, 0, 1).numpy().tolist()
    (True, False)
    """
    # Stateless operations take a key of two 32-bit numbers.
    key = tf.constant([seed & 0x7FFFFFFF, (seed >> 31) & 0x7FFFFFFF], tf.int32)
    for number in (step, replica, micro_batch):
        key = tf.random.fold_in(key, tf.cast(number, tf.int32))
    drawn = tf.random.stateless_uniform((count, 2), key, minval=None, maxval=None, dtype=words)
    return tf.cast(drawn, tf.int64)


# --- On a GPU without XLA ---


def draw_by_counter(shape: Sequence[Any], generator: Any) -> Callable[[int], tf.Tensor]:
    """Draws masks (``layers.Draw``) with Philox and the two words of ``generator`` as counter.

    The key is constant, because TensorFlow computes keys on the host, which would delay each
    dropout layer.
    """
    count = math.prod(shape)
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[(count + 1) // 2],
        key=tf.constant([0x9E3779B97F4A7C15], tf.uint64),
        counter=tf.bitcast(generator.next(), tf.uint64),
        alg=1,
        dtype=tf.uint32,
    )
    draws = tf.reshape(tf.bitcast(words, tf.uint16), [-1])[:count]
    return lambda level: tf.reshape(draws >= level, shape)


# --- With XLA, on a GPU or a TPU ---
# XLA does not fuse Philox or Threefry with the operations that use the random words. By contrast, a
# hash of the position is computed within the kernel that applies the mask.


def hashed_seeds(seed: int, step: Any, replica: Any, micro_batch: Any, count: int) -> tf.Tensor:
    """Returns seeds in the format of ``dropout_seeds``, with a hash that needs fewer operations."""
    key = tf.range(2 * count, dtype=tf.int32)
    key = _hash_words(tf.cast(key, tf.uint32))
    for number in (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF, step, replica, micro_batch):
        key = _hash_words(tf.bitwise.bitwise_xor(key, tf.cast(number, tf.uint32)))
    return tf.reshape(tf.cast(key, tf.int64), [count, 2])


def draw_by_hash(shape: Sequence[Any], generator: Any) -> Callable[[int], tf.Tensor]:
    """Draws masks (``layers.Draw``) by hashing positions with the two words of ``generator``.

    Positions are computed in the shape of the tensor, to avoid padding on devices that tile arrays.
    """
    first, second = tf.unstack(tf.cast(generator.next(), tf.uint32))
    # Broadcasting the seed first prevents XLA from folding the positions into a constant.
    positions, stride = tf.broadcast_to(first, shape), 1
    for axis in reversed(range(len(shape))):
        along = tf.cast(tf.range(shape[axis]), tf.uint32) * tf.cast(stride, tf.uint32)
        positions = positions + tf.reshape(along, [-1, *[1] * (len(shape) - 1 - axis)])
        stride *= shape[axis]
    words = _hash_words(tf.bitwise.bitwise_xor(_hash_words(positions), second))
    return lambda level: words >= tf.constant(level << 16, tf.uint32)


def _hash_words(words: tf.Tensor) -> tf.Tensor:
    """Hashes uint32 numbers bijectively.

    Source: C. Wellons, "Prospecting for Hash Functions", 2018: lowbias32.
    """
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        words = _xor_shift(words, shift) * tf.constant(factor, tf.uint32)
    return _xor_shift(words, 16)


def _xor_shift(words: tf.Tensor, shift: int) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(
        words, tf.bitwise.right_shift(words, tf.constant(shift, tf.uint32))
    )


class Masks(NamedTuple):
    """Method for drawing masks: functions that draw seeds, and masks from seeds."""

    name: str
    seeds: Callable[..., tf.Tensor]
    draw: Draw


DRAWN = Masks("keys", dropout_seeds, draw_in_pairs)
COUNTED = Masks("a counter", functools.partial(dropout_seeds, words=tf.int64), draw_by_counter)
HASHED = Masks("a hash", hashed_seeds, draw_by_hash)


# === The variant of a step ===


def should_use_xla(jit_compile: str, device_type: str, changes_shapes: bool = False) -> bool:
    """Returns whether to compile the step with XLA: "auto" on GPUs only; never if shapes change.

    >>> should_use_xla("auto", "GPU"), should_use_xla("auto", "GPU", changes_shapes=True)
    (True, False)
    """
    is_enabled = jit_compile == "true" or (jit_compile == "auto" and device_type == "GPU")
    return is_enabled and not changes_shapes


class Compilation(NamedTuple):
    """Device of a step, and whether XLA compiles it.

    ``jit_compile`` applies to CPUs and GPUs; on TPUs, XLA compiles everything.
    """

    device_type: str = "CPU"
    jit_compile: bool = False

    @property
    def uses_xla(self) -> bool:
        """Whether XLA compiles the gradients, which requires static shapes and padding."""
        return self.jit_compile or self.device_type == "TPU"

    @property
    def fuses_kernels(self) -> bool:
        """Whether operations are rearranged for fusion; not on CPUs, to keep results unchanged."""
        return self.uses_xla and self.device_type != "CPU"

    @property
    def groups_attention(self) -> bool:
        """Whether ``attend_in_groups`` may be faster than standard attention."""
        return not self.uses_xla and self.device_type == "CPU"

    @property
    def length_multiple(self) -> int:
        """Multiple to which batch lengths are padded, to compile fewer lengths on GPUs and TPUs."""
        return 1 if self.device_type == "CPU" else 16

    @property
    def masks(self) -> Masks:
        """Method for drawing dropout masks."""
        if self.fuses_kernels:
            return HASHED
        return COUNTED if self.device_type == "GPU" else DRAWN

    def seed_device(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context for computing the seeds of the masks.

        TensorFlow converts seeds to keys on the host, so seeds on a GPU would be copied back.
        """
        on_host = self.device_type == "GPU" and not self.uses_xla
        return tf.device("CPU:0") if on_host else contextlib.nullcontext()

    def clip(
        self, gradients: Sequence[tf.Tensor], clip_norm: float
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Clips gradients by their global norm; also returns the norm."""
        if self.fuses_kernels:
            norm = _global_norm(gradients)
            # XLA updates all variables of the same size in one kernel if the updates read an array,
            # but not if they read a scalar. With an array, 158 variables take 19 kernels.
            (scales,), _ = tf.clip_by_global_norm([tf.ones([2])], clip_norm, use_norm=norm)
            scale = _barrier(scales)[0]
            return [gradient * scale for gradient in gradients], norm
        if self.device_type == "CPU":
            return tf.clip_by_global_norm(gradients, clip_norm)
        # Without XLA, each operation is a kernel. One vector takes four kernels in total; separate
        # gradients take two kernels each.
        joined = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], axis=0)
        (clipped,), norm = tf.clip_by_global_norm([joined], clip_norm)
        parts = tf.split(clipped, [gradient.shape.num_elements() for gradient in gradients])
        shaped = zip(parts, gradients, strict=True)
        return [tf.reshape(part, gradient.shape) for part, gradient in shaped], norm

    @property
    def plan(self) -> StepPlan:
        """Computation plan for the layers."""
        plan = StepPlan(self.masks.draw, tf.gather)  # ops.take would copy a size to the GPU.
        if not self.fuses_kernels:
            return plan
        blocks = TimeMajorPlan() if self.device_type == "GPU" else XlaPlan()
        return plan._replace(barrier=_barrier, blocks=blocks)


def _global_norm(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the Euclidean norm of all gradients, in few XLA kernels."""
    # This takes one kernel per matrix and one for the rest. By default, XLA would create two or
    # three kernels per gradient; without the barrier, it would create one per vector.
    squares = [tf.square(gradient) for gradient in gradients]
    rows = [tf.reduce_sum(each, axis=-1) if len(each.shape) > 1 else each for each in squares]
    joined = tf.concat([tf.reshape(row, [-1]) for row in rows], axis=0)
    return tf.sqrt(tf.reduce_sum(_barrier(joined)))


def _barrier(value: tf.Tensor) -> tf.Tensor:
    """Returns the value unchanged; XLA does not optimize across it."""
    return gen_xla_ops.xla_optimization_barrier([value])[0]


def _recompute(function: Callable[..., tf.Tensor], *tensors: tf.Tensor) -> tf.Tensor:
    """Returns ``function(*tensors)``; the backward pass recomputes it from the tensors."""

    def compute(*tensors: tf.Tensor) -> tuple[tf.Tensor, Callable[..., list[tf.Tensor]]]:
        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            # Without the barrier, XLA would reuse the results of the forward pass.
            *kept, upstream = gen_xla_ops.xla_optimization_barrier([*tensors, upstream])
            with tf.GradientTape() as tape:
                tape.watch(kept)
                outputs = function(*kept)
            gradients: list[tf.Tensor] = tape.gradient(outputs, kept, upstream)
            return gradients

        return function(*tensors), gradient

    computed: tf.Tensor = custom_gradient(compute)(*tensors)
    return computed


# === Large blocks that XLA compiles for a GPU or a TPU ===
# These plans choose the values to store for the backward pass; XLA's choice is slower.


# Minimum number of elements in the hidden states: 5,461 tokens for BERT-base. With fewer elements,
# a plan's extra kernels are estimated to take longer than the memory transfers that they avoid.
MIN_ELEMENTS = 1 << 22


def _attend_recomputed(projected: Any, rows: Any, heads: int, dropout: Any, causal: bool) -> Any:
    drop = functools.partial(dropout, training=True, seed=Seed(dropout.seed_generator))
    return _recompute(lambda x: attend_full_batch(x, rows, heads, drop, causal), projected)


class XlaPlan(ComputePlan):
    """Plan that recomputes attention weights and activations in the backward pass."""

    training_attention = staticmethod(_attend_recomputed)

    def suits(self, block: Any, hidden: Any, training: bool) -> bool:
        """Returns whether to use the plan: to train with large states and unquantized kernels."""
        is_large = None not in hidden.shape and math.prod(hidden.shape) >= MIN_ELEMENTS
        layers = (block.attention.query_key_value, block.feed_forward_output)
        return training and is_large and not any(dense.quantization_mode for dense in layers)

    def feed_forward(self, block: Any, states: Any, training: bool) -> Any:
        """Computes the feed-forward layer (R, H); does not store the activation."""
        dense = block.feed_forward_output

        def output(inner: Any, kernel: Any, bias: Any) -> Any:
            products = tf.matmul(block.activation(inner, True), kernel)
            return custom_gradient(add_bias)(products, bias)

        inner = block.intermediate(states, training=training)
        variables = [tf.cast(weight, inner.dtype) for weight in (dense.kernel, dense.bias)]
        outputs = _recompute(output, inner, *variables)
        return add_residual(outputs, block.output_dropout, states, training)


class TimeMajorPlan(XlaPlan):
    """Time-major plan, with the rows of all first tokens before those of all second tokens.

    Matrix products then read and write heads as (S, B * N, D) without copies. The attention weights
    are stored.
    """

    time_major = True

    def attention(self, block: Any, states: Any, rows: Any, training: bool) -> Any:
        """Computes the attention layer (R, H); stores the attention weights."""
        attention, (batch, sequence) = block.attention, rows.sizes
        dense = attention.query_key_value
        variables = [tf.cast(weight, states.dtype) for weight in (dense.kernel, dense.bias)]
        states, *parts = custom_gradient(_project_by_parts)(states, *variables)
        # (S * B, H) -> (S, B, N, D) -> (B, N, S, D)
        shape = (sequence, batch, block.config.num_attention_heads, -1)
        query, key, value = (tf.transpose(tf.reshape(part, shape), (1, 2, 0, 3)) for part in parts)
        scores = tf.matmul(query, tf.transpose(key, (0, 1, 3, 2))) * score_scale(query)
        weights = softmax(scores, rows.keys, block.config.is_decoder)
        contexts = tf.matmul(attention.dropout(weights, training=True), value)
        contexts = tf.reshape(tf.transpose(contexts, (2, 0, 1, 3)), states.shape)
        attended = attention.attention_output(contexts, training=training)
        return add_residual(attended, block.attention_dropout, states, training)


def _project_by_parts(hidden: Any, kernel: Any, bias: Any) -> tuple[list[Any], Callable[..., Any]]:
    """Returns [residual states, queries, keys, values], each (R, H), and a gradient function."""
    kernels, biases = tf.split(kernel, 3, axis=1), tf.split(bias, 3)

    def gradient(hidden_grad: Any, *part_grads: Any) -> tuple[Any, Any, Any]:
        kernel_grads = [tf.matmul(tf.transpose(hidden), part_grad) for part_grad in part_grads]
        bias_grads = [bias_gradient(part_grad, bias.dtype) for part_grad in part_grads]
        # XLA fuses an addition into a matrix product if the other addend is on the right.
        for part_grad, part in zip(part_grads, kernels, strict=True):
            hidden_grad = tf.matmul(part_grad, tf.transpose(part)) + hidden_grad
        kernel_grad = _barrier(tf.concat(kernel_grads, axis=1))
        return hidden_grad, kernel_grad, _barrier(tf.concat(bias_grads, axis=0))

    parts = zip(kernels, biases, strict=True)
    return [hidden, *(tf.matmul(hidden, part) + each for part, each in parts)], gradient
