"""Limits of requests to exports, and their errors."""

import re

import pytest
import tensorflow as tf

from bert_tf.answering import signatures
from bert_tf.modeling import BertClassifier, BertMultipleChoice, BertPretrainer
from bert_tf.saved_models import ExportOptions, serving_files
from bert_tf.saved_models.serving_files import run_samples
from bert_tf.tasks.signatures import model_signatures

from .conftest import assert_same, make, serve

LIMITS = {"max_rows": 2, "max_bytes": 256}


def assert_rejected(signature, message, **inputs):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        signature.function(**{name: tf.constant(value) for name, value in inputs.items()})


@pytest.fixture(scope="module")
def classifier():
    return make(BertClassifier, num_classes=3)


def test_too_many_rows_or_bytes_raise_error(classifier):
    limited = model_signatures(serve(classifier, **LIMITS))
    text = limited["text"]
    assert_rejected(text, r"The request has 3 rows; expected at most 2\.", text=["a", "b", "c"])
    assert_rejected(text, r"A row has 257 bytes; expected at most 256\.", text=["a", "a" * 257])
    # The limit counts bytes, not characters.
    assert_rejected(text, r"A row has 258 bytes; expected at most 256", text=["ä" * 129])
    pair = {"text": ["a"], "text_pair": ["b" * 300]}
    assert_rejected(limited["pair"], r"A row has 300 bytes; expected at most 256", **pair)
    assert_rejected(
        limited["classify"], r"A row has 400 bytes; expected at most 256", inputs=[b"x" * 400]
    )
    ids = dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), [[1]] * 3)
    assert_rejected(limited["tokens"], r"The request has 3 rows; expected at most 2\.", **ids)
    request = {"text": tf.constant(["the cat", "a" * 256])}
    unlimited = model_signatures(serve(classifier))["text"]
    assert_same(text.function(**request), unlimited.function(**request))
    empty = text.function(text=tf.constant([], tf.string))
    assert empty["label"].shape == (0,)


def test_limit_applies_to_all_strings_of_a_row():
    choices = model_signatures(serve(make(BertMultipleChoice), **LIMITS))["serving_default"]
    row = {"context": ["a"], "choices": [["b" * 130, "c" * 130]]}
    assert_rejected(choices, r"A row has 260 bytes; expected at most 256\.", **row)


def test_samples_are_within_the_limits():
    limited = serve(make(BertPretrainer), max_rows=2, max_bytes=256)
    for name, signature in model_signatures(limited).items():
        samples = run_samples(name, signature.function, signature.inputs, signature.samples)
        assert samples and all(0 < sample.batch_size <= 2 for sample in samples)


def test_signatures_without_limits_are_unchanged(classifier):
    """The signatures have no further operations, and all samples are kept."""
    for signature in model_signatures(serve(classifier)).values():
        assert getattr(signature.function, "func", None) is not signatures._within_limits
    requests = ({"text": ["a", b"\xff"]}, {"ids": [[[1], [2]]], "words": [["a", ""]]})
    assert signatures.select_samples(ExportOptions(), requests) == requests
    assert serving_files.limits(ExportOptions()) == ""


def test_limits_in_the_model_card():
    assert serving_files.limits(ExportOptions(max_rows=32, max_bytes=20_000)).startswith(
        "Limits: 32 rows per request, 20,000 bytes of strings per row. Larger requests fail "
        "(INVALID_ARGUMENT)"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_rows": 0}, "max_rows=0: expected 1 or more"),
        ({"long_text": "tail"}, "long_text='tail': expected one of head, head_tail, windows"),
        ({"doc_stride": 0}, "doc_stride=0: expected 1 or more"),
        ({"max_bytes": 255}, "max_bytes=255: expected 256 or more"),
        ({"precision": "half"}, "precision='half': expected one of float32, bfloat16"),
        *(
            (
                {"allowed_batch_sizes": sizes},
                f"allowed_batch_sizes={sizes}: expected integers of 1 or more in ascending",
            )
            for sizes in ((8, 8), (0, 8))
        ),
        (
            {"allowed_batch_sizes": (8, 64), "max_rows": 32},
            "allowed_batch_sizes=(8, 64): expected batch sizes of at most max_rows=32",
        ),
    ],
)
def test_options_out_of_range_raise_error(options, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        ExportOptions(**options)
