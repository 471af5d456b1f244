"""Keras layer that converts strings to the inputs of a BERT encoder.

Letters: B batch, S sequence length.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf import features

from .long_texts import head_and_tail
from .packing import fit_segments, join_segments, pack
from .text_rules import AS_GOOGLE, TextRules
from .vocabulary import load_vocabulary
from .wordpiece import BertTokenizer

_LONG_TEXTS = ("head", "head_tail")
_MIN_SEQ_LENGTH = 5  # for a pair of one token each: [CLS] a [SEP] b [SEP]


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPreprocessor(keras.layers.Layer):
    """Converts strings or pairs of strings to ``features.ENCODER_FEATURES``.

    A string becomes ``[CLS] A [SEP]``, and a pair becomes ``[CLS] A [SEP] B [SEP]``. Long texts are
    truncated at the end; in pairs, the longer text loses tokens first. The layer runs eagerly, in
    ``Dataset.map``, in a Keras model and in a SavedModel. Its config contains the vocabulary, so a
    saved model needs no vocabulary file.

    Args:
        vocab: Path to a vocabulary file, or list of pieces in the order of their ids.
        do_lower_case: Whether to lower-case the text and strip accents ("uncased").
        max_seq_length: Number of tokens per row, S; at least 5.
        long_text: Tokens to keep of a long single text: ``"head"``, or ``"head_tail"`` for both
            ends, as in ``bert_tf.finetune --long_text``.
        rules: Further tokenization rules, as ``TextRules`` or as JSON (``TextRules.to_json``); by
            default the rules of google-research/bert.
        **kwargs: Further arguments of ``keras.layers.Layer``.

    Raises:
        ValueError: If an argument or the vocabulary is invalid.

    Attributes:
        tokenizer: The ``BertTokenizer``.

    >>> vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "!"]
    >>> preprocessor = BertPreprocessor(vocab, max_seq_length=8)
    >>> batch = preprocessor((["Hello!", "hello"], ["world", "World!"]))
    >>> batch["input_word_ids"].numpy()
    array([[2, 5, 7, 3, 6, 3, 0, 0],
           [2, 5, 3, 6, 7, 3, 0, 0]], dtype=int32)
    """

    def __init__(
        self,
        vocab: str | os.PathLike[str] | Sequence[str],
        do_lower_case: bool = True,
        max_seq_length: int = 128,
        long_text: str = "head",
        rules: TextRules | Mapping[str, Any] = AS_GOOGLE,
        **kwargs: Any,
    ):
        super().__init__(**{"autocast": False, "trainable": False, **kwargs})
        if max_seq_length < _MIN_SEQ_LENGTH:
            raise ValueError(
                f"max_seq_length={max_seq_length}: expected at least {_MIN_SEQ_LENGTH}, for "
                "[CLS], two [SEP] and one token of each text of a pair."
            )
        if long_text not in _LONG_TEXTS:
            raise ValueError(f"long_text={long_text!r}: expected {' or '.join(_LONG_TEXTS)}.")
        self.max_seq_length = max_seq_length
        self.long_text = long_text
        if isinstance(vocab, str | os.PathLike):
            vocab = load_vocabulary(os.fspath(vocab))
        if not isinstance(rules, TextRules):
            rules = TextRules.from_json(rules, list(vocab), type(self).__name__)
        self.tokenizer = BertTokenizer(vocab, do_lower_case, rules)
        # Keras would convert strings to numeric tensors.
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        self.built = True

    def call(self, inputs: Any) -> dict[str, tf.Tensor]:
        """Tokenizes and packs texts or text pairs.

        Args:
            inputs: Strings of shape `(B,)`, or a tuple or list of two such tensors. A list of
                Python strings is a vector of strings.

        Returns:
            ``input_word_ids``, ``input_mask`` and ``input_type_ids``.
                Shape `(B, S)`, int32.

        Raises:
            ValueError: If ``inputs`` is a list or tuple of another length.
        """
        segments = [self.tokenizer.tokenize(strings) for strings in _segments(inputs)]
        ids, ranges = join_segments(segments)
        ranges = fit_segments(ranges, self.max_seq_length, self.tokenizer).ranges
        if self.long_text == "head_tail" and len(segments) == 1:
            ids, ranges = join_segments([head_and_tail(segments[0], self.max_seq_length - 2)])
        return pack(ids, ranges, self.max_seq_length, self.tokenizer)

    def compute_output_spec(self, inputs: Any) -> dict[str, keras.KerasTensor]:
        """Returns shapes and dtypes of the features."""
        batch_size = _segments(inputs)[0].shape[0]
        return {
            key: keras.KerasTensor((batch_size, self.max_seq_length), feature.dtype)
            for key, feature in features.ENCODER_FEATURES.items()
        }

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, with the vocabulary as a list."""
        rules = self.tokenizer.rules.to_json()
        return {
            **super().get_config(),
            "vocab": list(self.tokenizer.vocab),
            "do_lower_case": self.tokenizer.do_lower_case,
            "max_seq_length": self.max_seq_length,
            "long_text": self.long_text,
            **({"rules": rules} if rules else {}),
        }


def _segments(inputs: Any) -> list[Any]:
    """Returns one or two vectors of strings."""
    if not isinstance(inputs, (tuple, list)) or all(isinstance(item, str) for item in inputs):
        return [inputs]
    if len(inputs) != 2:
        raise ValueError(
            f"Expected a vector of strings, or a tuple or list of two such vectors, got a list of "
            f"{len(inputs)}."
        )
    return list(inputs)
