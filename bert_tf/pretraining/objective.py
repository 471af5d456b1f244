"""Pre-training in the loop: its objective, what its steps gave, and evaluation.

Dimension letters: B batch, P masked-LM predictions, N those of a batch that count.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf import features, modeling
from bert_tf.training import losses
from bert_tf.training.attention import attend_in_groups
from bert_tf.training.input_pipelines import MakeBatches, distribute
from bert_tf.training.loop import StepResults, TrainingLoop
from bert_tf.training.step import Batch, Objective, draw_on_tpu

# Inputs of `BertPretrainer`: the encoder's features and the places of the predictions.
_MODEL_INPUTS = (*features.ENCODER_FEATURES, features.MASKED_LM_POSITIONS)


def model_inputs(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The part of a pre-training batch that `BertPretrainer` takes.

    >>> batch = dict.fromkeys([*features.PRETRAINING_FEATURES, features.CURSOR], 0)
    >>> sorted(model_inputs(batch))
    ['input_mask', 'input_type_ids', 'input_word_ids', 'masked_lm_positions']
    """
    return {key: batch[key] for key in _MODEL_INPUTS}


class PretrainingObjective(Objective):
    """The two losses of a `BertPretrainer`, which may lack the next-sentence head.

    The weights of the whole batch are summed over the replicas, and each part's summed losses are
    divided by those sums. The sums are those of `losses.PretrainingSums`.

    Attributes:
        predicts_all: gives every prediction its logits, those of padding too; or else a
            `BertPretrainer`'s masked-LM head is run on the predictions that count.
    """

    num_sums = len(losses.PretrainingSums._fields)

    def __init__(self, model: keras.Model, device_type: str, *, predicts_all: bool) -> None:
        self.predicts_all = predicts_all
        self._model = model
        self._device_type = device_type
        self._has_next_sentence = features.NEXT_SENTENCE_LOGITS in model.output

    def totals(self, batch: Batch) -> list[tf.Tensor]:
        """The predictions' weights and the rows, of all replicas."""
        weights = tf.reduce_sum(batch[features.MASKED_LM_WEIGHTS])
        rows = tf.reduce_sum(losses.row_weights(batch[features.INPUT_MASK]))
        context = tf.distribute.get_replica_context()
        reduced: list[tf.Tensor] = context.all_reduce(tf.distribute.ReduceOp.SUM, [weights, rows])
        return reduced

    def part(self, batch: Batch, totals: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """Both losses' shares, and all sums."""
        weight, rows = totals
        sums = self._sums(batch)
        loss = losses.masked_lm_mean(sums.masked_lm_loss, weight)
        if self._has_next_sentence:
            loss += losses.next_sentence_mean(sums.next_sentence_loss, rows)
        return loss, tf.stack(sums)

    def loss(self, sums: tf.Tensor) -> tf.Tensor:
        """The sum of both mean losses."""
        return losses.loss(losses.PretrainingSums(*tf.unstack(sums, num=self.num_sums)))

    def _sums(self, batch: Batch) -> losses.PretrainingSums:
        if self.predicts_all:
            outputs = self._model(model_inputs(batch), training=True)
            return losses.batch_sums(outputs, batch, self._device_type)
        inputs = {key: batch[key] for key in features.ENCODER_FEATURES}
        states = self._model.encoder(inputs, training=True)
        # (N, 2): the row and the number of each prediction that counts, N <= B * P. A weight that
        # is not a number counts too, or nobody would notice it.
        real = tf.where(tf.not_equal(batch[features.MASKED_LM_WEIGHTS], 0.0))
        positions, labels, weights = (
            tf.gather_nd(batch[key], real)
            for key in (
                features.MASKED_LM_POSITIONS,
                features.MASKED_LM_IDS,
                features.MASKED_LM_WEIGHTS,
            )
        )
        hidden = states[features.SEQUENCE_OUTPUT]
        places = tf.cast(real[:, 0], tf.int32) * hidden.shape[1] + positions
        transformed, table, bias = self._model.masked_lm.factors(hidden, places, training=True)
        masked_lm = losses.predicted_sums(transformed, table, bias, labels, weights)
        outputs = {}
        if self._has_next_sentence:
            pooled = states[features.POOLED_OUTPUT]
            outputs[features.NEXT_SENTENCE_LOGITS] = self._model.next_sentence(pooled)
        return losses.batch_sums(outputs, batch, self._device_type, masked_lm)


class EvaluationResult(NamedTuple):
    """Measures over a whole evaluation set, as Python numbers.

    Losses are means in nats, accuracies shares. ``masked_lm_baseline`` is the share that the most
    frequent original token would get right, ``next_sentence_baseline`` that of the majority's
    label. Those of the next sentence are 0 without that head.
    """

    masked_lm_loss: float
    masked_lm_perplexity: float
    masked_lm_accuracy: float
    masked_lm_baseline: float
    masked_lm_predictions: int
    next_sentence_loss: float
    next_sentence_accuracy: float
    next_sentence_baseline: float
    next_sentence_rows: int


class TrainingResult(NamedTuple):
    """Result of `PretrainingLoop.train`: Python numbers over its updates.

    ``loss`` is the sum of the two losses, means in nats; ``tokens`` are those that are not padding.
    The others are as `StepResults` says.
    """

    step: int
    loss: float
    masked_lm_loss: float
    masked_lm_accuracy: float
    next_sentence_loss: float
    next_sentence_accuracy: float
    gradient_norm: float
    learning_rate: float
    tokens: int
    predictions: int
    cursors: tuple[tuple[int, int, int], ...]
    waited: float | None


def training_result(results: StepResults) -> TrainingResult:
    """The means over some updates."""
    sums = losses.PretrainingSums(*results.sums)
    means: dict[str, Any] = losses.means(sums)
    same = results._asdict()
    del same["sums"], same["losses"]
    return TrainingResult(
        loss=means["masked_lm_loss"] + means["next_sentence_loss"],
        tokens=int(sums.tokens),
        predictions=int(sums.masked_lm_weight),
        **means,
        **same,
    )


class PretrainingLoop(TrainingLoop):
    """Trains a `BertPretrainer`.

    Args:
        model: inputs and outputs as `BertPretrainer` has them, built in the strategy's scope; the
            next-sentence head may be missing.
        optimizer, strategy, options: as `TrainingLoop` takes them.
        device_type: "CPU", "GPU" or "TPU", the strategy's.
        jit_compile: compile the gradients with XLA. (On a TPU everything is, regardless.)

    Raises:
        ValueError: as `TrainingLoop`.

    >>> from bert_tf.config import BertConfig
    >>> from bert_tf.training.optimizers import create_optimizer
    >>> sizes = {"vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 1}
    >>> sizes |= {"num_attention_heads": 2, "intermediate_size": 4, "max_position_embeddings": 6}
    >>> model = modeling.BertPretrainer(BertConfig(**sizes))
    >>> optimizer = create_optimizer("adam", 1e-4, model.trainable_variables)
    >>> training = PretrainingLoop(model, optimizer, tf.distribute.get_strategy(), seed=0)
    >>> ids, predicted = tf.ones((2, 6), tf.int32), tf.ones((2, 1), tf.int32)
    >>> batch = {"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids,
    ...          "masked_lm_positions": predicted, "masked_lm_ids": predicted,
    ...          "masked_lm_weights": tf.ones((2, 1)), "next_sentence_labels": ids[:, 0],
    ...          "cursor": tf.constant([[0, 0, 0], [0, 0, 1]])}
    >>> iterator = training.distribute(tf.data.Dataset.from_tensors(batch).repeat())
    >>> result = training.train(iterator, 3)
    >>> result.step, result.tokens, result.cursors
    (3, 36, ((0, 0, 1),))
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        strategy: tf.distribute.Strategy,
        *,
        device_type: str = "CPU",
        jit_compile: bool = False,
        **options: Any,
    ) -> None:
        on_tpu = device_type == "TPU"
        self.leaves_padding_out = not (on_tpu or jit_compile)
        on_cpu = self.leaves_padding_out and device_type == "CPU"
        if encoder := getattr(model, "encoder", None):
            encoder.trains_without_padding = self.leaves_padding_out
            encoder.training_attention = attend_in_groups if on_cpu else None
            if on_tpu:
                encoder.seed_generator.draw = draw_on_tpu
        self.objective = PretrainingObjective(
            model,
            device_type,
            predicts_all=not (on_cpu and isinstance(model, modeling.BertPretrainer)),
        )
        super().__init__(
            model, optimizer, strategy, self.objective, jit_compile=jit_compile, **options
        )
        self._evaluate_batch = tf.function(self._evaluate_step, autograph=False)

    def distribute(self, batches: tf.data.Dataset | MakeBatches) -> Iterator[Any]:
        """An iterator, for `train`, that hands each replica its share of every batch.

        The batches are ``features.PRETRAINING_FEATURES`` and ``features.CURSOR`` with static
        shapes: whole ones of a dataset that every input pipeline reads, or what a function makes
        of a pipeline's ``tf.distribute.InputContext``, its share of each batch, of rows of its own.
        """
        return iter(distribute(self.strategy, batches, self._micro_batches))

    def train(self, iterator: Iterator[Any], num_steps: int) -> TrainingResult:
        """Makes updates; arguments and errors are those of ``make``."""
        return training_result(self.make(iterator, num_steps))

    def evaluate(
        self, batches: tf.data.Dataset | MakeBatches, max_steps: int | None = None
    ) -> EvaluationResult:
        """Runs the model over finite batches (``max_steps`` at most) and sums in double precision.

        Every input pipeline reads all of them: a dataset, or what a function makes for each, which
        several hosts need. Its replicas are given their rows alone, so that each row counts once.
        Rows of padding (``input_mask`` and ``masked_lm_weights`` all 0) weigh nothing.
        """

        def first_batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
            dataset = batches if isinstance(batches, tf.data.Dataset) else batches(context)
            return dataset.take(-1 if max_steps is None else max_steps)

        totals = np.zeros(len(losses.PretrainingSums._fields))
        tokens, labels = np.zeros(1), np.zeros(2)
        shared = distribute(self.strategy, first_batches, reads_all=True)
        for batch in shared:
            batch_sums, batch_tokens, batch_labels = self._evaluate_batch(batch)
            totals = totals + batch_sums.numpy()
            tokens, labels = tokens + batch_tokens.numpy(), labels + batch_labels.numpy()
        sums = losses.PretrainingSums(*totals)
        if sums.masked_lm_weight == 0:
            raise ValueError(
                "The evaluation data holds no masked position: give documents to evaluate on, or "
                "hold out a larger fraction."
            )
        means = losses.means(sums)
        has_rows = sums.next_sentence_rows > 0
        return EvaluationResult(
            **means,
            masked_lm_perplexity=math.exp(min(means["masked_lm_loss"], 700.0)),
            masked_lm_baseline=float(tokens.max() / tokens.sum()),
            masked_lm_predictions=int(sums.masked_lm_weight),
            next_sentence_baseline=float(labels.max() / labels.sum()) if has_rows else 0.0,
            next_sentence_rows=int(sums.next_sentence_rows),
        )

    def _evaluate_step(self, batch: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, ...]:
        outputs = self.strategy.run(self._evaluate_replica, args=(batch,))
        return tuple(self.strategy.experimental_local_results(value)[0] for value in outputs)

    def _evaluate_replica(self, batch: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
        """The loss sums (7,), and how often each token (V,) and each label (2,) is the answer."""
        outputs = self.model(model_inputs(batch), training=False)
        tokens = tf.math.unsorted_segment_sum(
            tf.reshape(batch[features.MASKED_LM_WEIGHTS], [-1]),
            tf.reshape(batch[features.MASKED_LM_IDS], [-1]),
            outputs[features.MASKED_LM_LOGITS].shape[-1],
        )
        labels = tf.math.unsorted_segment_sum(
            losses.row_weights(batch[features.INPUT_MASK]), batch[features.NEXT_SENTENCE_LABELS], 2
        )
        sums = tf.stack(losses.batch_sums(outputs, batch))
        context = tf.distribute.get_replica_context()
        reduced: list[tf.Tensor] = context.all_reduce(
            tf.distribute.ReduceOp.SUM, [sums, tokens, labels]
        )
        return reduced
