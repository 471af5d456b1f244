import collections
import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.finetuning import objective, stages, training
from bert_tf.finetuning.run import run
from bert_tf.finetuning.settings import FineTuningSettings, flag_defaults
from bert_tf.finetuning.training import DivergedError, LossCurve, describe_collapse
from bert_tf.modeling.base import TEMPERATURE
from bert_tf.modeling.dropout import Dropout
from bert_tf.pipelines.classification import classification_examples
from bert_tf.tasks.evaluation import Evaluation
from bert_tf.tasks.inference import Inference
from bert_tf.tasks.text_task import ClassTask
from bert_tf.training import checkpoints, loop
from bert_tf.training.bad_steps import BadStep
from bert_tf.training.optimizers import create_optimizer
from bert_tf.training.schedules import WarmupLinearDecay

from .small_runs import assert_ends_as, results_of, saved, sentences, settings

FLAGS = {"eval_steps": 4}


def stop_at(monkeypatch, *steps):
    """Asks a training to stop at each of the steps, as Ctrl-C does."""
    left = collections.deque(steps)
    before = training.Training.is_save_due

    def is_save_due(self):
        if left and self.state.step == left[0]:
            left.popleft()
            self.interruption.requested = True
        return before(self)

    monkeypatch.setattr(training.Training, "is_save_due", is_save_due)
    one_step_a_call(monkeypatch)


def one_step_a_call(monkeypatch):
    """So that each step is looked at, however short it is."""
    monkeypatch.setattr(loop, "_CALL_SECONDS", 0.0)


def test_the_state_holds_all_that_going_on_needs(finished):
    names = saved(finished / "last")
    leaves = {name.rsplit("/", 1)[-1] for name in names}
    assert "model/bert_encoder/embeddings/word_embeddings" in names
    assert names["optimizer/adamw/iteration"] == 18
    assert {"kernel", "bias", "gamma", "beta"} <= leaves


def test_a_signal_during_an_evaluation_loses_nothing(inputs, tmp_path, monkeypatch, capsys):
    before = training.Training.evaluate

    def evaluate(self):
        self.interruption.requested = True
        return before(self)

    monkeypatch.setattr(training.Training, "evaluate", evaluate)
    flags = settings(inputs, tmp_path / "run", **FLAGS)
    with pytest.raises(KeyboardInterrupt):
        run(flags)
    assert "Stopped at step 4. The same command goes on from there." in capsys.readouterr().out
    assert checkpoints.find_latest(str(tmp_path / "run" / "last")).step == 4


@pytest.mark.slow
@pytest.mark.parametrize("stops", [(9,), (1, 4, 6, 7, 12, 17, 18)])
def test_interrupted_and_resumed(finished, inputs, tmp_path, monkeypatch, capsys, stops):
    flags = settings(inputs, tmp_path / "run", **FLAGS, test_file=inputs / "test.tsv")
    stop_at(monkeypatch, *stops)
    for stop in stops:
        with pytest.raises(KeyboardInterrupt):
            run(flags)
        printed = capsys.readouterr().out
        assert f"Stopped at step {stop}. The same command goes on from there." in printed
    run(flags)
    if stops == (9,):  # after the last step there is nothing to resume
        assert "Going on from the state saved at step 9." in capsys.readouterr().out
    assert_ends_as(finished, tmp_path / "run")


@pytest.mark.slow
class Losses(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.found = []

    def on_train_batch_end(self, batch, logs=None):
        self.found.append(logs["loss"])


def test_each_step_and_each_part_of_it_draws_other_masks(inputs, tmp_path):
    """All rows are one, and no weight moves: losses differ by what dropout leaves out alone."""
    table = tmp_path / "train.tsv"
    table.write_text("text\tlabel\n" + 8 * "good film\t1.5\n")
    flags = {"task": "regression", "train_file": table, "dev_file": None, "dev_fraction": 0}
    losses = Losses()

    def losses_of(name, **changes):
        run(settings(inputs, tmp_path / name, learning_rate=1e-30, **flags, **changes), [losses])
        return losses.found

    whole = losses_of("whole", train_batch_size=4, max_steps=3)
    assert len(set(whole)) == 3
    # The first part draws what a whole batch of its size draws; so would a second, by its seed.
    parts = losses_of("parts", train_batch_size=8, gradient_accumulation_steps=2, max_steps=1)
    assert parts[0] != pytest.approx(whole[0], rel=1e-6)
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0)
    without = losses_of("without", train_batch_size=4, max_steps=2, classifier_dropout=0, **rates)
    assert without[0] == pytest.approx(without[1], rel=1e-6)


