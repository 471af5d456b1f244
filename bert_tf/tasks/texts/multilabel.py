"""Task type for multi-label classification of texts and text pairs.

Dimensions: N examples, C classes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.cli import flag_fields
from bert_tf.evaluation.metrics import AT_HALF, HALF, LOSS, MULTILABEL_SCORES, compare_multilabel
from bert_tf.features import DEFAULT_THRESHOLD, PROBABILITY_THRESHOLD, TEMPERATURE
from bert_tf.readers.examples import TextExample
from bert_tf.readers.own_data import read_multilabel
from bert_tf.tasks.task import Items, label_counts
from bert_tf.tasks.training_options import BALANCED, ClassWeights, LongTexts, parse_class_weights

from .task import TextTask

if TYPE_CHECKING:
    from bert_tf.evaluation.evaluation import Evaluation, Thresholds


@dataclasses.dataclass(frozen=True)
class _Options(ClassWeights, LongTexts):
    label_separator: str = flag_fields.string(
        ",",
        "multilabel: separator between the class names of a text.",
        only="tables",
        heading="Multi-label classification",
        advanced=True,
    )


class MultiLabelTask(TextTask):
    """Multi-label classification of texts and text pairs.

    A class is predicted if its calibrated probability is at least a threshold, which is given or
    maximizes micro F1 on the evaluated data set. ``micro_f1`` and ``macro_f1`` use this threshold;
    ``micro_f1_at_0.5`` and ``macro_f1_at_0.5`` use 0.5. The loss is the mean of the classes'
    cross-entropies; the loss of a misclassified example is their sum.
    """

    kind = "multilabel"
    Options = _Options
    model = "BertClassifier"
    classes = "classes"
    multi_label = True
    threshold = PROBABILITY_THRESHOLD
    text_headline = "micro_f1"
    metrics = (*MULTILABEL_SCORES, *(name + AT_HALF for name in MULTILABEL_SCORES), LOSS)
    class_metrics = True
    read = staticmethod(read_multilabel)

    @classmethod
    def check_threshold(cls, value: float, options: Any, model_dir: str) -> str | None:
        """Rejects thresholds that are not probabilities."""
        return None if 0 <= value <= 1 else "expected a probability from 0 to 1."

    def loss(self) -> Any:
        import keras

        from bert_tf.tasks.losses import SmoothedClasses

        smoothing, weights = self.options.label_smoothing, self._loss_class_weights()
        if smoothing or weights:
            return SmoothedClasses(smoothing, weights)
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def _loss_class_weights(self) -> Sequence[float] | None:
        """Returns a weight per class; if balanced, the ratio of negative to positive examples."""
        weights = self.options.class_weights
        if not weights:
            return None
        counts = label_counts(self, None)
        if weights == BALANCED:
            total = len(self.training_items())
            return [
                (total - counts[name]) / counts[name] if counts[name] else 1.0
                for name in self.labels
            ]
        return list(parse_class_weights(weights, self.labels, counts).values())

    def example_classes(self, item: TextExample) -> Sequence[Any]:
        return item.label if isinstance(item.label, tuple) else ()

    def _targets(self, items: Items) -> np.ndarray:
        """Returns targets of shape (N, C) int32, which are 1 for each example's classes."""
        targets = np.zeros([len(items), len(self.labels)], np.int32)
        for row, item in zip(targets, items, strict=True):
            row[[self._ids[name] for name in self.example_classes(item)]] = 1
        return targets

    def score(self, items: Items, outputs: Any, thresholds: Thresholds | None) -> Evaluation:
        from bert_tf.answering import classes
        from bert_tf.evaluation.calibration import as_two_classes, calibrate_multilabel
        from bert_tf.evaluation.evaluation import Evaluation, get_temperature, is_constant

        true, logits = self._targets(items), outputs.astype(np.float64)
        temperature = get_temperature(thresholds, as_two_classes(logits), true.ravel())
        probabilities = classes.multilabel_probabilities(logits, temperature).numpy()
        if thresholds is None:
            threshold = best_threshold(true, probabilities)
        else:
            threshold = thresholds.get(PROBABILITY_THRESHOLD, DEFAULT_THRESHOLD)
        predicted, by_half = ((probabilities >= t).astype(int) for t in (threshold, HALF))
        losses = np.logaddexp(0, np.where(true == 1, -logits, logits)).sum(1)
        wrong = (true != predicted).any(1)
        comparison = compare_multilabel(true, predicted, self.labels, losses / len(self.labels))
        at_half = compare_multilabel(true, by_half, self.labels, suffix=AT_HALF)
        scores = {**comparison.scores, **at_half.scores}
        comparison = dataclasses.replace(comparison, scores=scores)
        # Small probabilities can be correct for rare classes, so the run has collapsed only if
        # predicting the same classes for all texts is at least as good.
        counts = np.sort(true.sum(0))[::-1]
        answered = np.arange(1, counts.size + 1) * len(true)
        constant_f1 = 2 * counts.cumsum() / (answered + max(counts.sum(), 1))
        micro_f1 = 2 * (true & predicted).sum() / max(true.sum() + predicted.sum(), 1)
        never = bool(true.any() and not by_half.any() and micro_f1 <= constant_f1.max())
        means = (
            f"no class of any text has a probability of {HALF} or more, and at the tuned "
            "threshold the predictions are no better than predicting the same classes for all texts"
        )
        return Evaluation(
            scores=self.select_scores(comparison),
            constant=never or is_constant(true, predicted),
            constant_description=means if never else Evaluation.constant_description,
            comparison=comparison,
            mistakes=self._mistakes(items, losses, wrong, true, predicted),
            thresholds={PROBABILITY_THRESHOLD: threshold, TEMPERATURE: temperature},
            calibrate=functools.partial(calibrate_multilabel, logits, true, temperature),
        )

    def answer(self, outputs: Any, thresholds: Thresholds) -> dict[str, Any]:
        from .answer import answer_classes

        return answer_classes(outputs, thresholds)

    def record(self, item: Any, answer: Mapping[str, Any]) -> dict[str, Any]:
        chosen = {*answer["chosen_labels"][: answer["counts"]]}
        probabilities = dict(zip(self.labels, answer["probabilities"], strict=True))
        prediction = [label for label in self.labels if label in chosen]
        return {"prediction": prediction, "probabilities": probabilities}

    def _format_target(self, target: Any) -> str:
        names = [label for label, holds in zip(self.labels, target, strict=True) if holds]
        return ", ".join(names) or "(none)"


