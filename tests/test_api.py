"""Python API: arguments, types of data, and results equal to those of the commands."""

import contextlib
import inspect
import itertools
import json
import os
import pickle
import random
import re
import sys
import tempfile
import types
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import api
from bert_tf.cli import flag_fields
from bert_tf.export import ExportSettings
from bert_tf.finetuning.run import run
from bert_tf.finetuning.settings import FineTuningSettings
from bert_tf.predicting.settings import PredictionSettings
from bert_tf.pretraining.settings import PretrainingSettings
from bert_tf.saved_models import ExportOptions
from bert_tf.tasks.python_data import parse_rows
from bert_tf.tasks.registry import KINDS
from bert_tf.training import loop
from bert_tf.training.precision import preserved_arithmetic
from bert_tf.training.run_directory import FineTuningDirectory
from tests.finetuning.small_runs import results_of, sentences, settings, write_inputs
from tests.pretraining.commands import TINY, write_corpus

FUNCTIONS = [
    (api.fine_tune, FineTuningSettings,
     {"init_checkpoint": "init", "train_file": "train", "dev_file": "dev", "test_file": "test"}),
    *((api.fine_tune, task_class.Options, {}) for task_class in KINDS.values()),
    (api.predict, PredictionSettings, {"input": "data"}),
    (api.export, ExportSettings, {}),
    (api.export, ExportOptions, {}),
    (api.pretrain, PretrainingSettings, {"dry_run": None}),
]  # fmt: skip
SMALL = {
    "task": "classification",
    "max_seq_length": 16,
    "train_batch_size": 8,
    "learning_rate": 1e-3,
    "num_train_epochs": 3,
    "verbose": False,
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return write_inputs(tmp_path_factory.mktemp("inputs"))


class Recorder(keras.callbacks.Callback):
    """Records all calls, and reads the model as logging callbacks do."""

    def __init__(self, stop_at=None):
        super().__init__()
        self.calls = []
        self.stop_at = stop_at

    def on_train_begin(self, logs=None):
        assert self.model.optimizer.get_config()["name"].startswith("adam")
        self.model.summary(print_fn=lambda line: None)
        self.calls.append("begin")

    def on_epoch_begin(self, epoch, logs=None):
        self.calls.append(f"epoch {epoch}")

    def on_train_batch_end(self, batch, logs=None):
        rate = self.model.optimizer.learning_rate
        self.calls.append((batch, logs["loss"], float(rate)))
        if self.stop_at == int(self.model.optimizer.iterations):
            self.model.stop_training = True

    def on_test_end(self, logs=None):
        self.calls.append(("test", logs))

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append(("end", epoch, logs))

    def on_train_end(self, logs=None):
        self.calls.append("end")


# === Arguments and data ===


@pytest.mark.parametrize(
    ("function", "table", "others"), FUNCTIONS, ids=lambda found: getattr(found, "__name__", "")
)
def test_flags_are_keywords_with_default_and_help(function, table, others):
    parameters = inspect.signature(function).parameters
    for field in flag_fields.flags_of(table):
        name = others.get(field.name, field.name)
        if name is None:
            continue
        assert name in parameters, name
        if name == field.name and name not in ("model", "model_dir", "output", "input"):
            assert parameters[name].default == field.default, name
            help_text = re.sub("--(?=[a-z])", "", field.metadata["help"])
            assert f"        {name}: {help_text}\n" in function.__doc__ + "\n"
    assert "**given" not in function.__doc__ and "given" not in parameters


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"learnin_rate": 1e-4}, TypeError, "Unknown keyword argument learnin_rate .did "
         r"you mean learning_rate\?\)"),
        ({"train_batch_size": 0}, ValueError, "train_batch_size=0 is invalid: 0 is not a positive "
         "integer"),
        ({"optimizer": "sgd"}, ValueError, "optimizer='sgd' is invalid: value should be one of "
         r"<adamw\|adam>"),
        ({"learning_rate": 0.0}, ValueError, "^learning_rate=0.0: expected a number from 1e-12 "
         "to below 1, typically between 5e-5 and 1e-3"),
        ({"class_weights": {"a, b": np.float32(2)}}, ValueError,
         '^class_weights={"a, b": 2.0}: expected balanced, or each class at most once .* got '
         r".a, b.\. The classes are neg, pos"),
        ({"class_weights": {"--odd": 2.0}}, ValueError,
         "got .--odd.. The classes are neg, pos"),
        ({"do_train": True}, TypeError, "do_train: finetune and pretrain always train; "
         "remove it"),
        ({"task": "sst2"}, ValueError, "task=sst2: expected one of classification, "
         "multilabel, regression, tagging, multiple_choice, similarity, squad for data in memory"),
        ({"task": None}, ValueError, "task=None: expected one of classification, "
         "multilabel, regression, tagging, multiple_choice, similarity, squad for data in memory"),
        ({"export": True}, ValueError, "export=True requires model_dir, which will contain the "
         "SavedModel"),
        ({"train_file": "a.csv"}, ValueError, "train and train_file are aliases. Pass only one "
         "of them"),
        ({"train": []}, ValueError, "train is empty: expected at least one example"),
        ({"train": 7}, ValueError, "train has the type int: expected a path, a list of "
         "examples or a data frame"),
        ({"train": [("a", "x"), 3]}, ValueError,
         "^<train>, row 1: expected a string, a tuple of texts and a label, or a mapping, got "
         "3. Correct the row, or skip bad rows with skip_bad_rows"),
        ({"train": [("a", "b", "c", "d")]}, ValueError,
         r"row 0: expected .text, label. or .text_a, text_b, label., got \('a', 'b', 'c', 'd'\)\."),
        ({"train": [("a", "b"), ("c", "d", "e")], "task": "similarity"}, ValueError,
         r"row 1: expected .text_a, text_b, label., got \('c', 'd', 'e'\) .for 3 texts, pass "
         r"text_columns=ANCHOR,POSITIVE,NEGATIVE\)"),
        ({"train": [("a", "b", "c")], "task": "similarity"}, ValueError,
         "row 0: .*for 3 texts, pass text_columns=ANCHOR,POSITIVE,NEGATIVE.. Correct the row, or "
         "skip bad rows with skip_bad_rows"),
        ({"train": [("a", "b", "well--made", "d")]}, ValueError, "got .'a', 'b', 'well--made', "
         r"'d'\)"),
        ({"train": [("a", b"\xff")]}, ValueError, "<train>, row 0: expected UTF-8 text, got "
         "b'.xff'"),
        ({"train": {"text": "a", "label": None}}, ValueError, r"train\['text'\] is 'a': expected "
         "a list of values"),
        ({"train": [{"review": "a"}], "text_columns": "words"}, ValueError,
         "expected words, got review. Rename the columns or pass text_columns"),
        ({"train": [{"review": "a"}]}, ValueError, "no text column: expected text or text_a, "
         "text_b, got review"),
        ({"train": {"text": ["a"], "label": []}}, ValueError,
         "have different lengths: text 1, label 0"),
        ({"train": [("", "x")]}, ValueError,
         "<train>, row 0: expected non-empty text in column 'text', got ''"),
        ({"callbacks": [print]}, ValueError, r"callbacks: expected keras\.callbacks\.Callback "
            "objects, got"),
    ],
)  # fmt: skip
def test_invalid_arguments_of_fine_tune_raise_errors(inputs, given, error, message):
    with pytest.raises(error, match=message):
        api.fine_tune(**{"train": sentences(8), "init": inputs / "tiny", **SMALL, **given})


