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


def name_labels(answers: Mapping[str, tf.Tensor], labels: Sequence[str]) -> dict[str, tf.Tensor]:
    """Answers with names instead of numbers, "" instead of -1; in-graph."""
    names = tf.constant([*labels, ""])

    def named(numbers: tf.Tensor) -> tf.Tensor:
        return tf.gather(names, tf.where(numbers < 0, tf.size(names, numbers.dtype) - 1, numbers))

    return {
        key: named(value) if key in LABELS else to_float32(value) for key, value in answers.items()
    }


def to_float32(value: tf.Tensor) -> tf.Tensor:
    """An answer as signatures return it: probabilities are float64 until then."""
    return tf.cast(value, tf.float32) if value.dtype.is_floating else value


def split_examples(answers: Mapping[str, Any], labels: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields the answers of each example as Python's numbers, labels and lists, without -1."""
    arrays = {key: np.asarray(value) for key, value in answers.items()}
    for row in range(len(next(iter(arrays.values())))):
        yield {
            key: name_numbers(array[row], labels) if key in LABELS else array[row].tolist()
            for key, array in arrays.items()
        }


def name_numbers(numbers: np.ndarray, labels: Sequence[str]) -> Any:
    """The label of a number, or the labels of several, without -1."""
    if numbers.ndim == 0:
        return labels[int(numbers)]
    return [labels[number] for number in numbers[numbers >= 0]]
