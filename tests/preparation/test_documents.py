"""A document's cleaning and filters, against loops over its characters; identity and order."""

import unicodedata

import numpy as np
import pytest

from bert_tf.preparation import documents
from bert_tf.preparation.settings import resolve

JOINERS = "\u200c\u200d"


def cleaned(text):
    """``documents.clean`` character by character."""
    lines = []
    for line in text.split("\n"):
        kept = ""
        for character in line:
            if character.isspace():
                kept += " "
            elif character == "\ufffd" or (
                unicodedata.category(character) in ("Cc", "Cf") and character not in JOINERS
            ):
                continue
            else:
                kept += character
        kept = unicodedata.normalize("NFC", " ".join(kept.split(" "))).strip()
        while "  " in kept:
            kept = kept.replace("  ", " ")
        if any(character.isalnum() for character in kept):
            lines.append(kept)
    return "\n".join(lines)


def characters(rng, count):
    """Random ones, and many of the kinds that cleaning changes."""
    special = (
        "\x00\x07\t\x0b\x1f\x7f\x85\xa0\xad\u0301\u200b\u200d\u2028\u202e\u3000\ufeff\ufffd_*."
    )
    drawn = []
    for _ in range(count):
        character = chr(rng.integers(0x20, 0x2FFF))
        # Some scripts write format characters that are seen, such as Arabic's number sign.
        if rng.random() < 0.5 or unicodedata.category(character) in ("Cf", "Cn"):
            character = rng.choice(list(special))
        drawn.append(character)
    return "".join(drawn)


def test_cleaning_is_that_of_a_loop_over_characters():
    rng = np.random.default_rng(0)
    different = 0
    for _ in range(300):
        text = "\n".join(characters(rng, 12) for _ in range(3))
        assert documents.clean(text) == cleaned(text), ascii(text)
        different += documents.clean(text) != text
    assert different > 250


@pytest.mark.parametrize(
    ("text", "flags", "reason"),
    [
        ("", {}, "without_text"),
        ("a" * 9, {}, "too_short"),
        ("a" * 10, {"min_sentences": 2}, "too_few_sentences"),
        ("a" * 4 + "\n" + "b" * 5, {"min_sentences": 2}, None),
        ("abcdef где", {"scripts": ["cyrillic"]}, "another_script"),
        ("abcdef где", {"scripts": ["cyrillic"], "min_script_share": 3 / 9}, None),
        ("1234567890", {"scripts": ["latin"]}, "another_script"),
    ],
)
def test_why_a_document_is_left_out(text, flags, reason):
    given = {"min_characters": 10, "min_sentences": 1, **flags}
    settings = resolve(input=["a"], output="b", **given)
    assert documents.reason_to_drop(text, settings) == reason


def _identities(count):
    return np.array([documents.identity(b"%d" % number) for number in range(count)], "S16")


def test_the_order_is_that_of_the_seed_and_uniform():
    identities = _identities(2000)
    first, again, other = (documents.positions(identities, seed) for seed in (3, 3, -4))
    assert np.array_equal(first, again)
    assert len(np.unique(first)) == 2000
    # Two orders have nothing to do with each other: a correlation of ranks is 1/sqrt(n) or so.
    ranks = [np.argsort(np.argsort(positions)) for positions in (first, other)]
    assert abs(np.corrcoef(*ranks)[0, 1]) < 4 / np.sqrt(2000)
    # Each of ten parts has its share, within four standard deviations.
    shares = np.bincount(documents.part_of(first, 10).astype(int), minlength=10)
    assert len(shares) == 10 and abs(shares - 200).max() < 4 * np.sqrt(2000 * 0.1 * 0.9)


def test_parts_are_runs_of_positions():
    positions = np.array([0, 2**62, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    assert documents.part_of(positions, 2).tolist() == [0, 0, 0, 1, 1]
    assert documents.part_of(positions, 4).tolist() == [0, 1, 1, 2, 3]


def test_an_identity_is_that_of_the_text():
    assert documents.identity(b"a") == documents.identity(bytes([97]))
    assert documents.identity(b"a") != documents.identity(b"b")
    # The order of a corpus that is prepared again in another release is the same.
    assert documents.positions(_identities(2), 7).tolist() == POSITIONS


POSITIONS = [690226071775111325, 947139369477191453]
