"""Shares of scripts, against the names of characters in Python's tables."""

import unicodedata

import numpy as np
import pytest

from bert_tf.preparation.scripts import SCRIPTS, script_share

# How the names of a script's letters begin, where that is not the script's name.
NAMES = {"han": "CJK UNIFIED IDEOGRAPH", "oriya": "ORIYA"}


# The letters by their names. Half and full width, letters of notation: of no script, or of another.
LETTERS = {
    unicodedata.name(character): character
    for character in map(chr, range(0x11000))
    if unicodedata.category(character) in ("Ll", "Lu", "Lo")
    and "SIGN" not in unicodedata.name(character)
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_letters_are_of_the_script_in_their_name(script):
    begin = NAMES.get(script, script.upper())
    letters = [
        letter for name, letter in LETTERS.items() if name.startswith((f"{begin} ", f"{begin}-"))
    ]
    assert len(letters) >= 25
    assert script_share("".join(letters), [script]) > 0.95
    others = [other for other in SCRIPTS if other != script]
    assert script_share("".join(letters), others) < 0.05


def test_a_share_is_of_the_letters_alone():
    text = "Это 100% теста, ok?"
    letters = [c for c in text if c.isalpha()]
    russian = [c for c in letters if "CYRILLIC" in unicodedata.name(c)]
    assert script_share(text, ["cyrillic"]) == len(russian) / len(letters)
    assert script_share(text, ["cyrillic", "latin"]) == 1
    assert script_share("100%", ["latin"]) == 0
    assert np.isclose(script_share("日本のテスト", ["han"]), 2 / 6)
