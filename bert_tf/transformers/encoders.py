"""Tokenizers that threads may share: one for each set of options, which never changes."""

from typing import Any

import tokenizers

#: The arguments of ``enable_truncation`` or ``enable_padding``; ``None``: off.
Options = dict[str, Any] | None
# Parts of a tokenizer that a program may replace.
_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_MAX_ENCODERS = 64


class Encoders:
    """Encoders with different options, which share the vocabulary of one ``tokenizers.Tokenizer``.

    The options of that tokenizer would be those of all threads. A copy or a pickle is empty.
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
        # A program may replace the parts, or add tokens, at any time.
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
        """Removes all encoders: the tokens have changed."""
        self._cache.clear()

    def __reduce__(self) -> Any:
        return Encoders, ()


def copy_unbounded(source: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Returns a copy of a tokenizer without truncation and padding, which shares its vocabulary."""
    copied = tokenizers.Tokenizer(source.model)
    for name in _PARTS:
        setattr(copied, name, getattr(source, name))
    added = source.get_added_tokens_decoder()
    copied.add_tokens([added[number] for number in sorted(added)])
    return copied


def _state(part: Any) -> Any:
    """Returns a value that changes with a part of a tokenizer."""
    try:
        return part.__getstate__()
    except Exception:  # a part written in Python has no state: each call uses the current one
        return object()
