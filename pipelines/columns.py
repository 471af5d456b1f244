"""Columns, and examples made of them: strings tokenised once, labels and weights checked, rows.

Letters: N examples, C classes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features

from .length_buckets import Examples
from .packing import Range, fit_segments, pack_from_table, token_table
from .wordpiece import BertTokenizer

# The tokenizer's best size of a batch.
_STRINGS_AT_ONCE = 1024


def tokenize_column(tokenizer: BertTokenizer, strings: Any, name: str) -> tf.RaggedTensor:
    """Tokenises a column of strings, all processors at once: [N, (tokens)] int32, on the host.

    ``name`` is what an error calls the column.
    """
    (ids,) = _in_chunks(lambda chunk: (tokenizer.tokenize(chunk),), string_column(strings, name))
    return ids


def tokenize_with_offsets(
    tokenizer: BertTokenizer, strings: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """``BertTokenizer.tokenize_with_offsets`` of a column, all processors at once."""
    ids, starts, ends = _in_chunks(tokenizer.tokenize_with_offsets, strings)
    return ids, starts, ends


def string_column(strings: Any, name: str) -> tf.Tensor:
    """Makes a tensor (N,) of a list, an array or a tensor of strings, in the host's memory."""
    if isinstance(strings, tf.Tensor):
        if strings.dtype != tf.string or strings.shape.rank != 1:
            raise ValueError(
                f"{name}: expected a vector of strings, shape (N,), but got a tensor of "
                f"{strings.dtype.name} and shape {strings.shape}."
            )
    elif isinstance(strings, (str, bytes)):
        raise ValueError(f"{name}: expected a vector of strings, but got {strings!r:.40}.")
    else:
        strings = list(strings)
        for index, item in enumerate(strings):
            if not isinstance(item, (str, bytes)):
                raise ValueError(f"{name}[{index}] is {item!r:.40}: expected a string.")
    with tf.device("CPU:0"):
        column = tf.convert_to_tensor(strings, tf.string)
    if not len(column):
        raise ValueError(f"{name} is empty: expected one string at least.")
    return column


