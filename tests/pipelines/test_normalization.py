import random
import unicodedata
import zlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

from bert_tf.pipelines import normalization
from tests.pipelines import wordpiece_definition as definition

UNCASED, CASED = (normalization.Normalization(lower, lower) for lower in (True, False))


@pytest.fixture(scope="module")
def splitters():
    return {lower: normalization.WordSplitter(lower) for lower in (True, False)}


def split(splitter, texts):
    words = splitter(tf.constant(texts)).words.to_list()
    return [[word.decode() for word in row] for row in words]


# Text, uncased words, cased words.
EXAMPLES = [
    ("Hello, World", "hello , world", "Hello , World"),
    ("naïve Ångström", "naive angstrom", "naïve Ångström"),
    ("a\tb\u00a0c\u2028d\u3000e\rf", "a b c d e f", "a b c d e f"),
    ("a\x00b\u200bc\ufffdd\u0085e\x1cf", "abcdef", "abcdef"),
    ("ab中文c", "ab 中 文 c", "ab 中 文 c"),
    ("[MASK]", "[ mask ]", "[ MASK ]"),
    ("ΟΔΟΣ ΟΔΟΣ.", "οδος οδος .", "ΟΔΟΣ ΟΔΟΣ ."),
    ("Σ ΣΑ ΑΣΑ ΑΣ'Α 1Σ", "σ σα ασα ασ ' α 1σ", "Σ ΣΑ ΑΣΑ ΑΣ ' Α 1Σ"),
    ("ΑΣ\u0301 ΑΣ\u00adΑ \u0301Σ", "ας ασα σ", "ΑΣ\u0301 ΑΣΑ \u0301Σ"),
    ("ΑΣ中Α", "ας 中 α", "ΑΣ 中 Α"),
    ("İstanbul ẞ ﬁ Ⅷ", "istanbul ß ﬁ ⅷ", "İstanbul ẞ ﬁ Ⅷ"),
    ("각", "\u1100\u1161\u11a8", "각"),
    ("\uf900 \u037e \u1fef", "\u8c48 ; `", "\uf900 \u037e \u1fef"),
    # A tone mark (class 224) before a virama (class 9): canonical ordering swaps them.
    ("ka\u302e\u0301\u1b44", "ka\u1b44\u302e", "ka\u302e\u0301\u1b44"),
    # A grapheme joiner is a starter: marks do not move across it, even if it is stripped.
    ("ka\u302e\u034f\u1b44", "ka\u302e\u1b44", "ka\u302e\u034f\u1b44"),
    # The stem of a decomposed note (216) is sorted with the following dot (226) and stem.
    (
        "\U0001d15e\U0001d16d\U0001d165",
        "\U0001d157\U0001d165\U0001d165\U0001d16d",
        "\U0001d15e\U0001d16d\U0001d165",
    ),
    ("\u302e中\u1b44", "\u302e 中 \u1b44", "\u302e 中 \u1b44"),
    ("", "", ""),
    (" \u0301 ", "", "\u0301"),
    ("50%+$3", "50 % + $ 3", "50 % + $ 3"),
    ("a–b…\u2e53", "a – b … \u2e53", "a – b … \u2e53"),
]


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_words_of_examples(splitters, do_lower_case):
    texts = [text for text, _, _ in EXAMPLES]
    expected = [(uncased if do_lower_case else cased).split(" ") for _, uncased, cased in EXAMPLES]
    expected = [[word for word in words if word] for words in expected]
    assert [definition.split_into_words(text, do_lower_case) for text in texts] == expected
    assert split(splitters[do_lower_case], texts) == expected


def test_ascii_punctuation_excludes_letters_digits_and_controls():
    codes = {*range(33, 48), *range(58, 65), *range(91, 97), *range(123, 127)}
    assert {*map(ord, normalization.ASCII_PUNCTUATION)} == codes
    punctuation = normalization.code_points().punctuation
    assert {*np.flatnonzero(punctuation[:128])} == codes


def test_tables_do_not_depend_on_python_version():
    """The tokenizer's tests compare the results with the definition."""
    table = normalization.code_points()
    checksum = 0
    for name in (
        *("dropped", "space", "ideograph", "punctuation", "nonspacing", "combining_class"),
        *("cased", "case_ignorable"),
    ):
        checksum = zlib.crc32(getattr(table, name).tobytes(), checksum)
    checksum = zlib.crc32(
        repr(list(normalization.normal_forms(UNCASED).items())).encode(), checksum
    )
    assert checksum == 3170370014


@pytest.mark.skipif(
    unicodedata.unidata_version != "14.0.0", reason="requires Unicode 14 (Python 3.11)"
)
def test_ranges_assigned_after_14_are_unassigned_in_unicode_14():
    for first, last in normalization.ASSIGNED_AFTER_14:
        assert {unicodedata.category(chr(code)) for code in range(first, last + 1)} == {"Cn"}


def test_ambiguous_code_points_are_sigma_and_reordered_marks():
    codes = np.flatnonzero(normalization.ambiguous_code_points(UNCASED)).tolist()
    assert codes[:6] == [0x3A3, 0x1715, 0x1734, 0x1B44, 0x1BAA, 0x1BF2]
    assert 0x1D15E in codes  # a musical note whose stem is reordered
    assert len(codes) == 39
    assert all(
        new != f" {normalization.AMBIGUOUS} " for new in normalization.replacements(CASED).values()
    )


def test_ill_formed_bytes_are_removed():
    rng = random.Random(7)
    pieces = ["a", "é", "中", "😀"]
    pieces = [piece.encode() for piece in pieces] + [bytes([b]) for b in range(0x80, 0x100)]
    texts = [b"".join(rng.choices(pieces, k=rng.randrange(9))) for _ in range(20000)]
    valid = "😀中é".encode()
    texts += [valid[start:end] for start in range(9) for end in range(start, 10)]
    model = tf.constant(normalization.build_normalizer_model(CASED))
    normalized = tensorflow_text.FastBertNormalizer(model_buffer=model).normalize(texts).numpy()
    dropped = dict.fromkeys(np.flatnonzero(normalization.code_points().dropped).tolist(), "")
    replaced = normalization.replacements(CASED) | dropped
    for text, new in zip(texts, normalized, strict=True):
        kept = text.decode("utf-8", "ignore")
        assert new.decode() == "".join(replaced.get(ord(c), c) for c in kept), text
