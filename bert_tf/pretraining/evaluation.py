"""What a run evaluates on, and the figures of a model."""

import functools
from collections.abc import Callable

import tensorflow as tf

from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.training.input_pipelines import MakeBatches
from bert_tf.training.pretraining import EvaluationResult

from .data import PretrainingData, evaluation_batches
from .settings import PretrainingSettings

_MOST_BYTES = 1 << 26


class HeldOut:
    """The batches that a run evaluates on, and what a model makes of them."""

    def __init__(
        self,
        settings: PretrainingSettings,
        data: PretrainingData,
        tokenizer: BertTokenizer,
        replicas: int,
    ) -> None:
        self._data = data

        # They take seconds to build.
        @functools.cache
        def batches(
            max_seq_length: int, input_pipeline: int, input_pipelines: int
        ) -> tf.data.Dataset:
            built = evaluation_batches(settings, data, tokenizer, max_seq_length, replicas)
            most = settings.max_eval_steps
            # Those of another host are on that host.
            return _in_memory(built.take(most), most) if input_pipelines == 1 else built

        self._batches = batches

    def figures(
        self,
        evaluate: Callable[[MakeBatches, int], EvaluationResult],
        max_steps: int,
        max_seq_length: int,
    ) -> dict[str, float]:
        """What ``evaluate`` returns for batches, ``max_steps`` at most; empty without any.

        The figures of the next sentence are 0 where random next segments cannot be drawn.
        """
        if not self._data.evaluated:
            return {}

        def of_pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return self._batches(
                max_seq_length, context.input_pipeline_id, context.num_input_pipelines
            )

        figures = evaluate(of_pipeline, max_steps)._asdict()
        if not self._data.evaluates_next_sentence:
            figures.update((name, 0) for name in figures if name.startswith("next_sentence"))
        return figures


def _in_memory(batches: tf.data.Dataset, most: int) -> tf.data.Dataset:
    """At most so many batches, as tensors if they are small: to start a pipeline takes a second."""
    size = sum(
        each.dtype.size * each.shape.num_elements() for each in batches.element_spec.values()
    )
    found = list(batches) if most * size <= _MOST_BYTES else []
    if not found:
        return batches
    columns = {key: tf.stack([batch[key] for batch in found]) for key in found[0]}
    return tf.data.Dataset.from_tensor_slices(columns)


def loss_of(figures: dict[str, float]) -> float:
    """The loss that decides which weights are the best: what is trained for."""
    return figures["masked_lm_loss"] + figures["next_sentence_loss"]
