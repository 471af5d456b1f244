"""Fine-tuning, evaluation, prediction and extraction give equal results on one and two devices."""

import functools
import json
import pathlib
import re

import numpy as np
import pytest
from absl import flags

import bert_tf.extract_features
import bert_tf.predict
from tests.finetuning import small_runs
from tests.finetuning.small_runs import assert_ends_as, results_of, saved
from tests.processes import run_main, run_python
from tests.two_devices import CASES

ROOT = pathlib.Path(__file__).parent.parent
PROGRAM = """
import sys
from tests.processes import split_cpu
split_cpu(2)
from tests import two_devices
two_devices.compare(sys.argv[1])
two_devices.run_commands(sys.argv[1])
"""
slow = pytest.mark.slow  # starts a process with two devices


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("two")
    process = run_python(PROGRAM, path, cwd=ROOT, timeout=300)
    assert process.returncode == 0, process.stderr[-3000:]
    assert "Devices: MirroredStrategy on 2 logical CPU devices." in process.stderr
    return path


def _assert_close(one, two, tolerance):
    """Compares JSON values: floats with a tolerance, others exactly."""
    if isinstance(one, dict):
        assert list(one) == list(two)
        one, two = list(one.values()), list(two.values())
    if isinstance(one, list):
        assert len(one) == len(two)
        for actual, other in zip(one, two, strict=True):
            _assert_close(actual, other, tolerance)
    elif isinstance(one, float):
        assert two == pytest.approx(one, rel=tolerance, abs=tolerance)
    else:
        assert one == two


@slow
@pytest.mark.parametrize("case", CASES)
def test_training_on_two_devices_equals_one_device(folder, case):
    with np.load(folder / "weights.npz") as weights:
        one, two = (
            {key.split(":")[1]: weights[key] for key in weights if key.startswith(f"{case}/{n}:")}
            for n in (1, 2)
        )
    assert one.keys() == two.keys() and one
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, rtol=0, atol=1e-6, err_msg=name)
    outputs = json.loads((folder / "outputs.json").read_text())
    _assert_close(outputs[f"{case}/1"], outputs[f"{case}/2"], 1e-5)
    assert outputs[f"{case}/1"]["predictions"]


@slow
def test_resumed_run_equals_uninterrupted_run(folder):
    assert_ends_as(folder / "whole", folder / "on_two")


@slow
def test_run_on_two_devices_resumes_on_one(folder):
    assert results_of(folder / "on_one")["steps"] == results_of(folder / "whole")["steps"] == 6
    # The dropout masks depend on the number of replicas.
    one, two = (saved(folder / name / "last") for name in ("on_one", "whole"))
    assert one.keys() == two.keys()
    assert any(not np.array_equal(one[name], two[name]) for name in one)


@slow
def test_predictions_are_equal(folder):
    one, two = (
        [line.split("\t") for line in (folder / f"{name}.tsv").read_text().splitlines()]
        for name in ("one_device", "mirrored")
    )
    assert len(one) == 10
    assert [row[:2] for row in two] == [row[:2] for row in one]
    numbers = [np.array([row[2:] for row in rows[1:]], float) for rows in (one, two)]
    np.testing.assert_allclose(*numbers, atol=1e-5)


@slow
@pytest.mark.parametrize("pooling", ["none", "mean"])
def test_extracted_vectors_are_equal(folder, pooling):
    one, two = (
        [
            json.loads(line)
            for path in sorted((folder / f"{pooling}_{name}").glob("part-*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        for name in ("one_device", "mirrored")
    )
    assert len(one) == 10
    _assert_close(one, two, 2e-6)


@pytest.mark.parametrize(
    "command", [small_runs.parse, functools.partial(run_main, bert_tf.predict)]
)
def test_multi_worker_strategy_is_rejected(command):
    message = "--strategy=multi_worker: value should be one of <auto|one_device|mirrored>"
    with pytest.raises(flags.IllegalFlagValueError, match=re.escape(message)):
        command("--strategy=multi_worker")


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (bert_tf.predict, ["--model=tiny", f"--input={__file__}"]),
        (bert_tf.extract_features, ["--model=tiny", f"--input={__file__}", "--output=x"]),
    ],
)
def test_several_workers_are_rejected(command, arguments, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}}')
    with pytest.raises(
        ValueError,
        match="TF_CONFIG contains 2 tasks, but only pretrain supports several workers",
    ):
        run_main(command, *arguments)
