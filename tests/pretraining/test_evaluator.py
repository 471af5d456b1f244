"""A second process evaluates a run's checkpoints: as its trainer does, and in eval/ alone."""

import fcntl
import json
import math
import os
import pathlib
import re
import shutil
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.files import write_json
from bert_tf.pretraining.evaluator import _Evaluation, evaluate
from bert_tf.seals import write_sealed
from bert_tf.training import checkpoints
from bert_tf.training.run_directory import RunDirectory
from tests.killing import Started

from .commands import arguments, parse_given, pretrain


def _evaluate(model_dir, *flags):
    evaluate(*parse_given("--mode=eval", f"--model_dir={model_dir}", *flags))


def _contents(model_dir):
    """All that is in a model directory but in eval/, and when it was changed."""
    return {
        str(path): (path.stat().st_mtime_ns, path.is_file() and path.read_bytes())
        for path in sorted(model_dir.rglob("*"))
        if "eval" not in path.relative_to(model_dir).parts[:1]
    }


def _results(model_dir):
    return json.loads((model_dir / "eval" / "results.json").read_text())


@pytest.fixture
def run(finished, tmp_path):
    """A finished run of checkpoints at steps 4, 8 and 12, to be changed."""
    return pathlib.Path(shutil.copytree(finished[0], tmp_path / "run"))


def test_the_best_is_of_the_last_phase_and_a_number_and_new_weights_count(tmp_path):
    made = object.__new__(_Evaluation)
    made._run, made._skipped = RunDirectory(str(tmp_path)), set()
    losses = {4: (0, 0.5), 8: (1, 7.0), 12: (1, math.nan), 16: (1, 7.0)}
    made._evaluated = {
        step: {"step": step, "phase": phase, "loss": loss, "manifest": "of other weights"}
        for step, (phase, loss) in losses.items()
    }
    assert made._best()["step"] == 8
    for step in (4, 8, 20):
        checkpoints.save_values(made._run.checkpoints, step, {"model/w": np.zeros(1)}, {}, keep=9)
    manifests = checkpoints.finished(made._run.checkpoints)
    made._evaluated[4]["manifest"] = manifests[4]
    assert made._new() == {step: manifests[step] for step in (8, 20)}
    made._skipped.add(manifests[8])
    assert made._new() == {20: manifests[20]}


@pytest.mark.slow
def test_a_finished_run_is_evaluated_exactly_as_by_its_trainer(run, inputs, capsys):
    before = _contents(run)
    _evaluate(run)
    assert _contents(run) == before
    printed = capsys.readouterr().out
    found = _results(run)
    assert [one["step"] for one in found["checkpoints"]] == [4, 8, 12]
    trainers = json.loads((run / "results.json").read_text())
    assert found["checkpoints"][2]["evaluation"] == trainers["evaluation"]
    best = min(found["checkpoints"], key=lambda one: one["loss"])
    evaluation = best["evaluation"]
    assert best["loss"] == evaluation["masked_lm_loss"] + evaluation["next_sentence_loss"]
    assert found["best"] == {key: best[key] for key in ("step", "phase", "loss", "manifest")}
    # The export of the best alone is there, and its answers are those of the weights.
    exported = run / "eval" / "export" / str(best["step"])
    assert os.listdir(run / "eval" / "export") == [str(best["step"])]
    assert found["export"] == str(exported)
    loaded = tf.saved_model.load(str(exported))
    assert best["step"] == 12, "or the next line compares with other weights"
    trained = tf.saved_model.load(str(run / "export" / "1"))
    one, other = (
        model.signatures["serving_default"](text=tf.constant(["A [MASK]."]))["scores"].numpy()
        for model in (loaded, trained)
    )
    assert one.tolist() == other.tolist()
    assert f"Step 12: loss {best['loss']:.3f}, masked LM" in printed
    assert f"The best of 3 checkpoints is that of step 12, with the loss {best['loss']:.3f}." in (
        printed
    )
    (events,) = (run / "eval" / "logs").iterdir()
    written = [e for e in tf.compat.v1.train.summary_iterator(str(events)) if e.summary.value]
    assert {event.step for event in written} == {4, 8, 12}
    # Again, by the run's whole command: nothing is left to do, and the trainer minds nothing.
    _evaluate(run, *arguments(inputs, run))
    printed = capsys.readouterr().out
    assert "The run is finished." in printed and "Evaluating" not in printed
    assert _results(run) == found
    assert "finished" in pretrain(inputs, run).stdout


