"""A run that goes on with other settings: what may differ, what --change names, what is kept."""

import json
import os
import pathlib
import re
import shutil
import time

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.cli import flag_fields
from bert_tf.files import read_json, write_json
from bert_tf.pretraining.changes import with_changes
from bert_tf.pretraining.evaluator import evaluate
from bert_tf.pretraining.rules import BY_CHANGE
from bert_tf.pretraining.run import run
from bert_tf.pretraining.settings import (
    MAY_DIFFER,
    PATHS,
    PretrainingSettings,
)
from bert_tf.training import checkpoints
from bert_tf.training.bad_steps import BadStepError
from bert_tf.training.run_directory import RunDirectory
from bert_tf.training.schedules import WarmupLinearDecay
from bert_tf.training.stopping import OutOfTimeError

from .commands import arguments, assert_bit_equal, parse, parse_given, weights

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "resuming.md"
NO_DROPOUT = "hidden_dropout_prob=0,attention_probs_dropout_prob=0"


# === Which flags ===


def test_the_page_has_every_flag_in_its_class():
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    found = {kind: set(re.findall(r"`--(\w+)`", flags)) for kind, flags in rows}
    everything = set(flag_fields.defaults(PretrainingSettings))
    assert found == {
        "freely": set(MAY_DIFFER),
        "by `--change`": set(BY_CHANGE),
        "its path, not its contents": set(PATHS),
        "never": everything - MAY_DIFFER - BY_CHANGE - PATHS,
    }
    assert everything > MAY_DIFFER | BY_CHANGE | PATHS
    assert not (MAY_DIFFER & BY_CHANGE or MAY_DIFFER & PATHS or BY_CHANGE & PATHS)


def test_the_rates_that_the_page_has():
    before, after = (WarmupLinearDecay(1e-3, 100, total) for total in (1000, 2000))
    rates = [float(before(999)), float(after(1000))]
    assert rates == pytest.approx([1e-6, 5e-4], rel=1e-4)
    page = " ".join(PAGE.read_text().split())
    assert "with 1,000 steps and a rate of 1e-3 makes step 1,000 at 1e-6" in page
    assert "extended to 2,000 steps, it makes the next one at 5e-4" in page


@pytest.mark.parametrize("wrong", ["seed", "learning_rate,optimizer", "learning_rate"])
def test_what_change_does_not_change(wrong):
    with pytest.raises(ValueError, match=f"--change={wrong}: expected flags out of adam_beta_2, "):
        parse("--input=a", f"--change={wrong}", "--seed=3")


@pytest.fixture
def begun(tmp_path):
    """A directory whose run has a checkpoint of step 6 and 10 steps."""
    directory = RunDirectory(str(tmp_path / "run"))
    directory.create()

    def start(*flags, save=False):
        base = ("--input=a", f"--model_dir={directory.path}")
        settings, given = parse_given(*base, *flags)
        settings = with_changes(settings, directory, given, PATHS)
        directory.check_settings(settings.to_dict(), MAY_DIFFER, PATHS, BY_CHANGE)
        return settings

    # No run without progress has changes.
    start("--num_train_steps=10", "--learning_rate=0.01", "--change=learning_rate")
    path = os.path.join(directory.checkpoints, checkpoints.directory_name(6))
    checkpoints.write(path, 6, {"model/weight": tf.constant([1.0])}, {})
    return directory, start


