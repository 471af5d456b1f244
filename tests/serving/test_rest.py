"""Clients cannot tell the server from TensorFlow Serving: requests, and Serving's replies.

A row's source is Serving's documentation (https://www.tensorflow.org/tfx/serving/api_rest) or, by
the file's name, its source or its tests: what it replied to such a request.
"""

import json
import os

import numpy as np
import pytest

from bert_tf.serving.batching import Batcher
from bert_tf.serving.server import Bounds, Door

from .asgi import ask

MODEL = "/v1/models/half"
PREDICT = f"{MODEL}:predict"
OK = {"error_code": "OK", "error_message": ""}
STATUS = {"model_version_status": [{"version": "123", "state": "AVAILABLE", "status": OK}]}
FAILED = "Failed to process element: "
LIST = " of 'instances' list. Error: INVALID_ARGUMENT: "


@pytest.fixture(scope="module")
def app(half_model):
    batcher = Batcher(half_model.run, half_model.signatures, largest=64, workers=1)
    yield Door("half", half_model, batcher, Bounds(8, 10_000, 4)).app()
    batcher.close()


ANSWERS = [
    # http_rest_api_handler_test.cc: GetStatus, Predict.
    ("GET", MODEL, b"", STATUS),
    ("GET", f"{MODEL}/versions/123", b"", STATUS),
    (
        *("POST", PREDICT, {"instances": [[1.0, 2.0], [3.0, 4.0]]}),
        {"predictions": [[2.5, 3.0], [3.5, 4.0]]},
    ),
    ("POST", f"{MODEL}/versions/123:predict", {"instances": [1, 2]}, {"predictions": [2.5, 3.0]}),
    (
        *("POST", PREDICT, {"signature_name": "serving_default", "inputs": [3.0, 4.0]}),
        {"outputs": [3.5, 4.0]},
    ),
    # json_tensor.cc: one input may be named, an empty name is the default, a scalar has no list.
    ("POST", PREDICT, {"inputs": {"x": [2]}, "signature_name": ""}, {"outputs": [3.0]}),
    ("POST", PREDICT, {"inputs": 4}, {"outputs": 4.0}),
    ("POST", PREDICT, {"instances": [{"x": 1}]}, {"predictions": [2.5]}),
    # api_rest: several inputs by rows and by columns, bytes in base64, outputs named so.
    (
        *("POST", PREDICT),
        {
            "signature_name": "two",
            "instances": [{"text": "né", "ids": [1, 2]}, {"text": {"b64": "YQ=="}, "ids": [3, 4]}],
        },
        {
            "predictions": [
                {"text": "né", "sum": 3, "raw_bytes": {"b64": "bsOp"}},
                {"text": "a", "sum": 7, "raw_bytes": {"b64": "YQ=="}},
            ]
        },
    ),
    (
        *("POST", PREDICT),
        {"signature_name": "two", "inputs": {"text": ["x"], "ids": [[1, 2]], "more": 1}},
        {"outputs": {"text": ["x"], "sum": [3], "raw_bytes": [{"b64": "eA=="}]}},
    ),
    # api_rest, on JSON conformance: tokens that JSON has not.
    ("POST", PREDICT, b'{"instances": [Infinity]}', {"predictions": [float("inf")]}),
    # http_rest_api_handler_test.cc: Regress, Classify; api_rest: a context that all examples have.
    (
        *("POST", f"{MODEL}:regress"),
        {"signature_name": "regress", "examples": [{"x": 80.0}, {"x": [2.0]}]},
        {"results": [42.0, 3.0]},
    ),
    (
        *("POST", f"{MODEL}/versions/123:classify"),
        {"signature_name": "classify", "context": {"x": 20.0}, "examples": [{}, {"x": 10.0}]},
        {"results": [[["", 12.0]], [["", 7.0]]]},
    ),
    # http_rest_api_util.cc: addresses have no case.
    ("POST", "/V1/Models/half:predict", {"inputs": [0]}, {"outputs": [2.0]}),
]


@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: str(row[1:3])[:70])
def test_answers_are_servings(app, row):
    method, path, body, expected = row
    reply = ask(app, method, path, body)
    assert (reply.status, reply.json) == (200, expected)


