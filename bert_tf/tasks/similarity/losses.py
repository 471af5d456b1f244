"""Losses of text vectors, for ``--task=similarity``.

Keras casts labels to the dtype of the vectors; in float32, integers are exact up to 2**24.
Dimensions: B batch, K texts per example, D vector, N = B * (K - 1) candidates.
"""

from typing import Any

import keras
from keras import ops

from bert_tf.choices import BOTH_WAYS, COSENT, COSINE
from bert_tf.modeling.pooling import normalize

# Logarithm of a negligible probability, finite to avoid NaN.
_NEVER = -1e9
# Factor for cosines, the inverse of a temperature of 0.05.
SCALE = 20.0


class _VectorLoss(keras.losses.Loss):
    """Base class of losses that depend only on the directions of vectors, (B, K, D)."""

    # Whether the loss of an example depends on the rest of the batch.
    compares_rows = True

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Returns the loss of each example, (B,), or a single loss for the batch, (1,)."""
        return self.compute_loss(y_true, normalize(y_pred))

    def compute_loss(self, labels: Any, vectors: Any) -> Any:
        """Returns the losses of unit vectors."""
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="bert_tf")
class InBatchNegatives(_VectorLoss):
    """Cross-entropy of selecting each anchor's text among all texts of the batch.

    The logits are the cosines times ``scale``. Labels, (B, K), are ids of texts: the anchor, a text
    that belongs to the anchor and, if K is 3, a text that does not. Equal ids denote equal texts. A
    text that equals the anchor, or is paired with the anchor in another row of the batch, is not
    used as a negative.

    Sources: Henderson et al. 2017, "Efficient Natural Language Response Suggestion", section 4;
    sentence-transformers ``MultipleNegativesRankingLoss`` and its symmetric form, which do not
    handle duplicates.

    Args:
        scale: Factor for the cosines.
        both_ways: Whether to average the loss with that of selecting each text's anchor.
        name: Name of the loss.
        **kwargs: Further arguments of ``keras.losses.Loss``.
    """

    def __init__(
        self,
        scale: float = SCALE,
        both_ways: bool = False,
        name: str = "in_batch_negatives",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.scale, self.both_ways = scale, both_ways

    def compute_loss(self, labels: Any, vectors: Any) -> Any:
        """Returns the loss of each anchor, (B,), for labels (B, K) and unit vectors (B, K, D)."""
        anchors, positives = vectors[:, 0], vectors[:, 1]
        # (N, D), starting with the anchors' texts; (N,), the ids of all texts.
        texts = ops.reshape(ops.swapaxes(vectors[:, 1:], 0, 1), (-1, ops.shape(vectors)[2]))
        numbers = ops.reshape(ops.transpose(labels[:, 1:]), (-1,))
        # (B, B): whether anchors are equal; (B, N): whether texts are equal. A text is positive for
        # an anchor if some row contains both, or if it equals the anchor.
        same_anchor = ops.cast(labels[:, 0][:, None] == labels[:, 0][None], vectors.dtype)
        is_text = ops.cast(labels[:, 1][:, None] == numbers[None], vectors.dtype)
        is_positive = ops.matmul(same_anchor, is_text) > 0
        is_positive = is_positive | (labels[:, 0][:, None] == numbers[None])
        losses = self._cross_entropy(anchors, texts, is_positive)
        if self.both_ways:
            backwards = ops.transpose(is_positive[:, : ops.shape(vectors)[0]])
            losses = (losses + self._cross_entropy(positives, anchors, backwards)) / 2
        return losses

    def _cross_entropy(self, anchors: Any, texts: Any, is_positive: Any) -> Any:
        """Returns the loss of each anchor: (B, D), (N, D), (B, N) -> (B,).

        Text i belongs to anchor i.
        """
        logits = self.scale * ops.matmul(anchors, ops.transpose(texts))
        is_target = ops.eye(ops.shape(anchors)[0], ops.shape(texts)[0], dtype="bool")
        target_logits = ops.sum(ops.where(is_target, logits, 0.0), axis=1)
        masked_logits = ops.where(is_positive & ~is_target, ops.cast(_NEVER, logits.dtype), logits)
        return ops.logsumexp(masked_logits, axis=1) - target_logits

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "scale": self.scale, "both_ways": self.both_ways}


@keras.saving.register_keras_serializable(package="bert_tf")
class CosineError(_VectorLoss):
    """Squared difference between the cosine of two texts, (B, 2, D), and a score from 0 to 1, (B,).

    Source: Reimers and Gurevych 2019, "Sentence-BERT", section 3, the regression objective.
    """

    compares_rows = False

    def __init__(self, name: str = "cosine_error", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def compute_loss(self, labels: Any, vectors: Any) -> Any:
        """Returns the loss of each pair, (B,), for scores (B,) and unit vectors (B, 2, D)."""
        return ops.square(ops.sum(vectors[:, 0] * vectors[:, 1], axis=1) - labels)


@keras.saving.register_keras_serializable(package="bert_tf")
class CosineOrder(_VectorLoss):
    """CoSENT: of every two pairs, the one with the higher score should have the higher cosine.

    The loss is log(1 + sum(exp(scale * (cosine of the lower-scored pair - cosine of the other)))).
    The sum is over every two pairs with different scores. Only the order of the scores matters.

    Source: Su 2022, "CoSENT"; sentence-transformers ``CoSENTLoss``.
    """

    def __init__(self, scale: float = SCALE, name: str = "cosine_order", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.scale = scale

    def compute_loss(self, labels: Any, vectors: Any) -> Any:
        """Returns the loss of the batch, (1,), for scores (B,) and unit vectors (B, 2, D)."""
        cosines = self.scale * ops.sum(vectors[:, 0] * vectors[:, 1], axis=1)
        # (B, B): cosine of the row's pair minus cosine of the column's pair.
        above = cosines[:, None] - cosines[None]
        is_lower = labels[:, None] < labels[None]
        terms = ops.where(is_lower, above, ops.cast(_NEVER, above.dtype))
        padded = ops.concatenate([ops.zeros((1,), above.dtype), ops.reshape(terms, (-1,))])
        return ops.logsumexp(padded)[None]

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "scale": self.scale}


def similarity_loss(name: str) -> _VectorLoss:
    """Returns the loss named by ``--similarity_loss``."""
    if name in (COSENT, COSINE):
        return CosineOrder() if name == COSENT else CosineError()
    return InBatchNegatives(both_ways=name == BOTH_WAYS)
