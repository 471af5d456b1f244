"""Samples: what is asked, recorded and refused."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.answering.signatures import Signature
from bert_tf.saved_models import replay
from bert_tf.saved_models.serving_files import (
    predict_request,
    predict_response,
    run_samples,
    write_samples,
)

STRINGS = {"text": tf.TensorSpec([None], tf.string)}


def signature(function, *requests, inputs=STRINGS):
    return Signature(function, inputs, requests, "It does.")


def lengths(text):
    """Two outputs, so that their names are kept."""
    length = tf.strings.length(text)
    return {"length": length, "third": tf.cast(length, tf.float32) / 3.0}


@pytest.fixture
def asked():
    found = signature(lengths, {"text": ["a", b"\xff", "ä"]}, {"text": []})
    return run_samples("serving_default", lengths, found.inputs, found.samples)


def test_text_is_utf8_and_other_bytes_are_base64(asked):
    first, empty = asked
    assert first.inputs["text"].tolist() == [b"a", b"\xff", "ä".encode()]
    assert first.rest_request() == {
        "signature_name": "serving_default",
        "inputs": {"text": ["a", {"b64": "/w=="}, "ä"]},
    }
    assert first.rest_request(rows=1)["inputs"] == {"text": ["a"]}
    assert empty.rest_request()["inputs"] == {"text": []}
    assert (first.batch_size, empty.batch_size) == (3, 0)


def test_a_float_has_the_digits_that_it_needs(asked):
    assert asked[0].rest_response() == {
        "outputs": {"length": [1, 1, 2], "third": [0.33333334, 0.33333334, 0.6666667]}
    }
    # Read back, it is the same float32.
    exact = np.float32(1) / np.float32(3)
    assert np.float32(json.loads(json.dumps(replay.to_json(np.array([exact]))))[0]) == exact
    assert replay.to_json(np.array([1e-30, -2.5, 0], np.float32)) == [1e-30, -2.5, 0.0]


def test_flags_and_ids_of_any_rank_and_the_name_of_an_only_output_is_left_out():
    def is_even(ids):
        return {"even": ids % 2 == 0}

    inputs = {"ids": tf.TensorSpec([None, None], tf.int32)}
    found = signature(is_even, {"ids": [[1, 2], [4, 3]]}, {"ids": []}, inputs=inputs)
    first, empty = run_samples("s", is_even, found.inputs, found.samples)
    assert first.inputs["ids"].dtype == np.int32
    assert first.rest_response() == {"outputs": [[False, True], [True, False]]}
    assert empty.inputs["ids"].shape == (0, 0) and empty.rest_response() == {"outputs": []}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_answer_that_is_no_number(value):
    def answer(text):
        return {"score": tf.fill([tf.size(text)], value)}

    sentence = (
        r"Output score of the signature embed is not finite \(sample 0\)\. The weights are "
        "damaged, or training diverged"
    )
    with pytest.raises(ValueError, match=sentence):
        run_samples("embed", answer, STRINGS, [{"text": ["a"]}])


def test_what_is_written_is_what_a_client_sends_and_gets(asked, tmp_path):
    folder = tmp_path / "1" / "assets.extra" / "samples"
    write_samples(str(folder), asked, "mine")
    first, names = asked[0], ("mine", "serving_default")
    assert json.loads((folder / "serving_default.0.json").read_text()) == {
        "signature_name": "serving_default",
        "request": first.rest_request(),
        "response": first.rest_response(),
    }
    for kind, message, tensors in (
        ("request", predict_request, first.inputs),
        ("response", predict_response, first.outputs),
    ):
        written = (folder / f"serving_default.0.{kind}.pb").read_bytes()
        assert written == message(*names, tensors)
    # Who verifies an export reads them.
    read = replay.read_samples(str(tmp_path / "1"))
    files = ["serving_default.0.json", "serving_default.1.json"]
    assert [(one.file, one.signature) for one in read] == [(file, names[1]) for file in files]
    # To the digits that tell a float32 from its neighbours.
    largest, problems = replay.compare(read[0].outputs, first.outputs, 1e-7)
    assert (largest < 1e-7, problems) == (True, [])
