"""TensorFlow Serving's loader, in a C++ program, returns the recorded answers of exports."""

import glob
import os

import numpy as np
import pytest

from bert_tf.saved_models import replay
from bert_tf.saved_models.serving_files import predict_request

from . import cpp_engine
from .head_exports import TOLERANCES, exported, heads

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        cpp_engine.compiler() is None, reason="no C++ compiler: g++ is not on the PATH"
    ),
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    return cpp_engine.compile_engine(str(tmp_path_factory.mktemp("engine")))


@pytest.mark.parametrize(
    "name",
    # The engine loads all heads in the same way, with the same text operations.
    heads("encoder", "classifier", "span_predictor"),
)
def test_engine_returns_recorded_answers(engine, tmp_path, tmp_path_factory, name):
    export = exported(name, tmp_path_factory)
    samples = replay.read_samples(export)
    folder = os.path.join(export, "assets.extra", "samples")
    requests = [
        os.path.join(folder, sample.file.removesuffix(".json") + ".request.pb")
        for sample in samples
    ]
    assert requests == sorted(glob.glob(os.path.join(folder, "*.request.pb")))
    report, answers = cpp_engine.answers(engine, export, requests, str(tmp_path))
    assert report["warm_up_requests"] == len({sample.signature for sample in samples})
    tolerance = TOLERANCES.get(name, 1e-4)
    for sample, answer in zip(samples, answers, strict=True):
        _, problems = replay.compare(sample.outputs, answer, tolerance)
        assert problems == [], sample.file


def test_directory_without_saved_model_raises_error(engine, tmp_path):
    request = tmp_path / "request.pb"
    request.write_bytes(predict_request("bert", "tokens", {"ids": np.zeros([1], np.int32)}))
    with pytest.raises(ValueError, match="(?s)ended with status 1: .*Could not find SavedModel"):
        cpp_engine.answers(engine, str(tmp_path), [str(request)], str(tmp_path))