def test_it_is_what_ten_lines_of_keras_do(inputs, tmp_path, monkeypatch):
    assert training._CLIP_NORM == 1.0  # as in Google's optimization.py
    clip_norm = 0.05  # below every step's norm
    monkeypatch.setattr(training, "_CLIP_NORM", clip_norm)
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0)
    flags = {**FLAGS, **rates, "classifier_dropout": 0, "export": False}
    run(settings(inputs, tmp_path / "run", **flags))
    rows = sentences(46)
    keras.utils.set_random_seed(12345)
    model = bert_tf.BertClassifier.from_checkpoint(
        str(inputs / "tiny"), num_classes=2, max_seq_length=16
    )
    for layer in model._flatten_layers():
        if isinstance(layer, Dropout):
            layer.rate = 0.0  # fit draws masks by another rule
    examples = classification_examples(
        model.preprocessor.tokenizer,
        [text for text, _ in rows],
        labels=[int(label == "pos") for _, label in rows],
        max_seq_length=16,
    )
    schedule = WarmupLinearDecay(1e-3, 1, 18)
    model.encoder.trains_without_padding = True
    model.compile(
        optimizer=create_optimizer(
            "adamw", schedule, model.trainable_variables, global_clipnorm=clip_norm
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    batches = examples.training_batches(8, epochs=3, seed=12345, length_multiple=1)
    model.fit(batches, epochs=3, steps_per_epoch=6, shuffle=False, verbose=0)
    last = saved(tmp_path / "run" / "last")
    for weight in model.weights:
        found = last[f"model/{weight.path}"]
        np.testing.assert_allclose(found, weight.numpy(), rtol=0, atol=1e-6, err_msg=weight.path)


def test_evaluations_follow_each_epoch_and_so_many_steps(finished):
    results = results_of(finished)
    assert [entry["step"] for entry in results["evaluations"]] == [4, 6, 8, 12, 16, 18]
    headline = results["headline"]
    scores = {entry["step"]: entry["scores"][headline] for entry in results["evaluations"]}
    best = max(scores.values())
    assert results["best"]["step"] == min(step for step in scores if scores[step] == best)
    assert results["scores"]["dev"][headline] == best


def test_the_metric_decides_which_weights_are_kept(inputs, tmp_path):
    run(settings(inputs, tmp_path / "run", metric="loss", learning_rate=3e-2))
    results = results_of(tmp_path / "run")
    losses = {entry["step"]: entry["scores"]["loss"] for entry in results["evaluations"]}
    assert results["headline"] == "loss" and len(losses) == 3
    assert results["best"]["step"] == min(losses, key=losses.get)
    assert results["scores"]["dev"]["loss"] == pytest.approx(min(losses.values()))
    low, high = results["intervals"]["dev"]["loss"]
    assert low < results["scores"]["dev"]["loss"] < high
    counts = results["classes"]["dev"]
    assert sum(row["true"] for row in counts.values()) == 20 and counts.keys() == {"neg", "pos"}
    with pytest.raises(ValueError, match="--metric=f1_odd is no score of .*classes are neg, pos"):
        run(settings(inputs, tmp_path / "odd", metric="f1_odd"))


def test_the_best_weights_are_kept(finished):
    found = checkpoints.find_latest(str(finished / "checkpoints"))
    assert found.step == results_of(finished)["best"]["step"]


def test_tensorboards_curves(finished):
    written = {}
    for group in ("train", "eval"):
        (path,) = (finished / "logs" / group).iterdir()
        events = tf.compat.v1.train.summary_iterator(str(path))
        written[group] = {value.tag for event in events for value in event.summary.value}
    assert {"loss", "learning_rate"} <= written["train"]
    assert set(results_of(finished)["scores"]["dev"]) == written["eval"]


@pytest.mark.slow
def test_frozen_layers_stay_as_they_were(inputs, tmp_path):
    run(settings(inputs, tmp_path / "run", freeze=1, num_train_epochs=1))
    before, after = saved(inputs / "tiny" / "checkpoints"), saved(tmp_path / "run" / "last")
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    pooler = {name for name in before if "/pooler/" in name}
    assert pooler and changed == pooler


@pytest.mark.parametrize(
    ("evaluated", "scores", "epochs", "steps", "best"),
    [
        # An epoch (of 6 steps) after the first evaluation there is none: the next one decides.
        ((1, 6, 8), [0.7, 0.6, 0.65], 1, 8, 1),
        pytest.param(
            range(6, 31, 6),
            [0.5, 0.7, 0.6, 0.7, 0.9],
            2,
            24,
            12,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_early_stopping(inputs, tmp_path, monkeypatch, evaluated, scores, epochs, steps, best):
    left = iter(scores)

    def falling(self, inference, set_name, thresholds=None):
        return Evaluation({self.headline: next(left)}, constant=False)

    monkeypatch.setattr(ClassTask, "evaluate", falling)
    monkeypatch.setattr(
        training.Training, "is_evaluation_due", lambda self: self.state.step in evaluated
    )
    monkeypatch.setattr(training.Training, "next_pause", lambda self: self.state.step + 1)
    monkeypatch.setattr(stages, "evaluate_all", lambda task, inference: {})
    monkeypatch.setattr(ClassTask, "write_predictions", lambda *given: [])
    run(settings(inputs, tmp_path / "run", num_train_epochs=5, early_stopping_epochs=epochs))
    results = results_of(tmp_path / "run")
    assert (results["steps"], results["best"]["step"]) == (steps, best)


@pytest.mark.parametrize(
    ("scores", "best"),
    [pytest.param([0.1, 0.2], 2, marks=pytest.mark.slow), ([0.2, 0.1], 1)],
)
def test_the_model_runs_on_a_set_once_for_each_evaluation(
    inputs, tmp_path, monkeypatch, scores, best
):
    counts = collections.Counter()
    outputs, evaluate = Inference.outputs, ClassTask.evaluate
    left = collections.deque(scores)

    def counted(self, examples):
        counts[len(examples)] += 1
        return outputs(self, examples)

    def evaluated(self, *given):
        found = evaluate(self, *given)
        value = left.popleft() if left else scores[best - 1]
        return dataclasses.replace(found, scores={self.headline: value})

    monkeypatch.setattr(Inference, "outputs", counted)
    monkeypatch.setattr(ClassTask, "evaluate", evaluated)
    run(settings(inputs, tmp_path / "run", test_file=inputs / "test.tsv", num_train_epochs=2))
    assert counts == {20: 2, 9: 1}  # dev after each epoch, and test
    assert results_of(tmp_path / "run")["best"]["step"] == 6 * best
    rows = [line.split("\t") for line in (tmp_path / "run/dev/dev.tsv").read_text().splitlines()]
    model = bert_tf.load(str(tmp_path / "run"), max_seq_length=16)
    texts = [line.split("\t")[0] for line in (inputs / "dev.tsv").read_text().splitlines()[1:]]
    logits = model(model.preprocessor(texts), training=False) / model.thresholds[TEMPERATURE]
    column = rows[0].index(f"probability_{model.labels[1]}")
    np.testing.assert_allclose(
        [float(row[column]) for row in rows[1:]], tf.nn.softmax(logits)[:, 1], atol=1e-4
    )


@pytest.mark.slow
def test_a_loss_that_is_no_number_stops_the_run(inputs, tmp_path):
    with pytest.raises(DivergedError, match="The norm of the weights .*: start again with a lower"):
        run(settings(inputs, tmp_path / "run", learning_rate=1e30))
    assert not (tmp_path / "run" / "results.json").exists()


# === What tells a collapse ===


def curve(losses, planned=None):
    made = LossCurve(planned or len(losses))
    for step, loss in enumerate(losses):
        made.add(step, loss)
    return made


@pytest.mark.parametrize(
    ("losses", "planned", "flat"),
    [
        # Means of the first and of the last ten of a hundred: from 2 percent on it is a fall.
        ([1.0] * 10 + [5.0] * 80 + [0.979] * 10, None, False),
        ([1.0] * 10 + [0.1] * 80 + [0.981] * 10, None, True),
        # A few steps say nothing.
        ([1.0] * 49, None, False),
        ([1.0] * 50, None, True),
        # A run that stopped early is judged by its last tenth.
        ([1.0] * 60, 100, True),
        ([1.0] * 50 + [0.5] * 10, 100, False),
    ],
)
def test_what_counts_as_a_fall_of_the_loss(losses, planned, flat):
    assert curve(losses, planned).is_flat() == flat


def test_a_curve_survives_json():
    made = curve([0.1 * step for step in range(1, 30)], planned=90)
    again = LossCurve(**json.loads(json.dumps(dataclasses.asdict(made))))
    for one in (made, again):
        one.add(29, 0.7)
    assert made == again


def test_collapses_are_named():
    flat, falling = curve([1.0] * 50), curve([1.0 / step for step in range(1, 51)])
    assert describe_collapse(falling, constant=None, set_name="dev") is None
    same = "every prediction is the same"
    assert describe_collapse(falling, constant=same, set_name="dev") == f"on dev {same}"
    assert describe_collapse(flat, constant=same, set_name="dev") == (
        f"on dev {same} and the training loss did not fall (from 1.000 to 1.000)"
    )
    asked = FineTuningSettings(**{**flag_defaults(), "precision": "bfloat16"})
    assert training._divergence(BadStep(7, (), float("nan"), 1.0), asked) == (
        "The loss of step 8 is nan: start again with a lower --learning_rate and another "
        "--model_dir (or --precision=float32, or --on_bad_step=skip); what was saved before is "
        "kept."
    )


# === Bad steps ===


def test_a_step_that_is_no_number_is_skipped_where_that_is_asked_for(
    inputs, tmp_path, monkeypatch, capsys
):
    """The batch with the row of the class "odd" has no loss."""
    table = tmp_path / "train.tsv"
    table.write_text("text\tlabel\n" + 12 * "good film\tgood\nbad film\tbad\n" + "film\todd\n")
    part, seen = objective.TaskObjective.part, []

    def without_a_loss(self, batch, totals):
        loss, sums = part(self, batch, totals)
        is_odd = tf.reduce_any(batch["targets"] == 2)
        return tf.where(is_odd, np.nan, loss), tf.where(is_odd, np.nan, sums)

    def finish(self):
        seen.append(self)
        return before(self)

    before = training.Training.finish
    monkeypatch.setattr(objective.TaskObjective, "part", without_a_loss)
    monkeypatch.setattr(training.Training, "finish", finish)
    flags = {"train_file": table, "dev_file": None, "dev_fraction": 0, "train_batch_size": 8}
    flags |= {"num_train_epochs": 2, "export": False}
    with pytest.raises(DivergedError, match="The loss of step . is nan: start again with a lower"):
        run(settings(inputs, tmp_path / "stops", **flags))
    capsys.readouterr()
    run(settings(inputs, tmp_path / "skips", **flags, on_bad_step="skip", remat=True))
    # Of two epochs of four steps one each; what is skipped counts as a step, and as no update.
    assert capsys.readouterr().out.count(": skipped.") == 2
    trained = seen[-1]
    assert (trained.step, trained.loop.step, sum(trained.state.curve.counts)) == (8, 6, 6)
    assert trained.model.encoder.recomputes_blocks and not seen[0].model.encoder.recomputes_blocks
    assert all(np.isfinite(weight).all() for weight in trained.model.get_weights())
