"""A custom task type in a single file trains, resumes, predicts and, as a program, exports."""

import importlib.util
import pathlib
import random
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import api
from bert_tf.answering.served import untraced
from bert_tf.saved_models import ExportOptions
from bert_tf.tasks.registry import KINDS, register
from bert_tf.tasks.signatures import model_signatures
from tests.finetuning.small_runs import assert_ends_as, write_checkpoint

FILE = pathlib.Path(__file__).parent.parent / "examples" / "star_ratings.py"
needs_checkout = pytest.mark.skipif(not FILE.exists(), reason="needs examples/ of a checkout")
LENGTHS = {"max_seq_length": 16, "train_batch_size": 8, "learning_rate": 1e-3}


@pytest.fixture
def stars():
    """The module of the task type, removed from the registry after the test."""
    spec = importlib.util.spec_from_file_location("star_ratings", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # required by dataclasses
    spec.loader.exec_module(module)
    yield module
    del KINDS["stars"], sys.modules[spec.name]


def reviews(count, seed=0):
    """Returns texts; the number of stars is 1 plus the number of 'good'."""
    draw = random.Random(seed)
    texts = [[draw.choice(["good", "bad"]) for _ in range(4)] for _ in range(count)]
    return [(" ".join(words), 1 + words.count("good")) for words in texts]


class _Stop(keras.callbacks.Callback):
    """Interrupts the second epoch, as Ctrl-C does."""

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self.epoch == 1 and batch == 2:
            raise KeyboardInterrupt


@needs_checkout
def test_custom_task_type_trains_resumes_and_predicts(stars, tmp_path):
    def train(folder, *callbacks):
        return api.fine_tune(
            reviews(40), reviews(12, 1), reviews(5, 2), task="stars", max_stars=5,
            init=str(tmp_path / "init"), model_dir=tmp_path / folder, num_train_epochs=3,
            callbacks=callbacks, verbose=False, export=False, **LENGTHS,
        )  # fmt: skip

    write_checkpoint(tmp_path / "init")
    uninterrupted = train("uninterrupted")
    assert uninterrupted.scores["dev"].keys() == {"near", "spearman", "loss"}
    assert {record["prediction"] for record in uninterrupted.predictions["test"]} <= {1, 2, 3, 4, 5}
    with pytest.raises(KeyboardInterrupt):
        train("stopped", _Stop())
    train("stopped")
    assert_ends_as(tmp_path / "uninterrupted", tmp_path / "stopped")
    (record,) = api.predict(str(tmp_path / "uninterrupted"), ["good good good good"])
    assert record["id"] == "0" and record["prediction"] in range(1, 6) and len(record) == 2
    texts = [text for text, _ in reviews(9, 3)]
    model = bert_tf.load(tmp_path / "uninterrupted")
    served = untraced(model, model.preprocessor.tokenizer, ExportOptions(max_seq_length=16))
    answers = model_signatures(served)["serving_default"].function(text=tf.constant(texts))
    predicted = api.predict(str(tmp_path / "uninterrupted"), texts)
    assert answers["value"].numpy().tolist() == [each["prediction"] for each in predicted]


@needs_checkout
def test_invalid_examples_and_options_are_rejected(stars):
    with pytest.raises(ValueError, match="^stars, train: the example 0 has 5 stars"):
        train = [(f"good {number}", 5) for number in range(4)]
        api.fine_tune(train, task="stars", max_stars=4, init="tiny", verbose=False)
    with pytest.raises(ValueError, match="^max_stars is not supported for task=regression"):
        api.fine_tune([("good", 5)] * 4, task="regression", max_stars=4, init="tiny")
    with pytest.raises(
        ValueError, match="The task type stars is already registered. Give StarsTask another name"
    ):
        register(stars.StarsTask)


@needs_checkout
@pytest.mark.slow
def test_module_runs_all_commands(tmp_path):
    rows = "".join(f"{text},{count}\n" for text, count in reviews(40))
    (tmp_path / "reviews.csv").write_text("review,stars\n" + rows)
    model = f"--model={tmp_path}/run"

    def run(*arguments):
        command = [sys.executable, str(FILE), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "--max_stars: stars: maximum number of stars. (default: 5" in run("finetune", "--help")
    run(
        "finetune", "--task=stars", f"--train_file={tmp_path}/reviews.csv",
        "--text_columns=review", "--label_column=stars", "--init_checkpoint=tiny", "--max_steps=2",
        f"--model_dir={tmp_path}/run",
    )  # fmt: skip
    assert run("predict", model, f"--input={tmp_path}/reviews.csv").startswith("id\tprediction\n")
    run("export", model, f"--output={tmp_path}/export/1")
    run("verify", f"{tmp_path}/export/1")
