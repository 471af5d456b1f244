"""What an earlier commit wrote is read as it was meant, and its unfinished runs end as it would.

``tests/earlier/make_earlier_data.py`` wrote it, with that commit's code.
"""

import itertools
import json
import pathlib
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.run import run as finetune
from bert_tf.predicting.prediction import predict_file
from bert_tf.pretraining.run import run as pretrain
from bert_tf.saved_models import replay
from bert_tf.training import checkpoints
from tests.earlier.make_earlier_data import PREDICTED, RUNS, answers_of, machine
from tests.finetuning import small_runs
from tests.pretraining import commands

ARCHIVE = pathlib.Path(__file__).parent / "earlier" / "50b70a9.tar.xz"
# Whose resumption CI sees; the other runs have other settings.
_OF_EACH_COMMAND = "pretraining", "classification", "span"
FORMATS = ("bert_tf", "huggingface", "google_tf1", "keras.keras")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(ARCHIVE) as archive:
        # Python has the filter since 3.11.4, and warns without it since 3.12.
        archive.extractall(
            folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
        )
    return folder


@pytest.fixture(autouse=True)
def inside(unpacked, monkeypatch):
    """The working folder: the paths that the runs recorded are relative."""
    monkeypatch.chdir(unpacked)


@pytest.mark.parametrize(
    "path", [*(f"finished/{name}" for name in RUNS), *(f"conversions/{name}" for name in FORMATS)]
)
def test_a_model_answers_as_recorded(path):
    folder, name = pathlib.Path(path).parent.name, pathlib.Path(path).stem
    answers = answers_of(path)
    with np.load(f"answers/{folder}_{name}.npz") as recorded:
        assert set(recorded) == set(answers)
        for key, value in answers.items():
            np.testing.assert_allclose(value, recorded[key], atol=1e-5, rtol=1e-5, err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fill_mask", "classes", "spans"])
def test_an_export_answers_as_recorded(name):
    replay.load_text_operations()
    rows = replay.replay(f"exports/{name}", 1e-5)
    assert rows and all(row["samples"] and not row["problems"] for row in rows), rows


@pytest.mark.slow
@pytest.mark.parametrize("name", PREDICTED)
def test_predictions_are_as_recorded(name, tmp_path):
    written = tmp_path / "out.tsv"
    predict_file(f"finished/{name}", f"inputs/{PREDICTED[name]}", str(written))
    recorded = pathlib.Path(f"predictions/{name}.tsv").read_text()
    assert_same_cells(written.read_text(), recorded)


def assert_same_cells(text, recorded):
    """Compares tables: numbers within 1e-5, all else exactly; columns may have been added."""
    one, other = ([line.split("\t") for line in t.splitlines()] for t in (text, recorded))
    kept = [one[0].index(name) for name in other[0]]
    one = [[row[column] for column in kept] for row in one]
    assert [len(line) for line in one] == [len(line) for line in other]
    flat = (itertools.chain.from_iterable(table) for table in (one, other))
    for cell, wanted in zip(*flat, strict=True):
        try:
            assert float(cell) == pytest.approx(float(wanted), abs=1e-5)
        except ValueError:
            assert cell == wanted


@pytest.mark.parametrize("name", RUNS)
def test_a_finished_run_shows_its_results(name, capsys):
    results = pathlib.Path(f"finished/{name}/results.json")
    before = results.read_bytes()
    resume(name, "finished")
    assert "holds this run, finished." in capsys.readouterr().out
    assert results.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        name if name in _OF_EACH_COMMAND else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in RUNS
    ],
)
def test_an_unfinished_run_ends_as_it_would_have(name, capsys):
    """Bit for bit, where the machine computes as the one that recorded it."""
    resume(name, "unfinished")
    # Of the restarts one had ended, and the other not begun.
    assert name == "restarts" or "Going on" in capsys.readouterr().out
    here, there = machine(), json.loads(pathlib.Path("machine.json").read_text())
    one, other = (weights(f"{kind}/{name}") for kind in ("unfinished", "finished"))
    assert one.keys() == other.keys()
    for key, value in one.items():
        if here == there:
            np.testing.assert_array_equal(value, other[key], err_msg=key)
        else:
            atol = 1e-2 if key.endswith(UNDECIDED) else 1e-5
            np.testing.assert_allclose(value, other[key], atol=atol, err_msg=key)


# A softmax takes no notice of a constant: what adds one, to spans or to keys, has a gradient of
# zero but for the rounding, which differs by processor, and which Adam makes steps of.
UNDECIDED = ("span/bias", "layer_1/output_layer_norm/beta", "query_key_value/bias")


def resume(name, kind):
    """Gives a run's command again."""
    command, given = json.loads(pathlib.Path("commands.json").read_text())[name]
    given = [flag.replace("=unfinished/", f"={kind}/") for flag in given]
    given.append("--export=false")  # it takes longer than all else, and may differ
    if command == "pretrain":
        pretrain(commands.parse(*given)[0])
    else:
        finetune(small_runs.parse(*given)[0])


def weights(model_dir):
    """The kept weights of a run by name."""
    found = checkpoints.find_latest(f"{model_dir}/checkpoints")
    reader = tf.train.load_checkpoint(f"{found.path}/variables")
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
