import dataclasses
import itertools
import json
import shutil

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.finetuning import sweep
from bert_tf.finetuning.data import read_task
from bert_tf.finetuning.model import RATES, Start, forget_models
from bert_tf.finetuning.run import run
from bert_tf.finetuning.stages import Material
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.tasks.inference import Inference
from bert_tf.training import checkpoints

from .small_runs import TINY, VOCAB, results_of, sentences, settings


def test_the_papers_grid(inputs, tmp_path):
    swept = {"learning_rate": None, "train_batch_size": None, "sweep": "paper"}
    flags = settings(inputs, tmp_path, **swept, restarts=2, seed=2**32 - 1)
    runs = sweep.plan_runs(flags)
    assert len(runs) == len({run.name for run in runs}) == 36
    grid = {
        (run.train_batch_size, run.learning_rate, run.num_train_epochs, run.seed)
        for _, run, _ in runs
    }
    seeds = (2**32 - 1, 0)
    assert grid == set(itertools.product((16, 32), (5e-5, 3e-5, 2e-5), (2, 3, 4), seeds))
    name, first, _ = runs[0]
    assert name == "batch16_rate5e-05_epochs2_seed4294967295"
    assert first.model_dir == f"{tmp_path}/runs/{name}"
    assert (first.sweep, first.restarts) == (None, 1)


def test_the_next_run_has_the_names_and_the_precision_of_the_first():
    before = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        names = []
        for _ in range(2):
            forget_models()
            names.append(keras.layers.Dense(1).name)
        assert names == ["dense", "dense"]
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
    finally:
        keras.config.set_dtype_policy(before)


def made(rate, seed, score, collapsed=None):
    return {
        "train_batch_size": 16,
        "learning_rate": rate,
        "num_train_epochs": 2,
        "seed": seed,
        "headline": "f1",
        "scores": {} if score is None else {"dev": {"f1": score, "accuracy": score / 2}},
        "collapsed": collapsed,
    }


def test_a_table_has_the_mean_and_the_samples_deviation():
    runs = [
        made(1e-5, 1, 0.5),
        made(1e-5, 2, 0.7),
        made(1e-5, 3, None, "the loss of step 3 is nan"),
        made(2e-5, 1, 0.65, "every prediction is the same"),
        made(3e-5, 1, None, "the loss of step 3 is nan"),
    ]
    first, second, third = sweep.summarise(runs, "dev")
    assert (first["learning_rate"], first["mean"], first["std"]) == (2e-5, 0.65, None)
    assert (second["learning_rate"], second["runs"], second["collapsed"]) == (1e-5, 3, 1)
    assert second["mean"] == pytest.approx(0.6)
    assert second["std"] == pytest.approx(0.02**0.5)
    assert (second["best"], second["best_seed"]) == (0.7, 2)
    assert second["means"] == pytest.approx({"f1": 0.6, "accuracy": 0.3})
    assert second["deviations"] == pytest.approx({"f1": 0.02**0.5, "accuracy": 0.005**0.5})
    assert (third["mean"], third["best_seed"], third["collapsed"]) == (None, None, 1)
    # The least loss is the best.
    runs = [
        {**made(rate, 1, score), "headline": "loss", "scores": {"dev": {"loss": score}}}
        for rate, score in ((1e-5, 0.5), (2e-5, 0.3), (3e-5, 0.4))
    ]
    assert [entry["best"] for entry in sweep.summarise(runs, "dev")] == [0.3, 0.4, 0.5]


