"""Texts with a number each.

Letters: N examples.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.modeling.classifier import BertRegressor
from bert_tf.tasks.examples import TextExample
from bert_tf.tasks.glue_metrics import glue_scores
from bert_tf.tasks.regression_metrics import pearson_correlation, spearman_correlation

from .task import Evaluation
from .text_kinds import Prediction, TextKind, label_fault, worst_mistakes

# A regressor whose predictions differ less than this share of the labels' differences says nothing.
_LEAST_SPREAD = 0.01


class NumberKind(TextKind):
    """A number each.

    Scores are ``pearson`` and ``spearman``, and for data of one's own ``mean_squared_error``.

    Args:
        glue: "STS-B", or ``None``.
    """

    model_class = BertRegressor
    model_arguments: Mapping[str, Any] = {}
    headline = "spearman"

    def __init__(self, glue: str | None = None) -> None:
        self._glue = glue

    def find_fault(self, item: TextExample) -> str | None:
        """Every label is a number."""
        return None if isinstance(item.label, float | int) else label_fault(item, "a number")

    def targets(self, items: Sequence[TextExample]) -> np.ndarray:
        """(N,) float32."""
        return np.array([item.label for item in items], np.float32)

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
        if self._glue:
            scores = glue_scores(self._glue, true, predicted)
        else:
            scores = {
                "pearson": pearson_correlation(true, predicted),
                "spearman": spearman_correlation(true, predicted),
                "mean_squared_error": float(errors.mean()),
            }
        return Evaluation(
            scores=scores,
            constant=bool(predicted.std() < _LEAST_SPREAD * true.std()),
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
