"""``BatchEncoding``, conversions of a tokenizer's inputs, and encoders with fixed options."""

import collections
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tokenizers

from bert_tf.checkpoints.tokenizer_files import BERT_RULES
from bert_tf.modeling import keras_hooks

# Names of strategies. The first is for False and has no effect; the second is for True.
TRUNCATIONS = ("do_not_truncate", "longest_first", "only_first", "only_second")
PADDINGS = ("do_not_pad", "longest", "max_length")
#: Arguments of ``enable_truncation`` or ``enable_padding``; ``None`` to disable it.
Options = dict[str, Any] | None
# Parts of an encoder that a program can replace.
_PARTS = ("normalizer", "pre_tokenizer", "post_processor")
_MAX_ENCODERS = 64


class CharSpan(NamedTuple):
    """Index of the first character, and index after the last character."""

    start: int
    end: int


class TokenSpan(NamedTuple):
    """Index of the first token, and index after the last token."""

    start: int
    end: int


#: Attributes of an encoding that have a value for each token of the row.
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
        """Converts an index in a row; a single argument is an index in the first row."""
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
            f"return_tensors={tensor_type!r}: expected 'tf', 'np' or None. For PyTorch, use 'np' "
            "and torch.from_numpy."
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
    """Returns whether the input is a single text or, with ``is_split``, a single list of words."""
    text = as_list(text)
    return not isinstance(text, list) or (is_split and text != [] and isinstance(text[0], str))


def as_batch(text: Any, pair: Any, is_split: bool) -> list[Any]:
    """Returns a list of texts or pairs, given one or several texts and optional second texts."""
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
    """Returns the name of the strategy that an argument specifies."""
    strategy = strategies[1] if value is True else value or strategies[0]
    if strategy not in strategies:
        expected = ", ".join(map(repr, strategies[1:]))
        raise ValueError(f"{name}={value!r}: expected True, False, {expected}.")
    return str(strategy)


# === Encoders ===


class Encoders(dict[Any, tokenizers.Tokenizer]):
    """Cache of encoders that share a ``tokenizers.Tokenizer``'s vocabulary but differ in options.

    Setting options of the tokenizer itself would affect all threads. Copies and pickles are empty.
    """

    def find(
        self, source: tokenizers.Tokenizer, truncation: Options, padding: Options, splits: bool
    ) -> tokenizers.Tokenizer:
        """Returns the encoder with these options and the current parts of ``source``.

        ``splits`` is whether special tokens that occur in a text are split into pieces.
        """
        # A program can replace the parts, or add tokens, at any time.
        key = (
            truncation and tuple(truncation.values()),
            padding and tuple(padding.values()),
            splits,
            id(source),
            source.get_vocab_size(),
            *(_state(getattr(source, name)) for name in _PARTS),
        )
        encoder = self.get(key)
        if encoder is None:
            encoder = copy_unbounded(source)
            encoder.encode_special_tokens = splits
            if truncation is not None:
                encoder.enable_truncation(**truncation)
            if padding is not None:
                encoder.enable_padding(**padding)
            if len(self) >= _MAX_ENCODERS:
                self.clear()
            self[key] = encoder
        return encoder

    def __reduce__(self) -> Any:
        return Encoders, ()


def copy_unbounded(source: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Copies a tokenizer without truncation and padding; the copy shares the vocabulary."""
    copied = tokenizers.Tokenizer(source.model)
    for name in (*_PARTS, "decoder"):
        setattr(copied, name, getattr(source, name))
    added = source.get_added_tokens_decoder()
    copied.add_tokens([added[token_id] for token_id in sorted(added)])
    return copied


def _state(part: Any) -> Any:
    """Returns a value that changes if a part of a tokenizer changes."""
    try:
        return part.__getstate__()
    except Exception:  # parts written in Python have no state, so each call makes a new encoder
        return object()


def apply_bert_rules(tokenizer: tokenizers.Tokenizer, settings: Mapping[str, Any]) -> None:
    """Sets a tokenizer's normalizer, pre-tokenizer, decoder and word length limit to BERT's."""
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    if isinstance(tokenizer.model, tokenizers.models.WordPiece):
        tokenizer.model.max_input_chars_per_word = BERT_RULES.max_word_length
