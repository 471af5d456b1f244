"""Held-out losses and accuracies, beside what guessing without a model would reach."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf import features

from . import batches, losses


class EvaluationResult(NamedTuple):
    """Measures over a whole evaluation set, as Python numbers.

    Attributes:
        masked_lm_loss: the mean negative log likelihood of the predictions, in nats.
        masked_lm_perplexity: its exponential.
        masked_lm_accuracy: the share of predictions whose arg-max is the original token.
        masked_lm_baseline: the share that the most frequent original token would get right.
        masked_lm_predictions: the number of predictions.
        next_sentence_loss: the mean over the rows; 0 without a next-sentence head.
        next_sentence_accuracy: the share of rows; 0 without a next-sentence head.
        next_sentence_baseline: the share of the majority's label.
        next_sentence_rows: the number of rows; 0 without a next-sentence head.
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


class Evaluator:
    """Evaluates a `BertPretrainer` without dropout, under any strategy.

    Args:
        model: inputs and outputs as `BertPretrainer` has them.
        strategy: the strategy that the model was built under.
    """

    def __init__(self, model: keras.Model, strategy: tf.distribute.Strategy) -> None:
        self._model = model
        self._strategy = strategy
        self._step = tf.function(self._evaluate_step)

    def evaluate(self, dataset: tf.data.Dataset, max_steps: int | None = None) -> EvaluationResult:
        """Runs the model over the dataset and sums in double precision.

        Args:
            dataset: finite batches as `batches.check_static_batches` wants them; rows of padding
                (``input_mask`` and ``masked_lm_weights`` all 0) weigh nothing.
            max_steps: stop after this many batches; ``None`` for all.

        Returns:
            The measures.

        Raises:
            ValueError: a feature is missing, a shape is not static, the batch cannot be shared
                equally by the replicas, or nothing was there to predict.
        """
        batches.check_static_batches(dataset, self._strategy.num_replicas_in_sync)
        if max_steps is not None:
            dataset = dataset.take(max_steps)
        totals = np.zeros(len(losses.PretrainingSums._fields))
        tokens, labels = np.zeros(1), np.zeros(2)
        for batch in self._strategy.experimental_distribute_dataset(dataset):
            batch_sums, batch_tokens, batch_labels = self._step(batch)
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
        outputs = self._strategy.run(self._replica_step, args=(batch,))
        return tuple(self._strategy.experimental_local_results(value)[0] for value in outputs)

    def _replica_step(self, batch: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
        """The loss sums (7,), and how often each token (V,) and each label (2,) is the answer."""
        outputs = self._model(batches.model_inputs(batch), training=False)
        tokens = tf.math.unsorted_segment_sum(
            tf.reshape(batch[features.MASKED_LM_WEIGHTS], [-1]),
            tf.reshape(batch[features.MASKED_LM_IDS], [-1]),
            outputs[features.MASKED_LM_LOGITS].shape[-1],
        )
        labels = tf.math.unsorted_segment_sum(
            losses.row_weights(batch[features.INPUT_MASK]),
            batch[features.NEXT_SENTENCE_LABELS],
            2,
        )
        sums = tf.stack(losses.batch_sums(outputs, batch))
        context = tf.distribute.get_replica_context()
        reduced: list[tf.Tensor] = context.all_reduce(
            tf.distribute.ReduceOp.SUM, [sums, tokens, labels]
        )
        return reduced
