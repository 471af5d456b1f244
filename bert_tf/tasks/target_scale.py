"""Standardization of regression targets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np


class TargetScale(NamedTuple):
    """Scale of regression targets: a model is trained on ``(target - mean) / std``.

    Initial weights and default learning rates suit targets near 0. When weights are saved, the
    scale is folded into the head (``kernel * std`` and ``bias * std + mean``), so the saved model
    predicts in the original units. The default scale leaves weights and targets unchanged.
    """

    mean: float = 0.0
    std: float = 1.0

    @contextlib.contextmanager
    def folded(self, model: Any) -> Iterator[None]:
        """Makes a model in training predict in the original units within the context."""
        if self == TargetScale():
            yield
            return
        head = model.regressor
        kernel, bias = head.kernel.numpy(), head.bias.numpy()
        self._assign(head, self.std, self.mean)
        try:
            yield
        finally:
            head.kernel.assign(kernel)
            head.bias.assign(bias)

    def unfold(self, model: Any) -> None:
        """Makes a regressor that predicts in the original units predict scaled targets."""
        if self != TargetScale():
            self._assign(model.regressor, 1 / self.std, -self.mean / self.std)

    @staticmethod
    def _assign(head: Any, factor: float, shift: float) -> None:
        kernel, bias = np.float64(head.kernel.numpy()), np.float64(head.bias.numpy())
        head.kernel.assign(np.float32(kernel * factor))
        head.bias.assign(np.float32(bias * factor + shift))

    def scaled(self, batches: Any) -> Any:
        """Scales the targets, (B,) float32, in a dataset of (features, targets)."""
        if self == TargetScale():
            return batches

        import tensorflow as tf

        def scale(rows: Any, numbers: Any) -> tuple[Any, Any]:
            wide = tf.cast(numbers, tf.float64)
            return rows, tf.cast((wide - self.mean) / self.std, tf.float32)

        return batches.map(scale)
