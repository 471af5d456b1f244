"""Requests and replies are those of TensorFlow Serving's REST API.

The rows come from Serving's documentation (https://www.tensorflow.org/tfx/serving/api_rest) or from
the named files of its source code and tests. Where a message differs from Serving's, the status and
the structure of the body are the same.
"""

import contextlib
import json
import os

import numpy as np
import pytest

from bert_tf.saved_models import replay
from bert_tf.serving import model as models
from bert_tf.serving import rest
from bert_tf.serving.server import Application, Batcher, Limits
from tests.saved_models.head_exports import exported

from .conftest import ask

MODEL = "/v1/models/half"
PREDICT = f"{MODEL}:predict"
OK = {"error_code": "OK", "error_message": ""}
STATUS = {"model_version_status": [{"version": "123", "state": "AVAILABLE", "status": OK}]}


@contextlib.contextmanager
def served(model, name, bounds):
    """Yields an application that serves a model."""
    run, signatures = model.run, model.signatures
    batcher = Batcher(run, signatures, largest=64, workers=1, max_seconds=60)
    application = Application(name, bounds)
    application.open(model, batcher)
    yield application
    batcher.close(60)


@pytest.fixture(scope="module")
def app(half_model):
    with served(half_model, "half", Limits(8, 10_000, 4, 60)) as application:
        yield application


def two(**request):
    return {"signature_name": "two", **request}


POSTED = [
    # http_rest_api_handler_test.cc: Predict.
    ({"instances": [[1.0, 2.0], [3.0, 4.0]]}, {"predictions": [[2.5, 3.0], [3.5, 4.0]]}),
    ({"signature_name": "serving_default", "inputs": [3.0, 4.0]}, {"outputs": [3.5, 4.0]}),
    # json_tensor.cc: one input may be named, an empty name is the default, a scalar has no list.
    ({"inputs": {"x": [2]}, "signature_name": ""}, {"outputs": [3.0]}),
    ({"inputs": 4}, {"outputs": 4.0}),
    ({"instances": [{"x": 1}]}, {"predictions": [2.5]}),
    ({"inputs": [[], []]}, {"outputs": [[], []]}),
    # api_rest: several inputs by rows and by columns, base64 bytes, outputs with suffix _bytes.
    (
        two(instances=[{"text": "né", "ids": [1, 2]}, {"text": {"b64": "YQ=="}, "ids": [3, 4]}]),
        {
            "predictions": [
                {"text": "né", "sum": 3, "raw_bytes": {"b64": "bsOp"}},
                {"text": "a", "sum": 7, "raw_bytes": {"b64": "YQ=="}},
            ]
        },
    ),
    (
        two(inputs={"text": ["x"], "ids": [[1, 2]], "more": 1}),
        {"outputs": {"text": ["x"], "sum": [3], "raw_bytes": [{"b64": "eA=="}]}},
    ),
    # api_rest, on JSON conformance: tokens that are not JSON.
    (b'{"instances": [Infinity]}', {"predictions": [float("inf")]}),
    # An extension of this server.
    ('\ufeff{"inputs": [1]}'.encode(), {"outputs": [2.5]}),
    ('{"inputs": [1]}'.encode("utf-16"), {"outputs": [2.5]}),
    (b'{"inputs": [2], "inputs": [1]}', {"outputs": [2.5]}),
    # predict_util.cc (gRPC): a filter of outputs, which keep their names.
    (
        two(inputs={"text": ["x"], "ids": [[1, 2]]}, output_filter=["sum"]),
        {"outputs": {"sum": [3]}},
    ),
    (
        two(instances=[{"text": "x", "ids": [1, 2]}], output_filter=["sum", "raw_bytes"]),
        {"predictions": [{"sum": 3, "raw_bytes": {"b64": "eA=="}}]},
    ),
    ({"inputs": [1], "output_filter": ["y"]}, {"outputs": [2.5]}),
    ({"inputs": [1], "output_filter": []}, {"outputs": [2.5]}),
]
ANSWERS = [
    # http_rest_api_handler_test.cc: GetStatus, Predict, Regress, Classify.
    ("GET", MODEL, b"", STATUS),
    ("GET", f"{MODEL}/versions/123", b"", STATUS),
    ("POST", f"{MODEL}/versions/123:predict", {"instances": [1, 2]}, {"predictions": [2.5, 3.0]}),
    (
        *("POST", f"{MODEL}:regress"),
        {"signature_name": "regress", "examples": [{"x": 80.0}, {"x": [2.0]}]},
        {"results": [42.0, 3.0]},
    ),
    # api_rest: a context shared by all examples.
    (
        *("POST", f"{MODEL}/versions/123:classify"),
        {"signature_name": "classify", "context": {"x": 20.0}, "examples": [{}, {"x": 10.0}]},
        {"results": [[["", 12.0]], [["", 7.0]]]},
    ),
    # http_rest_api_util.cc: URLs are not case-sensitive.
    ("POST", "/V1/Models/half:predict", {"inputs": [0]}, {"outputs": [2.0]}),
    *(("POST", PREDICT, body, expected) for body, expected in POSTED),
]


