"""TensorFlow calls raise an error, instead of hanging, in processes forked after TensorFlow ran."""

import os
import select
import signal

import numpy as np
import pytest

import bert_tf
from bert_tf import api
from bert_tf.transformers import BertConfig, BertTokenizerFast, TFBertModel, pipeline
from tests.processes import run_python

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"]
ROWS = {name: np.ones((2, 3), "int32") for name in ("input_ids", "attention_mask")}


def call_in_child(call):
    """Returns the result or error of a call in a forked process, or "" after 20 seconds."""
    receiver, sender = os.pipe()
    if not (child := os.fork()):
        try:
            found = str(call())
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
        os.write(sender, found.encode())
        os._exit(0)
    is_ready, _, _ = select.select([receiver], [], [], 20)
    found = os.read(receiver, 4096).decode() if is_ready else ""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(receiver), os.close(sender)
    return found


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    config = bert_tf.BertConfig.from_preset("bert-tiny", vocab_size=7)
    model = bert_tf.BertClassifier(config, num_classes=2)
    model.preprocessor = bert_tf.BertPreprocessor(PIECES, max_seq_length=8)
    model.compile("sgd")
    file = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    file.write_text("\n".join(PIECES) + "\n")
    tokenizer = BertTokenizerFast(str(file))
    drop_in = TFBertModel(BertConfig(vocab_size=7, hidden_size=8, num_attention_heads=2))
    drop_in.compile("sgd")
    found = {
        "model": model,
        "batch": {name: rows.numpy() for name, rows in model.preprocessor(["good"]).items()},
        "predictor": bert_tf.Predictor(model),
        "tokenizer": tokenizer,
        "drop_in": drop_in,
        "pipeline": pipeline("feature-extraction", model=drop_in, tokenizer=tokenizer),
    }
    # Traced functions would run in the child without the Python code of the model.
    for name in ("Predictor", "predict", "a drop-in model's predict"):
        CALLS[name](found)
    return found


CALLS = {
    "Predictor": lambda its: its["predictor"]("good"),
    "BatchPredictor": lambda its: bert_tf.BatchPredictor("anywhere")({"text": ["good"]}),
    "model": lambda its: its["model"](its["batch"]),
    "a new model": lambda its: bert_tf.BertEncoder(its["model"].config),
    "fit": lambda its: its["model"].fit(its["batch"], np.zeros(1)),
    "evaluate": lambda its: its["model"].evaluate(its["batch"], np.zeros(1)),
    "predict": lambda its: its["model"].predict(its["batch"]),
    "drop-in model": lambda its: its["drop_in"](ROWS),
    "a drop-in model's predict": lambda its: its["drop_in"].predict(ROWS),
    "pipeline": lambda its: its["pipeline"]("good"),
    "api.predict": lambda its: api.predict(its["model"], ["good"]),
    "api.fine_tune": lambda its: api.fine_tune([("good", "a")], task="classification"),
}


@pytest.mark.parametrize("call", CALLS)
def test_tensorflow_calls_raise_error(objects, call):
    message = (
        "RuntimeError: TensorFlow ran in the parent process before the fork, so it cannot run "
        "in this process. Load the model only in the child process, or start processes with spawn."
    )
    assert call_in_child(lambda: CALLS[call](objects)) == message


def test_transformers_tokenizer_works(objects):
    tokenizer = objects["tokenizer"]
    expected = str(tokenizer("good bad", truncation=True, max_length=3)["input_ids"])
    found = call_in_child(lambda: tokenizer("good bad", truncation=True, max_length=3)["input_ids"])
    assert found == expected == "[2, 5, 3]"


_NEVER_CALLED = """
import os, sys
from bert_tf import Predictor
predictor = Predictor(sys.argv[1])
if not (child := os.fork()):
    print(predictor("good")["prediction"], flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.slow
def test_unused_predictor_works_in_forked_process(objects, tmp_path):
    objects["model"].labels = ("one", "two")
    bert_tf.save(objects["model"], tmp_path / "saved")
    done = run_python(_NEVER_CALLED, tmp_path / "saved", timeout=300)
    assert done.stdout.strip() in ("one", "two"), done.stderr
