"""Texts, or pairs of texts, with a class, any number of classes, or a number each; GLUE's tasks.

Source: Devlin et al. 2019, section 4.1; google-research/bert ``run_classifier.py``.

Letters: N examples, C classes.
"""

import abc
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from bert_tf import decoding
from bert_tf.choices import LONG_TEXTS
from bert_tf.evaluation.calibration import as_two_classes, of_classes, of_several
from bert_tf.evaluation.evaluation import (
    Evaluation,
    Inference,
    Mistake,
    Thresholds,
    is_constant,
    temperature_of,
    worst_mistakes,
)
from bert_tf.evaluation.scores import (
    AT_HALF,
    CLASS_SCORES,
    NUMBER_SCORES,
    compare,
    compare_classes,
    compare_several,
    confusion_matrix,
)
from bert_tf.modeling import BertClassifier, BertRegressor
from bert_tf.modeling.base import PROBABILITY_THRESHOLD, TEMPERATURE
from bert_tf.pipelines import length_buckets
from bert_tf.pipelines.classification import classification_examples
from bert_tf.pipelines.long_texts import MOST_WINDOWS
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.readers.examples import TextExample
from bert_tf.readers.glue import GLUE_TASKS, write_glue_submission
from bert_tf.readers.own_data import read_classification, read_multilabel, read_regression
from bert_tf.untrusted import quote

from .losses import SmoothedClasses, SmoothedCrossEntropy, parse_class_weights
from .target_scale import TargetScale, number_fault
from .task import Items, Task, TrainingOptions

# The name of MNLI's further set to predict: GLUE's diagnostic set.
DIAGNOSTIC = "ax"
# Sentence on texts that are too long, where they are not cut.
_TOO_LONG = {
    "head_tail": "{count:,} of the training examples have more than {length} tokens "
    "(--max_seq_length): their middle is left out.",
    "windows": "{count:,} of the training examples have more than {length} tokens "
    f"(--max_seq_length): they are read in windows, at most {MOST_WINDOWS}.",
}
# A regressor whose predictions differ less than this share of the labels' differences says nothing.
_LEAST_SPREAD = 0.01


class _TextTask(Task):
    """Texts, one or two each; ``glue`` names a task of ``GLUE_TASKS``, whose metrics are used."""

    # The headline of data that are not GLUE's.
    _headline: ClassVar[str]
    export_options: ClassVar[Mapping[str, str]] = {"long_text": "long_text"}

    def __init__(
        self, *data: Any, glue: str | None = None, long_text: str = LONG_TEXTS[0], **common: Any
    ) -> None:
        self._glue, self._long_text = glue, long_text
        super().__init__(*data, **common)

    @property
    def usual_headline(self) -> str:
        """GLUE's for its tasks."""
        return GLUE_TASKS[self._glue].headline if self._glue else self._headline

    def _too_long(self) -> str:
        return _TOO_LONG.get(self._long_text) or super()._too_long()

    def _nothing_to_learn(self) -> str:
        found = {item.label for item in self.training_items()}
        return f"Every example has the label {quote(found.pop())}" if len(found) == 1 else ""

    @property
    def options(self) -> Mapping[str, Any]:
        """Part of long texts that is read, if not their beginning."""
        return {} if self._long_text == LONG_TEXTS[0] else {"long_text": self._long_text}

    @abc.abstractmethod
    def _targets(self, items: Items) -> np.ndarray:
        """The labels, as ``classification_examples`` takes them."""

    def _rows(
        self, tokenizer: BertTokenizer, items: Items, max_seq_length: int, *, labelled: bool
    ) -> length_buckets.Examples:
        are_pairs = items[0].text_b is not None
        return classification_examples(
            tokenizer,
            [item.text_a for item in items],
            [str(item.text_b) for item in items] if are_pairs else None,
            labels=self._targets(items) if labelled else None,
            sample_weights=self._sample_weights(items) if labelled else None,
            max_seq_length=max_seq_length,
            long_text=self._long_text,
        )

    def _sample_weights(self, items: Items) -> Sequence[float] | None:
        """Weight of each example in the loss; ``None``: all weigh the same."""
        return None

    def write_predictions(
        self, inference: Inference, set_name: str, folder: str, thresholds: Thresholds
    ) -> list[str]:
        """Writes a GLUE test set's file of a submission; else ``SET.tsv``."""
        if self._glue is None or set_name not in self.test_sets:
            return super().write_predictions(inference, set_name, folder, thresholds)
        records = self.predict(inference, set_name, thresholds)
        task, split = ("AX", "test") if set_name == DIAGNOSTIC else (self._glue, set_name)
        values = {record["id"]: record["prediction"] for record in records}
        return [write_glue_submission(folder, task, split, [*values], [*values.values()])]

    def _mistakes(
        self,
        items: Items,
        losses: np.ndarray,
        wrong: np.ndarray,
        true: np.ndarray,
        predicted: np.ndarray,
        log_probabilities: np.ndarray | None = None,
    ) -> list[Mistake]:
        def show(at: int) -> tuple[Mapping[str, str], str, str]:
            texts = self._shown_texts(items[at])
            return texts, self._shown(true[at]), self._shown(predicted[at])

        return worst_mistakes(items, losses, wrong, show, log_probabilities)

    def _shown_texts(self, item: TextExample) -> dict[str, str]:
        """The texts of a pair are A and B."""
        return {"": item.text_a} if item.text_b is None else {"A": item.text_a, "B": item.text_b}

    @abc.abstractmethod
    def _shown(self, target: Any) -> str:
        """A row of targets, or of predictions in their form, for people."""


