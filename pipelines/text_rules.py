"""How a text is read besides vocabulary and casing: ``TextRules``, a value that travels as one.

Its added tokens are found in texts before these are split into words, as ``tokenizers`` does it. A
text is searched once from left to right, at each place for the longest token. A token that is
``special`` and to be parted, or that is a ``single_word`` and has a letter beside it, is found and
then passed over, with what it covers.

Source: huggingface/tokenizers ``added_vocabulary.rs``, ``AddedVocabulary.find_matches``.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.io.wording import quote

from .vocabulary import MAX_WORD_LENGTH, SPECIAL_TOKENS

GOOGLE, TOKENIZERS = "google", "tokenizers"
_MAX_CHARACTERS = 10_000  # of a word; of an added token, and of added tokens, fewer
_MAX_ADDED, _MAX_ADDED_LENGTH, _MAX_ADDED_BYTES = 10_000, 256, 120_000
# What a text has of these itself becomes ``SEPARATOR``: in no token, and neither letter nor digit.
_OPEN, _CLOSE, _PAD, SEPARATOR = range(1, 5)
_MARKS = [*map(chr, range(1, 5))]
_O, _C, _P = _MARKS[:3]
# The regex crate's \w by RE2's classes: letters, marks, digits, connectors, joiners, and the signs
# that are alphabetic.
_WORD = (
    r"[\pL\pM\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}"
    r"\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}]"
)
_BUCKETS = (1 << 63) - 1


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is found in a text before the text is split into words.

    The fields are those of ``tokenizers.AddedToken``. Space that ``lstrip`` and ``rstrip`` take is
    in no word anyway: they are kept for whoever reads what is written, and change no id.
    """

    content: str
    id: int
    special: bool = False  # parted like other text by ``TextRules.split_special_tokens``
    normalized: bool = False  # is found in the text as it is once normalised
    single_word: bool = False  # is found where no letter, digit or mark stands beside it
    lstrip: bool = False
    rstrip: bool = False
    is_piece: bool = True  # whether words have it as a piece, too

    def __post_init__(self) -> None:
        size = len(self.content)
        if not 0 < size <= _MAX_ADDED_LENGTH or not {*_MARKS}.isdisjoint(self.content):
            raise ValueError(
                f"The added token {quote(self.content)} has {size} characters: expected 1 to "
                f"{_MAX_ADDED_LENGTH}, none of them U+0001 to U+0004."
            )
        if self.normalized and self.content != self.content.strip():
            raise ValueError(
                f"The added token {quote(self.content)} is normalized and has space at an end, "
                "which is not computed: strip it."
            )