@pytest.mark.parity
def test_types_of_data_give_equal_rows():
    task_class = KINDS["classification"]
    pairs = [("good film", 1), ("bad film", 0)]
    rows = [{"text": text, "label": label} for text, label in pairs]
    texts, labels = [list(column) for column in zip(*pairs, strict=True)]
    dataset = tf.data.Dataset.from_tensor_slices((texts, labels))
    named = tf.data.Dataset.from_tensor_slices(({"text": texts}, labels))
    inputs = [
        *(pairs, [list(pair) for pair in pairs], rows, iter(rows)),
        *(dataset, named, {"text": np.array(texts), "label": np.array(labels)}),
        *(np.array(pairs, object), {"text": tf.constant(texts), "label": tf.constant(labels)}),
    ]
    inputs += [getattr(module, make)(rows) for module, make in _frames()]
    for data in inputs:
        assert parse_rows(data, task_class, None, None, "train") == (rows, ["text"])
    assert parse_rows([("a", "b", "x")], task_class, None, None, "train") == (
        [{"text_a": "a", "text_b": "b", "label": "x"}], ["text_a", "text_b"],
    )  # fmt: skip
    assert parse_rows([("a", 3.5)], task_class, ["review"], "stars", "train") == (
        [{"review": "a", "stars": 3.5}], ["review"],
    )  # fmt: skip


