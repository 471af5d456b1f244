"""What a step computes otherwise by its device, and by whether XLA compiles it."""

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
    """True if XLA is to compile a step, as ``--jit_compile`` has it; auto asks for it on a GPU.

    >>> should_use_xla("auto", "GPU"), should_use_xla("auto", "GPU", changes_shapes=True)
    (True, False)
    """
    asked = jit_compile == "true" or (jit_compile == "auto" and device_type == "GPU")
    return asked and not changes_shapes


class Compilation(NamedTuple):
    """The device of a step, and whether XLA compiles it.

    ``jit_compile``: XLA compiles on a CPU or a GPU; on a TPU it compiles everything regardless.
    """

    device_type: str = "CPU"
    jit_compile: bool = False

    @property
    def uses_xla(self) -> bool:
        """True if XLA compiles the gradients, so that shapes must be known: padding stays."""
        return self.jit_compile or self.device_type == "TPU"

    @property
    def fuses_kernels(self) -> bool:
        """True for programs that spare the memory's traffic; a CPU keeps its bits under XLA."""
        return self.uses_xla and self.device_type != "CPU"

    @property
    def groups_attention(self) -> bool:
        """True where attention in groups may take less time: a loop of the batch's lengths."""
        return not self.uses_xla and self.device_type == "CPU"

    @property
    def length_multiple(self) -> int:
        """What a batch's length is a multiple of; off a CPU each new length is compiled for."""
        return 1 if self.device_type == "CPU" else 16

    @property
    def masks(self) -> Masks:
        """The way in which dropout's masks are drawn."""
        if self.fuses_kernels:
            return HASHED
        return COUNTED if self.device_type == "GPU" else DRAWN

    def seed_device(self) -> contextlib.AbstractContextManager[Any]:
        """A context in which a step makes the seeds of its masks.

        TensorFlow makes keys of seeds on the host: each dropout would wait for its own, copied back
        from a GPU.
        """
        on_host = self.device_type == "GPU" and not self.uses_xla
        return tf.device("CPU:0") if on_host else contextlib.nullcontext()

    def clip(
        self, gradients: Sequence[tf.Tensor], clip_norm: float
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """The gradients clipped by their global norm, and that norm before."""
        if self.fuses_kernels:
            norm = _global_norm(gradients)
            # XLA updates all variables of a size by one kernel if one array is read for them, and
            # a number is none: 19 kernels for 158 variables.
            (scales,), _ = tf.clip_by_global_norm([tf.ones([2])], clip_norm, use_norm=norm)
            scale = _barrier(scales)[0]
            return [gradient * scale for gradient in gradients], norm
        if self.device_type == "CPU":
            return tf.clip_by_global_norm(gradients, clip_norm)
        # Without XLA each operation is a kernel: as one vector they are four, not two each.
        joined = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], axis=0)
        (clipped,), norm = tf.clip_by_global_norm([joined], clip_norm)
        parts = tf.split(clipped, [gradient.shape.num_elements() for gradient in gradients])
        shaped = zip(parts, gradients, strict=True)
        return [tf.reshape(part, gradient.shape) for part, gradient in shaped], norm

    @property
    def plan(self) -> StepPlan:
        """How the layers compute that are called in the step."""
        plan = StepPlan(self.masks.draw, tf.gather)  # ops.take copies a size to a GPU each time
        if not self.fuses_kernels:
            return plan
        blocks = TimeMajorPlan() if self.device_type == "GPU" else XlaPlan()
        return plan._replace(barrier=_barrier, blocks=blocks)