def _in_chunks(
    tokenize: Callable[[tf.Tensor], Sequence[tf.RaggedTensor]], strings: tf.Tensor
) -> list[tf.RaggedTensor]:
    """Ragged tensors of the same row splits, computed for a thousand strings at a time."""
    if len(strings) <= _STRINGS_AT_ONCE:
        return list(tokenize(strings))  # so few take less time than a graph takes to be made

    @tf.autograph.experimental.do_not_convert
    def one_chunk(start: tf.Tensor) -> tuple[tf.Tensor, ...]:
        outputs = tokenize(strings[start : start + _STRINGS_AT_ONCE])
        return outputs[0].row_lengths(), *(output.values for output in outputs)

    starts = tf.data.Dataset.range(0, len(strings), _STRINGS_AT_ONCE)
    chunks = starts.map(one_chunk, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    with tf.device("CPU:0"):
        row_lengths, *values = (tf.concat(parts, 0) for parts in zip(*chunks, strict=True))
        return [tf.RaggedTensor.from_row_lengths(value, row_lengths) for value in values]


_MOST = np.iinfo(np.int32).max


def label_column(labels: Any, num_examples: int) -> np.ndarray:
    """Checks labels, and gives each form its dtype.

    Class ids, (N,) integers, become int32; numbers to predict, (N,) floats, float32; numbers from 0
    to 1, (N, C), whether or how far each class holds, float32.
    """
    array = _array(labels, "labels")
    if array.ndim not in (1, 2) or array.dtype.kind not in "biuf":
        raise ValueError(
            "labels: expected integers of shape (N,), floats of shape (N,), or numbers of shape "
            f"(N, C); got dtype {array.dtype} and shape {array.shape}."
        )
    check_rows("labels", len(array), num_examples)
    if array.ndim == 2:
        _check_range("labels", array, 0, 1)
        return array.astype(np.float32)
    if array.dtype.kind == "f":
        _check_range("labels", array, -np.inf, np.inf)
        return array.astype(np.float32)
    return class_column(array, num_examples)


def class_column(labels: Any, num_examples: int, counts: np.ndarray | None = None) -> np.ndarray:
    """Checks class ids, (N,) integers below their examples' ``counts``, if any: (N,) int32."""
    array = vector("labels", labels, num_examples, "integers", "biu")
    _check_range("labels", array, 0, _MOST)
    if counts is not None and (array >= counts).any():
        place = int(np.argmax(array >= counts))
        raise ValueError(f"labels[{place}] is {array[place]}: expected 0 to {counts[place] - 1}.")
    return array.astype(np.int32)


def weight_column(weights: Any, num_examples: int) -> np.ndarray:
    """Checks the weights of examples, (N,) numbers, none negative: (N,) float32."""
    array = vector("sample_weights", weights, num_examples, "numbers", "biuf")
    _check_range("sample_weights", array, 0, np.inf)
    return array.astype(np.float32)


def vector(name: str, values: Any, num_examples: int, expected: str, kinds: str) -> np.ndarray:
    """Checks that a column is (N,) of dtypes of some NumPy kinds, which ``expected`` names."""
    array = _array(values, name)
    if array.ndim != 1 or array.dtype.kind not in kinds:
        raise ValueError(
            f"{name}: expected {expected} of shape (N,); got dtype {array.dtype} and shape "
            f"{array.shape}."
        )
    check_rows(name, len(array), num_examples)
    return array


def check_rows(name: str, received: int, num_examples: int) -> None:
    """Raises a ValueError that names the column where it has not one row for each example."""
    if received != num_examples:
        raise ValueError(
            f"{name}: expected one row for each of the {num_examples} examples; got {received}."
        )


def _array(values: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name}: expected rows of equal length; got {values!r:.80}.") from error


def _check_range(name: str, array: np.ndarray, least: float, most: float) -> None:
    """Checks every value; infinities and NaN are always out of range."""
    good = (array >= least) & (array <= most) & np.isfinite(array)
    if not good.all():
        place = tuple(np.argwhere(~good)[0].tolist())
        expected = f"a finite number, {least} to {most}" if most == np.inf else f"{least} to {most}"
        raise ValueError(
            f"{name}[{', '.join(map(str, place))}] is {array[place]}: expected {expected}."
        )


def packed_examples(
    tokenizer: BertTokenizer,
    ids: tf.Tensor,
    segments: Sequence[Range],
    max_seq_length: int,
    targets: Sequence[Any],
    num_too_long: int | None = None,
    num_lost: int = 0,
) -> Examples:
    """Examples whose rows are made of one or two segments, ranges of ``ids``, cut where too long.

    The ranges are (N,), or (N, K) where an example is K rows. ``targets`` are nests of (N, ...)
    tensors or arrays; with any a batch is a tuple, the features and then these. ``num_too_long`` is
    by default how many examples have a row that was cut.
    """
    with tf.device("CPU:0"):
        fitted = fit_segments(segments, max_seq_length)
        table = token_table(ids, tokenizer)
        kept = tf.nest.map_structure(tf.convert_to_tensor, tuple(targets))
    count, *choices = fitted.lengths.shape
    if num_too_long is None:
        num_too_long = int(np.sum(np.reshape(fitted.truncated, [count, -1]).any(1)))

    def make_batch(indices: tf.Tensor, width: tf.Tensor) -> Any:
        ranges = tf.nest.map_structure(
            lambda part: tf.reshape(tf.gather(part, indices), [-1]), fitted.ranges
        )
        batch = pack_from_table(table, ranges, width)
        if choices:
            batch = {k: tf.reshape(rows, [-1, *choices, width]) for k, rows in batch.items()}
        batch[features.EXAMPLE_INDEX] = indices
        picked = tf.nest.map_structure(lambda column: tf.gather(column, indices), kept)
        return (batch, *picked) if picked else batch

    lengths = np.reshape(fitted.lengths, [count, -1]).max(1)
    return Examples(lengths, max_seq_length, make_batch, num_too_long, num_lost)


def row_examples(
    lengths: np.ndarray, columns: Mapping[str, tuple[Any, int]], max_seq_length: int
) -> Examples:
    """Examples whose rows are made already, (N,) int32 tokens each.

    ``columns`` have by name the values of all tokens, (T, ...), row after row, and what stands
    where a row is padded.

    >>> examples = row_examples(np.int32([2, 1]), {"ids": (np.int32([7, 8, 9]), 0)}, 3)
    >>> next(iter(examples.evaluation_batches(2)))["ids"].numpy()
    array([[7, 8, 0],
           [9, 0, 0]], dtype=int32)
    """
    with tf.device("CPU:0"):
        counts = tf.constant(lengths, tf.int32)
        starts = tf.cumsum(counts, exclusive=True)
        kept = {
            key: (tf.convert_to_tensor(values), padding)
            for key, (values, padding) in columns.items()
        }

    def make_batch(indices: tf.Tensor, width: tf.Tensor) -> dict[str, tf.Tensor]:
        # (B, S)
        is_real = tf.sequence_mask(tf.gather(counts, indices), width)
        place = tf.where(is_real, tf.gather(starts, indices)[:, None] + tf.range(width), 0)
        batch = {}
        for key, (values, padding) in kept.items():
            real = is_real
            for _ in values.shape[1:]:
                real = real[..., None]
            batch[key] = tf.where(real, tf.gather(values, place), tf.cast(padding, values.dtype))
        return {**batch, features.EXAMPLE_INDEX: indices}

    return Examples(lengths, max_seq_length, make_batch)
