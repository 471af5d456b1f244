"""Numbers to learn, brought near 0 for the training and back for what is kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np


class TargetScale(NamedTuple):
    """The scale of the numbers to learn: a regressor is trained on ``(number - mean) / std``.

    Weights and learning rates are made for numbers near 0. The head of the weights that are kept,
    ``kernel * std`` and ``bias * std + mean``, answers in the numbers' own units. The default
    changes nothing, not even a rounding.
    """

    mean: float = 0.0
    std: float = 1.0

    @contextlib.contextmanager
    def folded(self, model: Any) -> Iterator[None]:
        """Makes a model in training answer in the numbers' own units within the context."""
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
        """Makes of a regressor that answers in the numbers' own units one to train."""
        if self != TargetScale():
            self._assign(model.regressor, 1 / self.std, -self.mean / self.std)

    @staticmethod
    def _assign(head: Any, factor: float, shift: float) -> None:
        kernel, bias = np.float64(head.kernel.numpy()), np.float64(head.bias.numpy())
        head.kernel.assign(np.float32(kernel * factor))
        head.bias.assign(np.float32(bias * factor + shift))

    def scaled(self, batches: Any) -> Any:
        """A dataset of features and numbers, (B,) float32, with the numbers to train on."""
        if self == TargetScale():
            return batches

        import tensorflow as tf

        def scale(rows: Any, numbers: Any) -> tuple[Any, Any]:
            wide = tf.cast(numbers, tf.float64)
            return rows, tf.cast((wide - self.mean) / self.std, tf.float32)

        return batches.map(scale)
