"""Presets saved with KerasHub by ``make_keras_hub_data``."""

import json
import re
import shutil

import h5py
import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints import keras_hub
from bert_tf.checkpoints.checkpoint import Tokenization
from bert_tf.checkpoints.tensor_files import open_hdf5
from tests.checkpoints.samples import DATA
from tests.checkpoints.small_checkpoints import MODELS

PRESETS = DATA / "keras_hub"
PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", "on", "mat")


@pytest.fixture
def preset(tmp_path):
    """Returns a copy of a classifier preset for modification."""
    return shutil.copytree(PRESETS / "classifier", tmp_path / "preset")


def edit(file, **changes):
    """Changes top-level values of a JSON file. Other keys are set in ``config``."""
    values = json.loads(file.read_text())
    for key, value in changes.items():
        (values if key in values else values["config"])[key] = value
    file.write_text(json.dumps(values))


# === Reading ===


@pytest.mark.parametrize(
    ("name", "tokenization"),
    [
        ("sharded", None),
        ("masked_lm", Tokenization(PIECES, True)),
        ("classifier", Tokenization((*PIECES, "The"), False)),
    ],
)
def test_tokenizer_is_read(name, tokenization):
    assert keras_hub.read_checkpoint(str(PRESETS / name)).tokenization == tokenization


def test_all_datasets_are_used_or_listed_as_unused():
    checkpoint = keras_hub.read_checkpoint(str(PRESETS / "masked_lm"))
    stored = []
    for name in ("model.weights.h5", "task.weights.h5"):
        found = open_hdf5(str(PRESETS / "masked_lm" / name))
        stored += [f"{name}/{path}" for path in found]
    names = {name: tensor.name for name, tensor in checkpoint.tensors.items()}
    slots = tuple(f"task.weights.h5/optimizer/vars/{number}" for number in (0, 1))
    assert checkpoint.unused == slots
    assert sorted([*names.values(), *slots]) == sorted(stored)
    block = "model.weights.h5/layers/transformer_encoder_1"
    assert names["layer_1/attention/key/bias"] == f"{block}/_self_attention_layer/key_dense/vars/1"
    assert names["layer_1/output/kernel"] == f"{block}/_feedforward_output_dense/vars/0"
    assert names["masked_lm/output_bias"] == "task.weights.h5/layers/masked_lm_head/vars/0"


def test_names_of_older_keras_are_read(preset):
    before = keras_hub.read_checkpoint(str(PRESETS / "classifier"))
    with h5py.File(preset / "model.weights.h5", "a") as file:
        for block in ("transformer_encoder", "transformer_encoder_1"):
            attention = file[f"layers/{block}/_self_attention_layer"]
            for part in ("query", "key", "value", "output"):
                attention.move(f"{part}_dense", f"_{part}_dense")
        file.move("layers", "_layer_checkpoint_dependencies")
    after = keras_hub.read_checkpoint(str(preset))
    for name, tensor in before.tensors.items():
        np.testing.assert_array_equal(after.tensors[name].read(), tensor.read())


# === Notes ===


@pytest.mark.parametrize(
    ("file", "changes", "note"),
    [
        ("task.json", {"activation": "softmax"},
         r"task\.json: activation='softmax': logits are returned without this activation\.$"),
        ("task.json", {"margin": 3}, r"task\.json: unknown keys are ignored: 'margin'"),
        ("config.json", {"window": 3}, r"config\.json: unknown keys are ignored: 'window'"),
        ("tokenizer.json", {"split": False}, "split=False: expected True; only BERT's word "
         "splitting is supported"),
        ("tokenizer.json", {"split_on_cjk": False}, "split_on_cjk=False: expected True; "),
        ("tokenizer.json", {"suffix_indicator": "@@"}, "suffix_indicator='@@': expected '##'; "),
        ("tokenizer.json", {"oov_token": "?"}, r"oov_token='\?': expected '\[UNK\]'; only BERT's "
         "token is supported"),
        ("tokenizer.json", {"sequence_length": 4}, "sequence_length=4: padding before packing is "
         "not supported"),
        ("tokenizer.json", {"strip_accents": True},
         r"tokenizer\.json: strip_accents=True is not supported without lowercase\.$"),
        ("tokenizer.json", {"lowercase": True}, r"and .*task\.json have different values of lower"),
        ("tokenizer.json", {"special_tokens_in_strings": True},
         "special_tokens_in_strings=True: expected False; special tokens in texts are split"),
    ],
)  # fmt: skip
def test_unsupported_setting_adds_note(preset, file, changes, note):
    edit(preset / file, **changes)
    checkpoint = keras_hub.read_checkpoint(str(preset))
    (found,) = checkpoint.notes
    assert re.search(note, found)
    is_tokenizer_file = file == "tokenizer.json"
    assert found.startswith("No preprocessor was created: ") == is_tokenizer_file
    assert (checkpoint.tokenization is None) == is_tokenizer_file


def edit_preprocessor(preset, **changes):
    """Changes the preprocessor config in task.json."""
    task = json.loads((preset / "task.json").read_text())
    task["config"]["preprocessor"]["config"].update(changes)
    (preset / "task.json").write_text(json.dumps(task))


def test_sequence_length_and_truncation_of_pairs(preset):
    assert keras_hub.read_checkpoint(str(preset)).max_seq_length == 512
    edit(preset / "preprocessor.json", sequence_length=9)  # task.json has a different length
    edit_preprocessor(preset, sequence_length=7, truncate="waterfall")
    checkpoint = keras_hub.read_checkpoint(str(preset))
    assert checkpoint.max_seq_length == 7
    assert (
        len(checkpoint.notes) == 1
        and "truncate='waterfall': long pairs are truncated as with round_robin"
        in checkpoint.notes[0]
    )
    assert bert_tf.load(preset).preprocessor(["the cat"])["input_word_ids"].shape == (1, 7)
    (preset / "task.json").unlink()
    assert keras_hub.read_checkpoint(str(preset)).max_seq_length == 9
    edit(preset / "preprocessor.json", sequence_length="9")
    with pytest.raises(ValueError, match="sequence_length: expected a positive integer, got '9'"):
        keras_hub.read_checkpoint(str(preset))


def test_unknown_task_loads_only_the_encoder(preset):
    edit(preset / "task.json", class_name="BertTextEmbedder")
    checkpoint = keras_hub.read_checkpoint(str(preset))
    assert checkpoint.model == MODELS["encoder"]
    assert "task.weights.h5/layers/dense/vars/0" in checkpoint.unused
    assert checkpoint.notes[0].endswith(
        "'BertTextEmbedder' is not supported; only its encoder is loaded."
    )