def _frames():
    pandas = sys.modules.get("pandas") or pytest.importorskip("pandas")
    found = [(pandas, "DataFrame")]
    if arrow := sys.modules.get("pyarrow"):
        found.append((types.SimpleNamespace(of=arrow.Table.from_pylist), "of"))
    return found


def test_ambiguous_data_raise_errors_with_a_remedy():
    two, three = ["a", "b"], ["a", "b", "c"]
    words = tf.ragged.constant([["so", "it"], ["is"]])
    cases = {
        "train consists of 2 lists, such as (X, y). Pass rows, list(zip(X, y)), or columns, "
        '{"text": X, "label": y}': [
            (two, two), (three, [1, 2, 3]), [[*"abcd"], [*"xyzw"]],
            (np.array(two), np.array([0, 1])), (tf.constant(two), tf.constant([0, 1])),
        ],
        "train consists of 3 lists, such as (X, y).": [(two, two, two)],
        "train is batched. Pass its elements, train.unbatch().": [
            tf.data.Dataset.from_tensor_slices((three, [1, 2, 3])).batch(2),
            tf.data.Dataset.from_tensor_slices({"text": three, "label": three}).batch(2, True),
        ],
        "train contains the tables a, b. Pass one of them, such as data['a'].": [
            dict.fromkeys("ab", types.SimpleNamespace(column_names=two)),
            dict.fromkeys("ab", types.SimpleNamespace(columns=two)),
        ],
    }  # fmt: skip
    for message, invalid in cases.items():
        for data in invalid:
            with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
                parse_rows(data, KINDS["classification"], None, None, "train")
    batches = tf.data.Dataset.from_tensor_slices((words, words)).batch(2)
    with pytest.raises(ValueError, match="^train is batched"):
        parse_rows(batches, KINDS["tagging"], None, None, "train")
    for valid in ([two, two], (("a", "b"), ("c", "d"))):
        assert len(parse_rows(valid, KINDS["classification"], None, None, "train")[0]) == 2
    expected = [{"words": two}, {"words": two}]
    ragged = tf.data.Dataset.from_tensor_slices(tf.ragged.constant([two, two]))
    words_in_bytes = np.array([b"a", b"b"], object)
    for valid in ((two, two), [np.array(two), two], ragged, [words_in_bytes, words_in_bytes]):
        found = parse_rows(valid, KINDS["tagging"], None, None, "x", is_label=str.isdigit)
        assert found[0] == expected
    given = KINDS["classification"], None, None, "data"
    pairs = [{"text_a": "a", "text_b": "b"}, {"text_a": "c", "text_b": "d"}]
    pair_lists = [["a", "b"], ["c", "d"]]
    for valid in (pair_lists, tuple(pair_lists), tf.data.Dataset.from_tensor_slices(pair_lists)):
        assert parse_rows(valid, *given, is_label=str.isdigit)[0] == pairs
    with pytest.raises(ValueError, match="^data is batched"):
        parse_rows(tf.data.Dataset.from_tensor_slices([[*"abc"]]), *given, is_label=str.isdigit)


