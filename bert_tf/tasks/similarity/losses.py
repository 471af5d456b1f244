"""Losses of models of embeddings: similar texts get vectors at small angles.

Labels come as floats of the vectors' dtype, as Keras has it: whole numbers are exact up to 2**24.

Letters: B batch, K texts of an example, D numbers of a vector, C candidates, B * (K - 1).
"""

from typing import Any

import keras
from keras import ops

from bert_tf.choices import BOTH_WAYS, COSENT, COSINE
from bert_tf.modeling.layers import normalize

# The logarithm of a probability that counts for 0: finite, so that nothing becomes NaN.
_NEVER = -1e9
# Cosines are multiplied by it: the inverse of a temperature of 0.05.
SCALE = 20.0


class _VectorLoss(keras.losses.Loss):
    """A loss of vectors, (B, K, D), by the cosines of their angles."""

    # True if an example's loss depends on the other examples of the batch.
    compares_rows = True

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The losses, (B,), or (1,) where a batch has one."""
        return self.compute_loss(y_true, normalize(y_pred))

    def compute_loss(self, labels: Any, vectors: Any) -> Any:
        """The losses of vectors of length 1."""
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="bert_tf")
class InBatchNegatives(_VectorLoss):
    """The cross-entropy of an anchor's own text among all texts of the batch.

    ``scale`` times the cosines are the logits. Labels (B, K) are numbers of texts: the anchor, what
    belongs to it and, where K is 3, what does not. Equal numbers are equal texts, so that no text
    counts as wrong for an anchor which the batch shows to be right for it: it is the anchor's, or
    stands next to it in some row. With ``both_ways`` the mean of this and of each
    text's own anchor among all anchors.

    Sources: Henderson et al. 2017, "Efficient Natural Language Response Suggestion", section 4;
    sentence-transformers ``MultipleNegativesRankingLoss`` and its symmetric form, which have no
    such care for duplicates.
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
        """The labels (B, K) and directions (B, K, D) of texts -> the loss of each anchor, (B,)."""
        anchors, own = vectors[:, 0], vectors[:, 1]
        # (C, D), the texts that belong to the anchors first, and their numbers (C,).
        texts = ops.reshape(ops.swapaxes(vectors[:, 1:], 0, 1), (-1, ops.shape(vectors)[2]))
        numbers = ops.reshape(ops.transpose(labels[:, 1:]), (-1,))
        # (B, B): of the same anchor; (B, C): the same text. A text is right for an anchor where
        # some row has the two, or it is the anchor's.
        same_anchor = ops.cast(labels[:, 0][:, None] == labels[:, 0][None], vectors.dtype)
        is_text = ops.cast(labels[:, 1][:, None] == numbers[None], vectors.dtype)
        is_right = ops.matmul(same_anchor, is_text) > 0
        is_right = is_right | (labels[:, 0][:, None] == numbers[None])
        losses = self._cross_entropy(anchors, texts, is_right)
        if self.both_ways:
            backwards = ops.transpose(is_right[:, : ops.shape(vectors)[0]])
            losses = (losses + self._cross_entropy(own, anchors, backwards)) / 2
        return losses

    def _cross_entropy(self, anchors: Any, texts: Any, is_right: Any) -> Any:
        """(B, D), (C, D), (B, C) -> (B,): text i is that of anchor i."""
        logits = self.scale * ops.matmul(anchors, ops.transpose(texts))
        is_own = ops.eye(ops.shape(anchors)[0], ops.shape(texts)[0], dtype="bool")
        own = ops.sum(ops.where(is_own, logits, 0.0), axis=1)
        others = ops.where(is_right & ~is_own, ops.cast(_NEVER, logits.dtype), logits)
        return ops.logsumexp(others, axis=1) - own

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "scale": self.scale, "both_ways": self.both_ways}


@keras.saving.register_keras_serializable(package="bert_tf")
class CosineError(_VectorLoss):
    """The squared difference of two texts' cosine, (B, 2, D), and a score from 0 to 1, (B,).

    Source: Reimers and Gurevych 2019, "Sentence-BERT", section 3, the regression objective.
    """

    compares_rows = False

    def __init__(self, name: str = "cosine_error", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def compute_loss(self, labels: Any, vectors: Any) -> Any:
        """The scores (B,) and directions (B, 2, D) of pairs -> the loss of each, (B,)."""
        return ops.square(ops.sum(vectors[:, 0] * vectors[:, 1], axis=1) - labels)


@keras.saving.register_keras_serializable(package="bert_tf")
class CosineOrder(_VectorLoss):
    """CoSENT: for every two pairs of the batch, the more similar one is to have the greater cosine.

    log(1 + the sum of exp(scale * (cosine of the pair of the lower score - that of the other))),
    over all two pairs whose scores, (B,), differ. Only the order of the scores counts.

    Source: Su 2022, "CoSENT"; sentence-transformers ``CoSENTLoss``.
    """

    def __init__(self, scale: float = SCALE, name: str = "cosine_order", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.scale = scale

    def compute_loss(self, labels: Any, vectors: Any) -> Any:
        """The scores (B,) and directions (B, 2, D) of pairs -> the loss of all, (1,)."""
        cosines = self.scale * ops.sum(vectors[:, 0] * vectors[:, 1], axis=1)
        # (B, B): how far the cosine of the row's pair is above that of the column's.
        above = cosines[:, None] - cosines[None]
        is_wrong_way = labels[:, None] < labels[None]
        terms = ops.where(is_wrong_way, above, ops.cast(_NEVER, above.dtype))
        with_one = ops.concatenate([ops.zeros((1,), above.dtype), ops.reshape(terms, (-1,))])
        return ops.logsumexp(with_one)[None]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "scale": self.scale}


def similarity_loss(name: str) -> _VectorLoss:
    """The loss of ``--similarity_loss``."""
    if name in (COSENT, COSINE):
        return CosineOrder() if name == COSENT else CosineError()
    return InBatchNegatives(both_ways=name == BOTH_WAYS)
