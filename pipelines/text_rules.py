"""Tokenization rules other than vocabulary and casing.

Added tokens are recognized before a text is split into words, as in ``tokenizers``. Matching runs
from left to right and prefers the longest token at each position. A ``special`` token that should
be split, or a ``single_word`` token next to a letter, is matched first and then discarded, together
with shorter matches inside it.

Source: huggingface/tokenizers, ``added_vocabulary.rs``, ``AddedVocabulary.find_matches``.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.io.messages import quote

from .vocabulary import MAX_WORD_LENGTH, SPECIAL_TOKENS

GOOGLE, TOKENIZERS = "google", "tokenizers"
_MAX_CHARACTERS = 10_000  # per word
_MAX_ADDED, _MAX_ADDED_LENGTH, _MAX_ADDED_BYTES = 10_000, 256, 120_000
# These characters in a text become ``SEPARATOR``, which is not a letter, digit or part of a token.
_OPEN, _CLOSE, _PAD, SEPARATOR = range(1, 5)
_MARKS = [*map(chr, range(1, 5))]
_O, _C, _P = _MARKS[:3]
# The regex crate's \w as RE2 classes: letters, marks, digits, connectors, joiners, and alphabetic
# symbols.
_WORD = (
    r"[\pL\pM\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}"
    r"\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}]"
)
_BUCKETS = (1 << 63) - 1


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """Token that is recognized in a text before the text is split into words.

    The fields are those of ``tokenizers.AddedToken``. ``lstrip`` and ``rstrip`` affect only
    whitespace and do not change ids; they are preserved for exports.
    """

    content: str
    id: int
    special: bool = False  # split like other text if ``TextRules.split_special_tokens`` is set
    normalized: bool = False  # matched in the normalized text
    single_word: bool = False  # not matched next to letters, digits or marks
    lstrip: bool = False
    rstrip: bool = False
    is_piece: bool = True  # whether words may contain it as a piece

    def __post_init__(self) -> None:
        size = len(self.content)
        if not 0 < size <= _MAX_ADDED_LENGTH or not {*_MARKS}.isdisjoint(self.content):
            raise ValueError(
                f"Added token {quote(self.content)}: expected 1 to {_MAX_ADDED_LENGTH} characters "
                f"without U+0001 to U+0004, got {size}."
            )
        if self.normalized and self.content != self.content.strip():
            raise ValueError(
                f"Added token {quote(self.content)}: whitespace at the ends is not supported with "
                "normalized=True. Remove the whitespace."
            )


@dataclasses.dataclass(frozen=True)
class TextRules:
    """Rules for splitting texts into words; by default the rules of Google's ``tokenization.py``.

    Attributes:
        characters: Source of the character properties: ``"google"`` for Unicode 14 with final
            sigmas, or ``"tokenizers"`` for Hugging Face's package 0.23, which also changes how
            pairs are truncated.
        max_word_length: Maximum number of characters per word; longer words become [UNK].
        strip_accents: Whether to strip accents; ``None`` follows ``do_lower_case``.
        split_ideographs: Whether each Chinese character is a word.
        pair_types: Whether the second text of a pair has a separate token type.
        split_special_tokens: Whether special added tokens in texts are split like other text.
        added_tokens: Tokens to recognize before a text is split.

    Raises:
        ValueError: If a value is invalid.

    >>> TextRules(added_tokens=(AddedToken("[SEP]", 3, special=True),)).to_json()
    {'added_tokens': [{'content': '[SEP]', 'id': 3, 'special': True}]}
    """

    characters: str = GOOGLE
    max_word_length: int = MAX_WORD_LENGTH
    strip_accents: bool | None = None
    split_ideographs: bool = True
    pair_types: bool = True
    split_special_tokens: bool = False
    added_tokens: tuple[AddedToken, ...] = ()

    def __post_init__(self) -> None:
        if self.characters not in (GOOGLE, TOKENIZERS):
            names = f"{GOOGLE} or {TOKENIZERS}"
            raise ValueError(f"characters={quote(self.characters)}: expected {names}.")
        if self.characters == GOOGLE and not (self.strip_accents is None and self.split_ideographs):
            raise ValueError("strip_accents and split_ideographs need characters='tokenizers'.")
        if not 0 < self.max_word_length <= _MAX_CHARACTERS:
            raise ValueError(
                f"max_input_chars_per_word={quote(self.max_word_length)}: expected 1 to "
                f"{_MAX_CHARACTERS:,}."
            )
        if sum(len(token.content.encode()) for token in self.added_tokens) > _MAX_ADDED_BYTES:
            raise ValueError(
                f"The added tokens have more than {_MAX_ADDED_BYTES:,} bytes. Add the words to the "
                "vocabulary instead."
            )
        if len(self.added_tokens) > _MAX_ADDED:
            raise ValueError(
                f"Expected at most {_MAX_ADDED:,} added tokens, got "
                f"{len(self.added_tokens):,}. Add the words to the vocabulary instead."
            )

    def with_special_tokens(self, vocab: Sequence[str], found: bool | None) -> "TextRules":
        """Returns rules that recognize or split special tokens; ``None`` returns the same rules."""
        if found is None:
            return self
        tokens = self.added_tokens
        if found and not any(token.special for token in tokens):
            special = (AddedToken(t, vocab.index(t), special=True) for t in SPECIAL_TOKENS)
            tokens = tuple(sorted((*special, *tokens), key=lambda token: token.id))
        return dataclasses.replace(self, split_special_tokens=not found, added_tokens=tokens)

    def to_json(self) -> dict[str, Any]:
        """Returns the values that differ from the defaults, for ``from_json``."""
        values = _changes(self)
        if self.added_tokens:
            values["added_tokens"] = [_changes(token) for token in self.added_tokens]
        return values

    @classmethod
    def from_json(cls, values: Any, vocab: Sequence[str], source: str) -> "TextRules":
        """Creates validated rules from JSON; errors name the file ``source``."""
        try:
            values = dict(_checked(cls, values))
            tokens = values.pop("added_tokens", [])
            if not isinstance(tokens, list | tuple):
                raise ValueError(f"added_tokens: expected a list, got {quote(tokens)}.")
            added = tuple(AddedToken(**_checked(AddedToken, token)) for token in tokens)
            for token in added:
                if not 0 <= token.id < len(vocab) or vocab[token.id] != token.content:
                    raise ValueError(f"piece {token.id} is not {quote(token.content)}.")
            return cls(**values, added_tokens=added)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{source}: invalid tokenization rules: {error}") from error


AS_GOOGLE = TextRules()


def _changes(value: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass that differ from their defaults."""
    fields = {field.name: field.default for field in dataclasses.fields(value)}
    return {
        name: getattr(value, name)
        for name, default in fields.items()
        if getattr(value, name) != default
    }


