"""One document: its cleaned text, why it is left out, and where it goes."""

import hashlib
import re
import unicodedata

import numpy as np

from .near_duplicates import mix
from .scripts import script_share
from .settings import PreparationSettings

# Controls and format characters but white space and the joiners, which some languages' words need;
# what stands for a character that was lost; what is no character.
_REMOVED = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\uffff\U000e0000-\U000e0fff]"
)
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")

#: Why a document is left out: the report's key, and what is printed.
REASONS = {
    "without_text": "without a letter or digit",
    "too_short": "shorter than --min_characters",
    "too_few_sentences": "with fewer sentences than --min_sentences",
    "another_script": "in other scripts than --scripts",
    "exact_duplicate": "with the same text as another one",
    "near_duplicate": "with nearly the same text as another one",
}

IDENTITY_BYTES = 16


def clean(text: str) -> str:
    """Cleans a document of a sentence a line: each line left has a letter or digit, and is in NFC.

    Characters that nobody sees are removed, and white space of any kind becomes one blank.
    """
    visible = unicodedata.normalize("NFC", _REMOVED.sub("", text))
    # Splitting at white space and joining is twice as fast as a regular expression.
    lines = (" ".join(line.split()) for line in visible.split("\n"))
    return "\n".join(line for line in lines if _LETTER_OR_DIGIT.search(line))


def num_sentences(text: str) -> int:
    """The lines of a cleaned text that is not empty."""
    return text.count("\n") + 1


def reason_to_drop(text: str, settings: PreparationSettings) -> str | None:
    """The key in ``REASONS`` of why a cleaned text, whatever the others are, is left out."""
    if not text:
        return "without_text"
    if len(text) < settings.min_characters:
        return "too_short"
    if num_sentences(text) < settings.min_sentences:
        return "too_few_sentences"
    if settings.scripts and script_share(text, settings.scripts) < settings.min_script_share:
        return "another_script"
    return None


def identity(text: bytes) -> bytes:
    """16 bytes that stand for a text wherever it is found."""
    return hashlib.blake2b(text, digest_size=IDENTITY_BYTES).digest()


def positions(identities: np.ndarray, seed: int) -> np.ndarray:
    """Where documents (D,) are in the shuffled corpus: (D,) uint64, uniform, drawn from a seed."""
    first, second = np.ascontiguousarray(identities).view("<u8").reshape(-1, 2).T
    return mix(first ^ mix(second ^ mix(np.array([seed % 2**64], np.uint64))))


def part_of(positions: np.ndarray, count: int) -> np.ndarray:
    """Which of ``count`` equal parts of all positions holds each, uint64."""
    return ((positions >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32)
