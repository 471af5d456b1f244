import dataclasses
import json
import os
import shutil
import types

import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.evaluation.evaluation import Evaluation
from bert_tf.finetuning import run as run_module
from bert_tf.finetuning import training
from bert_tf.finetuning.model import RunSource, initial_model, with_default_schedule
from bert_tf.finetuning.run import run
from bert_tf.readers.examples import ExampleSet, TaggedExample
from bert_tf.saved_models import ExportOptions
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.tasks.task_file import TaskFile, export_options
from bert_tf.training.run_directory import FineTuningDirectory

from .small_runs import (
    TINY,
    results_of,
    saved,
    sentences,
    settings,
    started,
    write_checkpoint,
    write_model,
    write_table,
)


def test_files_of_finished_run_and_best_weights(finished):
    names = {path.name for path in finished.iterdir()} - {".lock"}
    described = "vocab.txt bert_config.json model.json task.json flags.json inputs.json"
    results = "checkpoints last logs dev test README.md results.json"
    assert names == {*described.split(), *results.split()}
    results, task = (
        json.loads((finished / name).read_text()) for name in ("results.json", "task.json")
    )
    scored = "task headline scores calibration classes rows thresholds collapsed"
    trained = "best steps evaluations seconds examples_per_second files export"
    assert results.keys() == {*scored.split(), *trained.split()}
    keys = "format_version kind name max_seq_length columns options"
    assert task.keys() == set(keys.split())
    files = results["files"]
    assert files.keys() == {"dev", "test"}
    written = {str(path) for folder in ("dev", "test") for path in (finished / folder).iterdir()}
    assert {path for paths in files.values() for path in paths} == written
    assert (finished / "test" / "test.tsv").read_text().count("\n") == 10
    model = bert_tf.load(str(finished))
    assert model.task["columns"]["text_columns"] == ["text"]
    assert (type(model).__name__, model.labels) == ("BertClassifier", ("neg", "pos"))
    best = saved(finished / "checkpoints")
    for weight in model.weights:
        np.testing.assert_array_equal(weight.numpy(), best[f"model/{weight.path}"], weight.path)


def test_run_saves_special_tokens_setting(finished, inputs, tmp_path):
    ids = {False: [[5, 1, 1, 1]], True: [[5, 3]]}  # with a vocabulary without [ and ]

    def read(path, **arguments):
        model = bert_tf.load(str(path), **arguments)
        return model.preprocessor.tokenizer.tokenize(["good [SEP]"]).to_list()

    assert read(finished) == ids[False]  # as in training and in the initial checkpoint
    for found in (False, True):
        assert read(finished, special_tokens_in_texts=found) == ids[found]
    flags = {"max_steps": 1, "special_tokens_in_texts": True}
    run(settings(inputs, tmp_path / "run", **flags))
    assert read(tmp_path / "run") == ids[True]
    assert bert_tf.Predictor(tmp_path / "run")("good [SEP]")["prediction"] in ("neg", "pos")
    with pytest.raises(ValueError, match="--special_tokens_in_texts=False .was True"):
        run(settings(inputs, tmp_path / "run", **{**flags, "special_tokens_in_texts": False}))
    # A run initialized from it reads texts in the same way.
    other = settings(inputs, tmp_path / "next", max_steps=1, init_checkpoint=tmp_path / "run")
    start = initial_model(other, open_checkpoint(other.init_checkpoint))
    assert start.tokenizer.tokenize(["good [SEP]"]).to_list() == ids[True]


def test_finished_run_prints_results_again(finished, inputs, capsys, monkeypatch):
    # Only the results are read.
    monkeypatch.setattr(RunSource, "checkpoint", property(lambda self: pytest.fail("it is opened")))
    flags = {"test_file": inputs / "test.tsv"}
    run(settings(inputs, finished, **flags, eval_batch_size=3))
    printed = capsys.readouterr().out
    assert printed.startswith(f"{finished} contains this run, which has finished.")
    assert "dev             accuracy" in printed and "python -m bert_tf.predict" in printed
    message = r"contains a run with different settings: --learning_rate=0\.1"
    with pytest.raises(ValueError, match=message):
        run(settings(inputs, finished, **flags, learning_rate=0.1))


