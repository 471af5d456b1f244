"""Presets that KerasHub saved, by ``make_keras_hub_data``, give what KerasHub computed."""

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
    """A classifier's preset that a test may damage."""
    return shutil.copytree(PRESETS / "classifier", tmp_path / "preset")


def edit(file, **changes):
    """Changes values of a JSON file, those that it has itself there, the others in ``config``."""
    values = json.loads(file.read_text())
    for key, value in changes.items():
        (values if key in values else values["config"])[key] = value
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
    assert keras_hub.read_checkpoint(str(PRESETS / name)).tokenization == tokenization


def test_every_dataset_is_used_or_named():
    checkpoint = keras_hub.read_checkpoint(str(PRESETS / "masked_lm"))
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
         r"task\.json: activation='softmax': logits are returned without it\.$"),
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
def test_what_is_not_imitated_is_told(preset, file, changes, note):
    edit(preset / file, **changes)
    checkpoint = keras_hub.read_checkpoint(str(preset))
    (found,) = checkpoint.notes
    assert re.search(note, found)
    is_tokenizers = file == "tokenizer.json"
    assert found.startswith("No preprocessor was created: ") == is_tokenizers
    assert (checkpoint.tokenization is None) == is_tokenizers


def edit_preprocessor(preset, **changes):
    """Changes what the task says of its preprocessor."""
    task = json.loads((preset / "task.json").read_text())
    task["config"]["preprocessor"]["config"].update(changes)
    (preset / "task.json").write_text(json.dumps(task))


def test_the_length_of_a_row_and_how_pairs_are_cut(preset):
    assert keras_hub.read_checkpoint(str(preset)).max_seq_length == 512
    edit(preset / "preprocessor.json", sequence_length=9)  # the task has another
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


def test_of_an_unknown_task_the_encoder_is_taken(preset):
    edit(preset / "task.json", class_name="BertTextEmbedder")
    checkpoint = keras_hub.read_checkpoint(str(preset))
    assert checkpoint.model == MODELS["encoder"]
    assert "task.weights.h5/layers/dense/vars/0" in checkpoint.unused
    assert checkpoint.notes[0].endswith(
        "'BertTextEmbedder' is not supported; only its encoder is loaded."
    )
