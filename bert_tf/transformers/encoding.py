"""``BatchEncoding`` and conversions of a tokenizer's inputs."""

import collections
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.modeling import keras_hooks

# Strategies: the first is False and has no effect, the second is True.
TRUNCATIONS = ("do_not_truncate", "longest_first", "only_first", "only_second")
PADDINGS = ("do_not_pad", "longest", "max_length")


class CharSpan(NamedTuple):
    """Index of the first character, and of the one after the last."""

    start: int
    end: int


class TokenSpan(NamedTuple):
    """Index of the first token, and of the one after the last."""

    start: int
    end: int


#: Attributes of the tokens of a row, ``None`` for special tokens.
_ROW_ATTRIBUTES = ("tokens", "word_ids", "sequence_ids")
#: Methods that convert indices within a row, and the types of their results.
_LOOKUPS: dict[str, Any] = {
    **dict.fromkeys(("char_to_token", "char_to_word", "token_to_word", "token_to_sequence"), int),
    **{"token_to_chars": CharSpan, "word_to_chars": CharSpan, "word_to_tokens": TokenSpan},
}


class BatchEncoding(collections.UserDict[str, Any]):
    """Dict of ids and masks, with the ``tokenizers.Encoding`` of each row.

    Keys are also attributes. ``word_ids``, ``tokens``, ``sequence_ids``, ``char_to_token`` and
    similar methods take the index of a row in the batch, by default 0.
    >>> BatchEncoding({"input_ids": [[2, 3]]}, tensor_type="np").input_ids.shape
    (1, 2)
    """

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        encodings: Sequence[Any] | None = None,
        tensor_type: str | None = None,
    ) -> None:
        super().__init__(data or {})
        self.encodings = list(encodings or ())
        self.is_fast = bool(encodings)
        self.convert_to_tensors(tensor_type)

    def __getattr__(self, name: str) -> Any:
        data = self.__dict__.get("data", {})
        if name in data:
            return data[name]
        if name in _ROW_ATTRIBUTES:
            return lambda batch_index=0: list(getattr(self._row(batch_index), name))
        if name in _LOOKUPS:
            return functools.partial(self._look_up, name, _LOOKUPS[name])
        raise AttributeError(f"A BatchEncoding with {', '.join(data)} has no {name!r}.")

    def __getitem__(self, key: Any) -> Any:
        """Returns the values of a key, or the ``Encoding`` of a row index."""
        return self.data[key] if isinstance(key, str) else self._row(key)

    def convert_to_tensors(self, tensor_type: str | None = None) -> "BatchEncoding":
        """Converts the lists to tensors: ``"tf"`` or ``"np"``; ``None`` leaves them unchanged."""
        if tensor_type is not None:
            self.data = {key: as_tensor(value, tensor_type) for key, value in self.data.items()}
        return self

    def _look_up(
        self, method: str, result_type: Any, first: int, second: int | None = None, *args: int
    ) -> Any:
        """Converts an index in a row; a single number is an index in the first row."""
        row, index = (0, first) if second is None else (first, second)
        result = getattr(self._row(row), method)(index, *args)
        return result if result is None or result_type is int else result_type(*result)

    def _row(self, index: int) -> Any:
        if not self.encodings:
            raise ValueError("This BatchEncoding was not created by a tokenizer.")
        return self.encodings[index]


keras_hooks.register_dict_like(BatchEncoding)


def as_tensor(values: Any, tensor_type: str) -> Any:
    """Converts lists to a TensorFlow tensor (``"tf"``, int32) or NumPy array (``"np"``)."""
    if tensor_type not in ("tf", "np"):
        raise ValueError(
            f"return_tensors={tensor_type!r}: expected 'tf', 'np' or None. For PyTorch, apply "
            "torch.from_numpy to 'np'."
        )
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(
            "Rows have different lengths. Pass padding=True and truncation=True."
        ) from error
    if tensor_type == "np":
        return array
    import tensorflow as tf

    return tf.constant(array.astype("int32") if array.dtype == "int64" else array)


# === Conversions of inputs ===


def is_one_text(text: Any, is_split: bool) -> bool:
    """Returns whether the input is a single text, or with ``is_split`` a single list of words."""
    text = as_list(text)
    return not isinstance(text, list) or (is_split and text != [] and isinstance(text[0], str))


def as_batch(text: Any, pair: Any, is_split: bool) -> list[Any]:
    """Returns a list of texts or pairs from one or several of them."""
    if text is None:
        raise ValueError("text=None: expected a string or a list of strings.")
    is_one = is_one_text(text, is_split)
    text, pair = as_list(text), as_list(pair)
    texts = [text] if is_one else text
    if is_one and pair is not None and not len(pair):
        pair = None  # as in transformers, which keeps an empty second text only in a batch
    # A single string must not be read as a list of its characters.
    pairs = [pair] if is_one or isinstance(pair, str) else pair or []
    for item in texts if pair is None else (*texts, *pairs):
        if not isinstance(item, str | list | tuple):
            raise ValueError(
                f"text: expected strings, or lists of words with is_split_into_words=True, got "
                f"{type(item).__name__}."
            )
    if pair is None:
        # A list of two strings is a pair.
        return [t if is_split or isinstance(t, str) else tuple(t) for t in texts]
    if len(texts) != len(pairs):
        raise ValueError(f"text_pair: expected {len(texts)} texts, as in text, got {len(pairs)}.")
    return list(zip(texts, pairs, strict=True))


def as_list(values: Any) -> Any:
    """Converts tensors, arrays and sequences, such as columns of datasets, to lists."""
    values = values.numpy() if hasattr(values, "numpy") else values
    if hasattr(values, "tolist"):
        return values.tolist()
    is_sequence = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    return list(values) if is_sequence else values


def check_strategy(name: str, value: Any, strategies: Sequence[str]) -> str:
    """Returns the strategy of an argument."""
    strategy = strategies[1] if value is True else value or strategies[0]
    if strategy not in strategies:
        expected = ", ".join(map(repr, strategies[1:]))
        raise ValueError(f"{name}={value!r}: expected True, False, {expected}.")
    return str(strategy)
