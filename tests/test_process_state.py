"""Calls of the library do not change global state of the process."""

import concurrent.futures
import gc
import importlib.util
import io
import json
import locale
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl import logging as absl_logging
from keras.src.backend.common import global_state
from tensorflow.python.eager import context as eager
from tensorflow.python.framework import config as tf_config

import bert_tf
from bert_tf import api
from bert_tf.__main__ import commands
from bert_tf.training.precision import training_in_process
from tests.finetuning.small_runs import sentences, write_inputs
from tests.processes import run_python

SMALL = {
    "task": "classification", "max_seq_length": 16, "train_batch_size": 8, "learning_rate": 1e-3,
    "max_steps": 4, "seed": 5,
}  # fmt: skip
DOCUMENTS = ["The first sentence. And the second one.", "Another document. It is short."] * 10
SIZES = {
    "bert_config": "bert-tiny", "vocab_size": 200, "max_seq_length": 32, "num_train_steps": 2,
    "train_batch_size": 4, "config_overrides": ["hidden_size=16", "num_attention_heads=2"],
}  # fmt: skip


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


tf.get_logger()  # TensorFlow sets its level at the first use
# Functions that read the state of the process.
STATES = {
    "standard streams": lambda: (sys.stdin, sys.stdout, sys.stderr),
    "hooks": lambda: (sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook),
    "Python's generator": random.getstate,
    "NumPy's generator": lambda: str(np.random.get_state()),
    "TensorFlow's generator": lambda: (
        eager.global_seed(), eager.context()._rng and eager.context()._rng.getstate()
    ),
    "Keras' generator": lambda: (
        global_state.get_global_attribute("global_random_seed"),
        global_state.get_global_attribute("global_seed_generator")
    ),
    "environment": lambda: dict(os.environ),
    "levels of logging": lambda: (
        [(name, logging.getLogger(name).level) for name in ("", "bert_tf", "absl", "tensorflow")],
        logging.root.manager.disable, absl_logging.get_verbosity(), [*logging.root.handlers],
    ),
    "filters of warnings": lambda: ([*warnings.filters], warnings.showwarning),
    "Keras' settings": lambda: (
        keras.config.dtype_policy().name, keras.config.floatx(), keras.config.epsilon(),
        keras.config.is_interactive_logging_enabled(), keras.distribution.distribution(),
        keras.config.is_traceback_filtering_enabled(),
    ),
    "TensorFlow's settings": lambda: (
        tf.config.optimizer.get_experimental_options(), tf.config.optimizer.get_jit(),
        tf_config.is_op_determinism_enabled(), tf.config.get_soft_device_placement(),
        eager.context().function_call_options.config_proto_serialized,
        tf.config.functions_run_eagerly(), tf.distribute.get_strategy(),
    ),
    "signals": lambda: [signal.getsignal(each) for each in signal.valid_signals()],
    "paths": lambda: (os.getcwd(), _umask(), tempfile.gettempdir(), [*sys.path]),
    "others": lambda: (
        locale.setlocale(locale.LC_ALL), gc.isenabled(), gc.get_threshold(),
        sys.getrecursionlimit(), sys.getswitchinterval(), np.geterr(),
    ),
}  # fmt: skip


def _train(inputs, **given):
    return api.fine_tune(
        sentences(16), sentences(8, seed=1), **{"init": inputs / "tiny", **SMALL, **given}
    )


