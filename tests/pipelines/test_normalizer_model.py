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
    build_normalizer_model,
    code_points,
    doubtful_code_points,
    replacements,
)

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
    """What is made with them, the tokenizer's tests compare with the definition."""
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


def make_normalizer(do_lower_case):
    model = tf.constant(build_normalizer_model(do_lower_case))
    return tensorflow_text.FastBertNormalizer(model_buffer=model)


def test_doubtful_are_the_sigma_and_the_marks_that_move():
    codes = np.flatnonzero(doubtful_code_points(code_points())).tolist()
    assert codes[:6] == [0x3A3, 0x1715, 0x1734, 0x1B44, 0x1BAA, 0x1BF2]
    assert 0x1D15E in codes  # a note whose stem moves
    assert len(codes) == 39
    assert all(new != f" {DOUBTFUL} " for new in replacements(do_lower_case=False).values())


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
