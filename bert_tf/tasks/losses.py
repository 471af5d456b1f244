"""Losses: cross-entropies with label smoothing and class weights, and the squared error.

Dimensions: B batch, S sequence length, C classes, K choices.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf import features

# Logit of a choice that is padding; an infinite logit would cause NaN.
NO_CHOICE = -1e9


@keras.saving.register_keras_serializable(package="bert_tf")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Softmax cross-entropy with label smoothing and class weights.

    With smoothing ``e``, the target is ``1 - e + e / C`` for the true class and ``e / C`` for every
    other class. Labels equal to ``features.NO_LABEL`` are ignored.

    Source: Szegedy et al. 2016, "Rethinking the Inception Architecture", section 7.

    Args:
        smoothing: Label smoothing, at least 0 and below 1.
        class_weights: Weights of the C classes. The sum of the weighted losses is divided by the
            number of labels, not by the sum of the weights.
        name: Name of the loss.
        **kwargs: Further arguments of ``keras.losses.Loss``.
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
        """Returns losses, (B,) or (B, S), whose mean excludes ignored labels."""
        is_label = ops.not_equal(y_true, features.NO_LABEL)
        labels = ops.cast(ops.where(is_label, y_true, 0), "int32")
        logs = ops.log_softmax(y_pred)
        log_likelihoods = ops.take_along_axis(logs, labels[..., None], axis=-1)[..., 0]
        losses = -(1 - self.smoothing) * log_likelihoods - self.smoothing * ops.mean(logs, axis=-1)
        if self.class_weights is not None:
            weights = ops.convert_to_tensor(self.class_weights, dtype=losses.dtype)
            losses = losses * ops.take(weights, labels)
        mask = ops.cast(is_label, losses.dtype)
        fraction = ops.maximum(ops.mean(mask), keras.config.epsilon())
        return losses * mask / fraction

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        arguments = {"smoothing": self.smoothing, "class_weights": self.class_weights}
        return {**super().get_config(), **arguments}


@keras.saving.register_keras_serializable(package="bert_tf")
class ChoiceCrossEntropy(SmoothedCrossEntropy):
    """Softmax cross-entropy over a variable number of choices per example.

    Labels have the shape (B, 2): the index of the correct choice and the number of choices. Logits
    have the shape (B, K); the logits after an example's last choice are ignored. Label smoothing
    uses each example's own number of choices as C. Class weights are not supported.
    """

    default_name = "choice_cross_entropy"

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Returns the loss of each example, shape (B,)."""
        labels, counts = ops.cast(y_true[:, 0], "int32"), ops.cast(y_true[:, 1:], "int32")
        is_choice = ops.arange(ops.shape(y_pred)[1], dtype="int32")[None, :] < counts
        logs = ops.log_softmax(ops.where(is_choice, y_pred, NO_CHOICE))
        log_likelihoods = ops.take_along_axis(logs, labels[:, None], axis=-1)[:, 0]
        total = ops.sum(ops.where(is_choice, logs, 0.0), axis=-1)
        means = total / ops.cast(counts[:, 0], total.dtype)
        return -(1 - self.smoothing) * log_likelihoods - self.smoothing * means


@keras.saving.register_keras_serializable(package="bert_tf")
class SmoothedClasses(SmoothedCrossEntropy):
    """Mean sigmoid cross-entropy over the classes, for logits and labels of shape (B, C).

    With smoothing ``e``, the target is ``1 - e / 2`` for positive labels and ``e / 2`` for negative
    labels. ``class_weights`` multiply the losses of positive labels, like PyTorch's ``pos_weight``.
    """

    default_name = "smoothed_classes"

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Returns the loss of each example, shape (B,)."""
        is_positive = ops.cast(y_true, y_pred.dtype)
        targets = is_positive * (1 - self.smoothing) + self.smoothing / 2
        weight: Any = 1.0
        if self.class_weights is not None:
            weights = ops.convert_to_tensor(self.class_weights, dtype=y_pred.dtype)
            weight = ops.where(is_positive > 0.5, weights, 1.0)
        losses = weight * (ops.softplus(y_pred) - targets * y_pred)
        return ops.mean(losses, axis=-1)


@keras.saving.register_keras_serializable(package="bert_tf")
def squared_error(labels: Any, predictions: Any) -> Any:
    """Returns the squared error of each example, shape (B,).

    Keras' ``MeanSquaredError`` would average over the last axis. Here, this is the batch, so sample
    weights would multiply the batch mean.
    """
    return ops.square(predictions - ops.cast(labels, predictions.dtype))
