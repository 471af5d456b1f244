"""Pre-training objective, training loop and evaluation.

If rows differ in the number of predictions, the mean loss of a batch is not the average of the
means over its replicas or micro-batches. Both losses are therefore computed as sums, which are
first added up and then divided.

Dimensions: B batch, S sequence length, P masked-LM predictions per row, N predictions with nonzero
weight, V vocabulary.

Source: BERT paper, appendix A.2; google-research/bert, ``run_pretraining.py``
(``get_masked_lm_output`` and ``get_next_sentence_output``), including its epsilon of 1e-5.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf import features, modeling
from bert_tf.graph_gradients import sum_over_replicas
from bert_tf.training.attention import attend_in_groups
from bert_tf.training.compilation import Compilation
from bert_tf.training.cross_entropy import LossSums, predicted_sums, weighted_sums
from bert_tf.training.loop import TrainingLoop
from bert_tf.training.step import Batch, Objective

# Creates the dataset of an input pipeline, which serves the replicas of one host.
BatchFactory = Callable[[tf.distribute.InputContext], tf.data.Dataset]
# Inputs of `BertPretrainer`: the encoder's features and the positions of the predictions.
_MODEL_INPUTS = (*features.ENCODER_FEATURES, features.MASKED_LM_POSITIONS)
_WEIGHT_EPSILON = 1e-5


class PretrainingSums(NamedTuple):
    """Loss sums and the number of real tokens of one or more batches, as float32 scalars.

    The fields of the next-sentence loss are 0 if the model has no next-sentence head.
    """

    masked_lm_loss: Any
    masked_lm_weight: Any
    masked_lm_correct: Any
    next_sentence_loss: Any
    next_sentence_rows: Any
    next_sentence_correct: Any
    tokens: Any


def row_weights(input_mask: tf.Tensor) -> tf.Tensor:
    """Returns a weight per row: 1 for rows with a real token, 0 for padding rows.

    Args:
        input_mask: Mask, 1 for real tokens.
            Shape `(B, S)`, integer.

    Returns:
        Weights of shape `(B,)`, float32.

    >>> row_weights(tf.constant([[1, 1, 0], [0, 0, 0]])).numpy().tolist()
    [1.0, 0.0]
    """
    return tf.reduce_max(tf.cast(input_mask, tf.float32), axis=1)


def batch_sums(
    outputs: Mapping[str, tf.Tensor],
    batch: Mapping[str, tf.Tensor],
    device_type: str = "CPU",
    masked_lm: LossSums | None = None,
) -> PretrainingSums:
    """Computes the sums of both losses over one batch.

    Args:
        outputs: Outputs of the model.
        batch: Features and labels of the batch.
        device_type: `"CPU"`, `"GPU"` or `"TPU"`.
        masked_lm: Sums of the masked-LM loss, if `outputs` has no masked-LM logits.

    Returns:
        The `PretrainingSums` of the batch.
    """
    masked_lm = masked_lm or weighted_sums(
        outputs[features.MASKED_LM_LOGITS],
        batch[features.MASKED_LM_IDS],
        batch[features.MASKED_LM_WEIGHTS],
        device_type,
    )
    next_sentence = LossSums(tf.zeros(()), tf.zeros(()), tf.zeros(()))
    if features.NEXT_SENTENCE_LOGITS in outputs:
        next_sentence = weighted_sums(
            outputs[features.NEXT_SENTENCE_LOGITS],
            batch[features.NEXT_SENTENCE_LABELS],
            row_weights(batch[features.INPUT_MASK]),
            device_type,
        )
    tokens = tf.reduce_sum(tf.cast(batch[features.INPUT_MASK], tf.float32))
    return PretrainingSums(*masked_lm, *next_sentence, tokens)


def mean_loss(sums: PretrainingSums, weight: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Returns the sum of both mean losses, given the totals of the entire batch."""
    masked_lm = sums.masked_lm_loss / (weight + _WEIGHT_EPSILON)
    return masked_lm + tf.math.divide_no_nan(sums.next_sentence_loss, rows)


