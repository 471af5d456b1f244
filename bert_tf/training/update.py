"""The update of a model by one replica inside ``strategy.run``: the same for every training.

The gradients are summed over the replicas, then clipped by their global norm, then applied.

The model runs inside a ``keras.StatelessScope`` that gives each seed generator its value. So the
dropout masks are a function of what the seeds are made from (the step, the replica), and nothing
about them changes in a training.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from bert_tf import modeling
from bert_tf.modeling.keras_hooks import without_reduction


class Update:
    """Computes and applies the gradients of a model's trainable variables.

    The optimizer, built for these variables, no longer reduces gradients over the replicas: they
    are reduced here, before they are clipped to the global norm ``clip_norm``.
    """

    def __init__(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer, clip_norm: float | None
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._clip_norm = clip_norm
        self._apply = without_reduction(optimizer)
        self._seed_variables = modeling.seed_variables(model)

    @property
    def step(self) -> tf.Tensor:
        """The number of updates made before."""
        return tf.convert_to_tensor(self._optimizer.iterations.value)

    def gradients(
        self, seeds: list[tf.Tensor], compute: Callable[[], tuple[tf.Tensor, Any]]
    ) -> tuple[list[tf.Tensor], Any]:
        """The replica's gradients, dense, and what ``compute`` returns behind the loss.

        ``compute`` runs the model; ``seeds``, (2,) int64 each, are for its seed generators.
        """
        mapping = list(zip(self._seed_variables, seeds, strict=True))
        variables = [variable.value for variable in self._model.trainable_variables]
        with tf.GradientTape() as tape, keras.StatelessScope(state_mapping=mapping):
            loss, others = compute()
        gradients = tape.gradient(
            loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        # Embedding gradients come as IndexedSlices, which neither reduce nor clip as a dense one.
        return [tf.convert_to_tensor(gradient) for gradient in gradients], others

    def apply(
        self, gradients: list[tf.Tensor], sums: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Makes the update.

        Returns ``sums`` and the gradients' global norm before clipping, both of all replicas, and
        the learning rate.
        """
        context = tf.distribute.get_replica_context()
        *gradients, sums = context.all_reduce(tf.distribute.ReduceOp.SUM, [*gradients, sums])
        norm = tf.linalg.global_norm(gradients)
        if self._clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self._clip_norm, use_norm=norm)
        rate = tf.cast(tf.convert_to_tensor(self._optimizer.learning_rate), tf.float32)
        self._apply(gradients, self._model.trainable_variables)
        return sums, norm, rate
