"""How a text is read besides vocabulary and casing: ``TextRules``, a value that travels as one."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.wording import quote

from .vocabulary import MAX_WORD_LENGTH, SPECIAL_TOKENS

GOOGLE, TOKENIZERS = "google", "tokenizers"
_MOST_CHARACTERS = 10_000  # of a word; of an added token, and of added tokens, fewer
_MOST_ADDED, _LONGEST_ADDED, _MOST_ADDED_BYTES = 10_000, 256, 120_000
_MARKS = "\x01\x02\x03\x04"  # of added_tokens.py, in a text that is searched


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
        if not 0 < size <= _LONGEST_ADDED or not {*_MARKS}.isdisjoint(self.content):
            raise ValueError(
                f"The added token {quote(self.content)} has {size} characters: expected 1 to "
                f"{_LONGEST_ADDED}, none of them U+0001 to U+0004."
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
        if not 0 < self.max_word_length <= _MOST_CHARACTERS:
            raise ValueError(
                f"The longest word has {quote(self.max_word_length)} characters "
                f"(max_input_chars_per_word): expected 1 to {_MOST_CHARACTERS:,}."
            )
        if sum(len(token.content.encode()) for token in self.added_tokens) > _MOST_ADDED_BYTES:
            raise ValueError(
                f"The added tokens have more than {_MOST_ADDED_BYTES:,} bytes together: put the "
                "words into the vocabulary."
            )
        if len(self.added_tokens) > _MOST_ADDED:
            raise ValueError(
                f"There are {len(self.added_tokens):,} added tokens: expected {_MOST_ADDED:,} at "
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


def _checked(made: type, values: Any) -> Mapping[str, Any]:
    """The fields of a dataclass as a file gives them, if they are of its types."""
    types = {field.name: field.type for field in dataclasses.fields(made)}
    if not isinstance(values, Mapping) or not values.keys() <= types.keys():
        raise ValueError(f"{quote(values)} is no object with {', '.join(types)}.")
    for name, value in values.items():
        kind = types[name]
        if name != "added_tokens" and not (
            type(value) is kind or (kind == bool | None and isinstance(value, bool | None))
        ):
            raise ValueError(f"{name} is {quote(value)}.")
    return values