def _global_norm(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """The Euclidean norm of all gradients as one vector, by few kernels of XLA's."""
    # A kernel for each matrix and one for all that is left, where XLA makes two or three for the
    # norm of each gradient; without the barrier it would sum each vector by itself.
    squares = [tf.square(gradient) for gradient in gradients]
    rows = [tf.reduce_sum(each, axis=-1) if len(each.shape) > 1 else each for each in squares]
    joined = tf.concat([tf.reshape(row, [-1]) for row in rows], axis=0)
    return tf.sqrt(tf.reduce_sum(_barrier(joined)))


def _barrier(value: tf.Tensor) -> tf.Tensor:
    """The value as it is, behind which XLA does not look."""
    return gen_xla_ops.xla_optimization_barrier([value])[0]


def _recompute(function: Callable[..., tf.Tensor], *tensors: tf.Tensor) -> tf.Tensor:
    """``function(*tensors)``, which the backward pass calls again: only the tensors are kept."""

    def compute(*tensors: tf.Tensor) -> tuple[tf.Tensor, Callable[..., list[tf.Tensor]]]:
        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            # Behind a barrier, or XLA would find that all has been computed before.
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
# Left to itself, XLA keeps for the backward pass what is cheaper to compute again, and computes
# again what is cheaper to keep.


# Numbers in a block's states: 5,461 tokens of bert-base. With fewer, by estimate, the additional
# kernels of a plan take longer than the memory's traffic that they spare.
MIN_ELEMENTS = 1 << 22


def _attend_recomputed(projected: Any, rows: Any, heads: int, dropout: Any, causal: bool) -> Any:
    drop = functools.partial(dropout, training=True, seed=Seed(dropout.seed_generator))
    return _recompute(lambda x: attend_full_batch(x, rows, heads, drop, causal), projected)


class XlaPlan(ComputePlan):
    """A plan whose backward pass computes attention's weights and the activation again."""

    training_attention = staticmethod(_attend_recomputed)

    def suits(self, block: Any, hidden: Any, training: bool) -> bool:
        """Whether states are large, as is known, and no kernel that is read here is quantized."""
        is_large = None not in hidden.shape and math.prod(hidden.shape) >= MIN_ELEMENTS
        read = (block.attention.query_key_value, block.feed_forward_output)
        return training and is_large and not any(dense.quantization_mode for dense in read)

    def feed_forward(self, block: Any, states: Any, training: bool) -> Any:
        """Feeds (R, H) -> (R, H); the activation is not kept."""
        dense = block.feed_forward_output

        def output(inner: Any, kernel: Any, bias: Any) -> Any:
            products = tf.matmul(block.activation(inner, True), kernel)
            return custom_gradient(add_bias)(products, bias)

        inner = block.intermediate(states, training=training)
        variables = [tf.cast(each, inner.dtype) for each in (dense.kernel, dense.bias)]
        outputs = _recompute(output, inner, *variables)
        return add_residual(outputs, block.output_dropout, states, training)


class TimeMajorPlan(XlaPlan):
    """A plan whose rows are those of all first tokens, then of all second ones.

    So products of matrices read and write heads as they lie: as (S, B * N, D). One product for
    queries, keys and values would have to be copied in parts. Attention's weights are kept.
    """

    time_major = True

    def attention(self, block: Any, states: Any, rows: Any, training: bool) -> Any:
        """Attends (R, H) -> (R, H); the weights are kept."""
        attention, (batch, sequence) = block.attention, rows.sizes
        dense = attention.query_key_value
        variables = [tf.cast(each, states.dtype) for each in (dense.kernel, dense.bias)]
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
    """(R, H), (H, 3 * H), (3 * H,) -> states for the residual, queries, keys, values: (R, H)."""
    kernels, biases = tf.split(kernel, 3, axis=1), tf.split(bias, 3)

    def gradient(hidden_grad: Any, *part_grads: Any) -> tuple[Any, Any, Any]:
        kernel_grads = [tf.matmul(tf.transpose(hidden), part_grad) for part_grad in part_grads]
        bias_grads = [bias_gradient(part_grad, bias.dtype) for part_grad in part_grads]
        # XLA adds the sum so far, from the residual's on, within a product if it is on the right.
        for part_grad, part in zip(part_grads, kernels, strict=True):
            hidden_grad = tf.matmul(part_grad, tf.transpose(part)) + hidden_grad
        kernel_grad = _barrier(tf.concat(kernel_grads, axis=1))
        return hidden_grad, kernel_grad, _barrier(tf.concat(bias_grads, axis=0))

    parts = zip(kernels, biases, strict=True)
    return [hidden, *(tf.matmul(hidden, part) + each for part, each in parts)], gradient
