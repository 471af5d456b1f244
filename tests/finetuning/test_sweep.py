import itertools
import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.finetuning import sweep
from bert_tf.finetuning.run import run
from bert_tf.finetuning.summary import table_rows
from bert_tf.finetuning.training import FineTuningInputs
from bert_tf.modeling.keras_hooks import fresh_names
from bert_tf.training import saved_states
from bert_tf.training.run_directory import FineTuningDirectory

from .small_runs import results_of, settings
from .small_tasks import make_task, random_sentences


def test_grid_of_the_paper(inputs, tmp_path):
    swept = {"learning_rate": None, "train_batch_size": None, "sweep": "paper"}
    flags = settings(inputs, tmp_path, **swept, restarts=2, seed=2**32 - 1)
    runs = sweep.plan_runs(flags, "runs")
    assert len(runs) == 36
    grid = {
        (run.train_batch_size, run.learning_rate, run.num_train_epochs, run.seed)
        for run in runs.values()
    }
    seeds = (2**32 - 1, 0)
    assert grid == set(itertools.product((16, 32), (5e-5, 3e-5, 2e-5), (2, 3, 4), seeds))
    name, first = next(iter(runs.items()))
    assert name == "batch16_rate5e-05_epochs2_seed4294967295"
    assert first.model_dir == f"runs/{name}"
    assert (first.sweep, first.restarts) == (None, 1)


def test_each_feature_variant_is_a_separate_run(inputs, tmp_path):
    changes = {"feature_based": "last,weighted_sum_all", "lstm_units": 4}
    columns = {"text_columns": None, "label_column": None}
    runs = sweep.plan_runs(settings(inputs, tmp_path, task="ner", **columns, **changes), "runs")
    variants = ["last", "weighted_sum_all"]
    assert [*runs] == [f"{name}_batch8_rate0.001_epochs3_seed12345" for name in variants]
    task = make_task("tagging", "ner", random_sentences(4), **changes)
    directory = FineTuningDirectory(str(tmp_path))
    all_inputs = FineTuningInputs(None, directory, None, (), task, {}, None, None)
    own = [sweep._inputs_of(one, all_inputs).task for one in runs.values()]
    assert [one.model_arguments["variant"] for one in own] == variants
    ended = [{**run_results(1e-5, 1, 0.5), "feature_based": name} for name in variants]
    table = {"headline": "f1", "configurations": sweep.summarize(ended, "dev")}
    assert [row[:2] for row in table_rows(table)] == [
        ("layers", "batch"),
        *((name, "16") for name in variants),
    ]


def test_fresh_names_are_equal_per_run_and_restored():
    names = [keras.layers.Dense(1).name]
    for _ in range(2):
        with fresh_names():
            assert keras.layers.Dense(1).name == "dense"
        names.append(keras.layers.Dense(1).name)
    assert len({*names}) == 3


def run_results(rate, seed, score, collapsed=None):
    return {
        "train_batch_size": 16,
        "learning_rate": rate,
        "num_train_epochs": 2,
        "seed": seed,
        "headline": "f1",
        "scores": {} if score is None else {"dev": {"f1": score, "accuracy": score / 2}},
        "collapsed": collapsed,
    }


def test_table_has_mean_and_sample_deviation():
    runs = [
        run_results(1e-5, 1, 0.5),
        run_results(1e-5, 2, 0.7),
        run_results(1e-5, 3, None, "the loss of step 3 is nan"),
        run_results(2e-5, 1, 0.65, "every prediction is the same"),
        run_results(3e-5, 1, None, "the loss of step 3 is nan"),
    ]
    first, second, third = sweep.summarize(runs, "dev")
    assert (first["learning_rate"], first["mean"], first["std"]) == (2e-5, 0.65, None)
    assert (second["learning_rate"], second["runs"], second["collapsed"]) == (1e-5, 3, 1)
    assert second["mean"] == pytest.approx(0.6)
    assert second["std"] == pytest.approx(0.02**0.5)
    assert (second["best"], second["best_seed"]) == (0.7, 2)
    assert second["means"] == pytest.approx({"f1": 0.6, "accuracy": 0.3})
    assert second["deviations"] == pytest.approx({"f1": 0.02**0.5, "accuracy": 0.005**0.5})
    assert (third["mean"], third["best_seed"], third["collapsed"]) == (None, None, 1)
    # The lowest loss is the best.
    runs = [
        {**run_results(rate, 1, score), "headline": "loss", "scores": {"dev": {"loss": score}}}
        for rate, score in ((1e-5, 0.5), (2e-5, 0.3), (3e-5, 0.4))
    ]
    assert [entry["best"] for entry in sweep.summarize(runs, "dev")] == [0.3, 0.4, 0.5]


