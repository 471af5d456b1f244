"""Training step of one replica, which runs inside ``strategy.run``.

Each replica splits its part of a batch into micro-batches. The gradients of each micro-batch's
contribution to the batch's mean loss are summed over micro-batches and replicas, clipped and
applied. The numbers of replicas and micro-batches affect only rounding and dropout masks.

Dimensions: B batch, K micro-batches.
"""

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf import features, modeling
from bert_tf.graph_gradients import sum_over_replicas, traced_in_owner
from bert_tf.modeling.keras_hooks import without_reduction
from bert_tf.modeling.layers import step_plan_scope

from .compilation import Compilation

# Nested tensors (B, ...) by name, including the positions of the examples (``features.CURSOR``).
Batch = Mapping[str, Any]


class Objective(abc.ABC):
    """Training objective: the mean loss of a batch, computed from sums over parts of the batch."""

    # Number of sums that ``part`` returns.
    num_sums: int

    @abc.abstractmethod
    def totals(self, batch: Batch) -> list[tf.Tensor]:
        """Returns the divisors of the mean loss; called inside ``strategy.run``."""

    @abc.abstractmethod
    def part(self, batch: Batch, totals: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs the model in training mode on a part of a batch.

        Returns:
            The contribution to the mean loss, and float32 sums (``num_sums``,). The caller adds
            both up over micro-batches and replicas.
        """

    @abc.abstractmethod
    def loss(self, sums: tf.Tensor) -> tf.Tensor:
        """Returns the mean loss of the batch from its sums."""


class ReplicaStep:
    """Training step of one replica; call ``run`` inside ``strategy.run``.

    The step itself, rather than the optimizer, sums gradients over the replicas, because they are
    clipped afterwards. ``micro_batches`` is K. With one replica, XLA compiles the complete step;
    with several replicas, it compiles only the gradients.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        objective: Objective,
        *,
        seed: int,
        micro_batches: int,
        clip_norm: float,
        num_replicas: int,
        compilation: Compilation,
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._objective = objective
        self._apply = without_reduction(optimizer)
        self._seed = seed
        self._seed_variables = modeling.seed_variables(model)
        self._micro_batches = micro_batches
        self._clip_norm = clip_norm
        self._compilation = self._update_compilation = compilation
        self._gradients: Callable[..., Any] = self.sum_gradients
        self.run: Callable[[Batch], tuple[tf.Tensor, ...]] = self
        if compilation.jit_compile and compilation.device_type != "TPU":
            # Strategies do not support XLA around collective operations or, on GPUs, around the
            # increment of Keras' update counter.
            if num_replicas == 1:
                self.run = tf.function(self.__call__, jit_compile=True, autograph=False)
            else:
                self._gradients = tf.function(self.sum_gradients, jit_compile=True)
                self._update_compilation = compilation._replace(jit_compile=False)

    def __call__(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Updates the weights with this replica's part of a batch.

        Returns:
            Four items: the objective's sums over all replicas; the mean loss and the gradients'
            global norm before clipping, (2,); the learning rate; and the cursors from ``reduce``.
        """
        rate = tf.cast(tf.convert_to_tensor(self._optimizer.learning_rate), tf.float32)
        gradients, (sums, norm, cursors) = self.reduce(batch)
        self._apply(gradients, self._model.trainable_variables)
        return sums, tf.stack([self._objective.loss(sums), norm]), rate, cursors

    def reduce(
        self, batch: Batch
    ) -> tuple[list[tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
        """Computes the clipped gradients of all replicas.

        Returns:
            The gradients, and a tuple of three items: the objective's sums; the gradients' global
            norm before clipping; and the cursor of each replica's last example, (replicas, C).
        """
        context = tf.distribute.get_replica_context()
        rows = {key: value for key, value in batch.items() if key != features.CURSOR}
        step = tf.convert_to_tensor(self._optimizer.iterations.value)
        replica = tf.convert_to_tensor(context.replica_id_in_sync_group)
        gradients, sums = self._gradients(rows, step, replica, self._objective.totals(rows))
        cursor = batch[features.CURSOR][-1]
        # Two halves are exact in float32, so they can be reduced together with the other sums.
        halves = tf.cast(tf.stack([cursor // 65536, cursor % 65536]), tf.float32)
        placed = tf.one_hot(replica, context.num_replicas_in_sync)[:, None, None] * halves
        flat = tf.concat([sums, tf.reshape(placed, [-1])], 0)
        *gradients, flat = sum_over_replicas([*gradients, flat])
        gradients, norm = self._update_compilation.clip(gradients, self._clip_norm)
        cursors = tf.cast(tf.reshape(flat[tf.size(sums) :], tf.shape(placed)), tf.int32)
        cursors = cursors[:, 0] * 65536 + cursors[:, 1]
        return gradients, (flat[: tf.size(sums)], norm, cursors)

    def weights_norm(self) -> tf.Tensor:
        """Returns the trainable variables' global norm; it is not finite if any value is not."""
        return tf.linalg.global_norm([v.value for v in self._model.trainable_variables])

    def sum_gradients(
        self, rows: Batch, step: tf.Tensor, replica: tf.Tensor, totals: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Returns dense gradients and the objective's sums, over this replica's micro-batches."""
        if self._micro_batches == 1:
            return self.part_gradients(rows, step, replica, tf.constant(0), totals)
        variables, count = self._model.trainable_variables, self._micro_batches
        first = tf.nest.flatten(rows)[0]
        num_rows, static_rows = tf.shape(first)[0], first.shape[0]
        is_even = static_rows is not None and static_rows % count == 0
        size = -(-num_rows // count)  # Small batches have fewer than K micro-batches.
        if self._compilation.uses_xla and not is_even:
            sizes = tf.range(1, size + 1)
            size = tf.reduce_max(tf.where(num_rows % sizes == 0, sizes, 1))

        def cut(value: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
            # (B, ...) -> (K, B / K, ...): XLA requires static shapes.
            if is_even:
                return tf.reshape(value, [count, -1, *value.shape[1:]])[index]
            if self._compilation.uses_xla:
                return tf.reshape(value, tf.concat([[-1, size], tf.shape(value)[1:]], 0))[index]
            return value[index * size : (index + 1) * size]

        def add(index: tf.Tensor, sums: tf.Tensor, *totals_so_far: tf.Tensor) -> list[tf.Tensor]:
            part: Batch = tf.nest.map_structure(lambda value: cut(value, index), rows)
            gradients, part_sums = self.part_gradients(part, step, replica, index, totals)
            pairs = zip(totals_so_far, gradients, strict=True)
            return [
                index + 1,
                sums + part_sums,
                *(total + tf.reshape(gradient, [-1]) for total, gradient in pairs),
            ]

        # Gradients are flat, because TensorFlow replaces a chain of sums of the same shape with an
        # in-place sum, which fails in a loop. The loop stores activations of one micro-batch at a
        # time.
        zeros = [tf.zeros([math.prod(v.shape)], v.dtype) for v in variables]
        sums = tf.zeros([self._objective.num_sums])
        _, sums, *totalled = tf.while_loop(
            lambda index, *_: index * size < num_rows,
            add,
            [tf.constant(0), sums, *zeros],
            parallel_iterations=1,
        )
        shaped = zip(totalled, variables, strict=True)
        return [tf.reshape(total, variable.shape) for total, variable in shaped], sums

    @traced_in_owner
    def part_gradients(
        self,
        rows: Batch,
        step: tf.Tensor,
        replica: tf.Tensor,
        index: tf.Tensor,
        totals: Sequence[tf.Tensor],
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Returns dense gradients and the objective's sums for one micro-batch."""
        variables = [variable.value for variable in self._model.trainable_variables]
        with self._compilation.seed_device():
            count = len(self._seed_variables)
            seeds = tf.unstack(
                self._compilation.masks.seeds(self._seed, step, replica, index, count)
            )
        masks = keras.StatelessScope(
            state_mapping=list(zip(self._seed_variables, seeds, strict=True))
        )
        with step_plan_scope(self._compilation.plan):
            with tf.GradientTape() as tape, masks:
                loss, sums = self._objective.part(rows, totals)
            gradients = tape.gradient(
                loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
        # Embedding gradients are IndexedSlices, which are reduced and clipped differently.
        return [tf.convert_to_tensor(gradient) for gradient in gradients], sums
