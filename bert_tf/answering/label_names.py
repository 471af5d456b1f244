"""Answers of a batch: tensors by name, with labels as ids.

The ``answer`` method of a task returns them. Exports convert ids to names in the graph. Predictions
convert one example at a time, because the names of all examples would need too much memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# Names of the answers that are label ids, of any shape; -1 means no label.
LABELS = frozenset({"label", "chosen_labels", "tags"})


def name_labels(answers: Mapping[str, tf.Tensor], labels: Sequence[str]) -> dict[str, tf.Tensor]:
    """Replaces label ids by names and -1 by "", in the graph."""
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
    """Yields the answers of each example as Python values, without -1."""
    arrays = {key: np.asarray(value) for key, value in answers.items()}
    for row in range(len(next(iter(arrays.values())))):
        yield {
            key: name_numbers(array[row], labels) if key in LABELS else array[row].tolist()
            for key, array in arrays.items()
        }


def name_numbers(numbers: np.ndarray, labels: Sequence[str]) -> Any:
    """Converts an id, or an array of ids without the entries -1, to labels."""
    if numbers.ndim == 0:
        return labels[int(numbers)]
    return [labels[number] for number in numbers[numbers >= 0]]
