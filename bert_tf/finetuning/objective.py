"""The objective of fine-tuning: the loss of a task's model, and the batches that it is of."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf import features
from bert_tf.evaluation.evaluation import run_model
from bert_tf.modeling.base import BertModel
from bert_tf.pipelines.replicas import ReplicaShard
from bert_tf.pipelines.tokenized_examples import Examples
from bert_tf.tasks.target_scale import TargetScale
from bert_tf.tasks.task import Task
from bert_tf.training.step import Batch, Objective

# The parts of a batch: features, targets, and perhaps sample weights.
_PARTS = ("rows", "targets", "weights")


class TaskObjective(Objective):
    """The mean loss of the rows, as ``model.compute_loss`` has it; the sums: it, real tokens.

    ``weight_of`` says of targets what their mean loss counts among others'; where the loss
    ``compares_rows``, each replica computes it of the outputs of all.
    """

    num_sums = 2

    def __init__(
        self,
        model: BertModel,
        weight_of: Callable[[Any], tf.Tensor],
        *,
        compares_rows: bool = False,
    ) -> None:
        self._model = model
        self._weight_of = weight_of
        self._compares_rows = compares_rows

    def totals(self, batch: Batch) -> list[tf.Tensor]:
        """Weight of the whole batch, by which the loss is divided."""
        return [self._weight_of(batch["targets"])]

    def part(self, batch: Batch, totals: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """The loss by what the part counts in the batch."""
        share = ReplicaShard(batch)
        outputs = run_model(self._model, share.rows["rows"], training=True)
        if self._compares_rows:
            outputs, counted, copies = share.all_gather(outputs), batch, share.num_replicas
        else:
            outputs, counted, copies = (
                share.without_padding(outputs),
                share.without_padding(share.rows),
                1,
            )
        rows, targets = counted["rows"], counted["targets"]
        loss = self._model.compute_loss(
            rows, targets, outputs, counted.get("weights"), training=True
        )
        # Keras divides by the number of replicas, as it expects their sum.
        loss *= share.num_replicas * tf.math.divide_no_nan(self._weight_of(targets), totals[0])
        tokens = tf.zeros(())
        if features.INPUT_MASK in rows:
            tokens = tf.reduce_sum(tf.cast(rows[features.INPUT_MASK], tf.float32))
        return loss, tf.stack([loss, tokens]) / copies

    def loss(self, sums: tf.Tensor) -> tf.Tensor:
        """The mean loss."""
        return sums[0]


class FewShotTraining(NamedTuple):
    """Learner of another objective than the task's: a part of the model, from other examples.

    ``fit`` is called before each evaluation, and makes the rest of the model fit that part.
    """

    model: Any
    task: Task
    examples: Examples
    fit: Callable[[], None] = lambda: None


def training_batches(
    examples: Examples,
    scale: TargetScale,
    batch_size: int,
    *,
    epochs: int,
    seed: int,
    first_step: int,
    length_multiple: int,
    few_shapes: bool,
) -> tf.data.Dataset:
    """The batches from a step on, for a ``TrainingLoop``, with the places of their last rows."""
    batches = scale.scaled(
        examples.training_batches(
            batch_size,
            epochs=epochs,
            seed=seed,
            first_step=first_step,
            length_multiple=length_multiple,
            few_shapes=few_shapes,
        )
    )
    each_epoch, num_examples = examples.num_batches(batch_size), len(examples)

    def with_cursor(step: tf.Tensor, parts: tuple[Any, ...]) -> dict[str, Any]:
        epoch, batch_index = step // each_epoch, step % each_epoch
        last = tf.minimum((batch_index + 1) * batch_size, num_examples) - 1
        zero = tf.zeros_like(step)
        cursor = tf.cast([[zero, epoch, zero, last]], tf.int32)
        return {**dict(zip(_PARTS, parts, strict=False)), features.CURSOR: cursor}

    # Nothing here or below needs AutoGraph, whose first conversion takes seconds.
    with_cursor = tf.autograph.experimental.do_not_convert(with_cursor)
    return batches.enumerate(first_step).map(with_cursor)
