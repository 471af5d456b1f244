"""The step of one replica, inside ``strategy.run``: the same code for every training and strategy.

A replica's share of a batch is cut into micro-batches. The gradients of their parts of the batch's
mean loss are added up, summed over the replicas, then clipped by their global norm, then applied.
So the number of replicas and of micro-batches changes the result by rounding only, and by which
dropout masks are drawn.

Dimension letters: B batch, K micro-batches.
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

# Nested tensors by name, (B, ...) each, with the rows' places in the data, ``features.CURSOR``.
Batch = Mapping[str, Any]


class Objective(abc.ABC):
    """Objective of a training: a batch's mean loss, from the sums of its parts."""

    # How many figures ``part`` sums up.
    num_sums: int

    @abc.abstractmethod
    def totals(self, batch: Batch) -> list[tf.Tensor]:
        """Divisors of the whole batch's mean loss; called inside ``strategy.run``."""

    @abc.abstractmethod
    def part(self, batch: Batch, totals: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs the model in training on a part of a batch.

        Returns the part's share of the batch's mean loss, and sums (``num_sums``,) float32, both to
        be added up over the micro-batches and the replicas.
        """

    @abc.abstractmethod
    def loss(self, sums: tf.Tensor) -> tf.Tensor:
        """The batch's mean loss, from all of its sums."""


class ReplicaStep:
    """One update of a model, as one replica runs it inside ``strategy.run``.

    The optimizer no longer reduces gradients over the replicas: they are reduced here, before they
    are clipped. ``micro_batches`` is K. ``run`` is the step as XLA compiles it, where it does: as
    a whole for one replica, else the gradients alone.
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
            # Strategies forbid XLA round their collectives; round those of GPUs they allow it, but
            # not where Keras counts an update.
            if num_replicas == 1:
                self.run = tf.function(self.__call__, jit_compile=True, autograph=False)
            else:
                self._gradients = tf.function(self.sum_gradients, jit_compile=True)
                self._update_compilation = compilation._replace(jit_compile=False)

    def __call__(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Makes the update from this replica's share of a batch.

        Returns the objective's sums of all replicas; (2,) the mean loss and the gradients' global
        norm before clipping; the learning rate; and the cursors, as ``reduce`` does.
        """
        rate = tf.cast(tf.convert_to_tensor(self._optimizer.learning_rate), tf.float32)
        gradients, (sums, norm, cursors) = self.reduce(batch)
        self._apply(gradients, self._model.trainable_variables)
        return sums, tf.stack([self._objective.loss(sums), norm]), rate, cursors

    def reduce(
        self, batch: Batch
    ) -> tuple[list[tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
        """The update's gradients, of all replicas and clipped, and the outcome.

        That is the objective's sums, the gradients' global norm before clipping, and (replicas, C)
        the cursor of each share's last row.
        """
        context = tf.distribute.get_replica_context()
        rows = {key: value for key, value in batch.items() if key != features.CURSOR}
        step = tf.convert_to_tensor(self._optimizer.iterations.value)
        replica = tf.convert_to_tensor(context.replica_id_in_sync_group)
        gradients, sums = self._gradients(rows, step, replica, self._objective.totals(rows))
        cursor = batch[features.CURSOR][-1]
        # In two halves, which float32 holds exactly, to be summed along with the rest.
        halves = tf.cast(tf.stack([cursor // 65536, cursor % 65536]), tf.float32)
        placed = tf.one_hot(replica, context.num_replicas_in_sync)[:, None, None] * halves
        flat = tf.concat([sums, tf.reshape(placed, [-1])], 0)
        *gradients, flat = sum_over_replicas([*gradients, flat])
        gradients, norm = self._update_compilation.clip(gradients, self._clip_norm)
        cursors = tf.cast(tf.reshape(flat[tf.size(sums) :], tf.shape(placed)), tf.int32)
        cursors = cursors[:, 0] * 65536 + cursors[:, 1]
        return gradients, (flat[: tf.size(sums)], norm, cursors)

    def weights_norm(self) -> tf.Tensor:
        """The global norm of the trainable variables, which overflows where one is beyond use."""
        return tf.linalg.global_norm([v.value for v in self._model.trainable_variables])

    def sum_gradients(
        self, rows: Batch, step: tf.Tensor, replica: tf.Tensor, totals: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """The share's gradients, dense, and its sums, added up over its micro-batches."""
        if self._micro_batches == 1:
            return self.part_gradients(rows, step, replica, tf.constant(0), totals)
        variables, count = self._model.trainable_variables, self._micro_batches
        first = tf.nest.flatten(rows)[0]
        num_rows, static_rows = tf.shape(first)[0], first.shape[0]
        is_even = static_rows is not None and static_rows % count == 0
        size = -(-num_rows // count)  # a small batch has fewer parts than K
        if self._compilation.uses_xla and not is_even:
            sizes = tf.range(1, size + 1)
            size = tf.reduce_max(tf.where(num_rows % sizes == 0, sizes, 1))

        def cut(value: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
            # (B, ...) -> (K, B / K, ...): XLA needs to know the shape of a part.
            if is_even:
                return tf.reshape(value, [count, -1, *value.shape[1:]])[index]
            if self._compilation.uses_xla:
                return tf.reshape(value, tf.concat([[-1, size], tf.shape(value)[1:]], 0))[index]
            return value[index * size : (index + 1) * size]

        def add(index: tf.Tensor, sums: tf.Tensor, *before: tf.Tensor) -> list[tf.Tensor]:
            part: Batch = tf.nest.map_structure(lambda value: cut(value, index), rows)
            gradients, part_sums = self.part_gradients(part, step, replica, index, totals)
            after = zip(before, gradients, strict=True)
            return [
                index + 1,
                sums + part_sums,
                *(total + tf.reshape(gradient, [-1]) for total, gradient in after),
            ]

        # Flat: of a chain of sums of one shape TensorFlow makes a sum in place, which fails the
        # second time in a loop. A loop and not K copies of the graph: one micro-batch's activations
        # live at a time.
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
        """One micro-batch's gradients, dense, and its sums."""
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
        # Embedding gradients come as IndexedSlices, which neither reduce nor clip as a dense one.
        return [tf.convert_to_tensor(gradient) for gradient in gradients], sums