# === A class each ===


class ClassificationTask(_TextTask):
    """A class each.

    Scores are GLUE's for a task of GLUE; else ``accuracy``, ``macro_f1`` (the mean over the classes
    that are true or predicted somewhere) and ``matthews_correlation``.
    """

    model_class = BertClassifier
    smoothed_loss = SmoothedCrossEntropy
    classes = "classes"
    _headline = "accuracy"
    read_table = staticmethod(read_classification)

    @property
    def no_scores(self) -> Sequence[str]:
        """F1 is of the second of two classes."""
        return () if len(self.labels) == 2 else ("f1",)

    @property
    def shown_scores(self) -> Sequence[str]:
        """GLUE's for its tasks."""
        return GLUE_TASKS[self._glue].metrics if self._glue else [*CLASS_SCORES]

    def _fit(self, training: TrainingOptions) -> None:
        super()._fit(training)
        asked = training.class_weights
        self._class_weights = asked and parse_class_weights(
            asked, self.labels, self.label_counts(None)
        )

    def _sample_weights(self, items: Items) -> Sequence[float] | None:
        """Those of the examples' classes, as ``--class_weights`` asks."""
        weights = self._class_weights
        return [weights[item.label] for item in items] if weights else None

    def _targets(self, items: Items) -> np.ndarray:
        """The classes' ids, (N,) int32."""
        return np.array([self._ids[item.label] for item in items], np.int32)

    def _judge(self, items: Items, outputs: Any, thresholds: Thresholds | None) -> Evaluation:
        true = self._targets(items)
        log_probabilities = decoding.log_probabilities(outputs).numpy()
        predicted = log_probabilities.argmax(1)
        losses = -log_probabilities[np.arange(len(items)), true]
        comparison = compare_classes(true, predicted, self.labels, losses)
        temperature = temperature_of(thresholds, outputs, true)
        return Evaluation(
            thresholds={TEMPERATURE: temperature},
            calibrate=functools.partial(of_classes, outputs, true, temperature),
            scores=self._scores(comparison),
            constant=is_constant(true, predicted),
            mistakes=self._mistakes(
                items, losses, true != predicted, true, predicted, log_probabilities
            ),
            confusion=confusion_matrix(true, predicted, len(self.labels)),
            comparison=comparison,
        )

    def _shown(self, target: Any) -> str:
        return self.labels[target]

    def _records(
        self, items: Items, outputs: Any, thresholds: Thresholds
    ) -> Iterator[dict[str, Any]]:
        for row in decoding.probabilities(outputs, thresholds.get(TEMPERATURE, 1.0)).numpy():
            probabilities = dict(zip(self.labels, row.tolist(), strict=True))
            yield {"prediction": self.labels[row.argmax()], "probabilities": probabilities}


