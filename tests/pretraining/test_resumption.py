"""A resumed run gives bit-for-bit the result of an uninterrupted one."""

import json
import os
import shutil
import signal
import time

import pytest

from bert_tf.pretraining.run import run
from bert_tf.pretraining.training import PretrainingTrainer
from bert_tf.training import saved_states
from tests.killed_processes import Started

from .commands import arguments, assert_bit_equal, parse, pretrain, weights


@pytest.mark.end_to_end
@pytest.mark.slow
def test_interrupted_run_saves_checkpoint_and_resumes(inputs, tmp_path):
    """Ctrl-C saves a checkpoint of the current step, and the resumed run ends bit-equal."""
    steps = {"num_train_steps": 2000, "save_checkpoints_steps": 1000}
    steps |= {"held_out_fraction": 0, "export": "false"}  # only training
    pretrain(inputs, tmp_path / "whole", **steps)
    model_dir = tmp_path / "run"
    started = Started("bert_tf.pretrain", arguments(inputs, model_dir, **steps))
    logs = model_dir / "logs" / "train"
    while not (logs.is_dir() and any(path.stat().st_size > 2000 for path in logs.iterdir())):
        os.kill(started.number, 0)  # fails if the process has ended
        time.sleep(0.02)
    os.kill(started.number, signal.SIGINT)
    stopped = started.ended()
    assert stopped.returncode == 130, stopped.stderr
    assert "Rerun the same command to resume." in stopped.stdout
    (saved,) = os.listdir(model_dir / "checkpoints")
    assert 0 < int(saved.removeprefix("step-")) < 2000
    printed = pretrain(inputs, model_dir, **steps)
    step = int(saved.removeprefix("step-"))
    assert f"Continuing from the checkpoint at step {step}." in printed
    assert_bit_equal(weights(model_dir, 2000), weights(tmp_path / "whole", 2000))


@pytest.mark.slow
def test_run_resumes_in_second_phase(inputs, tmp_path):
    flags = {"max_seq_length": None, "phases": "16:0.5,48:0.5", "save_checkpoints_steps": 3}
    flags["export"] = "false"
    pretrain(inputs, tmp_path / "whole", **flags)
    model_dir = shutil.copytree(tmp_path / "whole", tmp_path / "run")
    for gone in ("results.json", "checkpoints/step-00000012/manifest.json"):
        (model_dir / gone).unlink()
    printed = pretrain(inputs, model_dir, **flags)
    assert "Continuing from the checkpoint at step 9." in printed
    assert "Training at length 48" in printed and "Training at length 16" not in printed
    assert_bit_equal(weights(model_dir, 12), weights(tmp_path / "whole", 12))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_resumed_run_evaluates_pending_checkpoint(inputs, tmp_path, monkeypatch):
    """The process ends before it evaluates the last checkpoint, which is the best."""
    evaluate = PretrainingTrainer.evaluate
    killed = []

    def replaced(self, *arguments):
        if self.step == 12 and not killed:
            killed.append(True)
            raise SystemExit
        result = evaluate(self, *arguments)
        return result._replace(masked_lm_loss=20.0 - self.step, next_sentence_loss=0.0)

    monkeypatch.setattr(PretrainingTrainer, "evaluate", replaced)
    flags = {"save_checkpoints_steps": 6, "export": "false"}
    settings = parse(*arguments(inputs, tmp_path / "run", **flags))[0]
    with pytest.raises(SystemExit):
        run(settings)
    run(settings)
    best = json.loads((tmp_path / "run" / "results.json").read_text())["best"]
    assert best == {"step": 12, "phase": 0, "loss": 8.0}
    assert not (tmp_path / "run" / "progress.json").exists()
    # After a restart with another seed, records of the older run's checkpoint do not apply.
    (tmp_path / "run" / "progress.json").write_text('{"evaluated": 6, "ended": 6}')
    (tmp_path / "run" / "results.json").unlink()
    saved_states.delete_all(str(tmp_path / "run" / "checkpoints"))
    run(parse(*arguments(inputs, tmp_path / "run", **{**flags, "seed": 7}))[0])
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["step"] == 12 and results["trained_tokens"] == 12 * 8 * 32
