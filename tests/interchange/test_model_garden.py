"""Model Garden's checkpoints: the whole, the config beside them, variables' names, the graph."""

import dataclasses
import json
import os
import shutil
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

import bert_tf
from bert_tf.config import BertConfig
from bert_tf.interchange import bundles, google, keras_hub, model_garden
from bert_tf.interchange.checkpoint import ModelSpec
from bert_tf.interchange.model_garden import Settings, Variable, find_weights, read_settings
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


ENCODER = {
    "vocab_size": 25,
    "hidden_size": 8,
    "num_layers": 2,
    "num_attention_heads": 2,
    "hidden_activation": "gelu",
    "intermediate_size": 12,
    "dropout_rate": 0.2,
    "attention_dropout_rate": 0.15,
    "max_position_embeddings": 16,
    "type_vocab_size": 3,
    "initializer_range": 0.03,
    "embedding_size": None,
    "norm_first": False,
}
FIELDS = {
    "vocab_size": 25,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_act": "gelu_new",
    "intermediate_size": 12,
    "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.15,
    "max_position_embeddings": 16,
    "type_vocab_size": 3,
    "initializer_range": 0.03,
}


def params(path, encoder=None, model=None, kind="bert", **task):
    """Writes params.yaml; JSON is YAML."""
    inner = {"type": kind, kind: {**ENCODER, **(encoder or {})}}
    values = {"task": {"model": {"encoder": inner, **(model or {})}, **task}, "trainer": {}}
    (path / "params.yaml").write_text(json.dumps(values))
    return str(path)


def test_nothing_says_nothing(tmp_path):
    assert read_settings(str(tmp_path)) == Settings("", {})


def test_bert_config_json(tmp_path):
    values = {**FIELDS, "hidden_act": "gelu", "layer_norm_eps": 1e-6, "embedding_size": 8, "x": 1}
    (tmp_path / "bert_config.json").write_text(json.dumps(values))
    (tmp_path / "params.yaml").write_text("is not read: [")
    assert read_settings(str(tmp_path)) == Settings(str(tmp_path / "bert_config.json"), FIELDS)


def test_params_yaml(tmp_path):
    path = params(
        tmp_path,
        kind="bert_v2",
        model={"mlm_activation": "gelu", "cls_heads": [{"inner_dim": 8, "name": "next_sentence"}]},
        train_data={"lower_case": True},
        class_names=["O", 7],
    )
    source = str(tmp_path / "params.yaml")
    assert read_settings(path) == Settings(source, FIELDS, "gelu_new", True, ("O", "7"))


@pytest.mark.parametrize(
    ("there", "here"),
    [("gelu", "gelu_new"), ("GELU", "gelu_new"), ("relu", "relu"), ("identity", "linear")],
)
def test_activations(tmp_path, there, here):
    settings = read_settings(params(tmp_path, {"hidden_activation": there}))
    assert settings.fields["hidden_act"] == here


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ({}, None),
        ({"train_data": {"lower_case": "yes"}}, None),
        ({"train_data": [], "validation_data": {"do_lower_case": False}}, False),
        ({"train_data": {"lower_case": True}, "validation_data": {"do_lower_case": False}}, True),
    ],
)
def test_casing(tmp_path, task, expected):
    assert read_settings(params(tmp_path, **task)).do_lower_case is expected


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"kind": "albert"}, "task.model.encoder.type is 'albert', expected one of bert, bert_v2"),
        ({"encoder": {"norm_first": True}}, "norm_first is True and embedding_size is None, expec"),
        ({"encoder": {"embedding_size": 4}}, "embedding_size is 4, expected false and 8: only BE"),
        (
            {"model": {"cls_heads": [{"inner_dim": 8, "activation": "relu", "name": "a"}]}},
            "the head 'a' has activation 'relu' at token 0, expected 'tanh' at token 0",
        ),
        (
            {"model": {"cls_heads": [{"inner_dim": 8, "cls_token_idx": 1}]}},
            "the head None has activation 'tanh' at token 1, expected",
        ),
        ({"model": {"cls_heads": ["a"]}}, "expected cls_heads to be a list of objects, got 'a'"),
        ({"model": {"encoder": 3}}, "expected an object under encoder, as Model Garden's trainer"),
    ],
)
def test_what_cannot_be_built_is_refused(tmp_path, arguments, sentence):
    with pytest.raises(ValueError, match=rf"params\.yaml: .*{sentence}"):
        read_settings(params(tmp_path, **arguments))


