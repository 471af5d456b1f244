"""The scale of the numbers that a regressor learns."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bert_tf.untrusted import one_line, quote

_LARGEST = float(np.finfo(np.float32).max)


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


def number_fault(item: Any) -> str | None:
    """Why the label of an example is no number to learn in float32; ``None``: it is one, or none.

    >>> import types
    >>> number_fault(types.SimpleNamespace(id="7", label=-1e39))
    'the example 7 has the label -1e+39: expected a number from -3.4e+38 to 3.4e+38'
    """
    if item.label is None or abs(item.label) <= _LARGEST:
        return None
    what = f"the example {one_line(item.id)} has the label {quote(item.label)}"
    return f"{what}: expected a number from {-_LARGEST:.2g} to {_LARGEST:.2g}"
