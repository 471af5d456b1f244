"""Fixtures: a tiny model and texts."""

import functools
from unittest import mock

import numpy as np
import pytest

from bert_tf.checkpoints import model_directory
from bert_tf.checkpoints.checkpoint import ModelSpec
from bert_tf.config import BertConfig
from bert_tf.extraction import run as extraction
from bert_tf.extraction.settings import resolve
from bert_tf.modeling import BertPretrainer
from bert_tf.training.precision import preserved_arithmetic
from tests.checkpoints.small_checkpoints import UNCASED, make_checkpoint

CONFIG = BertConfig(
    vocab_size=20, hidden_size=8, num_hidden_layers=4, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=16,
)  # fmt: skip
# The vocabulary after the special tokens: a Cat cat sat ##s un ##able . é 中
LINES = [
    "a cat sat.",
    "",
    "Cats ||| unable  中 !",
    "  sat sat sat sat sat sat sat sat sat sat sat sat sat sat sat sat sat sat\r",
    "a ||| cat ||| sat",
    "a |||",
]


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    spec = ModelSpec(BertPretrainer, {"mlm": True, "nsp": True, "pooler": True})
    checkpoint = make_checkpoint(spec, CONFIG, tokenization=UNCASED)
    model_directory.write(checkpoint, str(path))
    return str(path)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES) + "\n")
    return str(path)


@pytest.fixture(scope="session")
def loaded(model_dir):
    """Loads the model and its preprocessor, with 12 tokens per row."""
    given = {"input": ["none"], "output": "none", "max_seq_length": 12}
    return extraction._load(resolve(model=model_dir, **given))


@pytest.fixture
def extract(model_dir, loaded, tmp_path, monkeypatch):
    """Returns a function that runs an extraction into a folder of ``tmp_path``."""
    monkeypatch.setattr(extraction, "_load", lambda settings: loaded)
    return functools.partial(run, model_dir, tmp_path)


def run(model_dir, folder, text, output="output", lines_per_file=1000, **changes):
    given = {"max_seq_length": 12, "batch_size": 3, **changes}
    path = str(folder / output)
    lines = dict.fromkeys((False, True), lines_per_file)
    with mock.patch.object(extraction, "_LINES_PER_FILE", lines), preserved_arithmetic():
        return extraction.run(resolve(input=[text], model=model_dir, output=path, **given))


def write_many(path, count=50, seed=0):
    """Writes lines of up to 15 random words."""
    rng = np.random.default_rng(seed)
    words = ["a", "cat", "cats", "sat", "unable", ".", "中", "dog"]
    with path.open("w") as file:
        for _ in range(count):
            file.write(" ".join(rng.choice(words, rng.integers(0, 16))) + "\n")
    return str(path)


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}
