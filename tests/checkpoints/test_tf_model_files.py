"""``tf_model.h5`` of every TFBert class, by ``make_tf_model_data``, gives transformers' outputs."""

import os
import shutil

import h5py
import numpy as np
import pytest

from bert_tf.checkpoints import hugging_face
from bert_tf.checkpoints.checkpoint import ModelSpec
from bert_tf.checkpoints.load import load_with_report, open_checkpoint
from bert_tf.checkpoints.weights import expected_shapes
from bert_tf.modeling import (
    BertClassifier,
    BertEncoder,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTokenClassifier,
)
from tests.checkpoints.make_tf_model_data import CLASSES
from tests.checkpoints.recorded import DATA, assert_every_tensor_is_as_described

MODELS = DATA / "tf_model"
SPECS = {
    "model": ModelSpec(BertEncoder, {"pooler": True}),
    "pre_training": ModelSpec(BertPretrainer, {"mlm": True, "nsp": True, "pooler": True}),
    "masked_lm": ModelSpec(BertPretrainer, {"mlm": True, "nsp": False, "pooler": False}),
    "next_sentence": ModelSpec(BertPretrainer, {"mlm": False, "nsp": True, "pooler": True}),
    "sequence_classification": ModelSpec(BertClassifier, {"num_classes": 3}),
    "token_classification": ModelSpec(BertTokenClassifier, {"num_classes": 4, "pooler": False}),
    "question_answering": ModelSpec(BertSpanPredictor, {"pooler": False}),
    "multiple_choice": ModelSpec(BertMultipleChoice, {}),
}
# The outputs of transformers, by their names here; "" is a model's only one.
OUTPUTS = {
    "model": {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"},
    "pre_training": {
        "prediction_logits": "masked_lm_logits",
        "seq_relationship_logits": "next_sentence_logits",
    },
    "masked_lm": {"logits": "masked_lm_logits"},
    "next_sentence": {"logits": "next_sentence_logits"},
    "question_answering": {"start_logits": "start_logits", "end_logits": "end_logits"},
    "sequence_classification": {"logits": ""},
    "token_classification": {"logits": ""},
    "multiple_choice": {"logits": ""},
}


@pytest.fixture
def directory(tmp_path):
    """A copy of a recorded model that a test may damage."""
    return lambda name: shutil.copytree(MODELS / name, tmp_path / name)


def outputs_of(model, recorded):
    batch = {
        "input_word_ids": recorded["input_ids"],
        "input_mask": recorded["attention_mask"],
        "input_type_ids": recorded["token_type_ids"],
    }
    shape = recorded["input_ids"].shape
    batch["masked_lm_positions"] = np.broadcast_to(np.arange(shape[-1], dtype="int32"), shape)
    outputs = model(batch)
    named = outputs if isinstance(outputs, dict) else {"": outputs}
    return {name: np.array(value) for name, value in named.items()}


@pytest.mark.parametrize("name", CLASSES)
def test_a_model_gives_what_transformers_gave(name):
    checkpoint = open_checkpoint(MODELS / name)
    assert checkpoint.model == SPECS[name]
    assert checkpoint.unused == ()
    assert_every_tensor_is_as_described(checkpoint, expected_shapes(checkpoint.config, SPECS[name]))
    model, report = load_with_report(checkpoint)
    assert report.new == () and len(report.loaded) == len(checkpoint.tensors)
    with np.load(MODELS / name / "outputs.npz") as file:
        recorded = dict(file)
    found = outputs_of(model, recorded)
    for theirs, ours in OUTPUTS[name].items():
        # Of padding no one asks; transformers gives the tokens' logits there, too.
        np.testing.assert_allclose(found[ours], recorded[theirs], atol=2e-5, err_msg=theirs)
    assert len(OUTPUTS[name]) + 3 == len(recorded) - ("hidden_states" in recorded)
    if "hidden_states" in recorded:
        states = found["encoder_outputs"]
        np.testing.assert_allclose(states, recorded["hidden_states"][1:], atol=2e-5)


def test_safetensors_go_before_it_and_a_pickle_after(directory, tmp_path):
    path = directory("model")
    (path / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n")
    assert open_checkpoint(path, allow_pickle=True).tensors["pooler/dense/bias"].name.endswith(":0")
    hugging_face.write(open_checkpoint(MODELS / "model"), str(path))
    assert open_checkpoint(path).tensors["pooler/dense/bias"].name == "pooler.dense.bias"


def rename(path, change):
    """Writes the file again, its datasets under other names."""
    with h5py.File(path / "tf_model.h5") as file:
        found = {}
        file.visititems(
            lambda name, item: found.update({name: item[()]} if hasattr(item, "shape") else {})
        )
    os.remove(path / "tf_model.h5")
    with h5py.File(path / "tf_model.h5", "w") as file:
        for name, value in found.items():
            file[change(name)] = value


def test_older_names_and_a_model_within_a_model(directory):
    """transformers 2 and 3 have other tables' names; Keras numbers a second model of a class."""

    def change(name):
        name = name.replace("word_embeddings/weight", "word_embeddings/embeddings")
        return name.replace("tf_bert_model/", "mine/tf_bert_model_1/")

    path = directory("model")
    rename(path, change)
    expected, found = open_checkpoint(MODELS / "model"), open_checkpoint(path)
    assert found.unused == () and found.tensors.keys() == expected.tensors.keys()
    for name, tensor in found.tensors.items():
        np.testing.assert_array_equal(tensor.read(), expected.tensors[name].read())


# === What is refused ===


def test_what_no_bert_has_is_named_and_not_used(directory):
    path = directory("model")
    with h5py.File(path / "tf_model.h5", "r+") as file:
        file["dropout/rate:0"] = np.float32(1)
        file["bert/tf_bert_model/bert/extra/kernel:0"] = np.zeros((2, 3), "float32")
    assert open_checkpoint(path).unused == (
        "bert/tf_bert_model/bert/extra/kernel:0",
        "dropout/rate:0",
    )