def _checked(cls: type, values: Any) -> Mapping[str, Any]:
    """Returns a dataclass' fields from a file, after checking their names and types."""
    types = {field.name: field.type for field in dataclasses.fields(cls)}
    if not isinstance(values, Mapping) or not values.keys() <= types.keys():
        raise ValueError(f"expected an object with {', '.join(types)}, got {quote(values)}.")
    for name, value in values.items():
        kind = types[name]
        if name != "added_tokens" and not (
            type(value) is kind or (kind == bool | None and isinstance(value, bool | None))
        ):
            raise ValueError(f"invalid value {name}={quote(value)}.")
    return values


# === Finding added tokens ===


class TokenFinder:
    """Finds added tokens in texts, with regular expressions that insert markers.

    All operations are core TensorFlow operations, which TensorFlow Serving supports. Letters: N
    texts, C characters of all texts, K found tokens.

    Args:
        contents: Text to match for each token; if texts are equal, the first token wins.
        tokens: Ids and flags of the tokens.
        split_special: Whether to discard matches of special tokens.
        ideographs: Ranges of characters that are separate words.
    """

    def __init__(
        self,
        contents: Sequence[str],
        tokens: Sequence[AddedToken],
        split_special: bool,
        ideographs: Iterable[tuple[int, int]] = (),
    ):
        by_content: dict[str, AddedToken] = {}
        for content, token in zip(contents, tokens, strict=True):
            by_content.setdefault(content, token)
        single = [content for content, token in by_content.items() if token.single_word]
        special = [content for content, token in by_content.items() if token.special]
        # Marks around characters that are separate words, so that no token is adjacent to them.
        isolated = "".join(f"{chr(a)}-{chr(b)}" for a, b in ideographs if single)
        pads = [(f"([{isolated}])", rf"{_P}\1{_P}")] if isolated else []

        def match_any(texts: Iterable[str]) -> str:
            patterns = sorted(texts, key=lambda text: len(text.encode()), reverse=True)
            expression = "|".join(map(escape, patterns))
            for pattern, rewrite in pads:
                expression = re.sub(pattern, rewrite, expression)
            return expression

        steps = [*pads, (f"({match_any(by_content)})", rf"{_O}\1{_C}")]
        if special and split_special:
            steps += [(f"{_O}({match_any(special)}){_C}", r"\1")]
        if single:
            # Twice, because consecutive matches cannot share a letter.
            steps += 2 * [(f"({_WORD}{_C}?){_O}({match_any(single)}){_C}", r"\1\2")]
            steps += 2 * [(f"{_O}({match_any(single)}){_C}({_O}?{_WORD})", r"\1\2")]
        self._steps = steps
        with tf.init_scope(), tf.device("CPU:0"):
            keys = tf.strings.to_hash_bucket_fast([*by_content], _BUCKETS)
            order = tf.argsort(keys)
            self._keys = tf.gather(keys, order)
            self._ids = tf.gather(tf.constant([token.id for token in by_content.values()]), order)

    def __call__(
        self, codes: tf.Tensor, rows: tf.Tensor, num_rows: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Finds the tokens in texts.

        Args:
            codes: Code points of all texts.
                Shape `(C,)`, int32.
            rows: Index of each character's text.
                Shape `(C,)`, int64.
            num_rows: Number of texts, N.

        Returns:
            Index, from 1, of the found token that contains each character, or 0, `(C,)`, int64; and
            the ids of the found tokens, `(K,)`, int32.
        """
        codes = tf.where(codes < SEPARATOR, SEPARATOR, codes)
        texts = _encode(codes, rows, num_rows)
        for pattern, rewrite in self._steps:
            texts = tf.strings.regex_replace(texts, pattern, rewrite)
        marked = tf.strings.unicode_decode(texts, "UTF-8").values
        opened = tf.cumsum(tf.cast(marked == _OPEN, tf.int64))
        closed = tf.cumsum(tf.cast(marked == _CLOSE, tf.int64))
        numbers = tf.boolean_mask(tf.where(opened > closed, opened, 0), marked >= SEPARATOR)
        inside = numbers > 0
        contents = _encode(
            tf.boolean_mask(codes, inside),
            tf.boolean_mask(numbers, inside) - 1,
            tf.reduce_max(tf.concat([numbers, [0]], 0)),
        )
        keys = tf.strings.to_hash_bucket_fast(contents, _BUCKETS)
        return numbers, tf.gather(self._ids, tf.searchsorted(self._keys, keys))


def escape(text: str) -> str:
    """Returns the RE2 expression that matches a text literally."""
    return re.sub(r"([][\\.+*?(){}^$|])", r"\\\1", text)


def _encode(codes: tf.Tensor, rows: tf.Tensor, num_rows: tf.Tensor) -> tf.Tensor:
    """Encodes code points as one string per row."""
    texts = tf.RaggedTensor.from_value_rowids(codes, rows, num_rows, validate=False)
    return tf.strings.unicode_encode(texts, "UTF-8")