def test_a_change_is_kept_and_holds_in_later_starts(begun):
    directory, start = begun
    ten, higher = "--num_train_steps=10", "--learning_rate=0.02"
    with pytest.raises(ValueError, match=r"--learning_rate=0.02 \(was 0.01\)\. .*=learning_rate\)"):
        start(ten, higher)
    write_json(directory.results, {})
    for _ in range(2):  # the command that was killed is given again
        assert start(ten, higher, "--change=learning_rate").learning_rate == 0.02
    assert not os.path.exists(directory.results)
    (kept,) = directory.kept_flags()["changes"]
    assert kept == {"step": 6, "flag": "learning_rate", "from": 0.01, "to": 0.02}
    assert start(ten).learning_rate == start(ten, higher).learning_rate == 0.02
    with pytest.raises(ValueError, match=r"other settings: --learning_rate=0.01 \(was 0.02\)"):
        start(ten, "--learning_rate=0.01")
    # The warm-up is the run's, not a tenth of the new number.
    longer = start("--num_train_steps=200", "--change=num_train_steps")
    assert (longer.num_train_steps, longer.num_warmup_steps, longer.learning_rate) == (200, 1, 0.02)
    assert [change["flag"] for change in directory.kept_flags()["changes"]] == [
        *("learning_rate", "num_train_steps"),
    ]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--change=num_train_steps --num_train_steps=5", "=5 is less than the 6 steps that the ru"),
        ("--change=num_warmup_steps --num_warmup_steps=11", "num_train_steps=10"),
        (
            "--change=num_train_steps --num_train_steps=12 --phases=128:0.95,256:0.05",
            "=12 leaves --phases=128:0.95,256:0.05 another number of phases that have steps than",
        ),
        (
            "--change=config_overrides --config_overrides=hidden_dropout_prob=0,hidden_size=8",
            "dropout_prob and hidden_dropout_prob alone: repeat the run's value of hidden_size.",
        ),
        ("--change=learning_rate --learning_rate=1 --seed=3", r"other settings: --seed=3 \(was 12"),
    ],
)
def test_a_change_that_cannot_be(begun, flags, sentence):
    directory, start = begun
    before = directory.kept_flags()
    with pytest.raises(ValueError, match=sentence):
        start("--num_train_steps=10", "--learning_rate=0.01", *flags.split())
    assert directory.kept_flags() == before


def test_a_run_without_checkpoints_has_nothing_to_go_on_from(begun):
    directory, start = begun
    write_json(directory.results, {})
    shutil.rmtree(directory.checkpoints)
    with pytest.raises(ValueError, match="has no checkpoint to go on from with other settings: br"):
        start("--num_train_steps=20", "--change=num_train_steps")


def test_a_number_of_steps_from_max_hours_is_changed_beside_it():
    hours = ("--input=a", "--max_hours=1")
    changed = parse(*hours, "--change=num_train_steps", "--num_train_steps=7")[0]
    assert (changed.num_train_steps, changed.max_hours) == (7, 1)
    with pytest.raises(ValueError, match="--max_hours and --num_train_steps both set the schedul"):
        parse(*hours, "--num_train_steps=7")


# === Whole runs ===

QUICK = {"held_out_fraction": 0, "export": "false", "steps_per_loop": 4}


def _train(inputs, model_dir, began=None, **flags):
    settings, given = parse_given(*arguments(inputs, model_dir, **QUICK | flags))
    run(settings, given=given, began=began)


def _rates(model_dir):
    """The learning rate of each step that was reported last in a call."""
    found = {}
    for path in sorted((pathlib.Path(model_dir) / "logs" / "train").iterdir()):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.tag == "learning_rate":
                    found[event.step] = float(tf.make_ndarray(value.tensor))
    return found


