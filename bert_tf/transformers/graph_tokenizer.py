"""``TFBertTokenizer``: strings to a model's inputs in the graph."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf import features
from bert_tf.checkpoints.tokenizer_files import convert_tokenizer
from bert_tf.pipelines.preprocessor import BertPreprocessor

from .configuration import LOCATION_OPTIONS
from .tokenization import BertTokenizerFast

_NAMES = {
    "input_ids": features.INPUT_WORD_IDS,
    "attention_mask": features.INPUT_MASK,
    "token_type_ids": features.INPUT_TYPE_IDS,
}


@keras.saving.register_keras_serializable(package="bert_tf.transformers")
class TFBertTokenizer(keras.layers.Layer):
    """``bert_tf.BertPreprocessor`` under the names of transformers, padded to the longest row.

    ``vocab_list`` has the pieces in the order of their ids; ``padding`` is ``"longest"`` or
    ``"max_length"``, and what is longer than ``max_length`` is cut. ``rules`` is the JSON of
    ``TextRules``; ``from_tokenizer`` gives those of a tokenizer.

    >>> tokenizer = TFBertTokenizer("[PAD] [UNK] [CLS] [SEP] [MASK] the cat".split())
    >>> tokenizer(tf.constant(["the cat", "the"]))["input_ids"].numpy().tolist()
    [[2, 5, 6, 3], [2, 5, 3, 0]]
    """

    def __init__(
        self,
        vocab_list: Sequence[str],
        do_lower_case: bool = True,
        padding: str = "longest",
        max_length: int = 512,
        pad_to_multiple_of: int | None = None,
        return_token_type_ids: bool = True,
        return_attention_mask: bool = True,
        rules: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name=options.get("name"), trainable=False, autocast=False)
        if padding not in ("longest", "max_length"):
            raise ValueError(f"padding is {padding!r}: expected 'longest' or 'max_length'.")
        self.vocab_list = list(vocab_list)
        self.do_lower_case = do_lower_case
        self.padding = padding
        self.max_length = max_length
        self.pad_to_multiple_of = pad_to_multiple_of
        self.return_token_type_ids = return_token_type_ids
        self.return_attention_mask = return_attention_mask
        self.rules = rules
        self._preprocessor = BertPreprocessor(
            self.vocab_list, do_lower_case, max_length, rules=rules or {}
        )
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        self.built = True

    @classmethod
    def from_tokenizer(cls, tokenizer: BertTokenizerFast, **options: Any) -> "TFBertTokenizer":
        """The layer with a tokenizer's vocabulary and casing."""
        read = convert_tokenizer(tokenizer.backend_tokenizer, "The tokenizer")
        known = {"do_lower_case": read.do_lower_case, "rules": read.rules.to_json(), **options}
        return cls(read.vocabulary, **known)

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], *inputs: Any, **options: Any
    ) -> Any:
        """The layer with the vocabulary of a directory, or of a model of the hub."""
        own = {key: options[key] for key in ("do_lower_case", *LOCATION_OPTIONS) if key in options}
        tokenizer = BertTokenizerFast.from_pretrained(pretrained_model_name_or_path, **own)
        return cls.from_tokenizer(tokenizer, **options)

    def call(self, text: Any, text_pair: Any = None, **options: Any) -> dict[str, Any]:
        """(B,) strings, or two of them -> a dict of (B, S) int32; (B, 2) strings are pairs.

        ``options`` of the constructor (``padding``, ``max_length``) win over those given there.
        """
        if (changed := self._with_options(options)) is not self:
            return changed(text, text_pair)
        text = tf.convert_to_tensor(text)
        if text.dtype != tf.string and not tf.executing_eagerly():
            # Keras traces a model that tf.saved_model.save is given on numbers, whatever it takes.
            text = tf.as_string(text)
        if text_pair is None and text.shape.rank == 2:
            text, text_pair = text[:, 0], text[:, 1]
        pair = text_pair is not None
        rows = self._preprocessor((text, tf.convert_to_tensor(text_pair)) if pair else text)
        length = rows[features.INPUT_MASK].shape[-1]
        if self.padding == "longest":
            length = tf.reduce_max(tf.reduce_sum(rows[features.INPUT_MASK], axis=1))
        if self.pad_to_multiple_of:
            # Rounded up; rows have no more than max_length.
            length = -(-length // self.pad_to_multiple_of) * self.pad_to_multiple_of
        return {name: rows[_NAMES[name]][:, :length] for name in self._output_names()}

    def compute_output_spec(
        self, text: Any, text_pair: Any = None, **options: Any
    ) -> dict[str, Any]:
        """The shapes and dtypes, without running the layer."""
        own = self._with_options(options)
        length = own.max_length if own.padding == "max_length" else None
        return {
            name: keras.KerasTensor((text.shape[0], length), "int32")
            for name in own._output_names()
        }

    def _with_options(self, options: dict[str, Any]) -> "TFBertTokenizer":
        """The layer with the options of a call: itself where they change nothing."""
        arguments = self.get_config()
        own = {key: options[key] for key in arguments.keys() & options.keys()}
        changed = {key: value for key, value in own.items() if value not in (None, arguments[key])}
        return TFBertTokenizer(**{**arguments, **changed}) if changed else self

    def _output_names(self) -> list[str]:
        left_out = {
            "attention_mask": not self.return_attention_mask,
            "token_type_ids": not self.return_token_type_ids,
        }
        return [name for name in _NAMES if not left_out.get(name)]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, the vocabulary as a list."""
        names = (
            *("vocab_list", "do_lower_case", "padding", "max_length", "pad_to_multiple_of"),
            *("return_token_type_ids", "return_attention_mask", "rules"),
        )
        return {"name": self.name, **{name: getattr(self, name) for name in names}}
