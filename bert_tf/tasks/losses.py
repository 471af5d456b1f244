"""The squared error; cross-entropies with smoothed labels and weighted classes.

Letters: B batch, S sequence length, C classes.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf import features

# The logit of a choice that an example does not have: finite, so that nothing becomes NaN.
NO_CHOICE = -1e9


@keras.saving.register_keras_serializable(package="bert_tf")
class SmoothedCrossEntropy(keras.losses.Loss):
    """The mean cross-entropy of a softmax over the last axis, (B, C) or (B, S, C), with labels.

    With ``smoothing`` e the target of the right class is 1 - e + e / C and that of every other
    e / C. ``class_weights`` are what a label's loss counts, by its class; the mean still divides by
    the number of labels. ``features.NO_LABEL`` is no label and counts nothing.

    Source: Szegedy et al. 2016, "Rethinking the Inception Architecture", section 7.
    """

    default_name = "smoothed_cross_entropy"

    def __init__(
        self,
        smoothing: float = 0.0,
        class_weights: Sequence[float] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name or self.default_name, **kwargs)
        self.smoothing = smoothing
        self.class_weights = None if class_weights is None else list(class_weights)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The losses, (B,) or (B, S); their mean is that of the labels that there are."""
        is_label = ops.not_equal(y_true, features.NO_LABEL)
        labels = ops.cast(ops.where(is_label, y_true, 0), "int32")
        logs = ops.log_softmax(y_pred)
        right = ops.take_along_axis(logs, labels[..., None], axis=-1)[..., 0]
        losses = -(1 - self.smoothing) * right - self.smoothing * ops.mean(logs, axis=-1)
        if self.class_weights is not None:
            weights = ops.convert_to_tensor(self.class_weights, dtype=losses.dtype)
            losses = losses * ops.take(weights, labels)
        mask = ops.cast(is_label, losses.dtype)
        share = ops.maximum(ops.mean(mask), keras.config.epsilon())
        return losses * mask / share

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        own = {"smoothing": self.smoothing, "class_weights": self.class_weights}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="bert_tf")
class ChoiceCrossEntropy(SmoothedCrossEntropy):
    """The mean cross-entropy of a softmax over each example's own choices.

    Labels are (B, 2): the right choice's place, and how many choices there are; logits are (B, K),
    and what is behind an example's choices counts nothing. ``smoothing`` is as in
    ``SmoothedCrossEntropy``, with the example's own number of choices; no class has a weight.
    """

    default_name = "choice_cross_entropy"

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The loss of each of B examples, (B,)."""
        labels, counts = ops.cast(y_true[:, 0], "int32"), ops.cast(y_true[:, 1:], "int32")
        is_choice = ops.arange(ops.shape(y_pred)[1], dtype="int32")[None, :] < counts
        logs = ops.log_softmax(ops.where(is_choice, y_pred, NO_CHOICE))
        right = ops.take_along_axis(logs, labels[:, None], axis=-1)[:, 0]
        total = ops.sum(ops.where(is_choice, logs, 0.0), axis=-1)
        means = total / ops.cast(counts[:, 0], total.dtype)
        return -(1 - self.smoothing) * right - self.smoothing * means


@keras.saving.register_keras_serializable(package="bert_tf")
class SmoothedClasses(SmoothedCrossEntropy):
    """The mean of the classes' cross-entropies, each a sigmoid's: logits and labels (B, C).

    With ``smoothing`` e the targets are 1 - e / 2 and e / 2. ``class_weights`` multiply the loss of
    the examples that have the class, as ``pos_weight`` does in PyTorch.
    """

    default_name = "smoothed_classes"

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The loss of each of B examples, (B,)."""
        holds = ops.cast(y_true, y_pred.dtype)
        targets = holds * (1 - self.smoothing) + self.smoothing / 2
        weight: Any = 1.0
        if self.class_weights is not None:
            weights = ops.convert_to_tensor(self.class_weights, dtype=y_pred.dtype)
            weight = ops.where(holds > 0.5, weights, 1.0)
        losses = weight * (ops.softplus(y_pred) - targets * y_pred)
        return ops.mean(losses, axis=-1)


@keras.saving.register_keras_serializable(package="bert_tf")
def squared_error(labels: Any, predictions: Any) -> Any:
    """The squared error of each example, (B,) and (B,) -> (B,).

    Keras' own ``MeanSquaredError`` takes the mean over the last axis, which is here the batch:
    what a sample weight is multiplied with would be the mean of the whole batch.
    """
    return ops.square(predictions - ops.cast(labels, predictions.dtype))
