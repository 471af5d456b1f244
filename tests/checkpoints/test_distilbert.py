"""DistilBERT: its published names and keys, both ways, and its arithmetic against a BERT's."""

import dataclasses
import json

import h5py
import numpy as np
import pytest

from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.checkpoints.tensor_files import open_safetensors
from bert_tf.modeling import BertClassifier
from tests.checkpoints.small_checkpoints import (
    MODELS,
    SMALL,
    UNCASED,
    assert_bit_equal,
    make_checkpoint,
    read_all,
    write,
)

DISTILLED = dataclasses.replace(SMALL, type_vocab_size=0, layer_norm_eps=1e-12, hidden_act="gelu")
# A block's, as the published distilbert-base-uncased has them, and what each is here.
BLOCK = {
    "attention.q_lin": "attention/query",
    "attention.k_lin": "attention/key",
    "attention.v_lin": "attention/value",
    "attention.out_lin": "attention/output",
    "sa_layer_norm": "attention_layer_norm",
    "ffn.lin1": "intermediate",
    "ffn.lin2": "output",
    "output_layer_norm": "output_layer_norm",
}
TABLES = {
    "distilbert.embeddings.word_embeddings.weight": "embeddings/word_embeddings",
    "distilbert.embeddings.position_embeddings.weight": "embeddings/position_embeddings",
}
NORM = {"distilbert.embeddings.LayerNorm": "embeddings/layer_norm"}
HEADS = {
    "masked lm": (
        "DistilBertForMaskedLM",
        {"vocab_transform": "masked_lm/dense", "vocab_layer_norm": "masked_lm/layer_norm"},
    ),
    "classifier": (
        "DistilBertForSequenceClassification",
        {"pre_classifier": "pooler/dense", "classifier": "classifier"},
    ),
    "token classifier": ("DistilBertForTokenClassification", {"classifier": "token_classifier"}),
    "span predictor": ("DistilBertForQuestionAnswering", {"qa_outputs": "span"}),
    "multiple choice": (
        "DistilBertForMultipleChoice",
        {"pre_classifier": "pooler/dense", "classifier": "choice"},
    ),
    "encoder without pooler": ("DistilBertModel", {}),
}


def _expected(arrays, modules):
    """The file's tensors by their published names: matrices are (outputs, inputs) there."""
    block = {
        f"distilbert.transformer.layer.0.{one}": f"layer_0/{two}" for one, two in BLOCK.items()
    }
    found = {there: arrays[here] for there, here in TABLES.items()}
    for there, here in {**NORM, **block, **modules}.items():
        if here.endswith("norm"):
            found[f"{there}.weight"] = arrays[f"{here}/gamma"]
            found[f"{there}.bias"] = arrays[f"{here}/beta"]
        else:
            found[f"{there}.weight"] = arrays[f"{here}/kernel"].T
            found[f"{there}.bias"] = arrays[f"{here}/bias"]
    if "vocab_transform" in modules:
        found["vocab_projector.bias"] = arrays["masked_lm/output_bias"]
    return found


def _stored(path):
    entries = open_safetensors(f"{path}/model.safetensors")
    return {name: entry.read() for name, entry in entries.items()}


@pytest.mark.parametrize("name", HEADS)
def test_names_and_keys_are_the_published_ones_both_ways(tmp_path, name):
    architecture, modules = HEADS[name]
    checkpoint = make_checkpoint(MODELS[name], DISTILLED, tokenization=UNCASED)
    path = write(checkpoint, "huggingface", tmp_path)
    arrays = read_all(checkpoint)
    expected = _expected(arrays, modules)
    if architecture == "DistilBertModel":
        expected = {key.removeprefix("distilbert."): value for key, value in expected.items()}
    assert_bit_equal(_stored(path), expected)
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    wanted = {
        **{"architectures": [architecture], "model_type": "distilbert", "dim": 8, "n_heads": 2},
        **{"n_layers": 1, "hidden_dim": 12, "activation": "gelu", "dropout": 0.2},
        **{"attention_dropout": 0.3, "vocab_size": 20, "max_position_embeddings": 12},
    }
    assert {key: config[key] for key in wanted} == wanted
    assert "type_vocab_size" not in config and "hidden_size" not in config
    again = open_checkpoint(path)
    assert again.config == DISTILLED and again.model.class_name == checkpoint.model.class_name
    assert again.model.arguments.get("dropout") == checkpoint.model.arguments.get("dropout")
    assert not again.unused
    assert_bit_equal(read_all(again), arrays)


def test_weights_of_the_tensorflow_class(tmp_path):
    checkpoint = make_checkpoint(MODELS["classifier"], DISTILLED)
    path = write(checkpoint, "huggingface", tmp_path)
    stored = _stored(path)
    (tmp_path / "m" / "model.safetensors").unlink()
    with h5py.File(tmp_path / "m" / "tf_model.h5", "w") as file:
        for name, array in stored.items():
            *modules, leaf = name.replace("layer.0", "layer_._0").split(".")
            norm = modules[-1].lower().endswith("norm")
            table = modules[-1].endswith("embeddings")
            names = {"weight": "gamma", "bias": "beta"} if norm else {"weight": "kernel"}
            leaf = "embeddings" if table else names.get(leaf, leaf)
            place = "/".join([modules[0], "tf_distil_bert_for_sequence_classification", *modules])
            array = array.T if leaf == "kernel" else array
            file[f"{place.replace('layer_/_0', 'layer_._0')}/{leaf}:0"] = array
    assert_bit_equal(read_all(open_checkpoint(path)), read_all(checkpoint))


def test_it_is_a_bert_whose_token_types_are_zeros_and_whose_pooler_is_a_relu():
    ids = np.array([[2, 6, 7, 3], [2, 8, 3, 0]], "int32")
    rows = {"input_word_ids": ids, "input_mask": (ids > 0).astype("int32")}
    rows["input_type_ids"] = np.array([[0, 0, 1, 1]] * 2, "int32")  # which it does not read
    distilled, bert = (
        BertClassifier(config, num_classes=3)
        for config in (DISTILLED, dataclasses.replace(DISTILLED, type_vocab_size=2))
    )
    paths = {weight.path: weight for weight in distilled.weights}
    for weight in bert.weights:
        if "token_type" in weight.path:
            weight.assign(np.zeros(weight.shape))
            assert weight.path not in paths
        else:
            weight.assign(paths[weight.path])
    states = [model.encoder(rows) for model in (distilled, bert)]
    np.testing.assert_array_equal(states[0]["sequence_output"], states[1]["sequence_output"])
    assert np.min(states[0]["pooled_output"]) == 0 > np.min(states[1]["pooled_output"])


def test_what_hugging_face_has_no_class_for(tmp_path):
    for name in ("pretrainer", "next sentence", "encoder"):
        checkpoint = make_checkpoint(MODELS[name], DISTILLED)
        with pytest.raises(ValueError, match=r"holds a DistilBERT that would be Hugging Face's"):
            write(checkpoint, "huggingface", tmp_path, name.replace(" ", "_"))
