"""Task type for single-label classification of texts and text pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.choices import LONG_TEXTS
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_fields import conflicts_with, requires_flag, rule
from bert_tf.evaluation.metrics import (
    BINARY_SCORES,
    CLASS_SCORES,
    LOSS,
    compare_classes,
    count_confusions,
)
from bert_tf.readers.glue import GLUE_TASKS
from bert_tf.readers.own_data import read_classification
from bert_tf.tasks.task import Items, label_counts
from bert_tf.tasks.training_options import (
    ClassWeights,
    LongTexts,
    parse_class_weights,
    requires_single_texts,
)

from .task import TextTask

if TYPE_CHECKING:
    from bert_tf.evaluation.evaluation import Evaluation, Thresholds

# Defaults of SetFit.
_FEW_SHOT_DEFAULTS = {"learning_rate": 2e-5, "num_train_epochs": 1, "train_batch_size": 16}


@dataclasses.dataclass(frozen=True)
class _Options(ClassWeights, LongTexts):
    few_shot: bool = flag_fields.switch(
        False,
        "classification: train on a few texts, such as 8 per class, using pairs of texts from "
        "the same or different classes; text pairs are not supported (defaults: "
        + ", ".join(f"--{name}={value:g}" for name, value in _FEW_SHOT_DEFAULTS.items())
        + ").",
        rules=[
            rule(
                lambda is_on, values: is_on and values["pooling"] == "cls",
                "--{flag} requires mean or maximum pooling. Remove --pooling=cls.",
            ),
            rule(
                lambda is_on, values: is_on and values["long_text"] != LONG_TEXTS[0],
                "--{flag} reads only the beginnings of texts. Remove --long_text={long_text}.",
            ),
            requires_single_texts,
            conflicts_with(
                *("class_weights", "label_smoothing"),
                message="--{other} is not supported with --{flag}, which fits its own head. Remove "
                "one of the flags.",
            ),
        ],
        heading="Few examples",
    )
    few_shot_pairs: int = flag_fields.integer(
        20,
        "--few_shot: number of pairs to draw per text with texts of the same class; as many are "
        "drawn with texts of other classes.",
        min_value=1,
        rules=[requires_flag("few_shot")],
        advanced=True,
    )


class ClassificationTask(TextTask):
    """Single-label classification of texts and text pairs.

    GLUE tasks use GLUE's scores. Other tasks use ``accuracy``, ``macro_f1`` (the mean F1 of the
    classes that occur among labels or predictions) and ``matthews_correlation``.
    """

    kind = "classification"
    published = tuple(task.tfds_config for task in GLUE_TASKS.values() if task.labels)
    Options = _Options
    model = "BertClassifier"
    classes = "classes"
    text_headline = "accuracy"
    metrics = (*CLASS_SCORES, *BINARY_SCORES, LOSS)
    class_metrics = True
    read = staticmethod(read_classification)

    @classmethod
    def changed_defaults(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the defaults of few-shot training: fewer epochs and a lower learning rate."""
        return _FEW_SHOT_DEFAULTS if values["few_shot"] else {}

    @property
    def unavailable_metrics(self) -> Sequence[str]:
        """The F1 of the second class, unless there are exactly two classes."""
        return () if len(self.labels) == 2 else [*BINARY_SCORES]

    def _apply(self, options: Any) -> None:
        super()._apply(options)
        self.displayed_scores = self._glue.metrics if self._glue else [*CLASS_SCORES]
        weights = options.class_weights
        self._class_weights = weights and parse_class_weights(
            weights, self.labels, label_counts(self, None)
        )

    def _sample_weights(self, items: Items) -> Sequence[float] | None:
        """Returns the weights of examples by class, from ``--class_weights``."""
        weights = self._class_weights
        return [weights[item.label] for item in items] if weights else None

    def _targets(self, items: Items) -> np.ndarray:
        """Returns the class ids, shape (N,) int32."""
        return np.array([self._ids[item.label] for item in items], np.int32)

    def score(self, items: Items, outputs: Any, thresholds: Thresholds | None) -> Evaluation:
        from bert_tf.evaluation.evaluation import Evaluation, predict_classes

        true = self._targets(items)
        predicted, losses, pairs, fields = predict_classes(outputs, true, thresholds)
        comparison = compare_classes(true, predicted, self.labels, losses)
        return Evaluation(
            **fields,
            scores=self.select_scores(comparison),
            mistakes=self._mistakes(items, losses, true != predicted, true, predicted, pairs),
            confusion=count_confusions(true, predicted),
            comparison=comparison,
        )

    def _format_target(self, target: Any) -> str:
        return self.labels[target]

    def answer(self, outputs: Any, thresholds: Thresholds) -> dict[str, Any]:
        from .answer import answer_class

        return answer_class(outputs, thresholds)

    def record(self, item: Any, answer: Mapping[str, Any]) -> dict[str, Any]:
        probabilities = dict(zip(self.labels, answer["probabilities"], strict=True))
        return {"prediction": answer["label"], "probabilities": probabilities}
