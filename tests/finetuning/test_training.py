import collections
import dataclasses
import json
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.evaluation.evaluation import Inference
from bert_tf.features import TEMPERATURE
from bert_tf.finetuning import objective, training
from bert_tf.finetuning.run import run
from bert_tf.finetuning.training import DivergedError, LossCurve, describe_collapse
from bert_tf.modeling.layers import Dropout
from bert_tf.pipelines.classification import classification_examples
from bert_tf.tasks.texts.classification import ClassificationTask
from bert_tf.training import attention, saved_states
from bert_tf.training.attention import attend_in_groups
from bert_tf.training.compilation import should_use_xla
from bert_tf.training.loop import BadStep, TrainingLoop
from bert_tf.training.optimizers import create_optimizer
from bert_tf.training.schedules import WarmupLinearDecay

from .small_runs import assert_ends_as, results_of, saved, sentences, settings


def record_trainings(monkeypatch):
    """Returns a list that collects the trainings of ``run`` as they finish."""
    trainer = training.FineTuningTrainer
    seen, finish = [], trainer.finish
    monkeypatch.setattr(trainer, "finish", lambda self: seen.append(self) or finish(self))
    return seen


def test_contents_of_finished_run(finished):
    state, results = saved(finished / "last"), results_of(finished)
    leaves = {name.rsplit("/", 1)[-1] for name in state}
    assert "model/bert_encoder/embeddings/word_embeddings" in state
    assert state["optimizer/adamw/iteration"] == 18
    assert {"kernel", "bias", "gamma", "beta"} <= leaves
    # Evaluation follows each epoch of 6 steps.
    evaluated = [
        (one["scores"][results["headline"]], -one["scores"]["loss"], -one["step"])
        for one in results["evaluations"]
    ]
    assert [-step for *_, step in evaluated] == [6, 12, 18]
    score, _, step = max(evaluated)
    assert results["best"]["step"] == -step
    assert results["scores"]["dev"][results["headline"]] == score
    best_weights = saved_states.find_latest(str(finished / "checkpoints"))
    assert best_weights.step == results["best"]["step"]
    written = {}
    for group in ("train", "eval"):
        (path,) = (finished / "logs" / group).iterdir()
        events = tf.compat.v1.train.summary_iterator(str(path))
        written[group] = {value.tag for event in events for value in event.summary.value}
    assert {"scores/loss", "optimizer/learning_rate"} <= written["train"]
    assert {f"scores/{name}" for name in results["scores"]["dev"]} == written["eval"]


def test_flags_configure_training(flagged_run):
    results = results_of(flagged_run.path)
    losses = {entry["step"]: entry["scores"]["loss"] for entry in results["evaluations"]}
    assert (results["steps"], list(losses), results["headline"]) == (8, [6, 8], "loss")
    assert results["best"]["step"] == min(losses, key=losses.get)
    assert results["scores"]["dev"]["loss"] == pytest.approx(min(losses.values()))
    counts = results["classes"]["dev"]
    assert sum(row["true"] for row in counts.values()) == 20 and counts.keys() == {"neg", "pos"}
    config = json.loads((flagged_run.path / "bert_config.json").read_text())
    assert config["hidden_dropout_prob"] == config["attention_probs_dropout_prob"] == 0.25
    assert bert_tf.load(flagged_run.path).get_config()["dropout"] == 0.25
    # The only block and the embedding tables are frozen.
    before, after = (
        bert_tf.load(flagged_run.flags["init_checkpoint"]),
        saved(flagged_run.path / "last"),
    )
    frozen = [weight for weight in before.weights if f"model/{weight.path}" in after]
    assert len(frozen) > 10
    for weight in frozen:
        np.testing.assert_array_equal(after[f"model/{weight.path}"], weight, err_msg=weight.path)


