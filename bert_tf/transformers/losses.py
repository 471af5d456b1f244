"""The losses that models compute of labels among their inputs, with transformers' reductions.

``-100`` is a label that counts nothing. Letters: B batch, S sequence, C classes, K choices,
V vocabulary.
"""

from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.training.losses import weighted_sums


def summed(loss: Callable[[Any, Any], Any], labels: Any, logits: Any) -> Any:
    """A loss of labels and logits; of a dict of labels the sum over them and their logits."""
    if not isinstance(labels, Mapping):
        return loss(labels, logits)
    return sum(loss(*pair) for pair in zip(labels.values(), logits, strict=True))


def of_choices(labels: Any, logits: Any, end: Any = None) -> Any:
    """(B,), (B, K) -> (B,): the cross-entropy; its mean is over labels below ``end`` but -100."""
    labels = ops.reshape(ops.cast(labels, "int32"), (-1,))
    is_left_out = labels == -100 if end is None else (labels == -100) | (labels >= end)
    labels = ops.where(is_left_out, 0, labels)
    each = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    counts = ops.cast(~is_left_out, "float32")
    return each * ops.cast(counts / ops.maximum(ops.mean(counts), 1e-9), each.dtype)


def of_classes(labels: Any, logits: Any) -> Any:
    """(B,) and (B, C) -> (B,): the cross-entropy, or of one class the squared error."""
    if logits.shape[-1] != 1:
        return of_choices(labels, logits)
    numbers = ops.cast(ops.reshape(labels, (-1, 1)), logits.dtype)
    return ops.mean(ops.square(logits - numbers), axis=-1)


def of_ends(labels: Any, logits: Any) -> Any:
    """(B,) and (B, S) -> (B,): half the loss of a span's end, which counts inside the row."""
    return of_choices(labels, logits, end=ops.shape(logits)[-1]) / 2.0


def of_following(labels: Any, logits: Any) -> Any:
    """(B,) and (B, 2) -> (B,): whether the second text follows, 0 where the label is -100."""
    each = of_choices(ops.maximum(labels, 0), logits)
    return each * ops.cast(ops.reshape(labels, (-1,)) != -100, each.dtype)


def _mean_of_counted(labels: Any, logits: Any, counts: Any) -> Any:
    """The mean cross-entropy where ``counts``, as (1,); 0 where nothing does."""
    sums = weighted_sums(logits, ops.maximum(labels, 0), counts)
    return ops.reshape(sums.loss / ops.maximum(sums.weight, 1.0), (1,))


def of_tokens(labels: Any, logits: Any) -> Any:
    """(B, S) and (B, S, C) -> (1,): the mean over the tokens whose label is not negative."""
    return _mean_of_counted(labels, logits, labels >= 0)


def of_words(labels: Any, logits: Any) -> Any:
    """(B, S) and (B, S, V) -> (1,): the mean where the label is not -100; so of (B,) and (B, 2)."""
    return _mean_of_counted(labels, logits, labels != -100)


def of_next_words(labels: Any, logits: Any) -> Any:
    """(B, S) and (B, S, V) -> (1,): each token's logits against the next token's label."""
    return of_words(labels[:, 1:], logits[:, :-1])
