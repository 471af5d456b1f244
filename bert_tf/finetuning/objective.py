"""Objective and training batches of fine-tuning."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf import features
from bert_tf.evaluation.evaluation import run_model
from bert_tf.modeling.base import BertModel
from bert_tf.pipelines.replicas import ReplicaShard
from bert_tf.pipelines.tokenized_examples import Examples
from bert_tf.tasks.task import Task
from bert_tf.training.step import Batch, Objective

# Components of a batch; sample weights are optional.
_PARTS = ("rows", "targets", "weights")


class TaskObjective(Objective):
    """Mean loss of ``model.compute_loss``; the sums are the loss and the number of real tokens.

    Args:
        model: Compiled model.
        weight_of: Returns the weight of a part's mean loss, given the targets of the part.
        compares_rows: Whether the loss compares examples with each other, so each replica requires
            the outputs of all replicas.
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
        """Returns the total weight of the batch, by which the loss is divided."""
        return [self._weight_of(batch["targets"])]

    def part(self, batch: Batch, totals: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the weighted loss of a part of the batch."""
        share = ReplicaShard(batch)
        outputs = run_model(self._model, share.rows["rows"], training=True)
        if self._compares_rows:
            outputs, counted, copies = share.all_gather(outputs), batch, share.num_replicas
        else:
            outputs, counted = share.without_padding(outputs), share.without_padding(share.rows)
            copies = 1
        rows, targets = counted["rows"], counted["targets"]
        loss = self._model.compute_loss(
            rows, targets, outputs, counted.get("weights"), training=True
        )
        # Keras divides the loss by the number of replicas.
        loss *= share.num_replicas * tf.math.divide_no_nan(self._weight_of(targets), totals[0])
        tokens = tf.zeros(())
        if features.INPUT_MASK in rows:
            tokens = tf.reduce_sum(tf.cast(rows[features.INPUT_MASK], tf.float32))
        return loss, tf.stack([loss, tokens]) / copies

    def loss(self, sums: tf.Tensor) -> tf.Tensor:
        """Returns the mean loss."""
        return sums[0]


class FewShotTraining(NamedTuple):
    """Submodel trained in place of the task's model, with its own task and examples.

    ``fit`` fits the remaining layers before each evaluation.
    """

    model: Any
    task: Task
    examples: Examples
    fit: Callable[[], None] = lambda: None


def with_cursors(
    batches: tf.data.Dataset, examples: Examples, batch_size: int, first_step: int
) -> tf.data.Dataset:
    """Adds to each batch the position of its last example; the first step is ``first_step``."""
    each_epoch, num_examples = examples.num_batches(batch_size), len(examples)

    def with_cursor(step: tf.Tensor, parts: tuple[Any, ...]) -> dict[str, Any]:
        epoch, batch_index = step // each_epoch, step % each_epoch
        last = tf.minimum((batch_index + 1) * batch_size, num_examples) - 1
        zero = tf.zeros_like(step)
        cursor = tf.cast([[zero, epoch, zero, last]], tf.int32)
        return {**dict(zip(_PARTS, parts, strict=False)), features.CURSOR: cursor}

    # AutoGraph would take seconds for its first conversion.
    with_cursor = tf.autograph.experimental.do_not_convert(with_cursor)
    return batches.enumerate(first_step).map(with_cursor)
