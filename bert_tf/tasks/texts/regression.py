"""Task type for regression on texts and text pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.evaluation.metrics import LOSS, NUMBER_SCORES, compare
from bert_tf.readers.glue import GLUE_TASKS
from bert_tf.readers.own_data import read_regression
from bert_tf.tasks.target_scale import TargetScale
from bert_tf.tasks.task import Items

from .task import TextTask

if TYPE_CHECKING:
    from bert_tf.evaluation.evaluation import Evaluation, Thresholds

# The run has collapsed if std(predictions) / std(labels) is below this value.
_MIN_SPREAD = 0.01


class RegressionTask(TextTask):
    """Regression on texts and text pairs.

    The scores are ``pearson`` and ``spearman``; ``mean_squared_error``, its root and
    ``mean_absolute_error``, which depend on the units of the labels; and ``r2``, the explained
    fraction of the labels' variance, which is 0 for a model that always predicts the mean.
    """

    kind = "regression"
    published = tuple(task.tfds_config for task in GLUE_TASKS.values() if not task.labels)
    model = "BertRegressor"
    text_headline = "spearman"
    metrics = (*NUMBER_SCORES, LOSS)
    read = staticmethod(read_regression)

    def __init__(self, *data: Any, **options: Any) -> None:
        super().__init__(*data, **options)
        if self._train is not None and self._train.items:
            numbers = self._targets(self._train.items).astype(np.float64)
            differ = np.ptp(numbers) > np.finfo(np.float32).tiny
            std = float(numbers.std()) if differ else 1.0
            self.target_scale = TargetScale(float(numbers.mean()), std)

    def loss(self) -> Any:
        from bert_tf.tasks.losses import squared_error

        return squared_error

    def _targets(self, items: Items) -> np.ndarray:
        """Returns the targets, shape (N,) float32."""
        return np.array([item.label for item in items], np.float32)

    def score(self, items: Items, outputs: Any, thresholds: Thresholds | None) -> Evaluation:
        from bert_tf.evaluation.evaluation import Evaluation

        true, predicted = self._targets(items).astype(np.float64), outputs.astype(np.float64)
        errors = (true - predicted) ** 2
        comparison = compare(NUMBER_SCORES, true, predicted, errors)
        return Evaluation(
            scores=self.select_scores(comparison),
            comparison=comparison,
            constant=bool(predicted.std() < _MIN_SPREAD * true.std()),
            constant_description="the predictions' standard deviation is below 1% of the labels'",
            mistakes=self._mistakes(items, errors, errors > 0, true, predicted),
        )

    def _format_target(self, target: Any) -> str:
        return f"{target:.6g}"

    def answer(self, outputs: Any, thresholds: Thresholds) -> dict[str, Any]:
        return {"value": outputs}

    def record(self, item: Any, answer: Mapping[str, Any]) -> dict[str, Any]:
        return {"prediction": answer["value"]}
