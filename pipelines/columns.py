"""Converts and validates columns of texts, labels and weights.

Letters: N examples, C classes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .wordpiece import BertTokenizer

# Batch size at which the tokenizer is fastest.
_STRINGS_CHUNK_SIZE = 1024


def tokenize_column(tokenizer: BertTokenizer, strings: Any, name: str) -> tf.RaggedTensor:
    """Tokenizes a column of strings in parallel: [N, (tokens)] int32, on the CPU."""
    (ids,) = _in_chunks(lambda chunk: (tokenizer.tokenize(chunk),), string_column(strings, name))
    return ids


def tokenize_with_offsets(
    tokenizer: BertTokenizer, strings: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Runs ``BertTokenizer.tokenize_with_offsets`` on a column in parallel."""
    ids, starts, ends = _in_chunks(tokenizer.tokenize_with_offsets, strings)
    return ids, starts, ends


def string_column(strings: Any, name: str) -> tf.Tensor:
    """Converts a list, array or tensor of strings to a tensor (N,) on the CPU."""
    if isinstance(strings, tf.Tensor):
        if strings.dtype != tf.string or strings.shape.rank != 1:
            raise ValueError(
                f"{name}: expected strings of shape (N,), got {strings.dtype.name} of shape "
                f"{strings.shape}."
            )
    elif isinstance(strings, (str, bytes)):
        raise ValueError(f"{name}: expected a vector of strings, got {strings!r:.40}.")
    else:
        strings = list(strings)
        for index, item in enumerate(strings):
            if not isinstance(item, (str, bytes)):
                raise ValueError(f"{name}[{index}]: expected a string, got {item!r:.40}.")
    with tf.device("CPU:0"):
        column = tf.convert_to_tensor(strings, tf.string)
    if not len(column):
        raise ValueError(f"{name}: expected at least one string, got none.")
    return column


def flat_column(rows: Any, name: str) -> tuple[Any, np.ndarray]:
    """Flattens (N,) lists, or a tensor's rows; returns the items and (N,) int32 counts."""
    if isinstance(rows, tf.RaggedTensor):
        return rows.values, rows.row_lengths().numpy().astype(np.int32)
    lists = list(rows.numpy() if isinstance(rows, tf.Tensor) else rows)
    for index, row in enumerate(lists):
        if isinstance(row, (str, bytes)) or not hasattr(row, "__len__"):
            raise ValueError(f"{name}[{index}]: expected a list of {name}, got {row!r:.40}.")
    return [item for row in lists for item in row], np.array([*map(len, lists)], np.int32)


def _in_chunks(
    tokenize: Callable[[tf.Tensor], Sequence[tf.RaggedTensor]], strings: tf.Tensor
) -> list[tf.RaggedTensor]:
    """Computes ragged tensors with equal row splits, one chunk of strings at a time."""
    if len(strings) <= _STRINGS_CHUNK_SIZE:
        return list(tokenize(strings))  # faster than tracing a graph

    @tf.autograph.experimental.do_not_convert
    def one_chunk(start: tf.Tensor) -> tuple[tf.Tensor, ...]:
        outputs = tokenize(strings[start : start + _STRINGS_CHUNK_SIZE])
        return outputs[0].row_lengths(), *(output.values for output in outputs)

    starts = tf.data.Dataset.range(0, len(strings), _STRINGS_CHUNK_SIZE)
    chunks = starts.map(one_chunk, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    with tf.device("CPU:0"):
        row_lengths, *values = (tf.concat(parts, 0) for parts in zip(*chunks, strict=True))
        return [tf.RaggedTensor.from_row_lengths(value, row_lengths) for value in values]


def label_column(labels: Any, num_examples: int) -> np.ndarray:
    """Validates labels; class ids become int32, values to predict and values per class float32."""
    forms = "integers of shape (N,), floats of shape (N,), or numbers of shape (N, C)"
    array = check_column("labels", labels, num_examples, forms, "biuf", 2)
    if array.ndim == 1 and array.dtype.kind != "f":
        return class_column(array, num_examples)
    low, high = (0, 1) if array.ndim == 2 else (-np.inf, np.inf)
    _check_range("labels", array, low, high)
    return array.astype(np.float32)


def class_column(labels: Any, num_examples: int, counts: np.ndarray | None = None) -> np.ndarray:
    """Validates class ids below ``counts`` and converts them to (N,) int32."""
    array = check_column("labels", labels, num_examples, "integers of shape (N,)", "biu")
    _check_range("labels", array, 0, np.iinfo(np.int32).max)
    if counts is not None and (array >= counts).any():
        index = int(np.flatnonzero(array >= counts)[0])
        expected = f"expected 0 to {counts[index] - 1}, got {array[index]}"
        raise ValueError(f"labels[{index}]: {expected}.")
    return array.astype(np.int32)


def weight_column(weights: Any, num_examples: int) -> np.ndarray:
    """Validates non-negative weights and converts them to (N,) float32."""
    array = check_column("sample_weights", weights, num_examples, "numbers of shape (N,)", "biuf")
    _check_range("sample_weights", array, 0, np.inf)
    return array.astype(np.float32)


def check_column(
    name: str, values: Any, num_examples: int, expected: str, kinds: str, max_rank: int = 1
) -> np.ndarray:
    """Converts a column to an array with one row per example and the expected dtype and rank."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name}: expected rows of equal length, got {values!r:.80}.") from error
    if not 1 <= array.ndim <= max_rank or array.dtype.kind not in kinds:
        raise ValueError(
            f"{name}: expected {expected}, got dtype {array.dtype} and shape {array.shape}."
        )
    check_rows(name, len(array), num_examples)
    return array


def check_rows(name: str, received: int, num_examples: int) -> None:
    """Raises a ValueError unless a column has one row per example."""
    if received != num_examples:
        raise ValueError(
            f"{name}: expected one row for each of the {num_examples} examples, got {received}."
        )


def _check_range(name: str, array: np.ndarray, low: float, high: float) -> None:
    """Checks that all values are finite and within bounds."""
    good = (array >= low) & (array <= high) & np.isfinite(array)
    if not good.all():
        index = tuple(np.argwhere(~good)[0].tolist())
        expected = f"a finite number, {low} to {high}" if high == np.inf else f"{low} to {high}"
        raise ValueError(
            f"{name}[{', '.join(map(str, index))}]: expected {expected}, got {array[index]}."
        )
