"""Google's ``FullTokenizer`` as a plain-Python definition: the oracle of the tokenizer's tests.

Its words are ours; its steps are those of google-research/bert ``tokenization.py``. Python's own
``unicodedata`` answers, except that what Unicode 14 does not assign counts as unassigned whatever
Python runs this (on Python 3.11 that changes nothing).
"""

import unicodedata
from collections.abc import Mapping

from bert_tf.pipelines.unicode_tables import ASSIGNED_AFTER_14

IDEOGRAPH_BLOCKS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def is_assigned(character: str) -> bool:
    """Whether Unicode 14 assigns the code point a character (private use is none)."""
    code = ord(character)
    later = any(first <= code <= last for first, last in ASSIGNED_AFTER_14)
    return not later and unicodedata.category(character) not in ("Cn", "Co", "Cs")


def category(character: str) -> str:
    return unicodedata.category(character) if is_assigned(character) else "Cn"


def is_ideograph(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in IDEOGRAPH_BLOCKS)


def is_punctuation(character: str) -> bool:
    if character.isascii():
        return character.isprintable() and not character.isalnum() and character != " "
    return category(character).startswith("P")


def clean(text: str) -> str:
    """Drops NUL, U+FFFD and control characters; every kind of space becomes U+0020."""
    kept = []
    for character in text:
        if character in "\t\n\r" or category(character) == "Zs":
            kept.append(" ")
        elif character != "\ufffd" and category(character) not in ("Cc", "Cf"):
            kept.append(character)
    return "".join(kept)


def strip_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(character for character in decomposed if category(character) != "Mn")


def split_at_punctuation(token: str) -> list[str]:
    words = [""]
    for character in token:
        if is_punctuation(character):
            words += [character, ""]
        else:
            words[-1] += character
    return [word for word in words if word]


def split_into_words(text: str, do_lower_case: bool) -> list[str]:
    """``BasicTokenizer.tokenize``."""
    spaced = "".join(f" {c} " if is_ideograph(c) else c for c in clean(text))
    words = []
    for token in spaced.split():
        if do_lower_case:
            token = strip_accents(token.lower())
        words += split_at_punctuation(token)
    return " ".join(words).split()


def split_into_pieces(word: str, ids: Mapping[str, int]) -> list[int]:
    """``WordpieceTokenizer.tokenize`` of one word: the longest piece that fits, again and again."""
    unknown = [ids["[UNK]"]]
    if len(word) > 200:
        return unknown
    pieces = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((end for end in ends if prefix + word[start:end] in ids), None)
        if end is None:
            return unknown
        pieces.append(ids[prefix + word[start:end]])
        start = end
    return pieces


def tokenize(text: str, ids: Mapping[str, int], do_lower_case: bool) -> list[int]:
    """``FullTokenizer.tokenize``, as ids."""
    words = split_into_words(text, do_lower_case)
    return [piece for word in words for piece in split_into_pieces(word, ids)]
