"""Columns of strings, tokenised once and kept.

Letters: N strings.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from .wordpiece import BertTokenizer

# The tokenizer's best size of a batch.
_STRINGS_AT_ONCE = 1024


def tokenize_column(tokenizer: BertTokenizer, strings: Any, name: str) -> tf.RaggedTensor:
    """Tokenises a column, all processors at once.

    Args:
        tokenizer: the vocabulary's.
        strings: (N,) string: a list, an array or a tensor; UTF-8.
        name: what an error calls the column.

    Returns:
        [N, (tokens)] int32, in the host's memory.

    Raises:
        ValueError: not a vector of strings, or an empty one.

    >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"])
    >>> tokenize_column(tokenizer, ["a b", "", "b"], "texts")
    <tf.RaggedTensor [[5, 6], [], [6]]>
    """
    (ids,) = _in_chunks(lambda chunk: (tokenizer.tokenize(chunk),), string_column(strings, name))
    return ids


def tokenize_column_with_offsets(
    tokenizer: BertTokenizer, strings: Any, name: str
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Tokenises a column as ``tokenize_column`` does, and says where the tokens come from.

    Returns:
        ``(ids, starts, ends)``, as ``BertTokenizer.tokenize_with_offsets``.
    """
    ids, starts, ends = _in_chunks(tokenizer.tokenize_with_offsets, string_column(strings, name))
    return ids, starts, ends


def string_column(strings: Any, name: str) -> tf.Tensor:
    """Makes a tensor of a column of strings.

    Args:
        strings: (N,) string: a list, an array or a tensor.
        name: what an error calls the column.

    Returns:
        (N,) string, in the host's memory.

    Raises:
        ValueError: not a vector of strings, or an empty one.

    >>> string_column(["a", None], "texts")
    Traceback (most recent call last):
    ...
    ValueError: texts[1] is None: expected a string.
    """
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