def test_a_head_without_a_layer_of_its_own_may_have_any_activation(tmp_path):
    head = {"inner_dim": 0, "activation": "relu", "cls_token_idx": 3}
    assert read_settings(params(tmp_path, model={"cls_heads": [head]})).fields == FIELDS


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "is not YAML that can be read: "),
        ("#" * (1 << 20) + "\na: 1", r"expected a YAML file of at most 1,048,576 bytes\."),
        ("\x00", "is not YAML that can be read: "),
        (
            "a: !!python/object/apply:os.system ['touch broken']",
            "could not determine a constructor",
        ),
        ("[" * 500, "is not YAML that can be read: "),
        ("", "expected an object under task, as Model Garden's trainer writes it, got None"),
        ("task: 3", "expected an object under task, as Model Garden's trainer writes it, got 3"),
    ],
)
def test_a_damaged_params_yaml_is_refused(tmp_path, text, sentence):
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(ValueError, match=rf"params\.yaml:? .*{sentence}"):
        read_settings(str(tmp_path))


def test_pyyaml_is_asked_for_where_it_is_needed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ValueError, match=r"PyYAML, which reads it, is not installed: pip install"):
        read_settings(params(tmp_path))


TABLE = Variable("table", "word_embeddings/embeddings", frozenset())


def variable(name, *attributes):
    return Variable(f"key of {name}", name, frozenset(attributes))


def find(*variables, shapes=None):
    shapes = {v.key: (8, 2) for v in variables} | (shapes or {})
    return find_weights([TABLE, *variables], shapes, "ckpt")


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ("word_embeddings/embeddings", "embeddings/word_embeddings"),
        ("encoder_1/position_embedding/embeddings", "embeddings/position_embeddings"),
        ("type_embeddings/embeddings", "embeddings/token_type_embeddings"),
        ("a/b/embeddings/layer_norm/beta", "embeddings/layer_norm/beta"),
        ("transformer/layer_0/self_attention/key/bias", "layer_0/attention/key/bias"),
        ("e/transformer/layer_11/self_attention/query/kernel", "layer_11/attention/query/kernel"),
        ("transformer/layer_3/self_attention/value/kernel", "layer_3/attention/value/kernel"),
        (
            "transformer/layer_0/self_attention/attention_output/kernel",
            "layer_0/attention/output/kernel",
        ),
        (
            "transformer/layer_0/self_attention_layer_norm/gamma",
            "layer_0/attention_layer_norm/gamma",
        ),
        ("transformer/layer_0/intermediate/bias", "layer_0/intermediate/bias"),
        ("transformer/layer_0/output/kernel", "layer_0/output/kernel"),
        ("transformer/layer_0/output_layer_norm/beta", "layer_0/output_layer_norm/beta"),
        ("pooler_transform/kernel", "pooler/dense/kernel"),
        ("bert/cls/predictions/transform/dense/kernel", "masked_lm/dense/kernel"),
        ("cls/predictions/transform/LayerNorm/gamma", "masked_lm/layer_norm/gamma"),
        ("bert/cls/predictions/output_bias/bias", "masked_lm/output_bias"),
    ],
)
def test_names(there, here):
    found = find_weights([TABLE, variable(there)] if "word" not in there else [TABLE], {}, "ckpt")
    assert set(found.weights) == {"embeddings/word_embeddings", here}
    assert (found.head, found.own_pooler) == ("", "")


@pytest.mark.parametrize(
    "name",
    [
        "my_word_embeddings/embeddings",
        "word_embeddings/kernel",
        "transformer/layer_0/self_attention/query/gamma",
        "transformer/layer_0/self_attention/other/kernel",
        "transformer/layer_00/output/kernel",
        "transformer/layer_x/output/kernel",
        "transformer/layer_0",
        "embeddings/layer_norm/kernel",
        "global_step",
        "",
    ],
)
def test_what_is_no_weight(name):
    assert set(find(variable(name)).weights) == {"embeddings/word_embeddings"}


