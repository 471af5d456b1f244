"""Presets that KerasHub saved, by ``make_keras_hub_data``, give what KerasHub computed."""

import json
import shutil

import h5py
import numpy as np
import pytest

from bert_tf.checkpoints import keras_hub
from bert_tf.checkpoints.checkpoint import Tokenization
from bert_tf.checkpoints.tensor_files import open_hdf5
from tests.checkpoints.samples import DATA
from tests.checkpoints.small_checkpoints import MODELS

PRESETS = DATA / "keras_hub"
PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", "on", "mat")


@pytest.fixture
def preset(tmp_path):
    """A classifier's preset that a test may damage."""
    return shutil.copytree(PRESETS / "classifier", tmp_path / "preset")


def edit(file, **changes):
    """Changes values of a JSON file's ``config``, and of the file where they are not in there."""
    values = json.loads(file.read_text())
    for key, value in changes.items():
        (values["config"] if key in values.get("config", {}) else values)[key] = value
    file.write_text(json.dumps(values))


# === What the reader says ===


@pytest.mark.parametrize(
    ("name", "tokenization"),
    [
        ("sharded", None),
        ("masked_lm", Tokenization(PIECES, True)),
        ("classifier", Tokenization((*PIECES, "The"), False)),
    ],
)
def test_the_tokenizer(name, tokenization):
    assert keras_hub.open_checkpoint(str(PRESETS / name)).tokenization == tokenization


def test_every_dataset_is_used_or_named():
    checkpoint = keras_hub.open_checkpoint(str(PRESETS / "masked_lm"))
    stored = []
    for name in ("model.weights.h5", "task.weights.h5"):
        found = open_hdf5(str(PRESETS / "masked_lm" / name))
        stored += [f"{name}/{place}" for place in found]
    names = {name: tensor.name for name, tensor in checkpoint.tensors.items()}
    slots = tuple(f"task.weights.h5/optimizer/vars/{number}" for number in (0, 1))
    assert checkpoint.unused == slots
    assert sorted([*names.values(), *slots]) == sorted(stored)
    block = "model.weights.h5/layers/transformer_encoder_1"
    assert names["layer_1/attention/key/bias"] == f"{block}/_self_attention_layer/key_dense/vars/1"
    assert names["layer_1/output/kernel"] == f"{block}/_feedforward_output_dense/vars/0"
    assert names["masked_lm/output_bias"] == "task.weights.h5/layers/masked_lm_head/vars/0"


def test_the_folder_and_the_attributes_of_older_keras_are_read(preset):
    before = keras_hub.open_checkpoint(str(PRESETS / "classifier"))
    with h5py.File(preset / "model.weights.h5", "a") as file:
        for block in ("transformer_encoder", "transformer_encoder_1"):
            attention = file[f"layers/{block}/_self_attention_layer"]
            for part in ("query", "key", "value", "output"):
                attention.move(f"{part}_dense", f"_{part}_dense")
        file.move("layers", "_layer_checkpoint_dependencies")
    after = keras_hub.open_checkpoint(str(preset))
    for name, tensor in before.tensors.items():
        np.testing.assert_array_equal(after.tensors[name].read(), tensor.read())


# === Notes ===


@pytest.mark.parametrize(
    ("file", "changes", "note"),
    [
        ("task.json", {"activation": "softmax"},
         "applies 'softmax' to the logits; BertClassifier does not."),
        ("tokenizer.json", {"split": False}, "tokenizer.json has split=False."),
        ("tokenizer.json", {"suffix_indicator": "@@", "oov_token": "?"},
         "tokenizer.json has suffix_indicator='@@', oov_token='?'."),
        ("tokenizer.json", {"strip_accents": True},
         "tokenizer.json has strip_accents=True without lowercase."),
        ("tokenizer.json", {"special_tokens_in_strings": True},
         "tokenizer.json has special_tokens_in_strings=True."),
    ],
)  # fmt: skip
def test_what_is_not_imitated_is_noted(preset, file, changes, note):
    edit(preset / file, **changes)
    checkpoint = keras_hub.open_checkpoint(str(preset))
    (found,) = checkpoint.notes
    assert found.endswith(note)
    is_tokenizers = file == "tokenizer.json"
    assert found.startswith("No preprocessor is made: ") == is_tokenizers
    assert (checkpoint.tokenization is None) == is_tokenizers


def test_of_an_unknown_task_the_encoder_is_taken(preset):
    edit(preset / "task.json", class_name="BertTextEmbedder")
    checkpoint = keras_hub.open_checkpoint(str(preset))
    assert checkpoint.model == MODELS["encoder"]
    assert "task.weights.h5/layers/dense/vars/0" in checkpoint.unused
    assert checkpoint.notes[0].endswith("a 'BertTextEmbedder'; its encoder alone is taken.")