@pytest.mark.slow
def test_restarts_keep_the_best_and_go_on_where_they_stopped(inputs, tmp_path, monkeypatch, capsys):
    scores = {1: 0.5, 2: 0.9, 3: None}
    train = sweep.train
    trained = []

    def scored(settings, directory, material):
        if settings.seed == 3:
            if trained.count(3) == 0:
                trained.append(3)
                raise KeyboardInterrupt
            raise sweep.DivergedError("The loss of step 3 is nan: do something.")
        trained.append(settings.seed)
        done = train(settings, directory, material)
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
    kept = sorted(path.parent.name for path in (tmp_path / "sweep").rglob("step-*"))
    assert kept == ["checkpoints"]
    assert bert_tf.load(str(tmp_path / "sweep")).labels == ("neg", "pos")
    assert (tmp_path / "sweep" / "dev" / "dev.tsv").is_file()
    printed = capsys.readouterr().out
    assert f"Best: {name}, kept in" in printed
    assert "Collapsed:\n  batch8_rate0.001_epochs1_seed3: The loss of step 3 is nan" in printed
    # The best run's weights are the model's, though its own are gone.
    (tmp_path / "sweep" / "results.json").unlink()
    run(flags)
    assert results_of(tmp_path / "sweep")["best_run"] == name
    # An earlier best's weights may be in the place of the best, whose own are where it was made.
    model = bert_tf.load(str(tmp_path / "sweep"))
    expected = [np.array(weight) for weight in model.weights]
    root, own = (tmp_path / "sweep" / part / "checkpoints" for part in ("", f"runs/{name}"))
    shutil.move(root, own)
    for weight in model.weights:
        weight.assign(weight + 1)
    others = {f"model/{weight.path}": weight for weight in model.weights}
    (step,) = (int(path.name.removeprefix("step-")) for path in own.iterdir())
    checkpoints.save(str(root), step, others, {}, keep=1)
    (tmp_path / "sweep" / "results.json").unlink()
    run(flags)
    for one, weight in zip(expected, bert_tf.load(str(tmp_path / "sweep")).weights, strict=True):
        np.testing.assert_array_equal(one, weight)
    # A process that was killed while it deleted these may have left anything of them.
    (tmp_path / "sweep" / "runs" / name / "checkpoints" / "step-00000006").mkdir(parents=True)
    (tmp_path / "sweep" / "results.json").unlink()
    run(flags)
    assert results_of(tmp_path / "sweep")["best_run"] == name
    assert trained == [1, 2, 3]


def test_every_run_diverged(inputs, tmp_path, monkeypatch):
    def diverged(*arguments):
        raise sweep.DivergedError("The loss of step 3 is nan: do something.")

    monkeypatch.setattr(sweep, "train", diverged)
    with pytest.raises(ValueError, match="Every run diverged; the last: The loss of step 3 is nan"):
        run(settings(inputs, tmp_path / "sweep", restarts=2))
    flags = json.loads((tmp_path / "sweep" / "flags.json").read_text())
    assert flags["restarts"] == 2


def test_the_runs_of_a_grid(inputs, tmp_path):
    grid = "learning_rate=1e-3,2e-3; layer_decay=0.5,1"
    flags = settings(inputs, tmp_path, learning_rate=None, grid=grid, restarts=2)
    runs = sweep.plan_runs(flags)
    found = [(run.learning_rate, run.layer_decay, run.seed - flags.seed) for _, run, _ in runs]
    assert found == list(itertools.product((1e-3, 2e-3), (0.5, 1.0), (0, 1)))
    assert runs[0][0] == f"batch8_rate0.001_epochs3_layer_decay0.5_seed{flags.seed}"
    assert {(run.grid, run.restarts, run.train_batch_size) for _, run, _ in runs} == {(None, 1, 8)}


def test_trials_are_drawn_by_the_seed_and_lie_in_their_ranges(inputs, tmp_path):
    def drawn(**more):
        given = {"grid": "learning_rate=1e-5..1e-3;freeze=0..9", "learning_rate": None}
        flags = settings(inputs, tmp_path, **given, trials=8, **more)
        return [(run.learning_rate, run.freeze) for _, run, _ in sweep.plan_runs(flags)]

    found = drawn()
    assert found == drawn() != drawn(seed=5)
    assert len(set(found)) == 8 and all(1e-5 <= rate <= 1e-3 for rate, _ in found)
    layers = {freeze for _, freeze in found}
    assert len(layers) > 2 and layers <= set(range(10))
    whole = {"grid": "num_train_epochs=2..4", "num_train_epochs": None}
    planned = sweep.plan_runs(settings(inputs, tmp_path, **whole, trials=3))
    assert {run.num_train_epochs for _, run, _ in planned} == {2, 3, 4}
    small = settings(inputs, tmp_path, grid="freeze=0,1", trials=5)
    assert len(sweep.plan_runs(small)) == 2


def test_a_grid_keeps_the_best_within_its_hours(inputs, tmp_path, monkeypatch, capsys):
    sizes, outputs = [], Inference.outputs

    def counted(self, examples):
        sizes.append(len(examples))
        return outputs(self, examples)

    monkeypatch.setattr(Inference, "outputs", counted)
    flags = {"grid": "layer_decay=0.5,0.9,1", "num_train_epochs": 1, "max_search_hours": 1e-9}
    run(settings(inputs, tmp_path / "run", **flags))
    assert sizes == [20]  # dev, after the epoch: the best is not evaluated again
    assert (tmp_path / "run" / "dev" / "dev.tsv").is_file()
    results = results_of(tmp_path / "run")
    with pytest.raises(ValueError, match="--freeze=3 is more than the 1 blocks of .*tiny"):
        run(settings(inputs, tmp_path / "other", grid="freeze=0,3"))
    assert [entry["layer_decay"] for entry in results["configurations"]] == [0.5]
    table = (tmp_path / "run" / "results.tsv").read_text().splitlines()
    assert table[0].split("\t")[:5] == ["batch", "rate", "epochs", "layer_decay", "runs"]
    assert table[1].split("\t")[3] == "0.5"
    assert "--max_search_hours=1e-09: 2 runs are not made." in capsys.readouterr().out