@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: str(row[1:3])[:70])
def test_answers_equal_tensorflow_serving(app, row):
    method, path, body, expected = row
    reply = ask(app, method, path, body)
    assert (reply.status, reply.json) == (200, expected)


ADDRESSES = [
    # http_rest_api_handler.cc, and its test UnsupportedApiCalls: here invalid labels.
    *(
        (method, path, 400, f"Malformed request: {method} {path}")
        for method, path in [
            *(("GET", "/v1/foo"), ("POST", "/v1/foo"), ("PUT", MODEL), ("GET", PREDICT)),
            *(("GET", "/v1/models"), ("GET", f"{MODEL}/labels/new")),
            *(("POST", f"{MODEL}/versions/{version}:predict") for version in ("a", "9" * 20)),
        ]
    ),
    ("GET", "/other", 404, "Malformed request: GET /other"),
    ("POST", "/metrics", 404, "Malformed request: POST /metrics"),
    # api_rest, at its end; loader_harness's names of requests; get_model_status_impl.cc.
    ("POST", "/v1/models/a:predict", 404, "Servable not found for request: Latest(a)"),
    (
        *("POST", f"{MODEL}/versions/7:predict", 404),
        "Servable not found for request: Specific(half, 7)",
    ),
    (
        *("GET", f"{MODEL}/versions/7/metadata", 404),
        "Servable not found for request: Specific(half, 7)",
    ),
    ("GET", "/v1/models/a", 404, "Could not find any versions of model a"),
    ("GET", f"{MODEL}/versions/7", 404, "Could not find version 7 of model half"),
]
INVALID_REQUESTS = [
    # http_rest_api_handler_test.cc: PredictRequestErrors.
    (b"", "JSON Parse error: The document is empty"),
    (b"instances = [1, 2]", "JSON Parse error: "),
    (b'{"inputs": ' + b"[" * 5000, "JSON Parse error: "),
    (b'{"inputs": 1' + b"0" * 5000 + b"}", "JSON Parse error: "),
    (
        b'{"inputs": "\xff"}',
        "JSON Parse error: the body is not JSON: 'utf-8' codec can't decode byte 0xff in "
        "position 12",
    ),
    # Integers that a parser may convert to floats.
    (
        b'{"inputs": [123456789012345678901]}',
        "JSON Value: 123456789012345678901 Type: Number is not of expected type",
    ),
    (
        b'{"inputs": [-9223372036854775809]}',
        "JSON Value: -9223372036854775809 Type: Number is not of expected type",
    ),
    # predict_util.cc
    (
        two(inputs=1, output_filter=["y"]),
        'output tensor alias not found in signature: "y" Outputs expected to be in the set '
        "{raw_bytes,sum,text}.",
    ),
    (
        two(inputs=1, output_filter="sum"),
        "JSON Value: \"sum\" Expecting 'output_filter' to be a list",
    ),
    (
        two(inputs=1, output_filter=[["sum"]]),
        'not found in signature: ["sum"] Outputs expected to be in the set {raw_bytes,sum,text}',
    ),
    (
        {"signature_name": "a", "inputs": 1},
        'Serving signature name: "a" not found in signature def',
    ),
    ({"signature_name": 100}, "Serving signature name: 100 not found in signature def"),
    # json_tensor.cc
    ([1], "Is not object"),
    ({}, "Missing 'inputs' or 'instances' key"),
    ({"inputs": 1, "instances": [1]}, "only one of 'inputs' or 'instances' keys to exist"),
    ({"instances": 1}, "JSON Value: 1 Expecting 'instances' to be a list with values"),
    ({"instances": []}, "JSON Value: [] Expecting 'instances' to be a list with values"),
    ({"instances": ["x"]}, 'JSON Value: "x" Type: String is not of expected type: float'),
    ({"instances": [1, {"x": 2}]}, 'JSON Value: {"x": 2} Type: Object is not of expected type: '),
    ({"instances": [{"x": 2}, 1]}, "Failed to process element: 1 of 'instances' list. JSON object"),
    ({"instances": [{"z": 2}]}, 'JSON object: {"z": 2} keys must be equal to: x'),
    ({"inputs": {"y": 1}}, "Missing named input: x in 'inputs' object."),
    ({"instances": [1, [2]]}, "JSON Value: [2] Encountered list at unexpected size or level"),
    ({"inputs": [[1], 2]}, "JSON Value: [1] Encountered list at unexpected size or level"),
    ({"inputs": [[1], []]}, "JSON Value: [1] Encountered list at unexpected size or level"),
    (
        b'{"inputs": ' + b"[" * 400 + b"]" * 400 + b"}",
        "[[[... Encountered list at unexpected size or level: all lists at one level must have "
        "the same size",
    ),
    ({"inputs": [True]}, "JSON Value: true Type: Bool is not of expected type: float"),
    ({"inputs": [None]}, "JSON Value: null Type: Null is not of expected type: float"),
    ({"inputs": [1 << 24]}, "JSON Value: 16777216 Type: Number is not of expected type: float"),
    ({"inputs": [1e39]}, "JSON Value: 1e+39 Type: Number is not of expected type: float"),
    (
        two(instances=["a"]),
        "instances is a plain list, but expecting list of objects as multiple input tensors "
        "required as per tensorinfo_map",
    ),
    (
        two(inputs=["a"]),
        "inputs is a plain value/list, but expecting an object as multiple input tensors "
        "required as per tensorinfo_map",
    ),
    (
        {"signature_name": "odd", "instances": [True, False]},
        "have inconsistent batch size. Send 'inputs' instead of 'instances'",
    ),
    *(
        (two(inputs={"text": ["a"], "ids": [[1, 2]], name: value}), message)
        for name, value, message in [
            ("text", [{"b64": "?"}], "not formatted correctly for base64 data"),
            ("text", [{"b63": "YQ=="}], "not formatted correctly for base64 data"),
            (
                "text",
                ["\ud800"],
                'JSON Value: "\\ud800" is not a string, or not formatted correctly for base64',
            ),
            (
                "ids",
                [[1, 2**31]],
                "JSON Value: 2147483648 Type: Number is not of expected type: int32",
            ),
            ("ids", [[1.0, 2]], "JSON Value: 1.0 Type: Number is not of expected type: int32"),
            # Error messages of the graph, as in Serving.
            ("ids", [[1, -1]], "No: -1."),
            # Message of this server; Serving names a node of the graph.
            ("text", [["a"]], "text: expected the shape [-1] (-1 is any size), got [1, 1]."),
            ("ids", [[1]], "ids: expected the shape [-1, 2] (-1 is any size), got [1, 1]."),
            ("text", ["a"] * 9, "The request has 9 rows, more than 8 (--max_rows)."),
            # Rejected before parsing.
            ("text", [[[]]] * 9, "The request has 9 rows, more than 8 (--max_rows)."),
            ("text", [[[]]], "text: expected the shape [-1] (-1 is any size), got [1, 1, 0]."),
        ]
    ),
    ({"instances": [[]] * 9}, "The request has 9 rows, more than 8 (--max_rows)."),
]
EXAMPLES = [
    # json_tensor.cc, classifier.cc
    ({}, "Expecting 'examples' value to be an list/array with values"),
    ({"examples": []}, "Expecting 'examples' value to be an list/array with values"),
    ({"examples": [1]}, "Example must be JSON object but got 1"),
    ({"examples": [1] * 9}, "The request has 9 rows, more than 8 (--max_rows)."),
    ({"examples": [{"x": None}]}, "JSON Value: null Type: Null is not of expected type: string"),
    (
        {"examples": [{"x": [1, 1.5]}]},
        "JSON Value: 1.5 Type: Number is not of expected type: int64",
    ),
    *(
        ({"examples": [{"x": value}]}, "Expecting one value or a flat list per feature")
        for value in ([["a"]], [[1], [2]], [[]], [[[1.5]]], ["a", ["b"]])
    ),
    ({"examples": [{"\ud800": 1.0}]}, 'JSON Value: "\\ud800" is not a string'),
    ({"examples": [{"x": 1}]}, "x"),  # of a type that the graph does not read: the graph's message
    (
        {"signature_name": "a", "examples": [{}]},
        'Serving signature name: "a" not found in signature def',
    ),
    # Message of this server; Serving names a method, which tf.saved_model.save does not write.
    (
        {"signature_name": "two", "examples": [{}]},
        "The signature two does not support :regress. Set signature_name",
    ),
]
ERRORS = [
    *((method, path, b"", status, message) for method, path, status, message in ADDRESSES),
    *(("POST", PREDICT, body, 400, message) for body, message in INVALID_REQUESTS),
    *(
        ("POST", f"{MODEL}:regress", {"signature_name": "regress", **body}, 400, message)
        for body, message in EXAMPLES
    ),
]