def best_threshold(true: np.ndarray, probabilities: np.ndarray) -> float:
    """Returns the threshold with the highest micro F1.

    The threshold is the midpoint between two probabilities. Among equally good thresholds, the one
    closest to 0.5 is returned. Without positive labels, 0.5 is returned.

    Args:
        true: Labels, shape (N, C), 0 or 1.
        probabilities: Predicted probabilities, shape (N, C).
    """
    holds, ranked = true.ravel(), probabilities.ravel().astype(np.float64)
    order = np.argsort(-ranked, kind="stable")
    holds, ranked = holds[order], ranked[order]
    # Equal probabilities are predicted together, so only the last of each run is a candidate.
    ends = np.flatnonzero(np.diff(ranked, append=-1.0))
    true_positives = np.cumsum(holds)[ends]
    f1 = 2 * true_positives / (ends + 1 + holds.sum())
    cuts = (ranked[ends] + np.append(ranked[ends[1:]], 0.0)) / 2
    best = np.flatnonzero(f1 == f1.max())
    if not holds.any():
        return DEFAULT_THRESHOLD
    # A threshold is positive, even if both probabilities are 0.
    cuts = np.where(cuts > 0, cuts, np.finfo(np.float64).tiny)
    return float(cuts[best[np.argmin(np.abs(cuts[best] - DEFAULT_THRESHOLD))]])
