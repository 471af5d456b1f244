"""In-graph class probabilities from logits, and conversion of label ids to class names.

Evaluation, prediction and exports share these functions. Probabilities are float64, because in
float32 the sigmoid of any logit above 17 rounds to 1. A temperature calibrates the probabilities.

Answers are tensors by name, with labels as ids; a task's ``answer`` method returns the answers for
a batch. Exports convert ids to names in the graph. Prediction converts the ids of one example at a
time, because the names for all examples would need too much memory.

Dimensions: B batch, K choices, C classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# Names of the answers that contain label ids; -1 means no label.
LABELS = frozenset({"label", "chosen_labels", "tags"})

# === Probabilities ===


def probabilities(logits: tf.Tensor, temperature: float = 1.0) -> tf.Tensor:
    """Returns single-label probabilities, shape (..., C) float64."""
    return tf.nn.softmax(_calibrated(logits, temperature))


def log_probabilities(logits: tf.Tensor, temperature: float = 1.0) -> tf.Tensor:
    """Returns the logarithms of ``probabilities``, finite even if a probability is 0.

    >>> log_probabilities(tf.constant([[0.0, 0.0], [1e4, 0.0]])).numpy().round(2)
    array([[-6.9e-01, -6.9e-01],
           [ 0.0e+00, -1.0e+04]])
    """
    return tf.nn.log_softmax(_calibrated(logits, temperature))


def multilabel_probabilities(logits: tf.Tensor, temperature: float = 1.0) -> tf.Tensor:
    """Returns multi-label probabilities, shape (..., C) float64."""
    return tf.sigmoid(_calibrated(logits, temperature))


def choose(
    logits: tf.Tensor, is_choice: tf.Tensor, temperature: float = 1.0
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the most likely choice of each row, (B,) int32, and probabilities, (B, K) float64.

    ``logits`` and ``is_choice`` have the shape (B, K). Entries that are not choices have
    probability 0. Rows without choices have the index -1.

    >>> logits, is_choice = tf.constant([[0.0, 0.0, 9.0]]), tf.constant([[True, True, False]])
    >>> best, probabilities = choose(logits, is_choice)
    >>> best.numpy(), probabilities.numpy()
    (array([0], dtype=int32), array([[0.5, 0.5, 0. ]]))
    """
    logits = tf.where(is_choice, _calibrated(logits, temperature), float("-inf"))
    # The extra column keeps argmax defined if K is 0.
    padded = tf.pad(logits, [[0, 0], [0, 1]], constant_values=float("-inf"))
    best = tf.argmax(padded, 1, output_type=tf.int32)
    probabilities = tf.where(is_choice, tf.nn.softmax(logits), 0.0)
    return tf.where(tf.reduce_any(is_choice, 1), best, -1), probabilities


def _calibrated(logits: tf.Tensor, temperature: float) -> tf.Tensor:
    return tf.cast(logits, tf.float64) / temperature


# === Names ===


def name_labels(answers: Mapping[str, tf.Tensor], labels: Sequence[str]) -> dict[str, tf.Tensor]:
    """Replaces label ids with names, and -1 with "", in the graph."""
    names = tf.constant([*labels, ""])

    def named(numbers: tf.Tensor) -> tf.Tensor:
        return tf.gather(names, tf.where(numbers < 0, tf.size(names, numbers.dtype) - 1, numbers))

    return {
        key: named(value) if key in LABELS else to_float32(value) for key, value in answers.items()
    }


def to_float32(value: tf.Tensor) -> tf.Tensor:
    """Casts floating point answers to float32, the dtype of signatures."""
    return tf.cast(value, tf.float32) if value.dtype.is_floating else value


def split_examples(answers: Mapping[str, Any], labels: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields each example's answers as Python values, with names in place of label ids."""
    arrays = {key: np.asarray(value) for key, value in answers.items()}
    for row in range(len(next(iter(arrays.values())))):
        yield {
            key: name_numbers(array[row], labels) if key in LABELS else array[row].tolist()
            for key, array in arrays.items()
        }


def name_numbers(numbers: np.ndarray, labels: Sequence[str]) -> Any:
    """Converts an id to its label, or an array of ids to a list of labels, skipping -1."""
    if numbers.ndim == 0:
        return labels[int(numbers)]
    return [labels[number] for number in numbers[numbers >= 0]]