@pytest.mark.parametrize("row", ERRORS, ids=lambda row: f"{row[1][-9:]} {row[4][:60]}")
def test_errors_equal_tensorflow_serving(app, row):
    method, path, body, status, message = row
    reply = ask(app, method, path, body)
    assert (reply.status, [*reply.json]) == (status, ["error"])
    assert message in reply.json["error"] and len(reply.json["error"]) < 800


def test_nan_and_infinity_are_written_as_tokens(app):
    reply = ask(app, "POST", PREDICT, {"signature_name": "odd", "inputs": [True, False]})
    assert b'"number":[NaN,-Infinity]' in reply.body


def test_numbers_are_written_as_in_recorded_answers():
    """Floats have just enough digits to identify the value in their dtype."""
    bits = np.random.default_rng(0).integers(0, 1 << 32, 20_000, np.uint32).view(np.float32)
    floats = np.array([0.1, 1e-7, 1e16, -0.0, 3.4028235e38, 1e-45, 16777216, 1 / 3], np.float32)
    arrays = [bits, bits.reshape(10, -1), floats, floats.astype(np.float64), floats[::2]]
    arrays += [floats.astype(np.float16), np.float32(0.1)[()], np.array([1, -2]), np.array([True])]
    arrays += [
        np.array([1 << 63], np.uint64),
        np.zeros((0, 3), np.float32),
        np.array([b"a", "é".encode()], object),
    ]
    for array in map(np.asarray, arrays):
        # Compared as text, because NaN is not equal to itself.
        found = str(json.loads(rest.encode({"x": rest.to_json_values(array)}))["x"])
        assert found == str(json.loads(json.dumps(replay.to_json(array)))), array.dtype