def test_the_folds_of_every_configuration_and_seed_are_the_same(inputs, tmp_path):
    flags = {"folds": 2, "restarts": 2, "grid": "label_smoothing=0,0.2"}
    made = settings(inputs, tmp_path, dev_file=None, **flags)
    task, sets = read_task(made)
    found = {}
    for planned in sweep.plan_runs(made):
        material = Material(task, sets, Start(TINY, None, BertTokenizer(VOCAB), None), None, None)
        own = sweep._material_of(planned, made, material).task
        kept, dev = ([i.text_a for i in part.items] for part in (own._train, own._sets["dev"]))
        assert sorted([*kept, *dev]) == sorted(text for text, _ in sentences(46))
        found.setdefault(planned.fold, []).append(dev)
    assert [len(runs) for runs in found.values()] == [4, 4]
    assert all(runs.count(runs[0]) == 4 for runs in found.values())
    dev = [text for runs in found.values() for text in runs[0]]
    assert sorted(dev) == sorted(text for text, _ in sentences(46))


def test_each_run_has_a_task_and_a_start_of_its_own_settings(inputs, tmp_path):
    made = settings(inputs, tmp_path, teacher=inputs / "tiny")
    task, sets = read_task(made)
    material = Material(task, sets, Start(TINY, None, BertTokenizer(VOCAB), None), None, None)
    assert sweep._material_of(sweep.Run("a", made), made, material) is material
    values = {
        **{"hidden_dropout_prob": 0.4, "classifier_dropout": 0.3, "label_smoothing": 0.2},
        **{"attention_probs_dropout_prob": 0.5, "distillation_weight": 0.9},
        "distillation_temperature": 4.0,
    }
    assert {*values, "feature_based"} == {*sweep._OF_TASK}
    for name, value in values.items():
        one = dataclasses.replace(made, **{name: value})
        own = sweep._material_of(sweep.Run("a", one), made, material)
        assert getattr(own.start.config if name in RATES else own.task.training, name) == value


def test_the_best_of_folds_is_a_configuration():
    def made_fold(rate, fold, score):
        return {**made(rate, 1, score), "name": f"{rate:g} {fold}"}

    # The best fold of all is of the worse rate; of a third rate a run diverged.
    runs = [made_fold(1e-5, fold, score) for fold, score in enumerate((0.9, 0.1))]
    runs += [made_fold(2e-5, fold, score) for fold, score in enumerate((0.6, 0.7))]
    runs += [made_fold(3e-5, fold, score) for fold, score in enumerate((None, 0.99))]

    def kept(count):
        return [run["name"] for run in sweep._kept(runs[:count], "dev", (), folds=True)]

    assert [kept(count) for count in (1, 2, 3)] == [
        ["1e-05 0"],
        ["1e-05 0"],
        ["1e-05 0", "2e-05 0"],
    ]
    assert [kept(4), kept(5), kept(6)] == [["2e-05 0"], ["2e-05 0"], ["2e-05 0", "3e-05 1"]]


def test_a_start_that_changed_while_a_search_was_stopped(inputs, tmp_path, monkeypatch):
    """With the weights of one run, which are progress, and no state of its own."""
    start = shutil.copytree(inputs / "tiny", tmp_path / "tiny")

    def stopped(one, directory, material):
        checkpoints.save_values(directory.checkpoints, 1, {"model/bias": np.zeros(1)}, {}, keep=1)
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "train", stopped)
    flags = settings(inputs, tmp_path / "run", restarts=2, init_checkpoint=str(start))
    with pytest.raises(KeyboardInterrupt):
        run(flags)
    config = json.loads((start / "bert_config.json").read_text())
    (start / "bert_config.json").write_text(json.dumps({**config, "hidden_act": "relu"}))
    described = json.loads((start / "model.json").read_text())
    del described["sha256"]
    (start / "model.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match="What --init_checkpoint read is not what the run in"):
        run(flags)