# === Any number of classes each ===


class MultiLabelTask(_TextTask):
    """Any number of classes each.

    A class holds where its probability, calibrated, is at least a threshold: one that is given, or
    the one that gives the greatest micro F1 on the set. ``micro_f1`` and ``macro_f1`` are by that
    threshold, ``micro_f1_at_0.5`` and ``macro_f1_at_0.5`` by one that was not chosen. The loss is
    the mean of the classes' cross-entropies, a mistake's loss their sum.
    """

    model_class = BertClassifier
    classes = "classes"
    multi_label = True
    threshold = PROBABILITY_THRESHOLD
    _headline = "micro_f1"
    usual_loss = keras.losses.BinaryCrossentropy(from_logits=True)
    smoothed_loss = SmoothedClasses
    read_table = staticmethod(read_multilabel)

    @classmethod
    def threshold_fault(
        cls, value: float, options: Mapping[str, Any], model_dir: str
    ) -> str | None:
        """A probability."""
        return None if 0 <= value <= 1 else "expected a probability from 0 to 1."

    def _loss_class_weights(self, asked: str) -> Sequence[float] | None:
        """One weight a class: 1 by default; balanced: examples without it / examples with it."""
        counts = self.label_counts(None)
        if asked == "balanced":
            total = len(self.training_items())
            return [
                (total - counts[name]) / counts[name] if counts[name] else 1.0
                for name in self.labels
            ]
        return list(parse_class_weights(asked, self.labels, counts).values())

    def _names_of(self, item: TextExample) -> Sequence[Any]:
        return item.label if isinstance(item.label, tuple) else ()

    def _shown_label(self, item: TextExample) -> Any:
        """A list, as the predicted ones."""
        return list(self._names_of(item))

    def _targets(self, items: Items) -> np.ndarray:
        """(N, C) int32, 1 where a class holds."""
        targets = np.zeros([len(items), len(self.labels)], np.int32)
        for row, item in zip(targets, items, strict=True):
            row[[self._ids[name] for name in self._names_of(item)]] = 1
        return targets

    def _judge(self, items: Items, outputs: Any, thresholds: Thresholds | None) -> Evaluation:
        true, logits = self._targets(items), outputs.astype(np.float64)
        temperature = temperature_of(thresholds, as_two_classes(logits), true.ravel())
        probabilities = decoding.probabilities_of_several(logits, temperature).numpy()
        if thresholds is None:
            threshold = best_threshold(true, probabilities)
        else:
            threshold = thresholds.get(PROBABILITY_THRESHOLD, decoding.HALF)
        predicted, by_half = ((probabilities >= t).astype(int) for t in (threshold, decoding.HALF))
        losses = np.logaddexp(0, np.where(true == 1, -logits, logits)).sum(1)
        wrong = (true != predicted).any(1)
        comparison = compare_several(true, predicted, self.labels, losses / len(self.labels))
        at_half = compare_several(true, by_half, self.labels, suffix=AT_HALF)
        scores = {**comparison.scores, **at_half.scores}
        comparison = dataclasses.replace(comparison, scores=scores)
        return Evaluation(
            scores=self._scores(comparison),
            constant=is_constant(true, predicted),
            comparison=comparison,
            mistakes=self._mistakes(items, losses, wrong, true, predicted),
            thresholds={PROBABILITY_THRESHOLD: threshold, TEMPERATURE: temperature},
            calibrate=functools.partial(of_several, logits, true, temperature),
        )

    def _records(
        self, items: Items, outputs: Any, thresholds: Thresholds
    ) -> Iterator[dict[str, Any]]:
        threshold = thresholds.get(PROBABILITY_THRESHOLD, decoding.HALF)
        temperature = thresholds.get(TEMPERATURE, 1.0)
        for row in decoding.probabilities_of_several(outputs, temperature).numpy():
            probabilities = dict(zip(self.labels, row.tolist(), strict=True))
            yield {"prediction": self._names(row >= threshold), "probabilities": probabilities}

    def _names(self, holds: Any) -> list[str]:
        return [label for label, flag in zip(self.labels, holds, strict=True) if flag]

    def _shown(self, target: Any) -> str:
        return ", ".join(self._names(target)) or "(none)"