@pytest.mark.parametrize(
    ("name", "attributes", "head", "module"),
    [
        (
            "bert/next_sentence",
            ["out_proj", "classification_heads"],
            "next_sentence",
            "next_sentence/dense",
        ),
        ("predictions/transform", ["classification"], "next_sentence", "next_sentence/dense"),
        ("sentence_prediction", ["out_proj", "classifier"], "classifier", "classifier"),
        ("predictions/transform", ["classifier"], "token_classifier", "token_classifier"),
        ("predictions/transform", ["span_labeling"], "span", "span"),
        ("bert/another", ["out_proj", "classification_heads"], "", None),
        ("predictions/transform", ["layer_with_weights-1"], "", None),
    ],
)
def test_heads_by_what_holds_them(name, attributes, head, module):
    kernel = variable(f"{name}/logits/kernel", *attributes)
    bias = variable(f"{name}/logits/bias", *attributes)
    for variables in ((kernel, bias), (kernel,), (bias,)):
        found = find(*variables)
        assert found.head == head
        leaves = {v.name.rpartition("/")[2]: v for v in variables}
        expected = {f"{module}/{leaf}": v for leaf, v in leaves.items()} if module else {}
        assert found.weights == {"embeddings/word_embeddings": TABLE, **expected}


def test_one_class_is_a_regressor():
    kernel = variable("a/logits/kernel", "out_proj", "classifier")
    assert find(kernel, shapes={kernel.key: (8, 1)}).head == "regressor"
    assert find(kernel, shapes={kernel.key: ()}).head == "classifier"


def test_a_heads_own_layer_is_the_pooler():
    own = variable("bert/next_sentence/pooler_dense/kernel")
    encoders = variable("pooler_transform/kernel")
    kernel = variable("bert/next_sentence/logits/kernel", "classification_heads")
    other = variable("bert/another/pooler_dense/kernel")
    for variables in ((other, encoders, own, kernel), (own, encoders)):
        found = find(*variables)
        assert found.weights["pooler/dense/kernel"] == own
        assert found.own_pooler == "bert/next_sentence"
    assert find(encoders, kernel).weights["pooler/dense/kernel"] == encoders


@pytest.mark.parametrize("names", [[], ["dense/kernel"], ["pooler_transform/kernel"]])
def test_no_bert_is_an_error(names):
    with pytest.raises(
        ValueError, match=r"ckpt holds no variable of a BERT of Model Garden, no wo"
    ):
        find_weights(map(variable, names), {}, "ckpt")


def test_two_berts_are_an_error():
    second = variable("generator/word_embeddings/embeddings")
    sentence = r"holds 'table' and 'key of gen.*', both embeddings/word_embeddings: expected one mo"
    with pytest.raises(ValueError, match=sentence):
        find(second)


def test_factorised_embeddings_are_an_error():
    with pytest.raises(ValueError, match=r"has 'embedding_projection/kernel', embeddings of anoth"):
        find(variable("embedding_projection/kernel"))


def save_graph(path, graph, key="a/.ATTRIBUTES/VARIABLE_VALUE"):
    """A checkpoint of one tensor and a graph, an object or bytes."""
    content = graph if isinstance(graph, bytes) else graph.SerializeToString()
    tf.raw_ops.SaveV2(
        prefix=str(path / "ckpt"),
        tensor_names=[key, model_garden.GRAPH_KEY],
        shape_and_slices=["", ""],
        tensors=[tf.zeros(3), tf.constant(content)],
    )
    return bundles.Bundle(str(path / "ckpt"))


def test_variables_and_what_holds_them(tmp_path):
    """A shared variable has one key; an optimizer's variables are left out, like its name says."""
    kernel, bias = tf.Variable([1.0], name="head/logits/kernel"), tf.Variable([2.0], name="b")
    head, model, root = tf.Module(), tf.Module(), tf.train.Checkpoint()
    head.out_proj = tf.Module()
    head.out_proj.kernel = kernel
    model.heads = [head]
    model.bias = bias
    root.model = model
    root.shared = tf.Module()
    root.shared.item = bias
    root.optimizer = tf.Module()
    root.optimizer.slot = tf.Variable([3.0], name="m/head/logits/kernel")
    root.optimizer.of = bias
    prefix = root.write(str(tmp_path / "ckpt"))
    wanted = {"out_proj", "heads", "model", "shared"}
    found = {v.name: v for v in model_garden.read_variables(bundles.Bundle(prefix), wanted)}
    assert set(found) == {"head/logits/kernel", "b"}
    assert found["head/logits/kernel"].attributes == {"out_proj", "heads"}
    assert found["b"].attributes == {"model", "shared"}
    stored = tf.train.load_checkpoint(prefix)
    for name, value in (("head/logits/kernel", 1.0), ("b", 2.0)):
        assert stored.get_tensor(found[name].key) == [value]


