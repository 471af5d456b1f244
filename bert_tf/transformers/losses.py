"""The losses that models compute of labels among their inputs, with transformers' reductions.

``-100`` is a label that counts nothing. Letters: B batch, S sequence, C classes, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

Tensors = dict[str, Any]


def _cross_entropy(labels: Any, logits: Any) -> Any:
    """(...) labels and (..., C) logits -> (...)."""
    labels = ops.cast(labels, "int32")
    return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def _mean_of_counted(labels: Any, logits: Any, counts: Any) -> Any:
    """The mean where ``counts``, as (1,)."""
    each = _cross_entropy(ops.maximum(labels, 0), logits)
    weights = ops.cast(counts, each.dtype)
    return ops.reshape(ops.sum(each * weights) / ops.sum(weights), (1,))


def of_classes(labels: Tensors, logits: Tensors) -> Any:
    """(B,): the squared error where there is one class, else the cross-entropy."""
    found, scores = labels["labels"], logits["logits"]
    if scores.shape[-1] != 1:
        return _cross_entropy(found, scores)
    numbers = ops.cast(ops.reshape(found, (-1, 1)), scores.dtype)
    return ops.mean(ops.square(scores - numbers), axis=-1)


def of_choices(labels: Tensors, logits: Tensors) -> Any:
    """(B,): the cross-entropy over the choices."""
    return _cross_entropy(labels["labels"], logits["logits"])


def of_tokens(labels: Tensors, logits: Tensors) -> Any:
    """(1,): the mean over the tokens whose label is not negative."""
    found = labels["labels"]
    return _mean_of_counted(found, logits["logits"], found >= 0)


def of_masked_words(labels: Tensors, logits: Tensors) -> Any:
    """(1,): the mean over the tokens whose label is not -100."""
    found = labels["labels"]
    return _mean_of_counted(found, logits["logits"], found != -100)


def of_next_words(labels: Tensors, logits: Tensors) -> Any:
    """(1,): each token's logits against the next token's label."""
    found = labels["labels"][:, 1:]
    return _mean_of_counted(found, logits["logits"][:, :-1], found != -100)


def of_following(labels: Tensors, logits: Tensors) -> Any:
    """(B,): whether the second text follows, 0 where the label is -100."""
    found = labels["labels"]
    each = _cross_entropy(ops.maximum(found, 0), logits["logits"])
    return each * ops.cast(found != -100, each.dtype)


def of_pretraining(labels: Tensors, logits: Tensors) -> Any:
    """(1,): masked words' mean and the mean of whether the second text follows."""
    words, following = labels["labels"], labels["next_sentence_label"]
    scores = logits["seq_relationship_logits"]
    return _mean_of_counted(words, logits["prediction_logits"], words != -100) + _mean_of_counted(
        following, scores, following != -100
    )


def of_spans(labels: Tensors, logits: Tensors) -> Any:
    """(B,): half the sum of the first and of the last token's cross-entropy."""
    starts = _cross_entropy(labels["start_positions"], logits["start_logits"])
    return (starts + _cross_entropy(labels["end_positions"], logits["end_logits"])) / 2.0
