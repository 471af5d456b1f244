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
from tests import relics
from tests.finetuning.small_runs import assert_bit_equal

pytestmark = pytest.mark.slow
NAMES = (*relics.RUNS, *relics.PRETRAININGS)


@pytest.fixture(scope="module", params=relics.COMMITS)
def written(tmp_path_factory, request):
    """Folder of the files that an earlier version wrote, and the answers that it recorded."""
    commit = relics.COMMITS[request.param]
    if not relics.is_in_history(commit):
        pytest.skip(f"commit {request.param} is not in the history of this checkout")
    folder = tmp_path_factory.mktemp("relics")
    relics.make(folder, commit)
    return folder, json.loads((folder / "answers.json").read_text())


def about(said, expected):
    """Returns whether JSON values are equal, numbers to 1e-6."""
    if isinstance(expected, dict):
        return said.keys() == expected.keys() and all(about(said[k], expected[k]) for k in said)
    if isinstance(expected, list):
        return len(said) == len(expected) and all(map(about, said, expected))
    if isinstance(expected, float):
        return said == pytest.approx(expected, abs=1e-6, rel=1e-6)
    return said == expected


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

    def kept(values):  # also for each run of a search
        left_out = ("seconds", "examples_per_second", "files", "export")
        return {k: v for k, v in values.items() if k not in left_out}

    return json.loads(json.dumps(values), object_hook=kept)


@pytest.mark.parametrize("name", NAMES)
def test_a_finished_run_opens_and_answers(written, name):
    folder, kept = written
    run = folder / "runs" / name
    files = [run / "results.json", *run.rglob("checkpoints/*/*")]
    before = [path.stat().st_mtime_ns for path in files]
    assert results(relics.train(folder, name, run)) == results(kept["results"][name])
    assert [path.stat().st_mtime_ns for path in files] == before
    assert about(relics.answers(run, name), kept["answers"][name])


@pytest.mark.parametrize("name", NAMES)
def test_a_stopped_run_resumes_to_the_same_end(written, name):
    folder, kept = written
    run = folder / "stopped" / name
    assert results(relics.train(folder, name, run)) == results(kept["results"][name])
    assert_bit_equal(weights(run), weights(folder / "runs" / name))


@pytest.mark.parametrize("name", relics.EXPORTED)
def test_an_export_and_a_new_export_of_the_run_answer(written, name, tmp_path):
    """The new export must reproduce the samples that the earlier version recorded."""
    folder, kept = written
    export = folder / "exports" / name / "1"
    assert verification.check_hashes(str(export))
    anew = api.export(folder / "runs" / name, tmp_path / "1", verbose=False).path
    samples = "assets.extra/samples"
    shutil.rmtree(tmp_path / "1" / samples)
    shutil.copytree(export / samples, tmp_path / "1" / samples)
    for asked in (export, anew):
        # A new export adds in another order: in two chains, and without a mask for equal lengths.
        # The regressor predicts about 80, where adjacent float32 numbers differ by 8e-6.
        for row in replay.replay(str(asked), 1e-5 if name == "regression" else 5e-6):
            assert row["samples"] and not row["problems"], (asked, row)
    assert about(relics.answers(export, name), kept["answers"][name])


@pytest.mark.parametrize("form", relics.FORMS)
def test_a_file_of_every_format_opens(written, form):
    folder, kept = written
    assert about(relics.logits(folder / "models" / form), kept["logits"][form])
