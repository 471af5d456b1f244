"""Google's ``FullTokenizer`` as a plain-Python definition, to test the tokenizer against.

The implementation follows google-research/bert, ``tokenization.py``, step by step. It uses Python's
``unicodedata``, and treats code points that Unicode 14 does not assign as unassigned on every
Python version (on Python 3.11 this changes nothing).
"""

import functools
import random
import unicodedata
from collections.abc import Mapping

from bert_tf.pipelines.normalization import ASSIGNED_AFTER_14

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


@functools.cache
def category(character: str) -> str:
    code = ord(character)
    later = any(first <= code <= last for first, last in ASSIGNED_AFTER_14)
    return "Cn" if later else unicodedata.category(character)


def is_assigned(character: str) -> bool:
    """Returns whether Unicode 14 assigns a character, excluding private use."""
    return category(character) not in ("Cn", "Co", "Cs")


@functools.cache
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
    """``WordpieceTokenizer.tokenize`` of one word: repeatedly takes the longest matching piece."""
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


# All code points that Unicode 14 assigns, except private use, are below U+40000 or in
# U+E0000-E0FFF.
CODE_POINTS = [
    code for code in (*range(0x40000), *range(0xE0000, 0xE1000)) if not 0xD800 <= code < 0xE000
]
# The same with every 97th of similar characters: ideographs, Hangul syllables, letters of
# cuneiform, hieroglyphs, Tangut and similar scripts, and unassigned planes.
TYPICAL_CODE_POINTS = [
    code
    for code in CODE_POINTS
    if code % 97 == 0
    or (
        not (is_ideograph(chr(code)) or 0xAC00 <= code < 0xD7A4 or 0x2CEB0 <= code < 0xE0000)
        and not (0x12000 <= code < 0x1B300 and category(chr(code)) == "Lo")
    )
]

# Ranges of characters that affect each other.
_POOLS = (
    range(0x20, 0x7F),
    range(0xA0, 0x250),
    range(0x2B0, 0x370),  # modifier letters, combining marks
    range(0x370, 0x400),
    (0x3A3, 0x3C3, 0x3C2, 0x391, 0x27, 0x2E, 0xAD, 0x301, 0x345, 0x2B0, 0x20, 0x31),  # sigmas
    (0x1B44, 0x302E, 0x302F, 0x16FF0, 0x1D165, 0x1D16D, 0x1D15E, 0x1D160, 0x301, 0x327, 0x34F),
    range(0x400, 0x600),
    range(0x600, 0x700),
    range(0x900, 0xE00),
    range(0xF00, 0xFDA),
    range(0x1100, 0x1200),
    range(0x1AB0, 0x1C00),
    range(0x1E00, 0x2100),
    range(0x2100, 0x2200),
    range(0x3000, 0x3100),
    range(0x4E00, 0x4E40),
    range(0xAC00, 0xAC80),
    range(0xF900, 0xFB50),
    range(0xFE00, 0x10000),
    range(0x1D100, 0x1D200),
    range(0x1F600, 0x1F650),
    range(0x20),
    range(0x7F, 0xA0),
    (0x20, 0x2028, 0x2029, 0x85, 0x3000, 0xFFFD, 0xFEFF, 0x200B, 0x200D),
    CODE_POINTS,
)


def random_texts(count: int, seed: int) -> list[str]:
    """Draws strings of characters from one to three pools, with a few very long words."""

    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        pools = rng.choices(_POOLS, k=rng.randint(1, 3))
        drawn = (chr(rng.choice(rng.choice(pools))) for _ in range(rng.randint(0, 24)))
        text = "".join(character for character in drawn if is_assigned(character))
        if rng.random() < 0.02:
            text += text[-1:] * rng.choice((66, 67, 199, 200, 201, 400, 801)) + text
        texts.append(text)
    return texts
