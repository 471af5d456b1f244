"""Requests to the signatures of exports: texts of any bytes, ids and shapes of any kind."""

import functools
import os
from random import Random
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.saved_models import replay
from tests.saved_models.head_exports import export_head

HEADS = ("encoder", "pretrainer", "classifier", "token_classifier", "span_predictor",
         "multiple_choice")  # fmt: skip
_WORDS = ("the", "cat", "sat", "[MASK]", "[mask]", "[CLS]", "[PAD]", "unables", "é", "e\u0301",
          "中文",
          "\u200b", "\ufeff", ".", "\x00", "\x1b[31m", "\u202e", "\U0001f600", "  ", "\t\n", "ＡＢ",
          "İ", "ß", "\ufffd", "\u2028", "[", "]", "a" * 300)  # fmt: skip


def export(head: str, folder: str) -> None:
    """Writes a head's export."""
    export_head(head, os.path.join(folder, head))


@functools.cache
def _signatures(path: str) -> Any:
    replay.load_text_operations()
    return tf.saved_model.load(path).signatures


def answer(path: str, rng: Random) -> Any:
    """Asks one signature of an export a random request.

    Returns:
        Nothing worth comparing: an answer is right when it is dense, finite and of the request's
        number of rows.

    Raises:
        AssertionError: the answer is not well-formed.
        tf.errors.OpError: the request was refused.
    """
    signatures = _signatures(path)
    name = rng.choice(sorted(signatures))
    specs = signatures[name].structured_input_signature[1]
    rows = rng.choice((0, 1, 1, 2, 3, 7, 64))
    unlike = rng.random() < 0.1  # the inputs have different numbers of rows
    ids_are_good = rng.random() < 0.5
    width = rng.choice((0, 1, 2, 5, 16, 17, 24, 25, 200))
    inputs = {
        key: _column(rng, spec, rows + unlike * rng.randrange(3), width, ids_are_good)
        for key, spec in specs.items()
    }
    outputs = signatures[name](**inputs)
    if unlike:
        return None
    for key, value in outputs.items():
        array = value.numpy()
        if array.shape[0] != rows:
            raise AssertionError(f"{name}, {key}: {array.shape} for {rows} rows")
        if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
            raise AssertionError(f"{name}, {key}: a number is not finite")
    return None


def _column(rng: Random, spec: Any, rows: int, width: int, ids_are_good: bool) -> tf.Tensor:
    shape = [rows, *(width if size is None else size for size in spec.shape[1:])]
    count = int(np.prod(shape))
    if spec.dtype == tf.string:
        budget = rng.choice((20, 200, 2000, 100_000)) if count < 100 else 20
        texts = [_text(rng, budget) for _ in range(count)]
        return tf.constant(np.array(texts, object).reshape(shape), tf.string)
    if ids_are_good:
        return tf.constant(
            np.array([rng.randrange(2) for _ in range(count)], "int32").reshape(shape)
        )
    numbers = (0, 1, 2, 4, 20, 24, 25, 1000, -1, 2**31 - 1, -(2**31))
    return tf.constant(
        np.array([rng.choice(numbers) for _ in range(count)], "int32").reshape(shape)
    )


def _text(rng: Random, budget: int) -> bytes:
    kind = rng.randrange(8)
    length = rng.randrange(budget)
    if kind == 0:
        return b""
    if kind == 1:
        return rng.randbytes(min(length, 5000))
    if kind == 2:
        return "".join(chr(rng.choice((rng.randrange(0xD800), rng.randrange(0xE000, 0x110000))))
                       for _ in range(min(length, 2000))).encode()  # fmt: skip
    if kind == 3:
        return b"a" * length
    if kind == 4:
        return b"[MASK] " * (min(length, 20_000) // 7)
    words = " ".join(rng.choice(_WORDS) for _ in range(min(length // 5 + 1, 500))).encode()
    if kind == 5:
        place = rng.randrange(len(words))
        return (
            words[:place] + rng.choice((b"\xff", b"\xe4", b"\xed\xa0\x80", b"\xf8")) + words[place:]
        )
    return words
