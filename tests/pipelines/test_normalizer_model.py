import random

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

from bert_tf.pipelines.normalizer_model import (
    DOUBTFUL,
    build_normalizer_model,
    doubtful_code_points,
    replacements,
)
from bert_tf.pipelines.unicode_tables import code_points
from tests.pipelines import wordpiece_definition as definition

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
