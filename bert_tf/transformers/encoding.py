"""Forms of what a tokenizer is given, and of what it gives: ``BatchEncoding``."""

import collections
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.modeling import keras_hooks


class CharSpan(NamedTuple):
    """The first and the next character."""

    start: int
    end: int


class TokenSpan(NamedTuple):
    """The first and the next token."""

    start: int
    end: int


#: What is known of each token of a row: ``None`` of special ones.
_ROW_ATTRIBUTES = ("tokens", "word_ids", "sequence_ids")
#: Questions of a place in a row, and what answers them; ``None`` where there is nothing.
_LOOKUPS: dict[str, Any] = {
    **dict.fromkeys(("char_to_token", "char_to_word", "token_to_word", "token_to_sequence"), int),
    **{"token_to_chars": CharSpan, "word_to_chars": CharSpan, "word_to_tokens": TokenSpan},
}


class BatchEncoding(collections.UserDict[str, Any]):
    """A dict of ids and masks by name, and what ``tokenizers`` knows of each row.

    Names are attributes, too. ``word_ids``, ``tokens``, ``sequence_ids``, ``char_to_token`` and
    their like take the row's place in the batch, the first by default.

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
        """A name's values; by a number, what ``tokenizers`` knows of that row."""
        return self.data[key] if isinstance(key, str) else self._row(key)

    def convert_to_tensors(self, tensor_type: str | None = None) -> "BatchEncoding":
        """Makes tensors of the lists: ``"tf"`` or ``"np"``; ``None`` leaves them."""
        if tensor_type is not None:
            self.data = {key: as_tensor(value, tensor_type) for key, value in self.data.items()}
        return self

    def _look_up(
        self, method: str, kind: Any, first: int, second: int | None = None, *more: int
    ) -> Any:
        """Answer of ``tokenizers`` on a place in a row; one number is a place in the first row."""
        row, place = (0, first) if second is None else (first, second)
        answer = getattr(self._row(row), method)(place, *more)
        return answer if answer is None or kind is int else kind(*answer)

    def _row(self, index: int) -> Any:
        if not self.encodings:
            raise ValueError(
                "These rows were made without a tokenizer: the places of their tokens are unknown."
            )
        return self.encodings[index]


keras_hooks.register_dict_like(BatchEncoding)


def as_tensor(values: Any, kind: str) -> Any:
    """Lists as a tensor: of TensorFlow (``"tf"``, int32) or NumPy (``"np"``)."""
    if kind not in ("tf", "np"):
        raise ValueError(
            f"return_tensors is {kind!r}: expected 'tf', 'np' or None; for tensors of PyTorch, "
            "torch.from_numpy of 'np'."
        )
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(
            "Rows of several lengths cannot be one tensor: give padding=True and truncation=True."
        ) from error
    if kind == "np":
        return array
    import tensorflow as tf

    return tf.constant(array.astype("int32") if array.dtype == "int64" else array)


# === Texts and rows, however they are given ===


def is_one_text(text: Any, is_split: bool) -> bool:
    """True for a text, or with ``is_split`` a list of words; false for a list of such."""
    text = as_list(text)
    return not isinstance(text, list) or (is_split and text != [] and isinstance(text[0], str))


def as_batch(text: Any, pair: Any, is_split: bool) -> list[Any]:
    """List of texts or pairs, from one of them or several."""
    if text is None:
        raise ValueError("The tokenizer was given no text.")
    one = is_one_text(text, is_split)
    text, pair = as_list(text), as_list(pair)
    texts = [text] if one else text
    if one and pair is not None and not len(pair):
        pair = None  # as in transformers: of a list of texts, an empty second one has its [SEP]
    # A single string must not be read as a list of its characters.
    pairs = [pair] if one or isinstance(pair, str) else pair or []
    for each in texts if pair is None else (*texts, *pairs):
        if not isinstance(each, str | list | tuple):
            raise ValueError(
                f"The tokenizer was given {type(each).__name__} in place of a text: expected a "
                "str, a list of them, or with is_split_into_words=True lists of words."
            )
    if pair is None:
        # A list of two is a pair.
        return [t if is_split or isinstance(t, str) else tuple(t) for t in texts]
    if len(texts) != len(pairs):
        raise ValueError(
            f"The tokenizer was given {len(texts)} first texts and {len(pairs)} second ones: "
            "expected as many."
        )
    return list(zip(texts, pairs, strict=True))


def as_list(values: Any) -> Any:
    """Tensors, arrays and sequences, as columns of datasets are, as lists; others as they are."""
    values = values.numpy() if hasattr(values, "numpy") else values
    if hasattr(values, "tolist"):
        return values.tolist()
    is_several = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    return list(values) if is_several else values