@dataclasses.dataclass(frozen=True)
class TextRules:
    """How a text becomes words; by default as Google's ``tokenization.py`` does it.

    Attributes:
        characters: whose properties of characters hold: ``"google"``, Unicode 14 and a small sigma
            by its place in the word; or ``"tokenizers"``, those of Hugging Face's package 0.23,
            whose cut of pairs holds then, too.
        max_word_length: characters of a word; a longer one is [UNK].
        strip_accents: whether accents are removed; ``None`` where the case is lowered.
        split_ideographs: whether each Chinese character is a word.
        pair_types: whether the second text of a pair has a type of its own.
        split_special_tokens: whether added tokens that are special are parted like other text.
        added_tokens: what is found in a text before it is split.

    Raises:
        ValueError: a value is none of these.

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
            raise ValueError(f"characters is {quote(self.characters)}: expected {names}.")
        if self.characters == GOOGLE and not (self.strip_accents is None and self.split_ideographs):
            raise ValueError("Google's rules strip accents with the case, and split ideographs.")
        if not 0 < self.max_word_length <= _MAX_CHARACTERS:
            raise ValueError(
                f"The longest word has {quote(self.max_word_length)} characters "
                f"(max_input_chars_per_word): expected 1 to {_MAX_CHARACTERS:,}."
            )
        if sum(len(token.content.encode()) for token in self.added_tokens) > _MAX_ADDED_BYTES:
            raise ValueError(
                f"The added tokens have more than {_MAX_ADDED_BYTES:,} bytes together: put the "
                "words into the vocabulary."
            )
        if len(self.added_tokens) > _MAX_ADDED:
            raise ValueError(
                f"There are {len(self.added_tokens):,} added tokens: expected {_MAX_ADDED:,} at "
                "most; put the words into the vocabulary."
            )

    def with_special_tokens(self, vocab: Sequence[str], found: bool | None) -> "TextRules":
        """The rules by which special tokens are found in texts, or parted; ``None``: as now."""
        if found is None:
            return self
        tokens = self.added_tokens
        if found and not any(token.special for token in tokens):
            special = (AddedToken(t, vocab.index(t), special=True) for t in SPECIAL_TOKENS)
            tokens = tuple(sorted((*special, *tokens), key=lambda token: token.id))
        return dataclasses.replace(self, split_special_tokens=not found, added_tokens=tokens)

    def to_json(self) -> dict[str, Any]:
        """What differs from the defaults, as ``from_json`` takes it."""
        values = _changes(self)
        if self.added_tokens:
            values["added_tokens"] = [_changes(token) for token in self.added_tokens]
        return values

    @classmethod
    def from_json(cls, values: Any, vocab: Sequence[str], source: str) -> "TextRules":
        """The rules in a file ``source``, every value checked."""
        try:
            values = dict(_checked(cls, values))
            tokens = values.pop("added_tokens", [])
            if not isinstance(tokens, list | tuple):
                raise ValueError(f"added_tokens is {quote(tokens)}, expected a list.")
            added = tuple(AddedToken(**_checked(AddedToken, token)) for token in tokens)
            for token in added:
                if not 0 <= token.id < len(vocab) or vocab[token.id] != token.content:
                    raise ValueError(f"{quote(token.content)} is not piece {token.id}.")
            return cls(**values, added_tokens=added)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{source}: its rules of text are none: {error}") from error


AS_GOOGLE = TextRules()


def _changes(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not their defaults."""
    fields = {field.name: field.default for field in dataclasses.fields(value)}
    return {
        name: getattr(value, name)
        for name, default in fields.items()
        if getattr(value, name) != default
    }


def _checked(cls: type, values: Any) -> Mapping[str, Any]:
    """The fields of a dataclass as a file gives them, if they are of its types."""
    types = {field.name: field.type for field in dataclasses.fields(cls)}
    if not isinstance(values, Mapping) or not values.keys() <= types.keys():
        raise ValueError(f"{quote(values)} is no object with {', '.join(types)}.")
    for name, value in values.items():
        kind = types[name]
        if name != "added_tokens" and not (
            type(value) is kind or (kind == bool | None and isinstance(value, bool | None))
        ):
            raise ValueError(f"{name} is {quote(value)}.")
    return values


# === Finding added tokens ===


class TokenFinder:
    """Finds tokens in texts.

    Regular expressions put marks round what is found; all operations are core ones, which every
    TensorFlow Serving has. Letters: N texts, C characters of all texts together, K tokens found.

    Args:
        contents: what to find, of each token; of equal ones the first counts.
        tokens: whose ids and flags these are.
        split_special: whether tokens that are special are passed over.
        ideographs: the ranges of characters that are words by themselves.
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
        # A word by itself is no neighbour of a single word, so it stands between pads.
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
            # Twice: a letter that one match has read cannot be read by the next.
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
        """Finds the tokens in texts of code points, (C,) int32, whose rows are (C,) int64.

        Returns for each character the number of the found token that it is of, counted from 1, or
        0, (C,) int64; and the found tokens' ids, (K,) int32.
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
    """The regular expression of RE2 that finds a text."""
    return re.sub(r"([][\\.+*?(){}^$|])", r"\\\1", text)


def _encode(codes: tf.Tensor, rows: tf.Tensor, num_rows: tf.Tensor) -> tf.Tensor:
    """Code points as a string for each row."""
    texts = tf.RaggedTensor.from_value_rowids(codes, rows, num_rows, validate=False)
    return tf.strings.unicode_encode(texts, "UTF-8")