# Calls of all public functions; ``folder`` is empty.
CALLS = {
    "fine_tune": lambda inputs, run, folder: _train(inputs),
    "fine_tune, quiet": lambda inputs, run, folder: _train(inputs, verbose=False),
    "fine_tune, bfloat16": lambda inputs, run, folder: _train(inputs, precision="bfloat16"),
    "fine_tune, mirrored": lambda inputs, run, folder: _train(inputs, strategy="mirrored"),
    "fine_tune, restarts": lambda inputs, run, folder: _train(inputs, restarts=2, max_steps=1),
    "fine_tune, an error": lambda inputs, run, folder: _train(inputs, init="absent"),
    "pretrain": lambda inputs, run, folder: api.pretrain(texts=DOCUMENTS, **SIZES),
    "pretrain, bfloat16, deterministic": lambda inputs, run, folder: api.pretrain(
        texts=DOCUMENTS, precision="bfloat16", deterministic=True, verbose=False, **SIZES
    ),
    "predict": lambda inputs, run, folder: api.predict(run, ["a film"], precision="bfloat16"),
    "predict, a file": lambda inputs, run, folder: api.predict(
        run, ["a film"], folder / "predictions.tsv", verbose=True
    ),
    "export": lambda inputs, run, folder: api.export(run, folder / "1"),
    "Predictor": lambda inputs, run, folder: bert_tf.Predictor(run)("a film"),
    "load": lambda inputs, run, folder: bert_tf.load(run),
    "save": lambda inputs, run, folder: bert_tf.save(bert_tf.load(run), folder / "saved"),
    "load, another dtype": lambda inputs, run, folder: bert_tf.load(run, dtype="mixed_bfloat16"),
}  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return write_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def run(inputs, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run"
    _train(inputs, model_dir=path, verbose=False, export=False)
    return path


SLOW = ("fine_tune, restarts", "pretrain, bfloat16, deterministic")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in CALLS],
)
def test_call_does_not_change_process_state(name, inputs, run, tmp_path):
    tf.random.set_seed(2)
    tf.random.normal([])
    before = {state: read() for state, read in STATES.items()}
    try:
        CALLS[name](inputs, run, tmp_path)
    except ValueError:
        assert name.endswith("an error")
    after = {state: read() for state, read in STATES.items()}
    assert [state for state in STATES if before[state] != after[state]] == []


def test_new_weights_depend_on_keras_seed(run):
    drawn = []
    for seed in (3, 3, 4):
        keras.utils.set_random_seed(seed)
        pair = [
            bert_tf.load(run, bert_tf.BertTokenClassifier, num_classes=3).weights[-2].numpy()
            for _ in range(2)
        ]
        assert (pair[0] != pair[1]).any()
        drawn.append(pair[0])
    assert (drawn[0] == drawn[1]).all() and (drawn[0] != drawn[2]).any()


# === While another thread runs ===


def _draw():
    return random.random(), np.random.random(), float(tf.random.normal([]))


def _seed():
    random.seed(8), np.random.seed(8), tf.random.set_seed(8)


def test_concurrent_calls_do_not_affect_output_and_random_numbers(inputs, run, monkeypatch):
    _seed()
    expected = [_draw() for _ in range(2000)]
    sequential = _train(inputs, verbose=False)
    monkeypatch.setattr(sys, "stdout", stream := io.StringIO())
    _seed()
    drawn = []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        calls = [
            pool.submit(_train, inputs, verbose=False),
            pool.submit(api.predict, run, [text for text, _ in sentences(40)]),
        ]
        while not all(call.done() for call in calls):
            assert sys.stdout is stream
            print("the program's own line")
            drawn.append(_draw())
            time.sleep(0.01)
        assert calls[0].result().scores == sequential.scores
    assert stream.getvalue().splitlines() == ["the program's own line"] * len(drawn)
    assert drawn == expected[: len(drawn)]


