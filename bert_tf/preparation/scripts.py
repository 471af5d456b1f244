"""Which scripts a text is written in, by Unicode's property of each character."""

import functools
from collections.abc import Sequence

import numpy as np

# The numbers that ICU gives the scripts of living languages.
SCRIPTS = {
    "arabic": 2, "armenian": 3, "bengali": 4, "cyrillic": 8, "devanagari": 10, "ethiopic": 11,
    "georgian": 12, "greek": 14, "gujarati": 15, "gurmukhi": 16, "han": 17, "hangul": 18,
    "hebrew": 19, "hiragana": 20, "kannada": 21, "katakana": 22, "khmer": 23, "lao": 24,
    "latin": 25, "malayalam": 26, "mongolian": 27, "myanmar": 28, "oriya": 31, "sinhala": 33,
    "syriac": 34, "tamil": 35, "telugu": 36, "thaana": 37, "thai": 38, "tibetan": 39,
}  # fmt: skip
# Digits and punctuation, marks that take the script of their letter, and what is not assigned.
_OF_NONE = (0, 1, 103)
_NUM_CHARACTERS = 0x110000


@functools.cache
def _scripts() -> np.ndarray:
    """The script's number of every code point, (1,114,112,) uint8."""
    import tensorflow as tf  # late: the flags name the scripts, and --help needs no TensorFlow

    return tf.strings.unicode_script(tf.range(_NUM_CHARACTERS)).numpy().astype(np.uint8)


def script_share(text: str, scripts: Sequence[str]) -> float:
    """The share of a text's letters that is of some of ``SCRIPTS``; 0 without letters."""
    characters = np.frombuffer(text.encode("utf-32-le"), "<u4")
    counts = np.bincount(_scripts()[characters], minlength=256)
    letters = counts.sum() - counts[list(_OF_NONE)].sum()
    return float(counts[[SCRIPTS[name] for name in scripts]].sum() / max(1, letters))
