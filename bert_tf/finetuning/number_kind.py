"""Texts with a number each.

Letters: N examples.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.modeling import BertRegressor
from bert_tf.tasks.examples import TextExample
from bert_tf.tasks.metrics import pearson_correlation, r2_score, spearman_correlation

from .task import Evaluation, TargetScale
from .text_kinds import Prediction, TextKind, label_fault, worst_mistakes

# A regressor whose predictions differ less than this share of the labels' differences says nothing.
_LEAST_SPREAD = 0.01
_LARGEST = float(np.finfo(np.float32).max)


class NumberKind(TextKind):
    """A number each.

    Scores are ``pearson`` and ``spearman``; of the errors, in the numbers' own units,
    ``mean_squared_error``, its root and ``mean_absolute_error``; and ``r2``, the share of the
    labels' variance that is explained, 0 for a model that always says their mean.
    """

    model_class = BertRegressor
    model_arguments: Mapping[str, Any] = {}
    headline = "spearman"

    def find_fault(self, item: TextExample) -> str | None:
        """Every label is a number, of those that the model can give."""
        if not isinstance(item.label, float | int):
            return label_fault(item, "a number")
        if not abs(item.label) <= _LARGEST:
            return label_fault(item, f"a number from {-_LARGEST:.2g} to {_LARGEST:.2g}")
        return None

    def targets(self, items: Sequence[TextExample]) -> np.ndarray:
        """(N,) float32."""
        return np.array([item.label for item in items], np.float32)

    def target_scale(self, items: Sequence[TextExample]) -> TargetScale:
        """Mean and standard deviation; a standard deviation of 1 where all numbers are one."""
        numbers = self.targets(items).astype(np.float64)
        differ = np.ptp(numbers) > np.finfo(np.float32).tiny
        return TargetScale(float(numbers.mean()), float(numbers.std()) if differ else 1.0)

    def compile_arguments(self) -> dict[str, Any]:
        """The squared error."""
        return {"loss": squared_error}

    def evaluate(
        self,
        items: Sequence[TextExample],
        outputs: np.ndarray,
        thresholds: Mapping[str, float] | None = None,
    ) -> Evaluation:
        """From numbers, (N,); constant where they differ by less than 1% of what labels do."""
        true, predicted = self.targets(items).astype(np.float64), outputs.astype(np.float64)
        errors = (true - predicted) ** 2
        return Evaluation(
            scores={
                "pearson": pearson_correlation(true, predicted),
                "spearman": spearman_correlation(true, predicted),
                "mean_squared_error": float(errors.mean()),
                "root_mean_squared_error": float(np.sqrt(errors.mean())),
                "mean_absolute_error": float(np.abs(true - predicted).mean()),
                "r2": r2_score(true, predicted),
            },
            constant=bool(predicted.std() < _LEAST_SPREAD * true.std()),
            constant_means="the predictions differ by less than 1% of what the labels do",
            mistakes=worst_mistakes(
                items,
                errors,
                errors > 0,
                lambda at: (f"{true[at]:.6g}", f"{predicted[at]:.6g}"),
            ),
        )

    def predictions(
        self, outputs: np.ndarray, thresholds: Mapping[str, float]
    ) -> Iterator[Prediction]:
        """The numbers; there is no threshold."""
        for number in outputs:
            yield Prediction(float(number), {})


@keras.saving.register_keras_serializable(package="bert_tf")
def squared_error(labels: Any, predictions: Any) -> Any:
    """The squared error of each example, (B,) and (B,) -> (B,).

    Keras' own ``MeanSquaredError`` takes the mean over the last axis, which is here the batch:
    what a sample weight is multiplied with would be the mean of the whole batch.
    """
    return ops.square(predictions - ops.cast(labels, predictions.dtype))
