"""Variants of the training step for the devices and for XLA."""

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from bert_tf.graph_gradients import custom_gradient
from bert_tf.modeling.layers import Seed, StepPlan, add_bias, add_residual, bias_gradient
from bert_tf.modeling.transformer import ComputePlan, attend_full_batch, score_scale, softmax

from .dropout_masks import COUNTED, DRAWN, HASHED, Masks


def should_use_xla(jit_compile: str, device_type: str, changes_shapes: bool = False) -> bool:
    """Returns whether XLA compiles the step for a value of ``--jit_compile``; auto on GPUs only.

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
        """Whether attention in groups may be faster."""
        return not self.uses_xla and self.device_type == "CPU"

    @property
    def length_multiple(self) -> int:
        """Multiple of batch lengths; other devices than CPUs compile each length."""
        return 1 if self.device_type == "CPU" else 16

    @property
    def masks(self) -> Masks:
        """Method for drawing dropout masks."""
        if self.fuses_kernels:
            return HASHED
        return COUNTED if self.device_type == "GPU" else DRAWN

    def seed_device(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context for computing the seeds of the masks.

        TensorFlow converts seeds to keys on the host, so that seeds on a GPU would be copied back.
        """
        on_host = self.device_type == "GPU" and not self.uses_xla
        return tf.device("CPU:0") if on_host else contextlib.nullcontext()

    def clip(
        self, gradients: Sequence[tf.Tensor], clip_norm: float
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Clips gradients by their global norm; also returns the norm."""
        if self.fuses_kernels:
            norm = _global_norm(gradients)
            # XLA updates all variables of the same size in one kernel if they read an array, but
            # not if they read a scalar: 19 kernels for 158 variables.
            (scales,), _ = tf.clip_by_global_norm([tf.ones([2])], clip_norm, use_norm=norm)
            scale = _barrier(scales)[0]
            return [gradient * scale for gradient in gradients], norm
        if self.device_type == "CPU":
            return tf.clip_by_global_norm(gradients, clip_norm)
        # Without XLA, each operation is a kernel: four for one vector, instead of two per gradient.
        joined = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], axis=0)
        (clipped,), norm = tf.clip_by_global_norm([joined], clip_norm)
        parts = tf.split(clipped, [gradient.shape.num_elements() for gradient in gradients])
        shaped = zip(parts, gradients, strict=True)
        return [tf.reshape(part, gradient.shape) for part, gradient in shaped], norm

    @property
    def plan(self) -> StepPlan:
        """Plan of computation for the layers."""
        plan = StepPlan(self.masks.draw, tf.gather)  # ops.take would copy a size to the GPU.
        if not self.fuses_kernels:
            return plan
        blocks = TimeMajorPlan() if self.device_type == "GPU" else XlaPlan()
        return plan._replace(barrier=_barrier, blocks=blocks)


def _global_norm(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the Euclidean norm of all gradients, in few XLA kernels."""
    # One kernel per matrix and one for the rest; XLA would create two or three per gradient, or,
    # without the barrier, one per vector.
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


# Minimum number of elements of hidden states: 5,461 tokens of bert-base. With fewer, the additional
# kernels of a plan are estimated to take longer than the memory transfers that they save.
MIN_ELEMENTS = 1 << 22


def _attend_recomputed(projected: Any, rows: Any, heads: int, dropout: Any, causal: bool) -> Any:
    drop = functools.partial(dropout, training=True, seed=Seed(dropout.seed_generator))
    return _recompute(lambda x: attend_full_batch(x, rows, heads, drop, causal), projected)


class XlaPlan(ComputePlan):
    """Plan that recomputes attention weights and activations in the backward pass."""

    training_attention = staticmethod(_attend_recomputed)

    def suits(self, block: Any, hidden: Any, training: bool) -> bool:
        """Returns whether the hidden states are large and the kernels are not quantized."""
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
        """Computes the attention layer (R, H); stores the weights."""
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
    """Returns states for the residual, queries, keys and values, (R, H) each, and a gradient."""
    kernels, biases = tf.split(kernel, 3, axis=1), tf.split(bias, 3)

    def gradient(hidden_grad: Any, *part_grads: Any) -> tuple[Any, Any, Any]:
        kernel_grads = [tf.matmul(tf.transpose(hidden), part_grad) for part_grad in part_grads]
        bias_grads = [bias_gradient(part_grad, bias.dtype) for part_grad in part_grads]
        # XLA fuses the addition of a sum into a product if the sum is on the right.
        for part_grad, part in zip(part_grads, kernels, strict=True):
            hidden_grad = tf.matmul(part_grad, tf.transpose(part)) + hidden_grad
        kernel_grad = _barrier(tf.concat(kernel_grads, axis=1))
        return hidden_grad, kernel_grad, _barrier(tf.concat(bias_grads, axis=0))

    parts = zip(kernels, biases, strict=True)
    return [hidden, *(tf.matmul(hidden, part) + each for part, each in parts)], gradient