def means(sums: PretrainingSums) -> dict[str, float]:
    """Returns mean losses and accuracies as Python floats; 0 for empty sums.

    >>> means(PretrainingSums(4.0, 2.0, 1.0, 0.0, 0.0, 0.0, 9.0))["masked_lm_accuracy"]
    0.5
    """
    masked_lm_weight = max(float(sums.masked_lm_weight), _WEIGHT_EPSILON)
    rows = max(float(sums.next_sentence_rows), 1.0)
    return {
        "masked_lm_loss": float(sums.masked_lm_loss) / masked_lm_weight,
        "masked_lm_accuracy": float(sums.masked_lm_correct) / masked_lm_weight,
        "next_sentence_loss": float(sums.next_sentence_loss) / rows,
        "next_sentence_accuracy": float(sums.next_sentence_correct) / rows,
    }


def model_inputs(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Selects the inputs of a `BertPretrainer` from a pre-training batch.

    >>> batch = dict.fromkeys([*features.PRETRAINING_FEATURES, features.CURSOR], 0)
    >>> sorted(model_inputs(batch))
    ['input_mask', 'input_type_ids', 'input_word_ids', 'masked_lm_positions']
    """
    return {key: batch[key] for key in _MODEL_INPUTS}


class PretrainingObjective(Objective):
    """Masked-LM loss and, if the model has a head for it, next-sentence loss.

    Args:
        model: The `BertPretrainer` to train.
        device_type: `"CPU"`, `"GPU"` or `"TPU"`.
        predicts_all: Whether to compute the logits of all P predictions per row. Otherwise, the
            masked-LM head runs only on predictions with nonzero weight.
    """

    num_sums = len(PretrainingSums._fields)

    def __init__(self, model: keras.Model, device_type: str, *, predicts_all: bool) -> None:
        self.predicts_all = predicts_all
        self._model = model
        self._device_type = device_type
        self._has_next_sentence = features.NEXT_SENTENCE_LOGITS in model.output

    def totals(self, batch: Batch) -> list[tf.Tensor]:
        """Returns the total weight of the predictions and number of rows, over all replicas."""
        weights = tf.reduce_sum(batch[features.MASKED_LM_WEIGHTS])
        rows = tf.reduce_sum(row_weights(batch[features.INPUT_MASK]))
        reduced: list[tf.Tensor] = sum_over_replicas([weights, rows])
        return reduced

    def part(self, batch: Batch, totals: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the contribution of a part of the batch to the mean loss, and the loss sums."""
        sums = self._sums(batch)
        return mean_loss(sums, *totals), tf.stack(sums)

    def loss(self, sums: tf.Tensor) -> tf.Tensor:
        """Returns the sum of both mean losses."""
        summed = PretrainingSums(*tf.unstack(sums, num=self.num_sums))
        return mean_loss(summed, summed.masked_lm_weight, summed.next_sentence_rows)

    def _sums(self, batch: Batch) -> PretrainingSums:
        if self.predicts_all:
            outputs = self._model(model_inputs(batch), training=True)
            return batch_sums(outputs, batch, self._device_type)
        inputs = {key: batch[key] for key in features.ENCODER_FEATURES}
        states = self._model.encoder(inputs, training=True)
        # (N, 2), N <= B * P: row and index of each prediction with nonzero weight. NaN weights are
        # included, so that the loss becomes NaN.
        real = tf.where(tf.not_equal(batch[features.MASKED_LM_WEIGHTS], 0.0))
        positions = tf.gather_nd(batch[features.MASKED_LM_POSITIONS], real)
        labels = tf.gather_nd(batch[features.MASKED_LM_IDS], real)
        weights = tf.gather_nd(batch[features.MASKED_LM_WEIGHTS], real)
        hidden = states[features.SEQUENCE_OUTPUT]
        flat = tf.cast(real[:, 0], tf.int32) * hidden.shape[1] + positions
        transformed, table, bias = self._model.masked_lm.logit_factors(hidden, flat, training=True)
        masked_lm = predicted_sums(transformed, table, bias, labels, weights)
        outputs = {}
        if self._has_next_sentence:
            pooled = states[features.POOLED_OUTPUT]
            outputs[features.NEXT_SENTENCE_LOGITS] = self._model.next_sentence(pooled)
        return batch_sums(outputs, batch, self._device_type, masked_lm)


class EvaluationResult(NamedTuple):
    """Metrics of an evaluation.

    The next-sentence metrics are 0 if the model has no next-sentence head.

    Attributes:
        masked_lm_loss: Mean loss in nats.
        masked_lm_perplexity: Exponential of the loss.
        masked_lm_accuracy: Fraction of correct predictions.
        masked_lm_baseline: Accuracy of always predicting the most frequent token.
        masked_lm_predictions: Number of predictions.
        next_sentence_loss: Mean loss in nats.
        next_sentence_accuracy: Fraction of correct labels.
        next_sentence_baseline: Accuracy of always predicting the majority label.
        next_sentence_rows: Number of rows.
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

    @property
    def loss(self) -> float:
        """Sum of both losses, which selects the best weights of a run."""
        return self.masked_lm_loss + self.next_sentence_loss


class PretrainingLoop(TrainingLoop):
    """Trains a `BertPretrainer`, or a model with the same inputs and outputs.

    Args:
        model: The model to train.
        optimizer: The optimizer.
        strategy: The distribution strategy.
        device_type: Device type of the strategy: `"CPU"`, `"GPU"` or `"TPU"`.
        jit_compile: Whether to compile the gradients with XLA.
        **options: Further arguments of `TrainingLoop`.

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
    >>> results = training.make(iterator, 3)
    >>> results.step, int(PretrainingSums(*results.sums).tokens), results.cursors
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
        compilation = Compilation(device_type, jit_compile)
        self.skips_padding = not compilation.uses_xla
        on_cpu = compilation.groups_attention
        if encoder := getattr(model, "encoder", None):
            encoder.trains_without_padding = self.skips_padding
            encoder.training_attention = attend_in_groups if on_cpu else None
        self.objective = PretrainingObjective(
            model,
            device_type,
            predicts_all=not (on_cpu and isinstance(model, modeling.BertPretrainer)),
        )
        super().__init__(
            *(model, optimizer, strategy, self.objective),
            device_type=device_type,
            jit_compile=jit_compile,
            **options,
        )
        self._evaluate_batch = tf.function(self._evaluate_step, autograph=False)

    def distribute(
        self, batches: tf.data.Dataset | BatchFactory, *, evaluates: bool = False
    ) -> Iterator[Any]:
        """Returns an iterator that yields each replica's rows of every batch.

        Args:
            batches: Batches of static shape, with `features.PRETRAINING_FEATURES` and
                `features.CURSOR`. Every input pipeline reads all of a dataset, and keeps the rows
                for its replicas. A function instead returns the rows of one input pipeline.
            evaluates: Whether a function returns complete batches, as for evaluation.
        """
        micro_batches = 1 if evaluates else self._micro_batches

        def make_pipeline_batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
            replicas = context.num_replicas_in_sync
            local = replicas // context.num_input_pipelines
            parts, first = local, 0
            dataset = batches if isinstance(batches, tf.data.Dataset) else batches(context)
            if evaluates or dataset is batches:
                parts, first = replicas, context.input_pipeline_id * local
            check_static_batches(dataset, parts, micro_batches)

            @tf.autograph.experimental.do_not_convert
            def split_by_replica(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
                numbered = tf.pad(
                    batch[features.CURSOR],
                    [[0, 0], [1, 0]],
                    constant_values=context.input_pipeline_id,
                )
                # (B, ...) -> (replicas of this pipeline, rows of a replica, ...)
                return {
                    key: tf.reshape(value, [parts, -1, *value.shape[1:]])[first : first + local]
                    for key, value in {**batch, features.CURSOR: numbered}.items()
                }

            return dataset.map(split_by_replica).unbatch().prefetch(local)

        return iter(self.strategy.distribute_datasets_from_function(make_pipeline_batches))

    def evaluate(
        self, batches: tf.data.Dataset | BatchFactory, max_steps: int | None = None
    ) -> EvaluationResult:
        """Evaluates the model on a finite number of batches, with sums in double precision.

        Padding rows, whose `input_mask` and `masked_lm_weights` are 0, have weight 0.

        Args:
            batches: Batches as in `distribute`.
            max_steps: Maximum number of batches.

        Returns:
            The `EvaluationResult`.

        Raises:
            ValueError: If no batch has a masked position.
        """
        totals = np.zeros(self.objective.num_sums)
        tokens, labels = np.zeros(1), np.zeros(2)
        for batch in itertools.islice(self.distribute(batches, evaluates=True), max_steps):
            batch_totals, batch_tokens, batch_labels = self._evaluate_batch(batch)
            totals = totals + batch_totals.numpy()
            tokens, labels = tokens + batch_tokens.numpy(), labels + batch_labels.numpy()
        sums = PretrainingSums(*totals)
        if sums.masked_lm_weight == 0:
            raise ValueError(
                "The evaluation data have no masked positions. Use more documents, or increase "
                "held_out_fraction."
            )
        measures = means(sums)
        has_rows = sums.next_sentence_rows > 0
        return EvaluationResult(
            **measures,
            masked_lm_perplexity=math.exp(min(measures["masked_lm_loss"], 700.0)),
            masked_lm_baseline=float(tokens.max() / tokens.sum()),
            masked_lm_predictions=int(sums.masked_lm_weight),
            next_sentence_baseline=float(labels.max() / labels.sum()) if has_rows else 0.0,
            next_sentence_rows=int(sums.next_sentence_rows),
        )

    def _evaluate_step(self, batch: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, ...]:
        outputs = self.strategy.run(self._evaluate_replica, args=(batch,))
        return tuple(self.strategy.experimental_local_results(value)[0] for value in outputs)

    def _evaluate_replica(self, batch: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
        """Returns the loss sums (7,) and the counts of target tokens (V,) and labels (2,)."""
        outputs = self.model(model_inputs(batch), training=False)
        tokens = tf.math.unsorted_segment_sum(
            tf.reshape(batch[features.MASKED_LM_WEIGHTS], [-1]),
            tf.reshape(batch[features.MASKED_LM_IDS], [-1]),
            outputs[features.MASKED_LM_LOGITS].shape[-1],
        )
        labels = tf.math.unsorted_segment_sum(
            row_weights(batch[features.INPUT_MASK]), batch[features.NEXT_SENTENCE_LABELS], 2
        )
        sums = tf.stack(batch_sums(outputs, batch))
        reduced: list[tf.Tensor] = sum_over_replicas([sums, tokens, labels])
        return reduced


def check_static_batches(dataset: tf.data.Dataset, replicas: int, micro_batches: int) -> None:
    """Checks that batches have all features, static shapes, and equal parts per replica."""
    spec = dataset.element_spec
    features.check_batch(
        spec, {**features.PRETRAINING_FEATURES, features.CURSOR: features.Feature("int32", "BC")}
    )
    for key, feature in spec.items():
        if not feature.shape.is_fully_defined():
            raise ValueError(
                f"Feature {key!r}: expected a static shape, got {tuple(feature.shape)}. Use "
                "drop_remainder=True, or pad the last batch."
            )
    rows, parts = spec[features.INPUT_WORD_IDS].shape[0], replicas * micro_batches
    if rows % parts:
        raise ValueError(
            f"Batch size {rows}: expected a multiple of {parts} ({replicas} replicas times "
            f"{micro_batches} micro-batches)."
        )
