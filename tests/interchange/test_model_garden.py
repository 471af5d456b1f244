"""Checkpoints that Model Garden saved, by ``make_model_garden_data``, give what it computed."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.config import BertConfig
from bert_tf.interchange import google, keras_hub, model_garden
from bert_tf.interchange.checkpoint import ModelSpec
from bert_tf.interchange.weights import expected_shapes
from bert_tf.modeling import (
    BertClassifier,
    BertEncoder,
    BertPretrainer,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)

from . import recorded
from .recorded import DATA, assert_as_recorded, assert_every_tensor_is_as_described

CHECKPOINTS = DATA / "model_garden"
CONFIG = dataclasses.replace(
    recorded.CONFIG, attention_probs_dropout_prob=0.15, initializer_range=0.03
)
DEFAULT_RATES = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
}
PRETRAINER = ModelSpec(BertPretrainer, {"mlm": True, "nsp": True, "pooler": True})
MODELS = {
    "encoder": ModelSpec(BertEncoder, {"pooler": True}),
    "pretrainer": PRETRAINER,
    "old_pretrainer": PRETRAINER,
    "classifier": ModelSpec(BertClassifier, {"num_classes": 3}),
    "regressor": ModelSpec(BertRegressor, {}),
    "span_labeler": ModelSpec(BertSpanPredictor, {"pooler": True}),
    "tagger": ModelSpec(BertTokenClassifier, {"num_classes": 4, "pooler": True}),
}
WITHOUT_CONFIG = ("old_pretrainer", "classifier", "regressor")


@pytest.fixture
def released(tmp_path):
    """The encoder, as a released model lies in its archive, for a test to damage."""
    return shutil.copytree(CHECKPOINTS / "encoder", tmp_path / "released")


def save(path, **values):
    """An object checkpoint of variables by name, hanging below an object called ``model``."""
    root = tf.train.Checkpoint()
    root.model = tf.Module()
    root.model.held = [tf.Variable(value, name=name) for name, value in values.items()]
    return root.write(str(path / "ckpt"))


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_model_gardens(name):
    model = bert_tf.load(CHECKPOINTS / name)
    assert type(model).__name__ == MODELS[name].class_name
    assert_as_recorded(model, CHECKPOINTS / name)


# === What the reader says ===


@pytest.mark.parametrize("name", MODELS)
def test_config_model_and_tensors(name):
    path = str(CHECKPOINTS / name)
    checkpoint = model_garden.open_checkpoint(path)
    rates = DEFAULT_RATES if name in WITHOUT_CONFIG else {}
    assert checkpoint.config == BertConfig(**{**CONFIG.to_dict(), **rates})
    assert checkpoint.model == MODELS[name]
    assert checkpoint.format == "model_garden"
    assert checkpoint.labels == (("O", "B-PER", "I-PER", "B-LOC") if name == "tagger" else ())
    assert_every_tensor_is_as_described(checkpoint, expected_shapes(CONFIG, MODELS[name]))
    assumed = [note for note in checkpoint.notes if "sizes are the tensors'" in note]
    assert len(assumed) == (name in WITHOUT_CONFIG)


@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_is_used_or_named(name):
    checkpoint = model_garden.open_checkpoint(str(CHECKPOINTS / name))
    prefix = tf.train.latest_checkpoint(CHECKPOINTS / name) or str(
        CHECKPOINTS / name / "bert_model.ckpt"
    )
    stored = {key for key, _ in tf.train.list_variables(prefix)}
    used = [key for tensor in checkpoint.tensors.values() for key in tensor.names]
    assert len(used) == len(set(used)) == len(checkpoint.tensors)
    assert not set(used) & set(checkpoint.unused)
    assert {*used, *checkpoint.unused} == stored - {"_CHECKPOINTABLE_OBJECT_GRAPH"}


def keys(names):
    return tuple(f"{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in names)


def test_names_do_not_depend_on_keys():
    """By key, the word embeddings are the masked-LM head's. The pooler is the head's own layer."""
    checkpoint = model_garden.open_checkpoint(str(CHECKPOINTS / "pretrainer"))
    names = {name: tensor.names for name, tensor in checkpoint.tensors.items()}
    assert names["embeddings/word_embeddings"] == keys(["masked_lm/embedding_table"])
    assert names["pooler/dense/kernel"] == keys(["next_sentence..pooler_dense/kernel"])
    assert names["next_sentence/dense/kernel"] == keys(
        ["model/classification_heads/0/out_proj/kernel"]
    )
    assert names["layer_1/attention/output/kernel"] == keys(
        ["encoder/_transformer_layers/1/_attention_layer/_output_dense/kernel"]
    )
    slots = [f"optimizer/_variables/{number}" for number in range(1, 97)]
    others = [f"encoder/_pooler_layer/{leaf}" for leaf in ("kernel", "bias")]
    others += ["global_step", "optimizer/_iterations", "optimizer/_learning_rate", "save_counter"]
    assert checkpoint.unused == tuple(sorted(keys([*slots, *others])))
    assert "The head bert/next_sentence of" in checkpoint.notes[0]


def test_unused_of_the_others():
    unused = {name: model_garden.open_checkpoint(str(CHECKPOINTS / name)).unused for name in MODELS}
    assert unused["encoder"] == ()
    assert unused["regressor"] == unused["span_labeler"] == keys(["save_counter"])
    pooler = [f"encoder/_pooler_layer/{leaf}" for leaf in ("bias", "kernel")]
    assert unused["classifier"] == keys([*pooler, "save_counter"])
    slots = [key for key in unused["old_pretrainer"] if "/.OPTIMIZER_SLOT/optimizer/" in key]
    rest = ["optimizer/beta_1", "optimizer/beta_2", "optimizer/decay", "optimizer/iter"]
    rest += ["optimizer/learning_rate", "save_counter"]
    assert set(unused["old_pretrainer"]) - set(slots) == set(keys(rest))
    assert len(slots) == 2 * 46


def test_tokenizer_and_casing(released):
    checkpoint = model_garden.open_checkpoint(str(released))
    assert checkpoint.tokenization.vocabulary[-2:] == ("##s", "The")
    assert not checkpoint.tokenization.do_lower_case
    assert "its vocabulary has capital letters" in checkpoint.notes[0]


def test_casing_is_what_params_yaml_says(tmp_path):
    """The pieces alone would make this tokenizer uncased."""
    path = shutil.copytree(CHECKPOINTS / "span_labeler", tmp_path / "a")
    pieces = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the")
    (path / "vocab.txt").write_text("\n".join(pieces))
    checkpoint = model_garden.open_checkpoint(str(path))
    assert (checkpoint.tokenization.do_lower_case, checkpoint.notes) == (False, ())


def test_items_without_the_model(tmp_path):
    """The head's dense layer is an item of its own; its output layer is none, and so not there."""
    source = model_garden.open_checkpoint(str(CHECKPOINTS / "pretrainer"))
    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(CHECKPOINTS / "pretrainer"))
    values = {
        "transformer/layer_0/self_attention/query/kernel": "layer_0/attention/query/kernel",
        "transformer/layer_0/intermediate/kernel": "layer_0/intermediate/kernel",
        "word_embeddings/embeddings": "embeddings/word_embeddings",
        "position_embedding/embeddings": "embeddings/position_embeddings",
        "type_embeddings/embeddings": "embeddings/token_type_embeddings",
        "pooler_transform/kernel": "layer_1/attention/output/bias",
        "bert/next_sentence/pooler_dense/kernel": "pooler/dense/kernel",
    }
    prefix = save(
        tmp_path,
        **{
            there: reader.get_tensor(source.tensors[ours].names[0])
            for there, ours in values.items()
        },
    )
    checkpoint = model_garden.open_checkpoint(prefix)
    assert checkpoint.model == MODELS["encoder"]
    assert checkpoint.config.num_hidden_layers == 1
    for name in ("pooler/dense/kernel", "layer_0/attention/query/kernel"):
        np.testing.assert_array_equal(checkpoint.tensors[name].read(), source.tensors[name].read())