def test_hugging_face_datasets_give_equal_rows():
    datasets = pytest.importorskip("datasets", exc_type=ImportError)
    names = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["n", "p"])}
    )
    data = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=names)
    rows = [{"text": "a", "label": "p"}, {"text": "b", "label": "n"}]
    upper = data.with_transform(lambda batch: {**batch, "text": [t.upper() for t in batch["text"]]})
    for form in (None, "numpy", "pandas", "arrow", "tensorflow"):
        given = data.with_format(form), KINDS["classification"], None, None, "train"
        assert parse_rows(*given)[0] == rows
    assert parse_rows(upper, KINDS["classification"], None, None, "train")[0][0]["text"] == "A"


@pytest.mark.parity
def test_words_choices_and_missing_values():
    words = tf.data.Dataset.from_generator(
        lambda: iter([(["in", "Paris"], ["O", "B-LOC"])]),
        output_signature=(tf.TensorSpec([None], tf.string),) * 2,
    )
    rows = [{"words": ["in", "Paris"], "tags": ["O", "B-LOC"]}]
    assert parse_rows(words, KINDS["tagging"], None, None, "train") == (rows, ["words"])
    choices = [("It is", ["cold", "hot"], 1)]
    assert parse_rows(choices, KINDS["multiple_choice"], None, None, "train")[0] == [
        {"context": "It is", "choices": ["cold", "hot"], "label": 1}
    ]
    # A list contains the words of a sentence; a tuple contains words and tags.
    tagging, words = KINDS["tagging"], ["in", "Paris"]
    expected = ([{"words": words}], ["words"])
    assert parse_rows([words], tagging, None, None, "data", is_label=str.isdigit) == expected
    assert parse_rows([(tuple(words), ("O", "B-LOC"))], tagging, None, None, "train")[0] == rows
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a", None], "label": [1.0, float("nan")], "n": [1, 2]})
    assert parse_rows(frame, KINDS["regression"], None, None, "train")[0] == [
        {"text": "a", "label": 1.0, "n": 1}, {"text": None, "label": None, "n": 2},
    ]  # fmt: skip
    twice = pandas.DataFrame([["a", 1.0, 2.0]], columns=["text", "label", "label"])
    with pytest.raises(ValueError, match="^train has duplicate columns: label. Rename them"):
        parse_rows(twice, KINDS["regression"], None, None, "train")


@pytest.mark.parametrize(
    ("task_type", "columns", "item", "expected"),
    [
        ("classification", ["t"], ("a", "yes"), {"t": "a", "label": "yes"}),
        ("classification", ["t"], ("a", 1), {"t": "a", "label": 1}),
        ("classification", ["t"], ("a", "b"), "expected (t), got ('a', 'b')"),
        ("classification", None, ("a", "b"), {"text_a": "a", "text_b": "b"}),
        ("classification", None, ("a", "b", "c"), {"text_a": "a", "text_b": "b", "label": "c"}),
        ("similarity", ["q", "a"], "so", "expected (q, a), got 'so'"),
        ("similarity", ["q", "a"], ("a", "b", "c"), "expected (q, a), got ('a', 'b', 'c') (for 3 "
         "texts, pass text_columns=ANCHOR,POSITIVE,NEGATIVE)"),
        ("similarity", "a,p,n", ("x", "y", "z"), {"a": "x", "p": "y", "n": "z"}),
        ("squad", None, ("a", "b", "c"), {"question": "a", "context": "b", "answers": "c"}),
    ],
)  # fmt: skip
def test_unlabeled_tuples_are_parsed(task_type, columns, item, expected):
    given = [item], KINDS[task_type], columns, None, "data"
    ((row,), _) = parse_rows(*given, is_label=lambda text: text in ("yes", "no"))
    assert str(row).startswith(expected) if isinstance(expected, str) else row == expected