def test_metadata_describe_the_signatures_as_in_serving(app):
    reply = ask(app, "GET", f"{MODEL}/metadata").json
    assert reply["model_spec"] == {"name": "half", "signature_name": "", "version": "123"}
    # As in GetModelMetadata of http_rest_api_handler_test.cc, for saved_model_half_plus_two.
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


def test_recorded_samples_have_the_recorded_answers(tmp_path_factory):
    """The request bodies are the samples that exports contain for TensorFlow Serving."""
    directory = exported("classifier", tmp_path_factory)
    folder = os.path.join(directory, "assets.extra", "samples")
    names = sorted(name for name in os.listdir(folder) if name.endswith("json"))
    with served(models.load(directory), "bert", Limits(100, 1 << 20, 4, 60)) as app:
        for name in names:
            with open(os.path.join(folder, name)) as file:
                sample = json.load(file)
            reply = ask(app, "POST", "/v1/models/bert:predict", sample["request"])
            assert reply.status == 200 and reply.json.keys() == sample["response"].keys(), name
            found = reply.json["outputs"]
            columns = found.items() if isinstance(found, dict) else [("", found)]
            arrays = {key: np.array(values) for key, values in columns}
            _, problems = replay.compare(sample["response"]["outputs"], arrays, 5e-6)
            assert problems == [], name
    assert len(names) > 5