def test_a_masked_lm_head_may_have_an_activation_of_its_own(tmp_path):
    path = shutil.copytree(CHECKPOINTS / "pretrainer", tmp_path / "a")
    params = (
        (path / "params.yaml").read_text().replace("mlm_activation: gelu", "mlm_activation: relu")
    )
    (path / "params.yaml").write_text(params)
    assert model_garden.open_checkpoint(str(path)).model.arguments["mlm_activation"] == "relu"


# === Which path ===


def test_recognition(tmp_path):
    for name in MODELS:
        path = str(CHECKPOINTS / name)
        assert model_garden.is_checkpoint(path)
        assert not google.is_checkpoint(path)
        assert not keras_hub.is_checkpoint(path)
    assert not model_garden.is_checkpoint(str(tmp_path))
    tf.raw_ops.SaveV2(  # as TensorFlow 1 does: names, and no graph
        prefix=str(tmp_path / "bert_model.ckpt"),
        tensor_names=["bert/embeddings/word_embeddings"],
        shape_and_slices=[""],
        tensors=[tf.zeros((2, 3))],
    )
    assert not model_garden.is_checkpoint(str(tmp_path))


def test_the_prefix_and_a_trailing_slash_are_paths_too():
    prefix = str(CHECKPOINTS / "pretrainer" / "ckpt-7")
    for path in (prefix, f"{CHECKPOINTS / 'pretrainer'}/"):
        assert model_garden.is_checkpoint(path)
        checkpoint = model_garden.open_checkpoint(path)
        assert checkpoint.config == CONFIG
    assert isinstance(bert_tf.load(prefix), bert_tf.BertPretrainer)


