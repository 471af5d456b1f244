import random
import unicodedata
import zlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

from bert_tf.pipelines.normalizer_model import (
    ASSIGNED_AFTER_14,
    DOUBTFUL,
    IDEOGRAPHS,
    NUM_CODE_POINTS,
    build_normalizer_model,
    code_points,
    doubtful_code_points,
    replacements,
)
from tests.pipelines import wordpiece_definition as definition

ARRAYS = (
    "dropped",
    "space",
    "ideograph",
    "punctuation",
    "nonspacing",
    "combining_class",
    "cased",
    "case_ignorable",
)


def test_tables_are_the_same_on_every_python():
    table = code_points()
    checksum = 0
    for name in ARRAYS:
        checksum = zlib.crc32(getattr(table, name).tobytes(), checksum)
    checksum = zlib.crc32(repr(sorted(table.lowered.items())).encode(), checksum)
    assert checksum == 3170370014


@pytest.mark.skipif(
    unicodedata.unidata_version != "14.0.0", reason="Unicode 14 is missing, which Python 3.11 has"
)
def test_ranges_that_came_later_are_unassigned_in_unicode_14():
    for first, last in ASSIGNED_AFTER_14:
        assert {unicodedata.category(chr(code)) for code in range(first, last + 1)} == {"Cn"}


def test_tables_agree_with_the_definition():
    table = code_points()
    for code in definition.TYPICAL_CODE_POINTS:
        character = chr(code)
        cleaned = definition.clean(character)
        assert table.dropped[code] == (not cleaned), hex(code)
        assert table.space[code] == (not cleaned.strip() and bool(cleaned)), hex(code)
        assert table.punctuation[code] == definition.is_punctuation(character), hex(code)
        assert table.ideograph[code] == definition.is_ideograph(character), hex(code)
        assert table.nonspacing[code] == (definition.category(character) == "Mn"), hex(code)


def test_nothing_is_assigned_where_the_tables_do_not_look():
    elsewhere = (*range(0x40000, 0xE0000), *range(0xE1000, NUM_CODE_POINTS))
    assert {unicodedata.category(chr(code)) for code in elsewhere} == {"Cn", "Co"}


def test_lowering_keeps_ideographs_and_only_them_ideographs():
    # normalization.WordSplitter decides after lowering what Google decides before.
    table = code_points()
    changed = {
        code: normal
        for code, normal in table.lowered.items()
        if any(table.ideograph[ord(character)] != table.ideograph[code] for character in normal)
    }
    assert not changed
    assert all(table.ideograph[first] and table.ideograph[last] for first, last in IDEOGRAPHS)


def test_lowering_makes_no_spaces_and_nothing_that_is_dropped_or_lowers_again():
    table = code_points()
    for code, normal in table.lowered.items():
        codes = [ord(character) for character in normal]
        assert table.space[code] or not np.any(table.space[codes]), hex(code)
        assert not np.any(table.dropped[codes]), hex(code)
        assert not any(later in table.lowered for later in codes), hex(code)


def test_context_properties_of_known_characters():
    table = code_points()
    assert table.cased[[ord(c) for c in "aZσß"]].all()
    assert not table.cased[[ord(c) for c in "1 !中ا"]].any()
    assert table.case_ignorable[[ord(c) for c in "':.^\u0301\u00ad"]].all()
    assert not table.case_ignorable[[ord(c) for c in "a1 -!"]].any()


# With some private characters, which nothing may change.
CODES = [*definition.TYPICAL_CODE_POINTS, *range(0x10FF00, 0x110000)]


def make_normalizer(do_lower_case):
    model = tf.constant(build_normalizer_model(do_lower_case))
    return tensorflow_text.FastBertNormalizer(model_buffer=model)


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_op_replaces_every_code_point_as_the_model_says(do_lower_case):
    replaced = replacements(do_lower_case)
    texts = [f"a{chr(code)}b" for code in CODES]
    normalized = make_normalizer(do_lower_case).normalize(texts).numpy()
    expected = [f"a{replaced.get(code, chr(code))}b".encode() for code in CODES]
    assert normalized.tolist() == expected


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_replacements_are_the_definitions(do_lower_case):
    replaced = replacements(do_lower_case)
    doubtful = doubtful_code_points(code_points())
    for code in CODES:
        character = chr(code)
        new = replaced.get(code, character)
        if do_lower_case and doubtful[code]:
            assert new == f" {DOUBTFUL} "
        elif definition.is_assigned(character):
            words = definition.split_into_words(character, do_lower_case)
            assert "".join(new.split()) == "".join(words), hex(code)
            # The op behind this one splits at ideographs and at ASCII punctuation.
            beyond = [c for c in new if definition.is_punctuation(c) and not c.isascii()]
            assert all(f" {c} " in new for c in beyond), hex(code)


def test_doubtful_are_the_sigma_and_the_marks_that_move():
    codes = np.flatnonzero(doubtful_code_points(code_points())).tolist()
    assert codes[:6] == [0x3A3, 0x1715, 0x1734, 0x1B44, 0x1BAA, 0x1BF2]
    assert 0x1D15E in codes  # a note whose stem moves
    assert len(codes) == 39
    assert all(new != f" {DOUBTFUL} " for new in replacements(do_lower_case=False).values())


def test_offsets_point_to_the_first_byte_of_the_source():
    normalized, offsets = make_normalizer(True).normalize_with_offsets(["É\x00–b"])
    assert normalized.numpy().tolist() == ["e – b".encode()]
    assert offsets.to_list() == [[0, 3, 3, 3, 3, 3, 6, 7]]


def test_ill_formed_bytes_are_removed():
    rng = random.Random(7)
    pieces = ["a", "é", "中", "😀"]
    pieces = [piece.encode() for piece in pieces] + [bytes([b]) for b in range(0x80, 0x100)]
    texts = [b"".join(rng.choices(pieces, k=rng.randrange(9))) for _ in range(20000)]
    whole = "😀中é".encode()
    texts += [whole[start:end] for start in range(9) for end in range(start, 10)]
    normalized = make_normalizer(False).normalize(texts).numpy()
    replaced = replacements(do_lower_case=False)
    for text, new in zip(texts, normalized, strict=True):
        kept = text.decode("utf-8", "ignore")
        assert new.decode() == "".join(replaced.get(ord(c), c) for c in kept), text
