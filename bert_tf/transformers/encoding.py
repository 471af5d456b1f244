"""``BatchEncoding``: what a tokenizer gives, with the places of tokens in their texts."""

import collections
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
        self._encodings = list(encodings or ())
        self.convert_to_tensors(tensor_type)

    def __getattr__(self, name: str) -> Any:
        data = self.__dict__.get("data", {})
        if name in data:
            return data[name]
        raise AttributeError(f"A BatchEncoding with {', '.join(data)} has no {name!r}.")

    def __getitem__(self, key: Any) -> Any:
        """A name's values; by a number, what ``tokenizers`` knows of that row."""
        return self.data[key] if isinstance(key, str) else self._row(key)

    @property
    def encodings(self) -> list[Any]:
        """What ``tokenizers`` knows of each row."""
        return self._encodings

    @property
    def is_fast(self) -> bool:
        """Whether rows know the places of their tokens."""
        return bool(self._encodings)

    def convert_to_tensors(self, tensor_type: str | None = None) -> "BatchEncoding":
        """Makes tensors of the lists: ``"tf"`` or ``"np"``; ``None`` leaves them."""
        if tensor_type is not None:
            self.data = {key: as_tensor(value, tensor_type) for key, value in self.data.items()}
        return self

    def tokens(self, batch_index: int = 0) -> list[str]:
        """The tokens of a row."""
        return list(self._row(batch_index).tokens)

    def word_ids(self, batch_index: int = 0) -> list[int | None]:
        """The word that each token of a row is of; ``None`` of special ones."""
        return list(self._row(batch_index).word_ids)

    def sequence_ids(self, batch_index: int = 0) -> list[int | None]:
        """The text that each token of a row is of, 0 or 1; ``None`` of special ones."""
        return list(self._row(batch_index).sequence_ids)

    def char_to_token(
        self, batch_or_char_index: int, char_index: int | None = None, sequence_index: int = 0
    ) -> int | None:
        """The token at a character; ``None`` where it is white space."""
        return self._asked("char_to_token", batch_or_char_index, char_index, sequence_index)

    def char_to_word(
        self, batch_or_char_index: int, char_index: int | None = None, sequence_index: int = 0
    ) -> int | None:
        """The word at a character; ``None`` where it is white space."""
        return self._asked("char_to_word", batch_or_char_index, char_index, sequence_index)

    def token_to_chars(self, batch_or_token_index: int, token_index: int | None = None) -> Any:
        """The first and the next character of a token; ``None`` of special ones."""
        found = self._asked("token_to_chars", batch_or_token_index, token_index)
        return None if found is None else CharSpan(*found)

    def token_to_word(
        self, batch_or_token_index: int, token_index: int | None = None
    ) -> int | None:
        """The word of a token."""
        return self._asked("token_to_word", batch_or_token_index, token_index)

    def token_to_sequence(
        self, batch_or_token_index: int, token_index: int | None = None
    ) -> int | None:
        """The text of a token, 0 or 1."""
        return self._asked("token_to_sequence", batch_or_token_index, token_index)

    def word_to_tokens(
        self, batch_or_word_index: int, word_index: int | None = None, sequence_index: int = 0
    ) -> Any:
        """The first and the next token of a word."""
        found = self._asked("word_to_tokens", batch_or_word_index, word_index, sequence_index)
        return None if found is None else TokenSpan(*found)

    def word_to_chars(
        self, batch_or_word_index: int, word_index: int | None = None, sequence_index: int = 0
    ) -> Any:
        """The first and the next character of a word."""
        found = self._asked("word_to_chars", batch_or_word_index, word_index, sequence_index)
        return None if found is None else CharSpan(*found)

    def _asked(self, method: str, first: int, second: int | None, *more: int) -> Any:
        """What ``tokenizers`` says of a place in a row; of one number in the first row."""
        row, place = (0, first) if second is None else (first, second)
        return getattr(self._row(row), method)(place, *more)

    def _row(self, index: int) -> Any:
        if not self._encodings:
            raise ValueError(
                "These rows were made without a tokenizer: the places of their tokens are unknown."
            )
        return self._encodings[index]


keras_hooks.take_for_dict(BatchEncoding)


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