def test_of_several_the_last_saved_is_taken_wherever_they_are_now(tmp_path):
    path = shutil.copytree(CHECKPOINTS / "regressor", tmp_path / "a")
    for suffix in ("index", "data-00000-of-00001"):
        shutil.copy(CHECKPOINTS / "span_labeler" / f"ckpt-1.{suffix}", path / f"ckpt-2.{suffix}")
    (path / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/../ckpt-2"')
    assert model_garden.open_checkpoint(str(path)).model == MODELS["span_labeler"]


# === Errors ===


def test_no_checkpoint_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"holds no TensorFlow checkpoint \(NAME\.index"):
        model_garden.open_checkpoint(str(tmp_path))


def test_a_checkpoint_without_graph_is_an_error(tmp_path):
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "a"), tensor_names=["b"], shape_and_slices=[""], tensors=[tf.zeros(1)]
    )
    with pytest.raises(ValueError, match=r"a is a TensorFlow checkpoint without an object graph\."):
        model_garden.open_checkpoint(str(tmp_path))


def test_integers_are_no_weights(released):
    prefix = save(released, **{"word_embeddings/embeddings": np.zeros((25, 8), "int32")})
    with pytest.raises(ValueError, match=r"is int32, expected a floating-point type\."):
        model_garden.open_checkpoint(prefix)


def test_sizes_that_nothing_says_are_asked_for(tmp_path):
    prefix = save(tmp_path, **{"word_embeddings/embeddings": np.zeros((25, 8), "float32")})
    sentence = r"has no embeddings/position_embeddings from whose shape to read max_position_emb"
    with pytest.raises(ValueError, match=sentence):
        model_garden.open_checkpoint(prefix)


def test_another_number_of_heads_is_an_error(released):
    values = json.loads((released / "bert_config.json").read_text())
    (released / "bert_config.json").write_text(json.dumps({**values, "num_attention_heads": 4}))
    with pytest.raises(ValueError, match=r"bert_config\.json says that attention has 4 heads, but"):
        model_garden.open_checkpoint(str(released))


def test_a_wrong_shape_is_left_to_the_loader(released):
    values = json.loads((released / "bert_config.json").read_text())
    (released / "bert_config.json").write_text(json.dumps({**values, "vocab_size": 30}))
    with pytest.raises(ValueError, match=r"is \(25, 8\), expected \(30, 8\)"):
        bert_tf.load(released)


def test_a_head_without_dimensions_is_left_to_the_loader(released):
    root = tf.train.Checkpoint()
    root.classifier = tf.Module()
    root.classifier.out_proj = tf.Module()
    root.classifier.out_proj.kernel = tf.Variable(1.0, name="a/logits/kernel")
    root.word_embeddings = tf.Variable(tf.zeros((25, 8)), name="word_embeddings/embeddings")
    checkpoint = model_garden.open_checkpoint(root.write(str(released / "other")))
    assert checkpoint.model == ModelSpec(BertClassifier, {"num_classes": 0})
    assert checkpoint.tensors["classifier/kernel"].shape == ()
    with pytest.raises(ValueError, match=r"is \(\), expected \(8, 0\)"):
        bert_tf.load(released / "other")


@pytest.mark.parametrize("file", ["bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"])
def test_a_file_cut_off_is_one_sentence(released, file):
    size = (released / file).stat().st_size
    for kept in (0, size // 2, size - 1):
        os.truncate(released / file, kept)
        with pytest.raises(ValueError, match=r"bert_model\.ckpt"):
            bert_tf.load(released)
        shutil.copy(CHECKPOINTS / "encoder" / file, released / file)