def best_threshold(true: np.ndarray, probabilities: np.ndarray) -> float:
    """The threshold of the greatest micro F1: what is at least as probable counts as holding.

    ``true`` is (N, C), 1 where a class holds, ``probabilities`` (N, C). The threshold is half-way
    between two of these; of several that are as good the one nearest to 0.5; 0.5 where no class
    holds.
    """
    holds, ranked = true.ravel(), probabilities.ravel().astype(np.float64)
    order = np.argsort(-ranked, kind="stable")
    holds, ranked = holds[order], ranked[order]
    # The last of each run of equal probabilities: they hold together, or not at all.
    ends = np.flatnonzero(np.diff(ranked, append=-1.0))
    true_positives = np.cumsum(holds)[ends]
    f1 = 2 * true_positives / (ends + 1 + holds.sum())
    cuts = (ranked[ends] + np.append(ranked[ends[1:]], 0.0)) / 2
    best = np.flatnonzero(f1 == f1.max())
    if not holds.any():
        return decoding.HALF
    # Where half-way is not between (0 and 0, or neighbouring floats) the probability itself is.
    cuts = np.where(cuts > 0, cuts, np.finfo(np.float64).tiny)
    return float(cuts[best[np.argmin(np.abs(cuts[best] - decoding.HALF))]])


# === A number each ===


@keras.saving.register_keras_serializable(package="bert_tf")
def squared_error(labels: Any, predictions: Any) -> Any:
    """The squared error of each example, (B,) and (B,) -> (B,).

    Keras' own ``MeanSquaredError`` takes the mean over the last axis, which is here the batch:
    what a sample weight is multiplied with would be the mean of the whole batch.
    """
    return ops.square(predictions - ops.cast(labels, predictions.dtype))


class RegressionTask(_TextTask):
    """A number each.

    Scores are ``pearson`` and ``spearman``; of the errors, in the numbers' own units,
    ``mean_squared_error``, its root and ``mean_absolute_error``; and ``r2``, the share of the
    labels' variance that is explained, 0 for a model that always says their mean.
    """

    model_class = BertRegressor
    _headline = "spearman"
    usual_loss = staticmethod(squared_error)
    read_table = staticmethod(read_regression)

    def __init__(self, *data: Any, **options: Any) -> None:
        super().__init__(*data, **options)
        if self._train is not None and self._train.items:
            numbers = self._targets(self._train.items).astype(np.float64)
            differ = np.ptp(numbers) > np.finfo(np.float32).tiny
            std = float(numbers.std()) if differ else 1.0
            self.target_scale = TargetScale(float(numbers.mean()), std)

    _find_fault = staticmethod(number_fault)

    def _targets(self, items: Items) -> np.ndarray:
        """(N,) float32."""
        return np.array([item.label for item in items], np.float32)

    def _judge(self, items: Items, outputs: Any, thresholds: Thresholds | None) -> Evaluation:
        true, predicted = self._targets(items).astype(np.float64), outputs.astype(np.float64)
        errors = (true - predicted) ** 2
        comparison = compare(NUMBER_SCORES, true, predicted, errors)
        return Evaluation(
            scores=self._scores(comparison),
            comparison=comparison,
            constant=bool(predicted.std() < _LEAST_SPREAD * true.std()),
            constant_means="the predictions differ by less than 1% of what the labels do",
            mistakes=self._mistakes(items, errors, errors > 0, true, predicted),
        )

    def _shown(self, target: Any) -> str:
        return f"{target:.6g}"

    def _records(
        self, items: Items, outputs: Any, thresholds: Thresholds
    ) -> Iterator[dict[str, Any]]:
        return ({"prediction": float(number)} for number in outputs)
