"""Files for TensorFlow Serving next to the SavedModel, and samples for clients."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.answering.export_options import ExportOptions
from bert_tf.answering.signatures import Signature
from bert_tf.io.untrusted import check_model_name
from bert_tf.saved_models import replay, serving_files
from bert_tf.saved_models.serving_files import Sample, run_samples

TEXT = {"text": tf.TensorSpec([None], tf.string)}
IDS = dict.fromkeys(("input_word_ids", "input_mask"), tf.TensorSpec([None, None], tf.int32))


def sample(signature, rows, number=0):
    return Sample(signature, number, {"text": np.array([b"a"] * rows, object)}, {})


def signature(inputs):
    return Signature(lambda: {}, inputs, (), "It does.")


def settings(text):
    """Returns the lines of a file without comments."""
    return [line for line in re.sub("#.*", "", text).splitlines() if line.strip()]


def test_warm_up_has_one_valid_request_per_signature(tmp_path):
    path = str(tmp_path / "warm_up")
    valid = [sample("serving_default", 2), sample("embed", 1)]
    rejected = [sample("embed", 0), sample("embed", 65)]
    second = [sample("embed", 1, number=1)]
    serving_files.write_warm_up(path, [*valid, *rejected, *second], "mine", 64)
    assert [record.numpy() for record in tf.data.TFRecordDataset(path)] == [
        serving_files.prediction_log(
            serving_files.predict_request("mine", one.signature, one.inputs)
        )
        for one in valid
    ]


def test_batching_parameters_name_inputs_of_fixed_size():
    string_parameters = serving_files.batching_parameters(
        {"serving_default": signature(TEXT)}, ExportOptions()
    )
    expected = [
        "max_batch_size { value: 64 }",
        "batch_timeout_micros { value: 2000 }",
        "max_enqueued_batches { value: 100 }",
    ]
    assert settings(string_parameters) == expected
    assert string_parameters.endswith(
        "All inputs are one string per row, so any requests can share a batch.\n"
    )
    both = {"serving_default": signature(TEXT), "tokens": signature(IDS)}
    id_parameters = serving_files.batching_parameters(both, ExportOptions())
    assert settings(id_parameters) == expected
    assert (
        "the same size:\n# `input_word_ids` of `tokens`,\n# `input_mask` of `tokens`.\n"
        in id_parameters
    )


def test_batch_size_respects_max_rows():
    text = {"serving_default": signature(TEXT)}
    limited = serving_files.batching_parameters(text, ExportOptions(max_rows=24))
    assert settings(limited)[0] == "max_batch_size { value: 24 }"
    large_limit = ExportOptions(max_rows=500)
    assert settings(serving_files.batching_parameters(text, large_limit))[0].endswith(
        "{ value: 64 }"
    )
    padded = ExportOptions(max_rows=128, allowed_batch_sizes=(4, 32, 96))
    assert settings(serving_files.batching_parameters(text, padded))[:4] == [
        "max_batch_size { value: 96 }",
        *(f"allowed_batch_sizes: {size}" for size in (4, 32, 96)),
    ]


def test_server_config_contains_the_model_name():
    assert settings(serving_files.MODEL_CONFIG.format(name="mine")) == [
        "model_config_list {",
        "  config {",
        '    name: "mine"',
        '    base_path: "/models/mine"',
        '    model_platform: "tensorflow"',
        "  }",
        "}",
    ]


def test_invalid_model_names_raise_error():
    for name in ("", "my model", "a/b", 'a"', "ä", "..", ".a", "-a", "_a", "a" * 256, "a\n"):
        message = (
            r'name=.*: expected letters, digits, "\.", "_" and "-", starting with a letter or a '
            "digit, because the name is part of the URL"
        )
        with pytest.raises(ValueError, match=message):
            check_model_name(name)
    for good in ("bert", "sst2", "my_model-1.0"):
        check_model_name(good)


# === Messages ===

ONE_FLOAT = {"x": np.array([1.5], np.float32)}
# dtype 1, shape (1,), packed floats.
FLOAT_TENSOR = bytes.fromhex("0801 1204 1202 0801 2a04 0000c03f")
SPEC = b"\x0a\x01m\x1a\x01s"

TENSORS = {
    "text": np.array([b"a", b"", b"\xff"], object),
    "rows": np.array([[b"a", b"b"], [b"c", b""]], object),
    "ids": np.arange(300, dtype=np.int32).reshape(3, 100),
}


def test_exact_bytes_of_messages():
    entry = b"\x0a\x01x\x12\x0e" + FLOAT_TENSOR
    request = serving_files.predict_request("m", "s", ONE_FLOAT)
    assert request == b"\x0a\x06" + SPEC + b"\x12\x13" + entry
    response = serving_files.predict_response("m", "s", ONE_FLOAT)
    assert response == b"\x0a\x13" + entry + b"\x12\x06" + SPEC
    # Field 6 of PredictionLog, then field 1 of PredictLog; the lengths 300 and 303 have two bytes.
    request = b"r" * 300
    assert serving_files.prediction_log(request) == b"\x32\xaf\x02" + b"\x0a\xac\x02" + request


def test_messages_do_not_depend_on_input_order():
    reordered = dict(reversed(TENSORS.items()))
    assert list(reordered) != list(TENSORS)
    one = serving_files.predict_request("bert", "serving_default", TENSORS)
    assert one == serving_files.predict_request("bert", "serving_default", reordered)


# === Samples ===


def lengths(text):
    """Returns two outputs, because replies omit the name of a single one."""
    length = tf.strings.length(text)
    return {"length": length, "third": tf.cast(length, tf.float32) / 3.0}


@pytest.fixture
def samples():
    requests = ({"text": ["a", b"\xff", "ä"]}, {"text": []})
    return run_samples("serving_default", lengths, TEXT, requests)


def test_text_is_utf8_and_invalid_utf8_is_base64(samples):
    first, empty = samples
    assert first.inputs["text"].tolist() == [b"a", b"\xff", "ä".encode()]
    assert first.rest_request() == {
        "signature_name": "serving_default",
        "inputs": {"text": ["a", {"b64": "/w=="}, "ä"]},
    }
    assert first.rest_request(rows=1)["inputs"] == {"text": ["a"]}
    assert empty.rest_request()["inputs"] == {"text": []}
    assert (first.batch_size, empty.batch_size) == (3, 0)


def test_floats_have_the_necessary_digits(samples):
    assert samples[0].rest_response() == {
        "outputs": {"length": [1, 1, 2], "third": [0.33333334, 0.33333334, 0.6666667]}
    }
    # Parsing restores the same float32.
    exact = np.float32(1) / np.float32(3)
    assert np.float32(json.loads(json.dumps(replay.to_json(np.array([exact]))))[0]) == exact
    assert replay.to_json(np.array([1e-30, -2.5, 0], np.float32)) == [1e-30, -2.5, 0.0]


def test_boolean_and_integer_samples_with_a_single_output():
    def is_even(ids):
        return {"even": ids % 2 == 0}

    inputs = {"ids": tf.TensorSpec([None, None], tf.int32)}
    first, empty = run_samples("s", is_even, inputs, ({"ids": [[1, 2], [4, 3]]}, {"ids": []}))
    assert first.inputs["ids"].dtype == np.int32
    assert first.rest_response() == {"outputs": [[False, True], [True, False]]}
    assert empty.inputs["ids"].shape == (0, 0) and empty.rest_response() == {"outputs": []}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_answer_raises_error(value):
    def answer(text):
        return {"score": tf.fill([tf.size(text)], value)}

    message = (
        r"Output score of the signature embed is not finite \(sample 0\)\. The weights are "
        "damaged, or training diverged"
    )
    with pytest.raises(ValueError, match=message):
        run_samples("embed", answer, TEXT, [{"text": ["a"]}])


def test_written_samples_equal_requests_and_responses(samples, tmp_path):
    folder = tmp_path / "1" / "assets.extra" / "samples"
    serving_files.write_samples(str(folder), samples, "mine")
    first, names = samples[0], ("mine", "serving_default")
    assert json.loads((folder / "serving_default.0.json").read_text()) == {
        "signature_name": "serving_default",
        "request": first.rest_request(),
        "response": first.rest_response(),
    }
    for kind, message, tensors in (
        ("request", serving_files.predict_request, first.inputs),
        ("response", serving_files.predict_response, first.outputs),
    ):
        written = (folder / f"serving_default.0.{kind}.pb").read_bytes()
        assert written == message(*names, tensors)
    # ``verify`` reads the files.
    read = replay.read_samples(str(tmp_path / "1"))
    files = ["serving_default.0.json", "serving_default.1.json"]
    assert [(one.file, one.signature) for one in read] == [(file, names[1]) for file in files]
    # The written digits identify each float32.
    largest, problems = replay.compare(read[0].outputs, first.outputs, 1e-7)
    assert (largest < 1e-7, problems) == (True, [])
