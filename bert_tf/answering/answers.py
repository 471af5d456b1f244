"""Answers of a batch of examples: tensors by name, in which a label is its number.

A task's ``answer`` returns them. In an export the numbers become names in the graph; predictions
name those of one example at a time, since names of all examples and labels would fill the memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# The answers that are numbers of labels, of any shape; -1 stands for none.
LABELS = frozenset({"label", "chosen_labels", "tags"})


def with_names(answers: Mapping[str, tf.Tensor], labels: Sequence[str]) -> dict[str, tf.Tensor]:
    """Answers with names instead of numbers, "" instead of -1; in-graph."""
    names = tf.constant([*labels, ""])

    def named(numbers: tf.Tensor) -> tf.Tensor:
        return tf.gather(names, tf.where(numbers < 0, tf.size(names, numbers.dtype) - 1, numbers))

    return {
        key: named(value) if key in LABELS else in_float32(value) for key, value in answers.items()
    }


def in_float32(value: tf.Tensor) -> tf.Tensor:
    """An answer as signatures return it: probabilities are float64 until then."""
    return tf.cast(value, tf.float32) if value.dtype.is_floating else value


def split_examples(answers: Mapping[str, Any], labels: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields the answers of each example as Python's numbers, texts and lists, without -1."""
    arrays = {key: np.asarray(value) for key, value in answers.items()}
    for row in range(len(next(iter(arrays.values())))):
        yield {
            key: _names(array[row], labels) if key in LABELS else _plain(array[row].tolist())
            for key, array in arrays.items()
        }


def _names(numbers: np.ndarray, labels: Sequence[str]) -> Any:
    if numbers.ndim == 0:
        return labels[numbers]
    return [labels[number] for number in numbers[numbers >= 0]]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


# === Probabilities of classes, in-graph, shared by evaluation, predictions and exports ===

# They are float64, since a float32 is 1 for every logit from 17 on. A temperature, by which logits
# are divided, calibrates them. Letters: B batch, K choices, C classes or labels.


def probabilities(logits: tf.Tensor, temperature: float = 1.0) -> tf.Tensor:
    """Probabilities of classes of which one holds, (..., C) float64."""
    return tf.nn.softmax(_calibrated(logits, temperature))


def log_probabilities(logits: tf.Tensor, temperature: float = 1.0) -> tf.Tensor:
    """The logarithms of ``probabilities``, finite where those are 0.

    >>> log_probabilities(tf.constant([[0.0, 0.0], [1e4, 0.0]])).numpy().round(2)
    array([[-6.9e-01, -6.9e-01],
           [ 0.0e+00, -1.0e+04]])
    """
    return tf.nn.log_softmax(_calibrated(logits, temperature))


def likeliest(logits: tf.Tensor, temperature: float = 1.0) -> tuple[tf.Tensor, tf.Tensor]:
    """The most probable class, (...,) int64, and its probability, (...,) float64."""
    return tf.argmax(logits, -1), tf.reduce_max(probabilities(logits, temperature), -1)


def probabilities_of_several(logits: tf.Tensor, temperature: float = 1.0) -> tf.Tensor:
    """Probabilities of classes of which any number holds, (..., C) float64."""
    return tf.sigmoid(_calibrated(logits, temperature))


def choose(
    logits: tf.Tensor, is_choice: tf.Tensor, temperature: float = 1.0
) -> tuple[tf.Tensor, tf.Tensor]:
    """The most probable of each row's choices, (B,) int32, and the probabilities, (B, K) float64.

    ``logits`` and ``is_choice`` are (B, K). What is no choice has probability 0; of a row without
    choices the place is -1.

    >>> best, shares = choose(tf.constant([[0.0, 0.0, 9.0]]), tf.constant([[True, True, False]]))
    >>> best.numpy(), shares.numpy()
    (array([0], dtype=int32), array([[0.5, 0.5, 0. ]]))
    """
    logits = tf.where(is_choice, _calibrated(logits, temperature), float("-inf"))
    # A column more: there is a greatest one where K is 0, too.
    with_one = tf.pad(logits, [[0, 0], [0, 1]], constant_values=float("-inf"))
    best = tf.argmax(with_one, 1, output_type=tf.int32)
    shares = tf.where(is_choice, tf.nn.softmax(logits), 0.0)
    return tf.where(tf.reduce_any(is_choice, 1), best, -1), shares


def _calibrated(logits: tf.Tensor, temperature: float) -> tf.Tensor:
    return tf.cast(logits, tf.float64) / temperature
