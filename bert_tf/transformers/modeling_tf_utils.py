"""``transformers.modeling_tf_utils``: what models of one's own take from there."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from . import losses
from .models import TFPreTrainedModel as TFPreTrainedModel


def keras_serializable(kind: Any) -> Any:
    """Makes a class known to Keras' files."""
    return keras.saving.register_keras_serializable(package="bert_tf.transformers")(kind)


def get_initializer(initializer_range: float = 0.02) -> keras.initializers.Initializer:
    """A truncated normal of this deviation."""
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


def shape_list(tensor: Any) -> list[Any]:
    """A tensor's sizes: numbers, and in a graph tensors where they are open."""
    return list(ops.shape(tensor))


def _base(name: str, loss: Callable[[Any, Any], Any]) -> Any:
    def hf_compute_loss(self: Any, labels: Any, logits: Any) -> Any:
        return losses.summed(loss, labels, logits)

    body = {"__doc__": "A base with ``hf_compute_loss``.", "__module__": __name__}
    return type(name, (), {**body, "hf_compute_loss": hf_compute_loss})


TFMaskedLanguageModelingLoss = _base("TFMaskedLanguageModelingLoss", losses.of_words)
TFMultipleChoiceLoss = _base("TFMultipleChoiceLoss", losses.of_choices)
TFQuestionAnsweringLoss = _base("TFQuestionAnsweringLoss", losses.of_ends)
TFSequenceClassificationLoss = _base("TFSequenceClassificationLoss", losses.of_classes)
TFTokenClassificationLoss = _base("TFTokenClassificationLoss", losses.of_tokens)