@pytest.mark.slow
def test_restarts_keep_best_run_and_resume(inputs, tmp_path, monkeypatch, capsys):
    scores = {1: 0.5, 2: 0.9, 3: None}
    train = sweep.train
    trained = []

    def scored(inputs):
        settings = inputs.settings
        if settings.seed == 3:
            if trained.count(3) == 0:
                trained.append(3)
                raise KeyboardInterrupt
            raise sweep.DivergedError("The loss of step 3 is nan. Rerun with something else.")
        trained.append(settings.seed)
        done = train(inputs)
        done.results["scores"]["dev"]["accuracy"] = scores[settings.seed]
        done.results["collapsed"] = None
        return done

    monkeypatch.setattr(sweep, "train", scored)
    flags = settings(inputs, tmp_path / "sweep", restarts=3, seed=1, num_train_epochs=1)
    with pytest.raises(KeyboardInterrupt):
        run(flags)
    run(flags)
    assert trained == [1, 2, 3]
    results = results_of(tmp_path / "sweep")
    name = "batch8_rate0.001_epochs1_seed2"
    assert results["best_run"] == name
    assert [entry["collapsed"] for entry in results["runs"]][2] == "The loss of step 3 is nan"
    table = (tmp_path / "sweep" / "results.tsv").read_text().splitlines()
    assert table == [
        "batch\trate\tepochs\truns\tmean\tstd\tbest\tbest seed\tcollapsed",
        "8\t0.001\t1\t3\t0.700\t0.283\t0.900\t2\t1",
    ]
    directories = sorted(path.parent.name for path in (tmp_path / "sweep").rglob("step-*"))
    assert directories == ["checkpoints"]
    assert bert_tf.load(str(tmp_path / "sweep")).labels == ("neg", "pos")
    assert (tmp_path / "sweep" / "dev" / "dev.tsv").is_file()
    printed = capsys.readouterr().out
    assert f"Best run: {name}, saved in" in printed
    assert "Collapsed:\n  batch8_rate0.001_epochs1_seed3: The loss of step 3 is nan" in printed
    # The best run's weights are the model's, although its own copy was deleted.
    (tmp_path / "sweep" / "results.json").unlink()
    run(flags)
    assert results_of(tmp_path / "sweep")["best_run"] == name
    # If an earlier best is stored as the model, the best run's own weights replace it.
    model = bert_tf.load(str(tmp_path / "sweep"))
    expected = [np.array(weight) for weight in model.weights]
    root, own = (tmp_path / "sweep" / part / "checkpoints" for part in ("", f"runs/{name}"))
    shutil.move(root, own)
    for weight in model.weights:
        weight.assign(weight + 1)
    changed = {f"model/{weight.path}": weight for weight in model.weights}
    (step,) = (int(path.name.removeprefix("step-")) for path in own.iterdir())
    saved_states.save(str(root), step, changed, {}, keep=1)
    (tmp_path / "sweep" / "results.json").unlink()
    run(flags)
    for one, weight in zip(expected, bert_tf.load(str(tmp_path / "sweep")).weights, strict=True):
        np.testing.assert_array_equal(one, weight)
    # A process that was killed while deleting these may have left an incomplete checkpoint.
    (tmp_path / "sweep" / "runs" / name / "checkpoints" / "step-00000006").mkdir(parents=True)
    (tmp_path / "sweep" / "results.json").unlink()
    run(flags)
    assert results_of(tmp_path / "sweep")["best_run"] == name
    assert trained == [1, 2, 3]


def test_all_runs_diverged_raises_error(inputs, tmp_path, monkeypatch):
    def diverged(*arguments):
        raise sweep.DivergedError("The loss of step 3 is nan. Rerun with something else.")

    monkeypatch.setattr(sweep, "train", diverged)
    with pytest.raises(ValueError, match="Every run diverged. Last error: The loss of step 3 is"):
        run(settings(inputs, tmp_path / "sweep", restarts=2))
    flags = json.loads((tmp_path / "sweep" / "flags.json").read_text())
    assert flags["restarts"] == 2


def test_checkpoint_changed_during_interrupted_sweep_raises_error(inputs, tmp_path, monkeypatch):
    """The weights of one run count as progress, even without a saved state."""
    start = shutil.copytree(inputs / "tiny", tmp_path / "tiny")

    def stopped(inputs):
        folder = inputs.directory.checkpoints
        saved_states.save(folder, 1, {"model/bias": tf.zeros([1])}, {}, keep=1)
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "train", stopped)
    flags = settings(inputs, tmp_path / "run", restarts=2, init_checkpoint=str(start))
    with pytest.raises(KeyboardInterrupt):
        run(flags)
    config = json.loads((start / "bert_config.json").read_text())
    (start / "bert_config.json").write_text(json.dumps({**config, "hidden_act": "relu"}))
    message = r"The data of --init_checkpoint differ from the data that the run in .* started with"
    with pytest.raises(ValueError, match=message):
        run(flags)
