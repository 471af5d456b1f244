"""Resuming a run with changed settings: allowed changes, messages and records."""

import os
import pathlib
import re
from unittest import mock

import pytest
import tensorflow as tf

from bert_tf.cli import flag_fields
from bert_tf.io.files import read_json
from bert_tf.pretraining.run import _change_schedule, run
from bert_tf.pretraining.settings import MAY_CHANGE, PretrainingSettings
from bert_tf.training import saved_states
from bert_tf.training.loop import BadStepError
from bert_tf.training.run_directory import RunDirectory
from bert_tf.training.schedules import WarmupLinearDecay

from .commands import arguments, parse

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "guides" / "resuming.md"


def test_documentation_lists_each_flag_in_its_class():
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    found = {kind: set(re.findall(r"`--(\w+)`", flags)) for kind, flags in rows}
    everything = set(flag_fields.defaults(PretrainingSettings))
    changes = set().union(*MAY_CHANGE.values())
    assert found == {**MAY_CHANGE, "never": everything - changes}
    assert everything > changes
    assert len(changes) == sum(map(len, MAY_CHANGE.values()))


@pytest.fixture
def started_run(tmp_path):
    """Directory of a run with a checkpoint of step 6 and 10 steps in total."""
    directory = RunDirectory(str(tmp_path / "run"))
    directory.create()

    def start(*flags):
        settings, _ = parse("--input=a", f"--model_dir={directory.path}", *flags)
        changed = directory.check_settings(settings.to_dict(), MAY_CHANGE)
        _change_schedule(settings, directory, changed)

    start("--num_train_steps=10", "--learning_rate=0.01")
    path = os.path.join(directory.checkpoints, saved_states.directory_name(6))
    saved_states.write(path, 6, {"model/weight": tf.constant([1.0])}, {})
    return directory, start


def test_changed_schedule_is_printed_and_saved(started_run, capsys):
    directory, start = started_run
    for _ in range(2):  # the killed command is rerun
        start("--num_train_steps=20", "--learning_rate=0.01", "--gradient_accumulation_steps=2")
    assert capsys.readouterr().out == (
        "From step 6: --gradient_accumulation_steps=2 (was 1).\n"
        "From step 6: --num_train_steps=20 (was 10).\n"
        "From step 6: --num_warmup_steps=2 (was 1).\n"
    )
    saved = directory.saved_flags()
    assert (saved["num_train_steps"], saved["gradient_accumulation_steps"]) == (20, 2)
    assert saved["changes"][1] == {"step": 6, "flag": "num_train_steps", "from": 10, "to": 20}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "--num_train_steps=5",
            "=5: expected at least 6, the number of steps that the run in .* has completed. "
            "Increase it, or use another --model_dir",
        ),
        (
            "--num_train_steps=10 --seed=3",
            r"different settings: --seed=3 \(was 12345\)\. Rerun with the original flags to "
            r"resume it, or use another --model_dir",
        ),
    ],
)
def test_invalid_change_raises_error(started_run, flags, message):
    directory, start = started_run
    before = directory.saved_flags()
    with pytest.raises(ValueError, match=message):
        start("--learning_rate=0.01", *flags.split())
    assert directory.saved_flags() == before


# === Complete runs ===


def _train(inputs, model_dir, **flags):
    quick = {"held_out_fraction": 0, "export": "false"}
    run(parse(*arguments(inputs, model_dir, **quick | flags))[0])


@pytest.mark.slow
def test_finished_run_is_extended(inputs, tmp_path, capsys):
    phases = {"phases": "16:0.5,32:0.5", "max_seq_length": None}
    _train(inputs, tmp_path, num_train_steps=8, **phases)
    with pytest.raises(ValueError, match=r"different settings: --learning_rate=0.1 \(was 0.01\)"):
        _train(inputs, tmp_path, num_train_steps=8, learning_rate=0.1, **phases)
    with pytest.raises(
        ValueError, match="=9 changes how many phases of --phases|=7: expected at least 8"
    ):
        _train(inputs, tmp_path, num_train_steps=7, **phases)
    _train(inputs, tmp_path, num_train_steps=20, **phases)
    assert "From step 8: --num_train_steps=20 (was 8)." in capsys.readouterr().out
    assert read_json(str(tmp_path / "results.json"))["step"] == 20
    # Step 20 is still in the second phase, although the first one would now end at step 10.
    assert saved_states.find_latest(str(tmp_path / "checkpoints")).extra["phase"] == 1
    for path in (tmp_path / "logs" / "train").iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if (value.tag, event.step) == ("optimizer/learning_rate", 20):
                    rate = float(tf.make_ndarray(value.tensor))
    assert rate == pytest.approx(1e-2 * (1 - 19 / 20))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_learning_rate_is_lowered_after_bad_step(inputs, tmp_path):
    def rise(schedule, step):
        """Rises from 0 to a value that destroys all weights."""
        return tf.where(tf.cast(step, tf.int32) < 1, 0.0, 1e30)

    ruinous = mock.patch.object(WarmupLinearDecay, "__call__", rise)
    rate = {"learning_rate": 0.5}
    with ruinous:
        with pytest.raises(
            BadStepError, match=r"no checkpoint was saved .*; restart with --learning_rate=0\.05\."
        ):
            _train(inputs, tmp_path / "anew", save_checkpoints_steps=2, **rate)
        assert not (tmp_path / "anew" / "checkpoints").exists()  # none with corrupted weights
        with pytest.raises(BadStepError) as raised:
            _train(inputs, tmp_path / "run", save_checkpoints_steps=1, **rate)
    named = "resume from the last checkpoint with --learning_rate=0.05."
    assert str(raised.value).endswith(named)
    assert os.listdir(tmp_path / "run" / "checkpoints") == ["step-00000001"]
    _train(inputs, tmp_path / "run", learning_rate=1e-3)
    assert read_json(str(tmp_path / "run" / "results.json"))["step"] == 12
