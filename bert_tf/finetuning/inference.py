"""A model's outputs for a whole data set, a batch at a time."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.modeling.base import BertModel
from bert_tf.pipelines.length_buckets import Examples, traced_step


def batch_outputs(
    model: BertModel, examples: Examples, batch_size: int
) -> Iterator[tuple[Mapping[str, np.ndarray], np.ndarray]]:
    """Runs a model without dropout on every example, the longest first.

    The model is traced once, for batches of any size and length and for later calls; one batch is
    kept at a time.

    Args:
        model: of one output.
        examples: with or without labels; these are not looked at.
        batch_size: B; the last batch may be smaller.

    Yields:
        A batch's features, ``example_index`` among them, and the model's output for it, where 0
        stands for what is not finite: a diverged model is evaluated like others.
    """
    dataset = examples.evaluation_batches(batch_size, longest_first=True)
    step = traced_step(model, _rows_and_output, dataset.element_spec)
    for batch in dataset:
        rows, outputs = step(batch)
        yield {key: value.numpy() for key, value in rows.items()}, np.nan_to_num(outputs.numpy())


def _rows_and_output(model: BertModel, rows: Any) -> tuple[Any, tf.Tensor]:
    return rows, model(rows, training=False)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """The logarithms of the classes' probabilities, (..., C), in float64.

    >>> log_softmax(np.array([[0.0, 0.0], [1e4, 0.0]])).round(2)
    array([[-6.9e-01, -6.9e-01],
           [ 0.0e+00, -1.0e+04]])
    """
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    logs: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logs