# === Results ===


@pytest.fixture(scope="module")
def tuned(inputs, tmp_path_factory):
    """Fine-tunes on lists without a directory; checks that the global state is unchanged."""
    temporary = tmp_path_factory.mktemp("temporary")
    keras.config.set_dtype_policy("float32")
    random.seed(3), np.random.seed(3)
    recorder = Recorder()
    stopping = keras.callbacks.EarlyStopping(monitor="val_accuracy", patience=9)
    with mock.patch.object(tempfile, "tempdir", str(temporary)):
        found = api.fine_tune(
            sentences(46), sentences(20, seed=1), [text for text, _ in sentences(9, seed=2)],
            init=inputs / "tiny", callbacks=[recorder, stopping], precision="bfloat16", **SMALL,
        )  # fmt: skip
    assert stopping.best is not None  # the mode of EarlyStopping was inferred
    assert list(temporary.iterdir()) == []
    assert keras.config.dtype_policy().name == "float32"
    numbers_after = random.random(), np.random.random()
    random.seed(3), np.random.seed(3)
    assert numbers_after == (random.random(), np.random.random())
    return found, recorder.calls


def test_pickled_result_predicts(tuned):
    found, *_ = tuned
    copy = pickle.loads(pickle.dumps(found))
    texts = [text for text, _ in sentences(5, seed=4)]
    assert copy.scores == found.scores
    assert copy.predict(texts) == found.predict(texts)


def test_training_on_rows_equals_training_on_files(inputs, tmp_path, tuned):
    found, _ = tuned
    flags = {"test_file": inputs / "test.tsv", "precision": "bfloat16"}
    with preserved_arithmetic():  # the command does not restore it
        run(settings(inputs, tmp_path / "run", **flags))
    results = results_of(tmp_path / "run")
    assert found.scores == results["scores"] and found.directory is None
    assert {name: found.results[name] for name in results if name != "export"} == {
        name: value for name, value in results.items() if name != "export"
    }
    for actual, expected in zip(
        found.model.weights, bert_tf.load(tmp_path / "run").weights, strict=True
    ):
        np.testing.assert_array_equal(actual, expected)
    table = (tmp_path / "run" / "test" / "test.tsv").read_text().splitlines()[1:]
    assert [record["prediction"] for record in found.predictions["test"]] == [
        line.split("\t")[1] for line in table
    ]
    assert len(found.predictions["dev"]) == 20
    accuracy = found.scores["dev"]["accuracy"]
    assert repr(found) == f"FineTuned(classification, dev accuracy {accuracy:.4g})"


def test_callbacks_are_called_as_in_keras_fit(tuned):
    found, calls = tuned
    assert calls[0] == "begin" and calls[-1] == "end"
    epochs = [call for call in calls if call[0] == "end"]
    assert [epoch for _, epoch, _ in epochs] == [0, 1, 2]
    steps = [call for call in calls if isinstance(call, tuple) and isinstance(call[0], int)]
    assert [batch for batch, *_ in steps] == 3 * list(range(6))
    for number, (_, _, logs) in enumerate(epochs):
        mean = np.mean([loss for _, loss, _ in steps[6 * number : 6 * number + 6]])
        scores = found.results["evaluations"][number]["scores"]
        assert logs == {"loss": pytest.approx(mean), **{f"val_{k}": v for k, v in scores.items()}}
    tests = [scores for name, scores in (c for c in calls if c[0] == "test")]
    assert tests == [evaluation["scores"] for evaluation in found.results["evaluations"]]
    # The learning rate is that of the next step; it is 0 after the last step.
    rates = [1e-3 * (18 - step) / 18 for step in range(1, 19)]
    assert [rate for *_, rate in steps] == pytest.approx(rates, abs=1e-9)


