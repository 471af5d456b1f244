"""Differences from float32, over all samples."""

import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertEncoder
from bert_tf.saved_models import comparison, lite
from bert_tf.saved_models.comparison import Difference, describe, differences
from bert_tf.saved_models.samples import Sample
from bert_tf.saved_models.served import Signature

from .conftest import make, serve

STRINGS = {"text": tf.TensorSpec([None], tf.string)}


def sizes(text):
    length = tf.cast(tf.strings.length(text), tf.float32)
    return {
        "length": length,
        "vector": tf.stack([length, tf.ones_like(length)], 1),
        "encoder_outputs_0": length,
        "label": text,
    }


def answered(name, number, length, vector):
    outputs = {
        "length": np.array(length, np.float32),
        "vector": np.array(vector, np.float32),
        "encoder_outputs_0": np.zeros(len(length), np.float32),
        "label": np.array([b""] * len(length), object),
    }
    return Sample(name, number, {}, outputs)


def test_over_all_samples_and_once_for_each_signature(monkeypatch):
    signature = Signature(sizes, STRINGS, ({"text": ["a", "aaa"]}, {"text": ["aa"]}), "")
    names = {"serving_default": signature, "text": signature}
    monkeypatch.setattr(comparison, "model_signatures", lambda _: names)
    samples = [
        answered("serving_default", 0, [1.5, 3], [[1, 1], [3, 1]]),
        answered("serving_default", 1, [2.25], [[2, -1]]),
        # Of no account, as it is the same signature's.
        answered("text", 0, [9, 9], [[9, 9], [9, 9]]),
        answered("text", 1, [9], [[9, 9]]),
    ]
    found = comparison.compare_signatures(types.SimpleNamespace(), samples)
    assert found.keys() == {"serving_default"}
    # Floats alone, and of the blocks' states none.
    assert found["serving_default"].keys() == {"length", "vector"}
    assert found["serving_default"]["length"] == Difference(0.5, (0.25 + 0.25) / 2, None)
    vector = found["serving_default"]["vector"]
    assert (vector.largest, vector.mean) == (2.0, 0.5)
    assert vector.cosine == pytest.approx(3 / 5)


def test_in_words():
    assert describe(Difference(1.0, 0.5, None)) == "at most 1, 0.5 on average"
    # Never more than it is.
    assert describe(Difference(1.0, 0.5, 0.9999999)).endswith("cosines of 0.99999 and more")


@pytest.mark.slow
def test_a_file_for_tf_lite(tmp_path):
    served = serve(make(BertEncoder))
    path = str(tmp_path / "tokens.tflite")
    lite.write_tokens(served, path)
    found = comparison.compare_tflite(served, path)
    assert found.keys() == {"default", "sequence_output", "pooled_output"}
    assert max(difference.largest for difference in found.values()) < 1e-4
    # int8 would round nothing here: TF Lite leaves matrices of under 1,024 numbers as they are.
    rounded = str(tmp_path / "float16.tflite")
    lite.write_tokens(served, rounded, "float16")
    assert 1e-5 < comparison.compare_tflite(served, rounded)["sequence_output"].largest < 1e-1


def test_differences():
    reference = {
        "vectors": np.float32([[3, 4], [0, 0], [1, 0]]),
        "score": tf.constant([0.5, 0.25]),
        "scores": np.float32([[0.5], [0.5]]),
        "none": np.zeros((0, 4), np.float32),
        "counts": np.int32([1, 2]),
        "entities": np.zeros((1, 2), np.float32),
    }
    outputs = {
        **reference,
        "vectors": np.float32([[4, 3], [0, 0], [1, 0]]),
        "score": tf.constant([0.5, 0.75]),
        "scores": np.float32([[0.5], [0.25]]),
        "counts": np.int32([2, 2]),
        "entities": np.zeros((1, 3), np.float32),
    }
    assert differences(reference, outputs) == {
        "vectors": Difference(1.0, pytest.approx(1 / 3), pytest.approx(24 / 25)),
        "score": Difference(0.5, 0.25, None),
        "scores": Difference(0.25, 0.125, None),
    }