def test_training_equals_keras_fit(inputs, tmp_path, monkeypatch, capsys):
    """Uses micro-batches, within which attention runs in groups of texts."""
    default = TrainingLoop.__init__.__kwdefaults__
    assert default["clip_norm"] == 1.0  # as in Google's optimization.py
    clip_norm, grouped_calls = 0.05, []  # below the gradient norm of every step
    monkeypatch.setitem(default, "clip_norm", clip_norm)

    def attend(*arguments):
        grouped_calls.append(attend)
        return attend_in_groups(*arguments)

    flags = {"hidden_dropout_prob": 0, "dev_file": None, "dev_fraction": 0}
    flags |= {"num_train_epochs": 1, "warmup_proportion": 0.2}
    flags |= {"test_file": inputs / "dev.tsv"}
    # 46 examples make 5 batches of 8 and one of 6: micro-batches of 2, and 3 of 2.
    monkeypatch.setattr(attention, "_MAX_SCORES", 1)  # each text forms a group
    monkeypatch.setattr(attention, "attend_in_groups", attend)
    seen = record_trainings(monkeypatch)
    # Like the no-answer threshold, without which an export would answer every question.
    monkeypatch.setattr(ClassificationTask, "default_thresholds", {TEMPERATURE: 1.5})
    run(settings(inputs, tmp_path / "run", gradient_accumulation_steps=4, **flags))
    assert grouped_calls and not seen[0].model.encoder.recomputes_blocks
    # A labeled test set does not select the best weights.
    results = results_of(tmp_path / "run")
    assert (results["best"]["step"], results["evaluations"]) == (6, [])
    assert results["scores"].keys() == {"test"}
    assert results["thresholds"] == bert_tf.load(tmp_path / "run").thresholds == {TEMPERATURE: 1.5}
    assert "No dev set" in capsys.readouterr().out
    rows = sentences(46)
    keras.utils.set_random_seed(12345)
    model = bert_tf.BertClassifier.from_checkpoint(
        str(inputs / "tiny"), num_classes=2, max_seq_length=16
    )
    for layer in model._flatten_layers():
        if isinstance(layer, Dropout):
            layer.rate = 0.0  # fit draws dropout masks differently
    examples = classification_examples(
        model.preprocessor.tokenizer,
        [text for text, _ in rows],
        labels=[int(label == "pos") for _, label in rows],
        max_seq_length=16,
    )
    schedule = WarmupLinearDecay(1e-3, 1, 6)
    model.encoder.trains_without_padding = True
    model.compile(
        optimizer=create_optimizer(
            "adamw", schedule, model.trainable_variables, global_clipnorm=clip_norm
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=True,
    )
    batches = examples.training_batches(8, epochs=1, seed=12345, length_multiple=1)
    model.fit(batches, steps_per_epoch=6, shuffle=False, verbose=0)
    last = saved(tmp_path / "run" / "last")
    for weight in model.weights:
        trained = last[f"model/{weight.path}"]
        np.testing.assert_allclose(trained, weight, rtol=0, atol=1e-6, err_msg=weight.path)


@pytest.mark.parametrize(
    ("flags", "device", "replicas", "compiles"),
    [
        ({}, "GPU", 1, True),
        ({}, "CPU", 1, False),
        ({}, "GPU", 2, False),
        ({"jit_compile": "false"}, "GPU", 1, False),
        ({"jit_compile": "true"}, "CPU", 1, True),
        ({"long_text": "windows"}, "GPU", 1, False),
    ],
)
def test_xla_is_used_for_few_shapes(inputs, tmp_path, flags, device, replicas, compiles):
    run_settings = settings(inputs, tmp_path, **flags)
    assert (
        should_use_xla(run_settings.jit_compile, device, run_settings.changes_shapes(replicas))
        == compiles
    )


@pytest.mark.slow
def test_training_with_xla_equals_training_without(inputs, tmp_path, capsys):
    """Examples are padded further with XLA.

    46 examples make 5 batches of 8 and one of 6, in micro-batches of 4, and 2 of 3.
    """
    flags = {"hidden_dropout_prob": 0, "num_train_epochs": 1, "export": False}
    flags |= {"gradient_accumulation_steps": 2, "dev_file": None, "dev_fraction": 0}
    for choice in ("true", "false"):
        run(settings(inputs, tmp_path / choice, jit_compile=choice, **flags))
    message = "XLA compiles the step once per sequence length: 8, 16 tokens."
    assert capsys.readouterr().out.count(message) == 1
    ours, theirs = (saved(tmp_path / choice / "last") for choice in ("true", "false"))
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=2e-6, err_msg=name)


def test_best_weights_are_kept_and_training_stops_early(inputs, tmp_path, monkeypatch):
    """The scores are 0.7, 0.6 and 0.65 at steps 1, 6 and 13, which is two epochs after the best."""
    counts, left = collections.Counter(), collections.deque([0.7, 0.6, 0.65])
    outputs, score = Inference.outputs, ClassificationTask.score

    def counted(self, examples):
        counts[len(examples)] += 1
        return outputs(self, examples)

    def replaced_score(self, *given):
        found = score(self, *given)
        return dataclasses.replace(found, scores={self.headline: left.popleft() if left else 0.7})

    monkeypatch.setattr(Inference, "outputs", counted)
    monkeypatch.setattr(ClassificationTask, "score", replaced_score)
    is_due = lambda self: self.state.step in (1, 6, 13)  # noqa: E731
    monkeypatch.setattr(training.FineTuningTrainer, "is_evaluation_due", is_due)
    monkeypatch.setattr(training.FineTuningTrainer, "next_pause", lambda self: self.state.step + 1)
    flags = {"num_train_epochs": 5, "early_stopping_epochs": 2, "test_file": inputs / "test.tsv"}
    run(settings(inputs, tmp_path / "run", **flags))
    results = results_of(tmp_path / "run")
    assert (results["steps"], results["best"]["step"]) == (13, 1)
    assert counts == {20: 3, 9: 1}  # one pass per evaluation, and one for the test set
    model = bert_tf.load(str(tmp_path / "run"), max_seq_length=16)
    for file in ("dev.tsv", "test.tsv"):
        texts = [line.split("\t")[0] for line in (inputs / file).read_text().splitlines()[1:]]
        logits = model(model.preprocessor(texts), training=False) / model.thresholds[TEMPERATURE]
        path = tmp_path / "run" / file.removesuffix(".tsv") / file
        header, *rows = (line.split("\t") for line in path.read_text().splitlines())
        column = header.index(f"probability_{model.labels[1]}")
        probabilities = [float(row[column]) for row in rows]
        np.testing.assert_allclose(probabilities, tf.nn.softmax(logits)[:, 1], atol=1e-4)