def test_finished_run_is_shown_if_read_only_or_moved(
    finished, inputs, tmp_path, monkeypatch, capsys
):
    def refuse(*arguments, **keywords):
        raise OSError("Read-only file system")

    flags = {"test_file": inputs / "test.tsv"}
    moved = shutil.copytree(inputs, tmp_path / "moved")
    write_checkpoint(moved / "other", seed=9)
    for name in ("tf.io.gfile.rename", "os.open", "tf.io.gfile.makedirs"):
        monkeypatch.setattr(name.replace("tf.", "tensorflow.", 1), refuse)
    run(settings(inputs, finished, **flags))
    run(settings(moved, finished, **{**flags, "test_file": moved / "test.tsv"}))
    assert capsys.readouterr().out.count("contains this run, which has finished.") == 2
    write_table(moved / "dev.tsv", sentences(20, seed=9))
    message = r"The data of dev differ from the data that the run in .* started with"
    with pytest.raises(ValueError, match=message):
        run(settings(moved, finished, **flags))
    message = r"The data of --init_checkpoint differ from the data that the run in .* started with"
    with pytest.raises(ValueError, match=message):
        run(settings(inputs, finished, **flags, init_checkpoint=moved / "other"))
    (tmp_path / "run").mkdir()
    with pytest.raises(OSError, match="Read-only file system"):
        run(settings(inputs, tmp_path / "run"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"max_seq_length": 64}, "--max_seq_length=64: expected at most 32, the number of "
            r"positions of .*tiny\. Pass --max_seq_length=32\."),
        ({"freeze": 3}, "--freeze=3: expected at most 1, the number of blocks of .*tiny"),
        ({**dict.fromkeys(("text_columns", "label_column", "learning_rate")),
          **{"task": "tagging", "feature_based": "last,concat_last_four"}},
         "--feature_based=last,concat_last_four: variant='concat_last_four': expected an encoder "
         "with at least 4 blocks, got 1"),
        ({"few_shot": True, "freeze": 1}, "--freeze=1: expected at most 0, because only blocks"),
        ({"init_checkpoint": "nowhere"}, "nowhere"),
        ({"train_file": "empty.tsv"}, "empty.tsv is empty"),
        ({"dev_file": "odd.tsv"}, r"odd\.tsv, line 3: .*'awful'"),
        ({"metric": "f1_odd"}, "--metric=f1_odd is not available for .*classes neg, pos"),
        ({"class_weights": "odd:2"}, "got 'odd'. The classes are neg, pos"),
        ({"init_checkpoint": "bare"}, "bare has no tokenizer: .*has no vocabulary. Add its vocab"),
        ({"strategy": "auto"}, "TF_CONFIG contains 2 tasks, but only pretrain supports several "
            "workers"),
    ],
)  # fmt: skip
def test_mismatched_checkpoint_or_data_raises_error(inputs, tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    if flags.get("init_checkpoint") == "bare":
        (write_checkpoint(tmp_path / "bare") / "vocab.txt").unlink()
    (tmp_path / "empty.tsv").touch()
    write_table(tmp_path / "odd.tsv", [("good", "pos"), ("bad", "awful")])
    if "strategy" in flags:
        monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}}')
    with pytest.raises(ValueError, match=message):
        run(settings(inputs, tmp_path / "run", **flags))
    assert not (tmp_path / "run").exists()


def test_finished_run_is_exported_on_request(finished, inputs, tmp_path, monkeypatch, capsys):
    model_dir = shutil.copytree(finished, tmp_path / "run")
    exported = []
    monkeypatch.setattr(run_module, "export_best", lambda *given: exported.append(given))
    flags = {"test_file": inputs / "test.tsv"}
    for export in (False, True, True):
        run(settings(inputs, model_dir, **flags, export=export))
    assert len(exported) == 1
    assert results_of(model_dir)["export"] == str(model_dir / "export" / "1")
    assert capsys.readouterr().out.count("SavedModel: ") == 2


def test_all_sets_use_thresholds_of_deciding_set(monkeypatch):
    calls = []

    def evaluate(task, inference, name, thresholds=None):
        calls.append((name, thresholds))
        return Evaluation({}, constant=False, thresholds={"null": len(calls)})

    monkeypatch.setattr(training, "evaluate", evaluate)
    task = types.SimpleNamespace(deciding_set="dev", dev_sets=("test", "dev", "more"))
    assert list(training.evaluate_all(task, None)) == ["test", "dev", "more"]
    assert calls == [("dev", None), ("test", {"null": 1}), ("more", {"null": 1})]


def test_only_weights_of_checkpoint_model_are_used(inputs, tmp_path):
    arguments = {"num_classes": 2, "dropout": 0.5, "pooler": True}
    source = write_model(tmp_path, "BertTokenClassifier", arguments, labels=("A", "B"))
    weights = {f"model/{weight.path}": weight for weight in source.weights}
    items = [TaggedExample(str(n), ("good", "film"), ("A", "B"), n) for n in range(3)]
    task = TaggingTask("own", ExampleSet(items, ("A", "B"), []), {}, {})
    flags = settings(inputs, tmp_path / "run", init_checkpoint=tmp_path)
    model, notes = started(flags, task)
    used = {weight.path: weight for weight in model.weights}
    assert {path for path in weights if "pooler" not in path} == {f"model/{path}" for path in used}
    for path, weight in used.items():
        np.testing.assert_array_equal(weight, weights[f"model/{path}"], path)
    assert model.get_config()["dropout"] == TINY.hidden_dropout_prob
    assert ["pooler" in message for message in notes] == [True]


