"""The pretrain command on a small corpus, and helpers to inspect its output."""

import random

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from bert_tf.cli import flag_fields
from bert_tf.pretraining.run import run
from bert_tf.pretraining.settings import DECLARATIONS, settings_from_flags
from tests.killed_processes import run_command

flag_fields.define_flags(flags.FLAGS, *DECLARATIONS)

TINY = {
    "vocab_size": 200, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 64,
}  # fmt: skip


def write_corpus(path, documents=40, seed=0):
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 6))) for _ in range(120)]
    with path.open("w") as file:
        for _ in range(documents):
            for _ in range(rng.randint(3, 9)):
                file.write(" ".join(rng.choices(words, k=rng.randint(4, 12))).capitalize() + ".\n")
            file.write("\n")
    return path


def arguments(inputs, model_dir, **changes):
    values = {
        "input": inputs / "corpus.txt",
        "bert_config": inputs / "config.json",
        "vocab_size": 200,
        "max_seq_length": 32,
        "train_batch_size": 8,
        "eval_batch_size": 8,
        "num_train_steps": 12,
        "save_checkpoints_steps": 4,
        "learning_rate": 1e-2,
        "model_dir": model_dir,
        **changes,
    }
    return [f"--{name}={value}" for name, value in values.items() if value is not None]


def parse(*arguments):
    """Parses flags as the command does, without changing the global flags."""
    flags.FLAGS.unparse_flags()
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    try:
        flags.FLAGS(["pretrain", *arguments])
        return settings_from_flags()
    finally:
        for name in flags.FLAGS:
            flags.FLAGS[name].unparse()


def pretrain(inputs, model_dir, **changes):
    """Runs the command in another process; returns its output."""
    done = run_command("bert_tf.pretrain", arguments(inputs, model_dir, **changes))
    assert done.returncode == 0, done.stderr
    return done.stdout


def weights(model_dir, step):
    reader = tf.train.load_checkpoint(f"{model_dir}/checkpoints/step-{step:08d}/variables")
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_bit_equal(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def error_of_run(inputs, tmp_path, **changes):
    """Returns the error message of a run that fails at the start, in this process."""
    with pytest.raises((ValueError, OSError)) as refused:
        run(parse(*arguments(inputs, tmp_path / "run", **changes))[0])
    assert "\n" not in str(refused.value)
    return str(refused.value)