def test_missing_model_and_data_raise_errors(tmp_path):
    with pytest.raises(ValueError, match="^model is missing: export needs model and output"):
        api.export(None, tmp_path / "1")
    message = "data=None: expected a path, or rows such as a list of strings"
    with pytest.raises(ValueError, match=message):
        api.predict(str(tmp_path), None)


@pytest.mark.parametrize("source", ["model", "directory", "file"])
def test_model_directory_and_file_predictions_are_equal(tuned, tmp_path, source):
    found, _ = tuned
    texts = [text for text, _ in sentences(9, seed=2)]
    expected = [record["prediction"] for record in found.predictions["test"]]
    model = found
    if source != "model":
        found.save(tmp_path / "saved")
        model = tmp_path / "saved"
    if source == "file":
        output = tmp_path / "out.csv"
        given = [*texts[:2], ""]
        assert api.predict(model, given, output, precision="bfloat16") == str(output)
        lines = output.read_text().splitlines()
        assert lines[0] == "id,prediction,probability_neg,probability_pos,error"
        assert [line.split(",")[1] for line in lines[1:]] == [*expected[:2], ""]
        return
    records = api.predict(model, [*texts, ""], precision="bfloat16")
    assert [record["prediction"] for record in records] == [*expected, None]
    message = "<data>, row 9: expected non-empty text in column 'text', got ''."
    assert records[-1]["error"] == message


def test_callback_stops_training_permanently(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(FineTuningDirectory, "delete_state", lambda self: None)
    recorder = Recorder(stop_at=4)
    given = {"init": inputs / "tiny", "model_dir": tmp_path / "run", "export": False, **SMALL}
    rows = sentences(46)
    found = api.fine_tune(rows, sentences(20, seed=1), callbacks=[recorder], **given)
    assert (found.results["steps"], found.results["best"]["step"]) == (4, 4)
    assert found.directory == str(tmp_path / "run")
    os.remove(tmp_path / "run" / "results.json")
    again = api.fine_tune(rows, sentences(20, seed=1), **given)
    assert again.results["steps"] == 4
    assert api.fine_tune(rows, sentences(20, seed=1), **given).scores == found.scores
    message = "The data of dev differ from the data that the run in .* started with"
    with pytest.raises(ValueError, match=message):
        api.fine_tune(rows, sentences(20, seed=5), **given)


@pytest.mark.slow
def test_model_in_memory_is_fine_tuned_and_exported(tuned, tmp_path):
    found, _ = tuned
    more = api.fine_tune(sentences(16), init=found.model, **{**SMALL, "num_train_epochs": 1})
    assert more.model.labels == found.model.labels
    exported = found.export(tmp_path / "exports" / "1", verbose=False)
    answer = tf.saved_model.load(exported.path).signatures["serving_default"](
        text=tf.constant(["good film"])
    )
    (record,) = found.predict(["good film"])
    assert answer["label"].numpy().tolist() == [record["prediction"].encode()]


@pytest.mark.slow
def test_pretraining_without_a_directory_returns_the_model(tmp_path):
    corpus = write_corpus(tmp_path / "corpus.txt").read_text().split("\n\n")
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    given = {
        "bert_config": tmp_path / "config.json", "vocab_size": 150, "max_seq_length": 32,
        "train_batch_size": 8, "num_train_steps": 4, "verbose": False,
    }  # fmt: skip
    found = api.pretrain(texts=[document.replace("\n", " ") for document in corpus], **given)
    assert found.results["step"] == 4 and found.directory is None
    assert type(found.model).__name__ == "BertPretrainer" and found.model.preprocessor


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"dry_run": True}, ValueError,
         "^api.pretrain does not support dry_run. Run python -m bert_tf.pretrain"),
        ({"output_dir": "b"}, ValueError, "model_dir and output_dir are aliases. Pass only one of"),
        ({"callbacks": [print]}, ValueError,
         r"callbacks: expected keras\.callbacks\.Callback objects, got"),
        ({"input": "corpus.txt"}, ValueError, "input and texts both set the corpus"),
        ({"num_steps": 4}, TypeError, "Unknown keyword argument num_steps"),
    ],
)  # fmt: skip
def test_invalid_arguments_of_pretrain_raise_errors(tmp_path, given, error, message):
    with pytest.raises(error, match=message):
        api.pretrain(**{"texts": ["A text."], "model_dir": tmp_path / "run", **given})
    assert not (tmp_path / "run").exists()