def test_interruption_during_evaluation(inputs, finished, tmp_path, monkeypatch, capsys):
    """The evaluation completes and is saved, since a signal may arrive at any time."""
    evaluate, first = training.FineTuningTrainer.evaluate, [True]

    def interrupted(self):
        if first:
            self.interruption.requested = first.pop()
        return evaluate(self)

    monkeypatch.setattr(training.FineTuningTrainer, "evaluate", interrupted)
    flags = settings(inputs, tmp_path / "run", test_file=inputs / "test.tsv")
    with pytest.raises(KeyboardInterrupt):
        run(flags)
    assert "Stopped at step 6. Rerun the same command to resume" in capsys.readouterr().out
    run(flags)
    assert_ends_as(finished, tmp_path / "run")


# === Detection of collapse ===


def curve(losses, planned=None):
    curve = LossCurve(planned or len(losses))
    for step, loss in enumerate(losses):
        curve.add(step, loss)
    return curve


@pytest.mark.parametrize(
    ("losses", "planned", "flat"),
    [
        # Compares the means of the first and last ten of a hundred; a decrease of 2% counts as
        # falling.
        ([1.0] * 10 + [5.0] * 80 + [0.979] * 10, None, False),
        ([1.0] * 10 + [0.1] * 80 + [0.981] * 10, None, True),
        # With few steps, nothing is detected.
        ([1.0] * 49, None, False),
        ([1.0] * 50, None, True),
        # A run that stopped early is assessed by its last tenth.
        ([1.0] * 60, 100, True),
        ([1.0] * 50 + [0.5] * 10, 100, False),
    ],
)
def test_flat_loss_is_detected(losses, planned, flat):
    assert curve(losses, planned).is_flat() == flat


def test_collapses_are_described():
    flat, falling = curve([1.0] * 50), curve([1.0 / step for step in range(1, 51)])
    assert describe_collapse(falling, constant=None, set_name="dev") is None
    same = "every prediction is the same"
    assert describe_collapse(falling, constant=same, set_name="dev") == f"on dev {same}"
    assert describe_collapse(flat, constant=same, set_name="dev") == (
        f"on dev {same} and the training loss did not fall (from 1.000 to 1.000)"
    )
    settings = types.SimpleNamespace(precision="bfloat16")
    assert training._divergence(BadStep(7, (), float("nan"), 1.0), settings) == (
        "The loss of step 8 is nan. Rerun with a lower --learning_rate (or --precision=float32) "
        "and another --model_dir; saved checkpoints are kept."
    )


# === Bad steps ===


def test_nonfinite_loss_ends_run(inputs, tmp_path, monkeypatch):
    """The batch that contains the class "odd" has no finite loss."""
    table = tmp_path / "train.tsv"
    table.write_text("text\tlabel\n" + 12 * "good film\tgood\nbad film\tbad\n" + "film\todd\n")
    part, seen = objective.TaskObjective.part, record_trainings(monkeypatch)

    def without_a_loss(self, batch, totals):
        loss, sums = part(self, batch, totals)
        is_odd = tf.reduce_any(batch["targets"] == 2)
        return tf.where(is_odd, np.nan, loss), tf.where(is_odd, np.nan, sums)

    monkeypatch.setattr(objective.TaskObjective, "part", without_a_loss)
    flags = {"train_file": table, "dev_file": None, "dev_fraction": 0, "train_batch_size": 8}
    flags |= {"num_train_epochs": 1, "export": False}
    run_settings = settings(inputs, tmp_path / "ends", **flags, remat=True)
    message = (
        "The loss of step . is nan. Rerun with a lower --learning_rate and another --model_dir"
    )
    with pytest.raises(DivergedError, match=message):
        run(run_settings)
    trained = seen[-1]
    assert trained.model.encoder.recomputes_blocks
