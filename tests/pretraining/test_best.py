"""The weights of the best evaluation, and of steps that are named, are kept for good."""

import json
import shutil

import pytest

import bert_tf
from bert_tf.pretraining.run import _PretrainingRun, run
from bert_tf.training import checkpoints

from .commands import arguments, assert_bit_equal, parse, weights

pytestmark = pytest.mark.slow


def _of_the_model(values):
    return {name: value for name, value in values.items() if name.startswith("model/")}


@pytest.mark.exhaustive
def test_the_best_is_kept_across_a_restart(inputs, tmp_path, monkeypatch, capsys):
    """Losses by step: 2 at 3, 1 at 6, 3 at 9; the run is stopped after 9 and goes on to 12, 1.5."""
    evaluate = _PretrainingRun._evaluate

    def replaced(self, *arguments):
        if self.loop.step == 9 and not stopped:
            stopped.append(True)
            self.interruption.requested = True
        figures = evaluate(self, *arguments)
        loss = losses[self.loop.step]
        return {**figures, "masked_lm_loss": loss - 0.5, "next_sentence_loss": 0.5}

    stopped, losses = [], {3: 2.0, 6: 1.0, 9: 3.0, 12: 1.5}
    monkeypatch.setattr(_PretrainingRun, "_evaluate", replaced)
    model_dir = tmp_path / "run"
    flags = {"save_checkpoints_steps": 3, "keep_checkpoints": 4, "export": "false"}
    settings = parse(*arguments(inputs, model_dir, **flags))[0]
    with pytest.raises(KeyboardInterrupt):
        run(settings)
    assert_bit_equal(weights(model_dir / "best", 6), _of_the_model(weights(model_dir, 6)))
    run(settings)
    found = checkpoints.find_latest(str(model_dir / "best" / "checkpoints"))
    assert (found.step, found.extra) == (6, {"step": 6, "phase": 0, "loss": 1.0})
    assert json.loads((model_dir / "results.json").read_text())["best"] == found.extra
    assert "was after step 6 (loss 1.000); its weights: " in capsys.readouterr().out
    loaded = bert_tf.load(str(model_dir / "best"))
    kept = {f"model/{v.path}": v.numpy() for v in loaded.weights}
    assert_bit_equal(kept, weights(model_dir / "best", 6))
    # From step 3 on once more, with other losses: what was best after it, or is damaged, is not,
    # and step 3, of which nothing says whether it was evaluated, is.
    losses |= {6: 4.0, 12: 3.5}
    for damaged in ("", "best/checkpoints/step-00000003/variables.index"):
        for gone in ("", *(f"checkpoints/step-{n:08d}/manifest.json" for n in (6, 9, 12))):
            (model_dir / (gone or "results.json")).unlink()
        if damaged:
            (model_dir / damaged).write_bytes(b"")
        run(settings)
        printed = capsys.readouterr().out
        assert ("best is damaged: the next evaluation is the best so far." in printed) == bool(
            damaged
        )
        assert "was after step 3 (loss 2.000); its weights: " in printed
        assert_bit_equal(weights(model_dir / "best", 3), _of_the_model(weights(model_dir, 3)))
    # Without its checkpoints the run begins anew; what is not a number is never the best.
    losses |= {3: 5.0, 6: float("nan"), 9: 7.0, 12: 6.0}
    checkpoints.delete_all(str(model_dir / "checkpoints"))
    (model_dir / "results.json").unlink()
    run(settings)
    assert "was after step 3 (loss 5.000); its weights: " in capsys.readouterr().out
    assert_bit_equal(weights(model_dir / "best", 3), _of_the_model(weights(model_dir, 3)))
    # A copy that the user put there stays.
    shutil.copytree(
        model_dir / "checkpoints/step-00000012", model_dir / "best/checkpoints/step-00000012"
    )
    (model_dir / "results.json").unlink()
    with pytest.raises(
        ValueError, match="best/checkpoints holds a checkpoint that is no run's best"
    ):
        run(settings)
    assert (model_dir / "best/checkpoints/step-00000012").is_dir()


@pytest.mark.exhaustive
def test_named_steps_are_kept_and_load(inputs, tmp_path):
    flags = {"save_checkpoints_steps": 5, "export": "false"}
    plain, kept = tmp_path / "plain", tmp_path / "kept"
    run(parse(*arguments(inputs, plain, **{**flags, "save_checkpoints_steps": 1}))[0])
    flags |= {"keep_checkpoints": 1, "keep_steps": "12,3,5"}
    run(parse(*arguments(inputs, kept, **flags))[0])
    assert sorted(path.name for path in (kept / "steps").iterdir()) == ["12", "3", "5"]
    # The stops for them change nothing, and each is the model that was there then.
    assert_bit_equal(weights(kept, 12), weights(plain, 12))
    assert_bit_equal(weights(kept / "steps" / "12", 12), _of_the_model(weights(plain, 12)))
    loaded = bert_tf.load(str(kept / "steps" / "3"))
    assert_bit_equal(
        {f"model/{v.path}": v.numpy() for v in loaded.weights}, weights(kept / "steps" / "3", 3)
    )
    three = weights(kept / "steps" / "3", 3)
    assert any((three[name] != value).any() for name, value in weights(kept, 12).items()
               if name in three)  # fmt: skip


def test_a_checkpoint_that_was_not_evaluated_is_when_the_run_goes_on(inputs, tmp_path, monkeypatch):
    """The last checkpoint's evaluation would have been the best; the process ends before it."""
    evaluate = _PretrainingRun._evaluate
    killed = []

    def replaced(self, *arguments):
        if self.loop.step == 12 and not killed:
            killed.append(True)
            raise SystemExit
        losses = {"masked_lm_loss": 20.0 - self.loop.step, "next_sentence_loss": 0.0}
        return {**evaluate(self, *arguments), **losses}

    monkeypatch.setattr(_PretrainingRun, "_evaluate", replaced)
    flags = {"save_checkpoints_steps": 6, "export": "false", "keep_steps": "6"}
    settings = parse(*arguments(inputs, tmp_path / "run", **flags))[0]
    with pytest.raises(SystemExit):
        run(settings)
    run(settings)
    best = json.loads((tmp_path / "run" / "results.json").read_text())["best"]
    assert best == {"step": 12, "phase": 0, "loss": 8.0}
    assert not (tmp_path / "run" / "progress.json").exists()
    # Begun anew with another seed: what is kept of step 6 is the new training's, and what is said
    # of an older one's checkpoint holds for none.
    (tmp_path / "run" / "progress.json").write_text('{"evaluated": 6, "ended": 6}')
    before = weights(tmp_path / "run" / "steps" / "6", 6)
    (tmp_path / "run" / "results.json").unlink()
    checkpoints.delete_all(str(tmp_path / "run" / "checkpoints"))
    run(parse(*arguments(inputs, tmp_path / "run", **{**flags, "seed": 7}))[0])
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["step"] == 12 and results["trained_tokens"] == 12 * 8 * 32
    after = weights(tmp_path / "run" / "steps" / "6", 6)
    assert any((before[name] != value).any() for name, value in after.items())


def test_a_run_within_its_corpus_is_refused(inputs, tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    shutil.copy(inputs / "corpus.txt", corpus)
    given = parse(*arguments(inputs, corpus / "run", input=corpus))[0]
    with pytest.raises(ValueError, match=r"^--model_dir=.*/run is in .*/corpus, which is read"):
        run(given)
    assert [path.name for path in corpus.iterdir()] == ["corpus.txt"]