REFUSALS = [
    # http_rest_api_handler.cc, and its test: UnsupportedApiCalls.
    ("GET", "/v1/foo", b"", 400, "Malformed request: GET /v1/foo"),
    ("POST", "/v1/foo", b"", 400, "Malformed request: POST /v1/foo"),
    ("PUT", MODEL, b"", 400, f"Malformed request: PUT {MODEL}"),
    ("GET", PREDICT, b"", 400, f"Malformed request: GET {PREDICT}"),
    ("POST", f"{MODEL}/versions/a:predict", b"", 400, f"Malformed request: POST {MODEL}/versions"),
    ("GET", "/v1/models", b"", 400, "Missing model name in request."),
    (
        *("POST", f"{MODEL}/versions/18446744073709551615:predict", b"", 400),
        "Failed to convert version: 18446744073709551615 to numeric.",
    ),
    # api_rest, at its end; loader_harness's names of requests; get_model_status_impl.cc.
    ("POST", "/v1/models/a:predict", b"{}", 404, "Servable not found for request: Latest(a)"),
    (
        *("POST", f"{MODEL}/versions/7:predict", b"{}", 404),
        "Servable not found for request: Specific(half, 7)",
    ),
    ("GET", f"{MODEL}/versions/7/metadata", b"", 404, "Servable not found for request: Specific("),
    ("GET", "/v1/models/a", b"", 404, "Could not find any versions of model a"),
    ("GET", f"{MODEL}/versions/7", b"", 404, "Could not find version 7 of model half"),
    # server_core.cc
    ("GET", f"{MODEL}/labels/new", b"", 400, "Unrecognized servable version label: new"),
    # http_rest_api_handler_test.cc: PredictRequestErrors.
    ("POST", PREDICT, b"", 400, "JSON Parse error: The document is empty"),
    ("POST", PREDICT, b"instances = [1, 2]", 400, "JSON Parse error: "),
    ("POST", PREDICT, b'{"inputs": ' + b"[" * 5000, 400, "JSON Parse error: "),
    ("POST", PREDICT, b'{"inputs": 1' + b"0" * 5000 + b"}", 400, "JSON Parse error: "),
    (
        *("POST", PREDICT, {"instances": ["x"]}, 400),
        f'{FAILED}0{LIST}JSON Value: "x" Type: String is not of expected type: float',
    ),
    (
        *("POST", PREDICT, {"signature_name": 100}, 400),
        "'signature_name' key must be a string value.",
    ),
    (
        *("POST", PREDICT, {"signature_name": "a", "inputs": 1}, 400),
        'Serving signature name: "a" not found in signature def',
    ),
    # json_tensor.cc
    ("POST", PREDICT, [1], 400, "Is not object"),
    ("POST", PREDICT, {}, 400, "Missing 'inputs' or 'instances' key"),
    ("POST", PREDICT, {"inputs": 1, "instances": [1]}, 400, "only one of 'inputs' or 'instances'"),
    ("POST", PREDICT, {"instances": 1}, 400, "Excepting 'instances' to be an list/array"),
    ("POST", PREDICT, {"instances": []}, 400, "No values in 'instances' array"),
    (
        "POST",
        PREDICT,
        {"instances": [1, [2]]},
        400,
        f"{FAILED}1{LIST}Expecting shape [] but got: [1",
    ),
    ("POST", PREDICT, {"instances": [[1], []]}, 400, "Expecting tensor size: 1 but got: 0"),
    (
        "POST",
        PREDICT,
        {"instances": [1, {"x": 2}]},
        400,
        "Expecting value/list but got object at it",
    ),
    ("POST", PREDICT, {"instances": [{"x": 2}, 1]}, 400, "Expecting object but got list at item 1"),
    (
        *("POST", PREDICT, {"instances": [{"z": 2}]}, 400),
        f"{FAILED}0 key: z{LIST}JSON object: does not have named input: z",
    ),
    ("POST", PREDICT, {"instances": [{}]}, 400, "keys must be equal to: x"),
    ("POST", PREDICT, {"inputs": {"y": 1}}, 400, "Missing named input: x in 'inputs' object."),
    ("POST", PREDICT, {"inputs": [[1], 2]}, 400, "JSON Value: 2 found at incorrect level: 2 in"),
    (
        "POST",
        PREDICT,
        {"inputs": [1, [2]]},
        400,
        "Encountered list at unexpected level: 1 expected",
    ),
    (
        "POST",
        PREDICT,
        {"inputs": [[1], []]},
        400,
        "unexpected size: 0 at level: 1 expected size: 1",
    ),
    ("POST", PREDICT, {"inputs": [True]}, 400, "Type: True is not of expected type: float"),
    ("POST", PREDICT, {"inputs": [None]}, 400, "JSON Value: null Type: Null is not of expected"),
    ("POST", PREDICT, {"inputs": [1 << 24]}, 400, "Cannot convert JSON value: 16777216 to float w"),
    ("POST", PREDICT, {"inputs": [1e39]}, 400, "to float without loss of precision."),
    (
        *("POST", PREDICT, {"signature_name": "two", "instances": ["a"]}, 400),
        "instances is a plain list, but expecting list of objects as multiple input tensors requir",
    ),
    (
        *("POST", PREDICT, {"signature_name": "two", "inputs": ["a"]}, 400),
        "inputs is a plain value/list, but expecting an object as multiple input tensors required",
    ),
    (
        "POST",
        PREDICT,
        {"signature_name": "odd", "instances": [True, False]},
        400,
        "inconsistent ba",
    ),
]
TEXTS = [
    # json_tensor.cc
    ("text", [{"b64": "?"}], "Unable to base64 decode"),
    ("text", [{"b63": "YQ=="}], "not formatted correctly for base64 data"),
    ("text", ["\ud800"], "JSON Parse error: The surrogate pair in string is invalid."),
    ("ids", [[1, 2**31]], "JSON Value: 2147483648 Type: Number is not of expected type: int32"),
    ("ids", [[1.0, 2]], "JSON Value: 1.0 Type: Number is not of expected type: int32"),
    # The graph's own: Serving has the same of the model.
    ("ids", [[1, -1]], "No: -1."),
    # This server's sentences, where Serving has one of the graph's nodes.
    ("text", [["a"]], "Expected text of shape [-1], -1 for any size, and got [1,1]."),
    ("ids", [[1]], "Expected ids of shape [-1,2], -1 for any size, and got [1,1]."),
    ("text", ["a"] * 9, "The request has 9 rows, and the most is 8."),
]
REFUSALS += [
    (
        *("POST", PREDICT),
        {"signature_name": "two", "inputs": {"text": ["a"], "ids": [[1, 2]], name: value}},
        *(400, sentence),
    )
    for name, value, sentence in TEXTS
]