def test_output_dir_is_an_alias_of_model_dir(tmp_path):
    stack, given = contextlib.ExitStack(), {"output_dir": tmp_path / "run"}
    assert api._set_model_dir(given, None, stack) and given == {"model_dir": tmp_path / "run"}
    with stack:
        assert not api._set_model_dir(given := {}, None, stack) and given["export"] is False


def pretrain_with(folder, name, callbacks=()):
    """Trains 10 steps and saves a checkpoint every 4 steps."""
    corpus = write_corpus(folder / "corpus.txt")
    (folder / "config.json").write_text(json.dumps(TINY))
    return api.pretrain(
        corpus, bert_config=folder / "config.json", vocab_size=150, max_seq_length=32,
        train_batch_size=8, num_train_steps=10, save_checkpoints_steps=4, export=False,
        model_dir=folder / name, callbacks=callbacks,
        learning_rate=1e-3, verbose=False,
    )  # fmt: skip


@pytest.mark.slow
def test_callbacks_are_called_in_pretraining_and_can_stop_it(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_CALL_SECONDS", 0.0)  # each step is reported
    recorder, written_files = Recorder(stop_at=6), []
    last = keras.callbacks.LambdaCallback(
        on_train_end=lambda logs: written_files.extend(os.listdir(tmp_path / "run"))
    )
    found = pretrain_with(tmp_path, "run", [recorder, last])
    # The results are written before on_train_end, in which EarlyStopping restores weights.
    assert "results.json" in written_files
    calls = [call if isinstance(call, str) else call[0] for call in recorder.calls]
    assert calls == [
        "begin", "epoch 0", 0, 1, 2, 3, "test", "end",
        "epoch 1", 0, 1, "test", "end", "test", "end",
    ]  # fmt: skip
    losses = [call[1] for call in recorder.calls if isinstance(call[0], int)]
    tests = [scores for name, scores in (call for call in recorder.calls if call[0] == "test")]
    ends = [call[1:] for call in recorder.calls if call[0] == "end"]
    for number, (epoch, logs) in enumerate(ends):
        mean = np.mean(losses[4 * number : 4 * number + 4])
        scores = {f"val_{key}": value for key, value in tests[number].items()}
        assert (epoch, logs) == (number, {"loss": pytest.approx(mean), **scores})
    for scores in tests:
        assert scores["loss"] == scores["masked_lm_loss"] + scores["next_sentence_loss"]
    assert {**found.results["evaluation"], "loss": tests[-1]["loss"]} == tests[-1]
    # A finished run does not train.
    again = Recorder()
    assert pretrain_with(tmp_path, "run", [again]).results["step"] == 6 and again.calls == []
    # A run that was stopped by a callback and then killed in its last evaluation does not train.
    numbers = itertools.count(1)

    def kill(logs):
        if next(numbers) == 3:
            raise KeyboardInterrupt

    killer = keras.callbacks.LambdaCallback(on_test_end=kill)
    with pytest.raises(KeyboardInterrupt):
        pretrain_with(tmp_path, "killed", [Recorder(stop_at=6), killer])
    assert pretrain_with(tmp_path, "killed").results["step"] == 6
