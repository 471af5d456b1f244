"""What a step computes otherwise by its device, and by whether XLA compiles it."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from bert_tf.graph_gradients import custom_gradient
from bert_tf.modeling.xla_plan import Plan

from .dropout_masks import COUNTED, DRAWN, HASHED, Masks


def asks_for_xla(jit_compile: str, device_type: str, changes_shapes: bool = False) -> bool:
    """True if XLA is to compile a step, as ``--jit_compile`` has it; auto asks for it on a GPU.

    >>> asks_for_xla("auto", "GPU"), asks_for_xla("auto", "GPU", changes_shapes=True)
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
    def by_xla(self) -> bool:
        """True if XLA compiles the gradients, so that shapes must be known: padding stays."""
        return self.jit_compile or self.device_type == "TPU"

    @property
    def joins_kernels(self) -> bool:
        """True for programs that spare the memory's traffic; a CPU keeps its bits under XLA."""
        return self.by_xla and self.device_type != "CPU"

    @property
    def groups_attention(self) -> bool:
        """True where attention in groups may take less time: a loop of the batch's lengths."""
        return not self.by_xla and self.device_type == "CPU"

    @property
    def length_multiple(self) -> int:
        """What a batch's length is a multiple of; off a CPU each new length is compiled for."""
        return 1 if self.device_type == "CPU" else 16

    @property
    def masks(self) -> Masks:
        """The way in which dropout's masks are drawn."""
        if self.joins_kernels:
            return HASHED
        return COUNTED if self.device_type == "GPU" else DRAWN

    def place_of_seeds(self) -> contextlib.AbstractContextManager[Any]:
        """A context in which a step makes the seeds of its masks.

        TensorFlow makes keys of seeds on the host: each dropout would wait for its own, copied back
        from a GPU.
        """
        on_host = self.device_type == "GPU" and not self.by_xla
        return tf.device("CPU:0") if on_host else contextlib.nullcontext()

    def clip(
        self, gradients: Sequence[tf.Tensor], clip_norm: float
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """The gradients clipped by their global norm, and that norm before."""
        if self.joins_kernels:
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
    def plan(self) -> Plan | None:
        """What layers keep for the backward pass, and what they compute again."""
        if not self.joins_kernels:
            return None
        return Plan(_barrier, _again, places_first=self.device_type == "GPU")


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


def _again(function: Callable[..., tf.Tensor], *tensors: tf.Tensor) -> tf.Tensor:
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