@pytest.mark.slow
def test_what_is_damaged_or_deleted_is_passed_over(run, monkeypatch, capsys):
    (run / "results.json").unlink()
    data = run / "checkpoints/step-00000008/variables.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1])
    shutil.copytree(run / "checkpoints/step-00000012", run / "checkpoints/step-00000016")
    (run / "checkpoints/step-00000016/manifest.json").unlink()  # half written
    restore = checkpoints.restore

    def deleted(directory, step, *others):
        if step == 4:
            shutil.rmtree(run / "checkpoints/step-00000004")
        return restore(directory, step, *others)

    monkeypatch.setattr(checkpoints, "restore", deleted)
    _evaluate(run, "--eval_timeout=0", "--export=false")
    printed = capsys.readouterr().out
    assert "Skipped the checkpoint of step 4: it was deleted before it was read." in printed
    assert "Skipped the checkpoint of step 8: variables.data-00000-of-00001 has" in printed
    assert "No checkpoint came for 0s (--eval_timeout), and the run is not finished" in printed
    assert [one["step"] for one in _results(run)["checkpoints"]] == [12]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_only_what_it_exported_is_removed(run):
    later = [run / f"checkpoints/step-{step:08d}" for step in (8, 12)]
    for path in later:
        path.rename(run / path.name)
    _evaluate(run)
    assert _results(run)["export"] == str(run / "eval/export/4")
    (run / "eval/export/4/notes.txt").write_text("mine")
    (run / "eval/export/8").mkdir()
    shutil.copytree(run / "export/1", run / "eval/export/3")
    (run / later[1].name).rename(later[1])
    _evaluate(run)
    assert _results(run)["export"] == str(run / "eval/export/12")
    assert {path.name for path in (run / "eval/export").iterdir()} == {"3", "4", "8", "12"}
    left = [path.name for path in (run / "eval/export/4").rglob("*") if path.is_file()]
    assert left == ["notes.txt"]
    assert (run / "eval/export/3/saved_model.pb").is_file()
    # Where the weights of a step are others, and no longer the best, its export is not theirs.
    found = _results(run)
    found["checkpoints"][0]["loss"] = 0.1
    found["checkpoints"][1]["manifest"] = "of other weights"
    write_json(str(run / "eval/results.json"), found)
    # It is known as its own where the run is under another name, too.
    (run.parent / "elsewhere").symlink_to(run)
    _evaluate(run.parent / "elsewhere")
    assert _results(run)["export"] is None and not (run / "eval/export/12").exists()


@pytest.mark.slow
def test_refusals(run, inputs, tmp_path):
    def refusal(*flags, model_dir=run, error=ValueError):
        with pytest.raises(error) as refused:
            _evaluate(model_dir, "--eval_timeout=0", *flags)
        assert "\n" not in str(refused.value)
        return str(refused.value)

    assert f"{tmp_path}/none got no checkpoint within 0s (--eval_timeout): start" in refusal(
        model_dir=tmp_path / "none", error=TimeoutError
    )
    assert not (tmp_path / "none").exists()
    assert "which no run of this library" in refusal(model_dir=inputs)
    hosts = "--worker_hosts=127.0.0.1:2222,127.0.0.1:2223"
    assert "--mode=eval runs on one machine: leave --worker_hosts out." in refusal(hosts)
    assert "other settings: --masking=whole_word (was token), --seed=3 (was 12345)." in refusal(
        "--seed=3", "--masking=whole_word"
    )
    assert not (run / "eval").exists()
    write_json(str(run / "eval/notes.json"), {})
    assert "eval holds notes.json, which no run of this library" in refusal()
    (run / "eval/notes.json").unlink()
    with (run / "eval/.lock").open("w") as lock:
        lock.write("123")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "eval is in use by an evaluation of process 123: wait for it" in refusal()
    for name in ("flags.json", "inputs.json"):  # an evaluation was begun
        shutil.copy(run / name, run / "eval")
    write_json(str(run / "eval/results.json"), {"checkpoints": [{"step": 4}]})
    assert "eval/results.json is not what an evaluation writes: move it away" in refusal()
    assert "--max_eval_steps=3 (was 200)" in refusal("--max_eval_steps=3")
    (run / "eval/results.json").unlink()
    kept, flags = (json.loads((run / f"{name}.json").read_text()) for name in ("inputs", "flags"))
    write_json(str(run / "inputs.json"), {**kept, "held_out": "another"})
    assert f"{run} has no held-out documents to evaluate on: its run holds out none" in refusal()
    write_json(str(run / "inputs.json"), {**kept, "--eval_input": "of before"})
    write_sealed(str(run / "flags.json"), {**flags, "eval_input": [f"{inputs}/corpus.txt"]}, {})
    assert "What --eval_input read is not what" in refusal()


@pytest.mark.slow
def test_a_signal_ends_it_with_a_sentence(run):
    (run / "results.json").unlink()
    started = Started("bert_tf.pretrain", ["--mode=eval", f"--model_dir={run}", "--export=false"])
    while "Waiting for a checkpoint after step 12, 1h00m at most." not in started.printed:
        os.kill(started.number, 0)  # fails once it has ended
        time.sleep(0.05)
    os.kill(started.number, signal.SIGTERM)
    ended = started.ended()
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (130, "Interrupted.")
    assert "Traceback" not in ended.stderr
    assert re.search("Stopped. The same command evaluates the rest", ended.stdout)
    assert len(_results(run)["checkpoints"]) == 3
