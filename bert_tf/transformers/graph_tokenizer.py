"""``TFBertTokenizer``, which tokenizes strings in the graph."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf import features
from bert_tf.checkpoints.tokenizer_files import convert_tokenizer
from bert_tf.pipelines.preprocessor import BertPreprocessor

from .configuration import location_options
from .tokenization import BertTokenizerFast

_NAMES = {
    "input_ids": features.INPUT_WORD_IDS,
    "attention_mask": features.INPUT_MASK,
    "token_type_ids": features.INPUT_TYPE_IDS,
}


@keras.saving.register_keras_serializable(package="bert_tf.transformers")
class TFBertTokenizer(keras.layers.Layer):
    """``bert_tf.BertPreprocessor`` with transformers' argument and output names.

    Args:
        vocab_list: Pieces in the order of their ids.
        do_lower_case: Whether to lowercase texts and strip accents.
        padding: ``"longest"`` or ``"max_length"``.
        max_length: Maximum number of tokens; longer rows are truncated.
        pad_to_multiple_of: Multiple to which the length is rounded up; limited to ``max_length``.
        return_token_type_ids: Whether to return token types.
        return_attention_mask: Whether to return the mask, 1 for tokens and 0 for padding.
        rules: ``TextRules`` as JSON, as set by ``from_tokenizer``.
        **options: ``name``; other options are ignored.

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
            raise ValueError(f"padding={padding!r}: expected 'longest' or 'max_length'.")
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
        """Creates the layer with the vocabulary and rules of a tokenizer."""
        source = convert_tokenizer(tokenizer.backend_tokenizer, "The tokenizer")
        values = {"do_lower_case": source.do_lower_case, "rules": source.rules.to_json()}
        return cls(source.vocabulary, **{**values, **options})

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], *inputs: Any, **options: Any
    ) -> Any:
        """Creates the layer with a vocabulary from a directory or the hub."""
        lower_case = options.get("do_lower_case")  # ``None`` uses the files' setting
        tokenizer = BertTokenizerFast.from_pretrained(
            pretrained_model_name_or_path, do_lower_case=lower_case, **location_options(options)
        )
        return cls.from_tokenizer(tokenizer, **options)

    def call(self, text: Any, text_pair: Any = None, **options: Any) -> dict[str, Any]:
        """Tokenizes texts or pairs of texts.

        Args:
            text: Strings of shape (B,), or pairs of shape (B, 2).
            text_pair: Second texts of shape (B,), or ``None``.
            **options: Options that override those of the constructor.

        Returns:
            Dict of int32 tensors of shape (B, S).
        """
        if (changed := self._with_options(options)) is not self:
            return changed(text, text_pair)
        text = tf.convert_to_tensor(text)
        if text.dtype != tf.string and not tf.executing_eagerly():
            # tf.saved_model.save makes Keras trace the model with numbers.
            text = tf.as_string(text)
        if text_pair is None and text.shape.rank == 2:
            text, text_pair = text[:, 0], text[:, 1]
        pair = text_pair is not None
        rows = self._preprocessor((text, tf.convert_to_tensor(text_pair)) if pair else text)
        length = rows[features.INPUT_MASK].shape[-1]
        if self.padding == "longest":
            length = tf.reduce_max(tf.reduce_sum(rows[features.INPUT_MASK], axis=1))
        if self.pad_to_multiple_of:
            # Slicing limits the rounded length to max_length.
            length = -(-length // self.pad_to_multiple_of) * self.pad_to_multiple_of
        return {name: rows[_NAMES[name]][:, :length] for name in self._output_names()}

    def compute_output_spec(
        self, text: Any, text_pair: Any = None, **options: Any
    ) -> dict[str, Any]:
        """Returns the shapes and dtypes without running the layer."""
        layer = self._with_options(options)
        length = layer.max_length if layer.padding == "max_length" else None
        shape = (text.shape[0], length)
        return {name: keras.KerasTensor(shape, "int32") for name in layer._output_names()}

    def _with_options(self, options: dict[str, Any]) -> "TFBertTokenizer":
        """Returns a layer with the options of a call, or ``self`` if the options change nothing."""
        arguments = self.get_config()
        changes = {
            key: options[key]
            for key in arguments.keys() & options.keys()
            if options[key] not in (None, arguments[key])
        }
        return TFBertTokenizer(**{**arguments, **changes}) if changes else self

    def _output_names(self) -> list[str]:
        return [name for name in _NAMES if getattr(self, f"return_{name}", True)]

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments for serialization."""
        names = (
            *("vocab_list", "do_lower_case", "padding", "max_length", "pad_to_multiple_of"),
            *("return_token_type_ids", "return_attention_mask", "rules"),
        )
        return {"name": self.name, **{name: getattr(self, name) for name in names}}
