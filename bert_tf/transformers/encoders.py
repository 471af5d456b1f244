"""Copies of a tokenizer with fixed options, which threads can share, and BERT's rules for one."""

from collections.abc import Mapping
from typing import Any

import tokenizers

from bert_tf.checkpoints.tokenizer_files import BERT_RULES

#: Arguments of ``enable_truncation`` or ``enable_padding``; ``None`` to disable it.
Options = dict[str, Any] | None
# Parts of a tokenizer that a program can replace.
_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_MAX_ENCODERS = 64


class Encoders:
    """Cache of encoders with different options and the vocabulary of one ``tokenizers.Tokenizer``.

    Options of the tokenizer itself would affect all threads. Copies and pickles are empty.
    """

    def __init__(self) -> None:
        self._cache: dict[Any, tokenizers.Tokenizer] = {}

    def get(
        self,
        source: tokenizers.Tokenizer,
        truncation: Options = None,
        padding: Options = None,
        splits_special_tokens: bool = False,
    ) -> tokenizers.Tokenizer:
        """Returns the encoder with these options and the current parts of ``source``."""
        # A program can replace the parts, or add tokens, at any time.
        key = (
            truncation and tuple(truncation.values()),
            padding and tuple(padding.values()),
            splits_special_tokens,
            id(source),
            source.get_vocab_size(),
            _state(source.normalizer),
            _state(source.pre_tokenizer),
            _state(source.post_processor),
        )
        encoder = self._cache.get(key)
        if encoder is None:
            encoder = copy_unbounded(source)
            encoder.encode_special_tokens = splits_special_tokens
            if truncation is not None:
                encoder.enable_truncation(**truncation)
            if padding is not None:
                encoder.enable_padding(**padding)
            if len(self._cache) >= _MAX_ENCODERS:
                self._cache.clear()
            self._cache[key] = encoder
        return encoder

    def clear(self) -> None:
        """Removes all encoders, because tokens were added."""
        self._cache.clear()

    def __reduce__(self) -> Any:
        return Encoders, ()


def copy_unbounded(source: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Copies a tokenizer without truncation and padding; the copy shares the vocabulary."""
    copied = tokenizers.Tokenizer(source.model)
    for name in _PARTS:
        setattr(copied, name, getattr(source, name))
    added = source.get_added_tokens_decoder()
    copied.add_tokens([added[token_id] for token_id in sorted(added)])
    return copied


def _state(part: Any) -> Any:
    """Returns a value that changes with a part of a tokenizer."""
    try:
        return part.__getstate__()
    except Exception:  # parts written in Python have no state, so each call makes a new encoder
        return object()


def apply_bert_rules(tokenizer: tokenizers.Tokenizer, settings: Mapping[str, Any]) -> None:
    """Replaces everything except the pieces of a tokenizer by BERT's rules."""
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    if isinstance(tokenizer.model, tokenizers.models.WordPiece):
        tokenizer.model.max_input_chars_per_word = BERT_RULES.max_word_length
