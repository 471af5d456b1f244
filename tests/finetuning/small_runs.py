"""A tiny checkpoint, small files, and the command on them."""

import collections
import json
import random

import numpy as np
import tensorflow as tf
from absl import flags

from bert_tf.checkpoints import model_directory
from bert_tf.checkpoints.checkpoint import Checkpoint, ModelSpec, Tokenization
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.checkpoints.weights import build_model as build_with_weights
from bert_tf.cli import flag_fields
from bert_tf.config import BertConfig
from bert_tf.finetuning import training
from bert_tf.finetuning.data import read_task
from bert_tf.finetuning.model import build_model, initial_model
from bert_tf.finetuning.settings import declarations, settings_from_flags
from bert_tf.modeling import MODEL_CLASSES
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.tasks.task_file import to_json
from bert_tf.training import loop, saved_states
from tests.killed_processes import run_command

WORDS = ("good", "fine", "bad", "poor", "the", "a", "film", "plot", "was", "is", "and", "so")
VOCAB = (*SPECIAL_TOKENS, *WORDS)
TINY = BertConfig(
    vocab_size=len(VOCAB),
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=32,
)


def write_model(
    folder, class_name, arguments=None, task=None, *,
    config=TINY, seed=4, labels=(), vocabulary=VOCAB, **more,
):  # fmt: skip
    """Writes a model directory with random weights, like fine-tuning; returns the model."""
    spec = ModelSpec(MODEL_CLASSES[class_name], arguments or {})
    random.seed(seed)
    model = build_with_weights(config, spec)
    parts = {"tokenization": vocabulary and Tokenization(vocabulary, True), "labels": labels}
    described = Checkpoint(str(folder), "bert_tf", config, spec, **parts, **more)
    model_directory.write_description(described, str(folder))
    save_weights(folder, model)
    if task is not None:
        write_task_file(folder, task)
    return model


def write_task_file(folder, task):
    (folder / "task.json").write_text(json.dumps(to_json(task)))


def save_weights(folder, model, step=0):
    weights = {f"model/{weight.path}": weight for weight in model.weights}
    saved_states.save(str(folder / "checkpoints"), step, weights, {})


def write_checkpoint(folder, config=TINY, seed=1):
    """Writes an encoder with random weights."""
    write_model(folder, "BertEncoder", {"pooler": True}, config=config, seed=seed)
    return folder


def sentences(count, seed=0):
    """Returns texts of 3 to 9 words; one word of each determines its label."""
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        word = rng.choice(WORDS[:4])
        words = [*rng.choices(WORDS[4:], k=rng.randint(2, 8)), word]
        rng.shuffle(words)
        rows.append((" ".join(words), "pos" if word in WORDS[:2] else "neg"))
    return rows


def write_table(path, rows):
    """Writes a TSV file of texts and labels."""
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    return path


def write_inputs(folder):
    """Writes ``tiny``, a checkpoint, ``train.tsv``, ``dev.tsv`` and ``test.tsv`` to the folder."""
    write_checkpoint(folder / "tiny")
    write_table(folder / "train.tsv", sentences(46))
    write_table(folder / "dev.tsv", sentences(20, seed=1))
    (folder / "test.tsv").write_text(
        "text\n" + "".join(f"{text}\n" for text, _ in sentences(9, seed=2))
    )
    return folder


def arguments(inputs, model_dir, **changes):
    """Returns the flags of a run of 3 epochs of 6 steps on ``inputs``; ``None`` removes a flag."""
    values = {
        "task": "classification",
        "train_file": inputs / "train.tsv",
        "dev_file": inputs / "dev.tsv",
        "text_columns": "text",
        "label_column": "label",
        "init_checkpoint": inputs / "tiny",
        "max_seq_length": 16,
        "train_batch_size": 8,
        "learning_rate": 1e-3,
        "num_train_epochs": None if changes.keys() & {"max_steps", "sweep", "few_shot"} else 3,
        "model_dir": model_dir,
        # Exporting takes longer than all other work; its tests enable it.
        "export": False,
        **changes,
    }
    return [f"--{name}={value}" for name, value in values.items() if value is not None]


def parse(*given):
    """Returns the settings for some flags."""
    values = flags.FlagValues()
    flag_fields.define_flags(values, *declarations())
    values(["finetune", *map(str, given)])
    return settings_from_flags(values)


def settings(inputs, model_dir, **changes):
    """Returns the settings for the flags of ``arguments``."""
    return parse(*arguments(inputs, model_dir, **changes))


def finetune(inputs, model_dir, **changes):
    """Runs the command in a separate process."""
    return run_command("bert_tf.finetune", arguments(inputs, model_dir, **changes))


def started(given, task=None):
    """Returns the model that a run would train, and the notes about it."""
    start = initial_model(given, open_checkpoint(given.init_checkpoint))
    return build_model(given, task or read_task(given)[0], start)


def saved(folder):
    """Returns the newest checkpoint's tensors by name."""
    newest = saved_states.find_latest(str(folder))
    reader = tf.train.load_checkpoint(f"{newest.path}/variables")
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_bit_equal(one, other):
    """Compares two results of ``saved``."""
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def results_of(model_dir):
    """Returns results.json without the values that depend on time."""
    values = json.loads((model_dir / "results.json").read_text())
    return {k: v for k, v in values.items() if k not in ("seconds", "examples_per_second", "files")}


def assert_ends_as(finished, model_dir):
    """Compares two runs: their last and best weights, and their results."""
    if (finished / "last").exists():  # tests keep it, unlike the command
        assert_bit_equal(saved(model_dir / "last"), saved(finished / "last"))
    assert_bit_equal(saved(model_dir / "checkpoints"), saved(finished / "checkpoints"))
    assert results_of(model_dir) == results_of(finished)


def one_step_a_call(monkeypatch):
    """Checks for pauses after each step, however short it is."""
    monkeypatch.setattr(loop, "_CALL_SECONDS", 0.0)


def stop_at(monkeypatch, *steps):
    """Requests a stop at each of the steps, like Ctrl-C."""
    left = collections.deque(steps)
    before = training.FineTuningTrainer.is_save_due

    def is_save_due(self):
        if left and self.state.step == left[0]:
            left.popleft()
            self.interruption.requested = True
        return before(self)

    monkeypatch.setattr(training.FineTuningTrainer, "is_save_due", is_save_due)
    one_step_a_call(monkeypatch)