@pytest.mark.slow
def test_parallel_trainings_equal_sequential_ones(inputs):
    def weights(seed):
        return [each.numpy() for each in _train(inputs, verbose=False, seed=seed).model.weights]

    sequential = [weights(seed) for seed in (1, 2)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        parallel = [*pool.map(weights, (1, 2))]
    for one, other in zip(sequential, parallel, strict=True):
        for ours, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("first", [{}, {"is_rewritten": True}])
@pytest.mark.parametrize(
    "second", [{}, {"is_rewritten": True}, {"num_replicas": 2}, {"deterministic": True}]
)
def test_training_that_changes_process_state_is_exclusive(first, second):
    with training_in_process(**first):
        if first or second:
            with (
                pytest.raises(ValueError, match="^Another training run is in progress "),
                training_in_process(**second),
            ):
                pass
        else:
            with training_in_process():
                pass
    with training_in_process(**second):
        assert tf_config.is_op_determinism_enabled() is second.get("deterministic", False)
    assert not tf_config.is_op_determinism_enabled()


def test_second_training_is_rejected_before_writing(inputs, tmp_path):
    with training_in_process(is_rewritten=True):
        for call in (
            lambda: _train(inputs, model_dir=tmp_path / "fine"),
            lambda: api.pretrain(texts=DOCUMENTS, **SIZES),
        ):
            with pytest.raises(ValueError, match="^Another training run is in progress "):
                call()
    assert not (tmp_path / "fine").exists()


# === The environment ===


def test_import_does_not_change_environment_or_flags():
    done = run_python(
        "import os; from absl import app, flags, logging  # these define flags\n"
        "before = dict(os.environ), {*flags.FLAGS}; import bert_tf, bert_tf.api\n"
        "assert (dict(os.environ), {*flags.FLAGS}) == before"
    )
    assert (done.returncode, done.stderr) == (0, "")


# Flags with which each command loads TensorFlow; uppercase names are replaced by paths.
COMMANDS = {
    "convert": ["--model=tiny", "--output=NEW", "--format=huggingface"],
    "create_pretraining_data": ["--input_file=TEXT", "--vocab_file=TEXT", "--output_file=NEW"],
    "export": ["--model=tiny", "--output=NEW/1"],
    "extract_features": ["--model=tiny", "--input=TEXT", "--output=NEW"],
    "finetune": [
        "--task=classification", "--train_file=TEXT", "--text_columns=text", "--label_column=label",
        "--init_checkpoint=tiny", "--model_dir=NEW",
    ],
    "predict": ["--model=tiny", "--input=TEXT", "--output=NEW.tsv"],
    "pretrain": ["--input=TEXT", "--model_dir=NEW"],
    "serve": ["--model=EXPORT"],
    "verify": ["."],
    "vocab": ["--input=TEXT", "--output=NEW"],
}  # fmt: skip
# Runs each command in a fork, and prints Keras' backend when the command loads TensorFlow.
_LOAD = """
import json, os, runpy, sys
from bert_tf.cli import command

def report():
    print(sys.argv[0], os.environ["KERAS_BACKEND"], *{"keras", "tensorflow"} & {*sys.modules})
    sys.exit(0)

command.load_tensorflow = report
for name, flags in json.loads(sys.argv[1]).items():
    if not os.fork():
        sys.argv = [name, *flags]
        runpy.run_module(f"bert_tf.{name}", run_name="__main__")
    os.wait()
"""


@pytest.fixture(params=["torch", "jax", "keras.json"])
def other_backend(request, tmp_path):
    """Returns the environment of a user who has selected another Keras backend."""
    if request.param != "keras.json":
        return {**os.environ, "KERAS_BACKEND": request.param}
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras" / "keras.json").write_text('{"backend": "torch"}')
    inherited = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    return {**inherited, "KERAS_HOME": str(tmp_path / "keras")}


def test_commands_select_tensorflow_backend(other_backend, tmp_path):
    (tmp_path / "text.tsv").write_text("text\tlabel\nA text.\tyes\nAnother one.\tno\n")
    (tmp_path / "export" / "1").mkdir(parents=True)
    (tmp_path / "export" / "1" / "saved_model.pb").touch()
    path_values = {name: str(tmp_path / name.lower()) for name in ("NEW", "EXPORT")}
    path_values["TEXT"] = str(tmp_path / "text.tsv")
    given = json.dumps(COMMANDS)
    for name, path in path_values.items():
        given = given.replace(name, path)
    done = run_python(_LOAD, given, env=other_backend)
    assert done.stderr == ""
    loaded = [line for line in done.stdout.splitlines() if " tensorflow" in line]
    assert loaded == [f"{name} tensorflow" for name in COMMANDS]
    assert {*COMMANDS} == {*commands()}


def test_export_does_not_configure_logging(run, tmp_path, monkeypatch):
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.getLogger("absl"), "level", 0)
    api.export(run, tmp_path / "1", verbose=False)
    assert (logging.root.handlers, logging.getLogger("absl").level) == ([], 0)


@pytest.mark.slow
def test_commands_run_and_calls_raise_with_another_backend(other_backend, tmp_path):
    line = [sys.executable, "-m", "bert_tf.convert", "--model=tiny", "--format=bert_tf"]
    line.append(f"--output={tmp_path / 'new'}")
    done = subprocess.run(line, env=other_backend, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    if importlib.util.find_spec(other_backend.get("KERAS_BACKEND", "torch")) is None:
        pytest.skip("the backend is not installed")
    done = run_python(
        "import bert_tf\n"
        "from bert_tf import api\n"
        "from bert_tf.saved_models import export\n"
        "model = bert_tf.load('tiny')\n"
        "for call in (\n"
        "    lambda: api.predict('tiny', ['a']), lambda: bert_tf.Predictor('tiny'),\n"
        "    lambda: export(model, 'new'),\n"
        "):\n"
        "    try:\n"
        "        call()\n"
        "    except ImportError as error:\n"
        "        print(error)\n",
        env=other_backend,
    )
    message = "Keras' backend: expected tensorflow, got torch. Set the environment variable "
    assert [line.startswith(message) for line in done.stdout.splitlines()] == [True] * 3