EXAMPLES = [
    # json_tensor.cc, classifier.cc
    ({}, "key 'examples' is expected and was not found"),
    ({"examples": {}}, "Expecting 'examples' value to be an list/array"),
    ({"examples": []}, "'examples' value is an empty array"),
    ({"examples": [1]}, "Example must be JSON object but got JSON Number"),
    ({"examples": [{"x": None}]}, "Feature: x has element with unexpected JSON type: Null"),
    ({"examples": [{"x": [[1]]}]}, "Feature: x has element with unexpected JSON type: Array"),
    ({"examples": [{"x": [1, 1.5]}]}, "Unexpected element type in feature: x"),
    ({"examples": [{"x": 1e39}]}, "to float without loss of precision."),
    ({"examples": [{"x": 1}]}, "x"),  # of another type than the graph reads: its own sentence
    ({"signature_name": "a", "examples": [{}]}, "No signature was found with the name: a"),
    # This server's: Serving names a method, which tf.saved_model.save does not write.
    ({"signature_name": "two", "examples": [{}]}, "The signature two is not for :regress: name"),
]
REFUSALS += [
    ("POST", f"{MODEL}:regress", {"signature_name": "regress", **body}, 400, sentence)
    for body, sentence in EXAMPLES
]


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: f"{row[1][-9:]} {row[4][:60]}")
def test_refusals_are_servings(app, row):
    method, path, body, status, sentence = row
    reply = ask(app, method, path, body)
    assert (reply.status, [*reply.json]) == (status, ["error"])
    assert sentence in reply.json["error"] and len(reply.json["error"]) < 800


def test_numbers_that_json_has_not_are_words(app):
    reply = ask(app, "POST", PREDICT, {"signature_name": "odd", "inputs": [True, False]})
    assert b'"number": [NaN, -Infinity]' in reply.body


def test_metadata_are_the_signatures_as_serving_prints_them(app):
    reply = ask(app, "GET", f"{MODEL}/metadata").json
    assert reply["model_spec"] == {"name": "half", "signature_name": "", "version": "123"}
    # Of saved_model_half_plus_two's, as http_rest_api_handler_test.cc's GetModelMetadata has it.
    definition = reply["metadata"]["signature_def"]["signature_def"]["two"]
    assert definition["method_name"] == "tensorflow/serving/predict"
    described = definition["inputs"]["ids"]
    assert described.pop("name").endswith("two_ids:0")
    assert described == {
        "dtype": "DT_INT32",
        "tensor_shape": {
            "dim": [{"size": "-1", "name": ""}, {"size": "2", "name": ""}],
            "unknown_rank": False,
        },
    }


def test_recorded_samples_are_answered_as_recorded(tmp_path_factory):
    """The bodies that an export gives to clients of TensorFlow Serving."""
    from bert_tf.serving import model as served
    from tests.saved_models.head_exports import exported

    directory = exported("classifier", tmp_path_factory)
    loaded = served.load(directory)
    batcher = Batcher(loaded.run, loaded.signatures, largest=64, workers=1)
    app = Door("bert", loaded, batcher, Bounds(100, 1 << 20, 4)).app()
    folder = os.path.join(directory, "assets.extra", "samples")
    names = sorted(name for name in os.listdir(folder) if name.endswith("json"))
    for name in names:
        with open(os.path.join(folder, name)) as file:
            sample = json.load(file)
        reply = ask(app, "POST", "/v1/models/bert:predict", sample["request"])
        assert reply.status == 200 and reply.json.keys() == sample["response"].keys(), name
        outputs = reply.json["outputs"], sample["response"]["outputs"]
        compare(*(each if isinstance(each, dict) else {"": each} for each in outputs))
    assert len(names) > 5
    batcher.close()


def compare(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if np.array(value).dtype.kind == "f":
            np.testing.assert_allclose(found[key], value, atol=1e-6)
        else:
            assert found[key] == value