def test_what_keras_has_no_names_for_is_read_as_well(tmp_path):
    model = keras.Sequential([keras.layers.Dense(2)])
    model.build((None, 3))
    prefix = tf.train.Checkpoint(model=model).write(str(tmp_path / "ckpt"))
    assert len(model_garden.read_variables(bundles.Bundle(prefix), ())) == 2


def test_a_graph_that_runs_in_a_circle_ends(tmp_path):
    graph = TrackableObjectGraph()
    for number in range(2):
        node = graph.nodes.add()
        node.children.add(node_id=1 - number, local_name="other")
        node.children.add(node_id=number, local_name="self")
    graph.nodes[1].attributes.add(
        name="VARIABLE_VALUE", full_name="a", checkpoint_key="a/.ATTRIBUTES/VARIABLE_VALUE"
    )
    bundle = save_graph(tmp_path, graph)
    (variable,) = model_garden.read_variables(bundle, {"other", "self"})
    assert (variable.name, variable.attributes) == ("a", {"other", "self"})


def test_a_variable_that_is_not_stored_is_none(tmp_path):
    graph = TrackableObjectGraph()
    graph.nodes.add().attributes.add(name="VARIABLE_VALUE", full_name="a", checkpoint_key="b")
    assert model_garden.read_variables(save_graph(tmp_path, graph), ()) == []
    assert model_garden.read_variables(save_graph(tmp_path, b""), ()) == []


@pytest.mark.parametrize("content", [b"\xff\xff\xff", b"\x0a\x05abc"])
def test_a_damaged_graph_is_refused(tmp_path, content):
    with pytest.raises(ValueError, match=r"ckpt: _CHECKPOINTABLE_OBJECT_GRAPH is no object graph,"):
        model_garden.read_variables(save_graph(tmp_path, content), ())


def test_a_graph_of_numbers_is_refused(tmp_path):
    bundle = save_graph(tmp_path, b"", key="other")
    prefix = str(tmp_path / "second")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=[model_garden.GRAPH_KEY],
        shape_and_slices=[""],
        tensors=[tf.zeros(3)],
    )
    bundle = bundles.Bundle(prefix)
    with pytest.raises(
        ValueError,
        match=r"second: _CHECKPOINTABLE_OBJECT_GRAPH is float32 \(3,\), expected one str",
    ):
        model_garden.read_variables(bundle, ())


@pytest.mark.parametrize("number", [2, -1])
def test_a_child_beyond_the_graph_is_refused(tmp_path, number):
    graph = TrackableObjectGraph()
    graph.nodes.add().children.add(node_id=number, local_name="a")
    graph.nodes.add()
    with pytest.raises(ValueError, match=rf"names the object {number} of 2, the checkpoint is dam"):
        model_garden.read_variables(save_graph(tmp_path, graph), ())


def test_a_graph_in_which_everything_holds_everything_takes_no_time(tmp_path):
    """The time grew with the cube of the objects: 1,500 took minutes."""
    node = TrackableObjectGraph.TrackableObject()
    node.attributes.add(name="VARIABLE_VALUE", full_name="a", checkpoint_key="a")
    for number in range(350):
        node.children.add(node_id=number, local_name=f"{number % 9}")
    bundle = save_graph(tmp_path, TrackableObjectGraph(nodes=[node] * 350), key="a")
    begin = time.process_time()
    variables = model_garden.read_variables(bundle, {"7", "8"})
    assert time.process_time() - begin < 3
    assert [variable.attributes for variable in variables] == [{"7", "8"}] * 350


def test_a_graph_larger_than_any_models_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(model_garden, "_MAX_SIZE", 3)
    graph = TrackableObjectGraph()
    graph.nodes.add().children.add(node_id=1, local_name="a")
    graph.nodes.add().attributes.add(name="VARIABLE_VALUE")
    with pytest.raises(
        ValueError, match=r"GRAPH has 4 objects, names and values, expected at most"
    ):
        model_garden.read_variables(save_graph(tmp_path, graph), ())