def with_defaults(*given, **flags):
    without_defaults = settings(*given, **flags)
    source = RunSource(
        without_defaults.init_checkpoint, FineTuningDirectory(without_defaults.model_dir)
    )
    return with_default_schedule(without_defaults, source)


@pytest.mark.parametrize(
    ("units", "flags", "expected"),
    [
        (128, {}, (1e-3, 10)),
        (130, {}, (3e-4, 3)),
        (384, {}, (1e-4, 3)),
        (768, {}, (5e-5, 3)),
        (128, {"num_train_epochs": 2}, (1e-3, 2)),
        (128, {"learning_rate": 2e-5}, (2e-5, 10)),
    ],
)
def test_default_learning_rate_depends_on_hidden_size(inputs, tmp_path, units, flags, expected):
    start = write_checkpoint(tmp_path / "tiny", dataclasses.replace(TINY, hidden_size=units))
    given = dict.fromkeys(("learning_rate", "num_train_epochs")) | flags
    resolved, message = with_defaults(inputs, tmp_path / "run", init_checkpoint=start, **given)
    assert (resolved.learning_rate, resolved.num_train_epochs) == expected
    for name in ("learning_rate", "num_train_epochs"):
        assert (f"--{name}={getattr(resolved, name):g}" in message) == (name not in flags)
    assert message.startswith(f"Defaults for hidden_size={units}: --")


def test_error_is_not_preceded_by_notes_on_defaults(inputs, tmp_path, capsys, monkeypatch):
    # The weights are not read either, which may take minutes.
    monkeypatch.setattr(Checkpoint, "fingerprint", lambda self: pytest.fail("weights are read"))
    (tmp_path / "bad.csv").write_text("text,label\na,x\nb,y,z\n")
    given = dict.fromkeys(("learning_rate", "num_train_epochs", "dev_file"))
    with pytest.raises(ValueError, match="bad.csv, line 3: expected 2 columns, got 3"):
        run(settings(inputs, tmp_path / "run", train_file=str(tmp_path / "bad.csv"), **given))
    assert "By default" not in capsys.readouterr().out


def test_run_keeps_default_learning_rate_without_checkpoint(finished, inputs):
    given = dict.fromkeys(("learning_rate", "num_train_epochs"))
    resolved, _ = with_defaults(inputs, finished, init_checkpoint="gone", **given)
    assert (resolved.learning_rate, resolved.num_train_epochs) == (1e-3, 10)


# === Export ===


def text_task(*columns, **options):
    return TaskFile("classification", "mine", 64, {"text_columns": list(columns)}, options)


LENGTHS = {"doc_stride": 100, "max_query_length": 32, "max_answer_length": 12}
QUESTIONS = {**LENGTHS, "n_best_size": 5, "with_null": True}


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (None, ExportOptions()),
        (text_task("review"), ExportOptions(64)),
        (text_task("a", "b"), ExportOptions(64, pair=True)),
        (text_task("a", long_text="windows"), ExportOptions(64, long_text="windows")),
        (TaskFile("tagging", "ner", 96, options={"document_context": True}), ExportOptions(96)),
        (TaskFile("squad", "s", 384, {}, QUESTIONS), ExportOptions(384, n_best_size=5, **LENGTHS)),
        (TaskFile("squad", "s", 384), ExportOptions(384)),
    ],
)
def test_export_options_match_training(task, expected):
    assert export_options(task) == expected


def test_incomplete_export_is_replaced(finished, tmp_path, monkeypatch):
    left = tmp_path / "export" / "1"
    (left / "variables").mkdir(parents=True)
    (left / "variables" / "variables.index").write_text("half")
    directory = FineTuningDirectory(str(finished))
    directory.export = str(left)
    exports = []

    def export(model, path, **keywords):
        assert not os.path.exists(path)
        exports.append((model, path, keywords))

    monkeypatch.setattr(run_module, "export", export)
    (left / "mine.txt").write_text("mine")
    message = r"export/1 contains a file that is not part of an export: mine\.txt"
    with pytest.raises(ValueError, match=message):
        run_module.export_best(directory, "sst2")
    assert (left / "mine.txt").read_text() == "mine"
    (left / "mine.txt").unlink()
    run_module.export_best(directory, "sst2")
    ((model, path, keywords),) = exports
    assert (type(model).__name__, model.labels, path) == (
        "BertClassifier", ("neg", "pos"), str(left),
    )  # fmt: skip
    assert keywords == {"options": ExportOptions(max_seq_length=16), "name": "sst2"}