@pytest.mark.slow
def test_a_finished_run_is_extended(inputs, tmp_path):
    phases = {"phases": "16:0.5,32:0.5", "max_seq_length": None, "steps_per_loop": 1}
    _train(
        inputs, tmp_path, num_train_steps=8, config_overrides="hidden_dropout_prob=0.5", **phases
    )
    assert read_json(str(tmp_path / "results.json"))["step"] == 8
    flags = {"num_train_steps": 20, "config_overrides": NO_DROPOUT, "train_batch_size": 4}
    _train(inputs, tmp_path, change=",".join(flags), **flags, **phases)
    assert read_json(str(tmp_path / "results.json"))["step"] == 20
    # At half of 20 the first phase has not come again.
    _, extra, *_ = checkpoints.find_latest(str(tmp_path / "checkpoints"))
    assert extra["phase"] == 1
    rates = _rates(tmp_path)
    assert rates[8] == pytest.approx(1e-2 * (1 - 7 / 8))
    assert [rates[step] for step in (9, 12, 20)] == pytest.approx(
        [1e-2 * (1 - step / 20) for step in (8, 11, 19)]
    )
    config = json.loads((tmp_path / "bert_config.json").read_text())
    assert config["hidden_dropout_prob"] == config["attention_probs_dropout_prob"] == 0
    # Without --change the run's values hold.
    _train(inputs, tmp_path, num_train_steps=20, train_batch_size=None, **phases)


@pytest.mark.slow
def test_a_run_is_given_a_lower_rate_after_a_bad_step(inputs, tmp_path):
    hot = {"learning_rate": 1e30, "steps_per_loop": 1, "on_bad_step": "rewind", "max_bad_steps": 2}
    with pytest.raises(BadStepError, match=r"no checkpoint was saved .* --learning_rate=1e\+29\."):
        _train(inputs, tmp_path / "anew", save_checkpoints_steps=2, **hot)
    assert not (tmp_path / "anew" / "checkpoints").exists()  # none of ruined weights
    _train(inputs, tmp_path / "anew", num_train_steps=2)
    with pytest.raises(BadStepError) as raised:
        _train(inputs, tmp_path / "run", save_checkpoints_steps=1, **hot)
    named = "--change=learning_rate --learning_rate=1e+29."
    assert str(raised.value).endswith(f"go on from a checkpoint before it by {named}")
    assert os.listdir(tmp_path / "run" / "checkpoints") == ["step-00000001"]
    _train(inputs, tmp_path / "run", change="learning_rate", learning_rate=1e-3)
    assert read_json(str(tmp_path / "run" / "results.json"))["step"] == 12


@pytest.mark.slow
def test_stopped_in_time_and_moved_to_other_micro_batches(inputs, tmp_path):
    flags = {"config_overrides": NO_DROPOUT, "save_checkpoints_steps": 100}
    _train(inputs, tmp_path / "whole", **flags)
    for name in ("same", "moved"):
        with pytest.raises(OutOfTimeError, match="^Stopped by --stop_after_minutes=5 at step 4. T"):
            began = time.monotonic() - 400
            _train(inputs, tmp_path / name, began, stop_after_minutes=5, **flags)
        assert os.listdir(tmp_path / name / "checkpoints") == ["step-00000004"]
    _train(inputs, tmp_path / "same", stop_after_minutes=60, **flags)
    assert_bit_equal(weights(tmp_path / "same", 12), weights(tmp_path / "whole", 12))
    _train(inputs, tmp_path / "moved", gradient_accumulation_steps=2, **flags)
    moved, whole = weights(tmp_path / "moved", 12), weights(tmp_path / "whole", 12)
    for name, value in whole.items():
        np.testing.assert_allclose(moved[name], value, atol=1e-6, rtol=0, err_msg=name)


@pytest.mark.slow
def test_an_evaluation_beside_a_run_that_changes(finished, inputs, tmp_path):
    model_dir = shutil.copytree(finished[0], tmp_path / "run")
    beside = ("--mode=eval", f"--model_dir={model_dir}", "--export=false")
    evaluate(*parse_given(*beside))
    settings, given = parse_given(
        *arguments(inputs, model_dir, num_train_steps=16, learning_rate=1e-3, export="false"),
        "--change=num_train_steps,learning_rate",
    )
    run(settings, given=given)
    evaluate(*parse_given(*beside))
    found = read_json(str(model_dir / "eval" / "results.json"))["checkpoints"]
    assert [one["step"] for one in found] == [4, 8, 12, 16]
