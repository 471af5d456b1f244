"""Files of earlier versions can be opened, resumed and exported, with the same answers.

Answers are compared to 1e-6, because the last bit of a float32 sum depends on the layout of the
graph. Results and weights of resumed runs are compared bit for bit: Adam turns a difference in the
last bit into steps of the size of the learning rate, so that no tolerance would be small enough.
"""

import json
import shutil

import pytest
import tensorflow as tf

from bert_tf import api
from bert_tf.saved_models import replay, verification
from tests import earlier_versions
from tests.finetuning.small_runs import assert_bit_equal

pytestmark = pytest.mark.slow
NAMES = (*earlier_versions.RUNS, *earlier_versions.PRETRAININGS)


@pytest.fixture(scope="module", params=earlier_versions.COMMITS)
def written(tmp_path_factory, request):
    """Returns the folder that an earlier version wrote, and the answers that it recorded."""
    commit = earlier_versions.COMMITS[request.param]
    if not earlier_versions.is_in_history(commit):
        pytest.skip(f"commit {request.param} is not in the history of this checkout")
    folder = tmp_path_factory.mktemp("earlier")
    earlier_versions.make(folder, commit)
    return folder, json.loads((folder / "answers.json").read_text())


def is_close(actual, expected):
    """Returns whether JSON values are equal, with a tolerance of 1e-6 for floats."""
    if isinstance(expected, dict):
        return actual.keys() == expected.keys() and all(
            is_close(actual[k], expected[k]) for k in actual
        )
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(map(is_close, actual, expected))
    if isinstance(expected, float):
        return actual == pytest.approx(expected, abs=1e-6, rel=1e-6)
    return actual == expected


def weights(run):
    """Returns the tensors of all checkpoints of a run by checkpoint and name."""
    found = {}
    for index in sorted(run.rglob("variables.index")):
        reader = tf.train.load_checkpoint(str(index.with_suffix("")))
        for name in reader.get_variable_to_shape_map():
            found[f"{index.parent.relative_to(run)} {name}"] = reader.get_tensor(name)
    assert found, run
    return found


def results(values):
    """Returns results without times and paths."""

    def without_ignored(values):  # also for each run of a search
        ignored = ("seconds", "examples_per_second", "files", "export")
        return {k: v for k, v in values.items() if k not in ignored}

    return json.loads(json.dumps(values), object_hook=without_ignored)


@pytest.mark.parametrize("name", NAMES)
def test_finished_run_predicts_as_before(written, name):
    folder, recorded = written
    run = folder / "runs" / name
    files = [run / "results.json", *run.rglob("checkpoints/*/*")]
    before = [path.stat().st_mtime_ns for path in files]
    assert results(earlier_versions.train(folder, name, run)) == results(recorded["results"][name])
    assert [path.stat().st_mtime_ns for path in files] == before
    assert is_close(earlier_versions.answers(run, name), recorded["answers"][name])


@pytest.mark.parametrize("name", NAMES)
def test_interrupted_run_resumes_to_the_same_result(written, name):
    folder, recorded = written
    run = folder / "stopped" / name
    assert results(earlier_versions.train(folder, name, run)) == results(recorded["results"][name])
    assert_bit_equal(weights(run), weights(folder / "runs" / name))


@pytest.mark.parametrize("name", earlier_versions.EXPORTED)
def test_old_and_new_exports_predict_as_before(written, name, tmp_path):
    """The new export must reproduce the samples that the earlier version recorded."""
    folder, recorded = written
    export = folder / "exports" / name / "1"
    assert verification.check_hashes(str(export))
    new = api.export(folder / "runs" / name, tmp_path / "1", verbose=False).path
    samples = "assets.extra/samples"
    shutil.rmtree(tmp_path / "1" / samples)
    shutil.copytree(export / samples, tmp_path / "1" / samples)
    for path in (export, new):
        # A new export adds in another order: in two chains, and without a mask for equal lengths.
        # The regressor predicts about 80, where adjacent float32 numbers differ by 8e-6.
        for row in replay.replay(str(path), 1e-5 if name == "regression" else 5e-6):
            assert row["samples"] and not row["problems"], (path, row)
    assert is_close(earlier_versions.answers(export, name), recorded["answers"][name])


@pytest.mark.parametrize("file_format", earlier_versions.FORMS)
def test_model_files_give_the_same_logits(written, file_format):
    folder, recorded = written
    assert is_close(
        earlier_versions.logits(folder / "models" / file_format), recorded["logits"][file_format]
    )
