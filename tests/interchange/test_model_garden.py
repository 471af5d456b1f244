"""Model Garden's checkpoints: the whole, the config beside them, variables' names, the graph."""

import dataclasses
import json
import shutil
import time

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
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS

from . import recorded
from .recorded import DATA, assert_as_recorded, assert_every_tensor_is_as_described

CHECKPOINTS = DATA / "model_garden"
CONFIG = dataclasses.replace(
    recorded.CONFIG, attention_probs_dropout_prob=0.15, initializer_range=0.03
)
DEFAULT_RATES = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.1)
DEFAULT_RATES["initializer_range"] = 0.02
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


def save(path, **values):
    """An object checkpoint of variables by name, hanging below an object called ``model``."""
    root = tf.train.Checkpoint()
    root.model = tf.Module()
    root.model.held = [tf.Variable(value, name=name) for name, value in values.items()]
    return root.write(str(path / "ckpt"))


@pytest.mark.parametrize("name", MODELS)
def test_config_model_tensors_and_outputs_are_model_gardens(name):
    checkpoint = model_garden.open_checkpoint(str(CHECKPOINTS / name))
    rates = DEFAULT_RATES if name in WITHOUT_CONFIG else {}
    assert checkpoint.config == BertConfig(**{**CONFIG.to_dict(), **rates})
    assert (checkpoint.format, checkpoint.model) == ("model_garden", MODELS[name])
    assert checkpoint.labels == (("O", "B-PER", "I-PER", "B-LOC") if name == "tagger" else ())
    assert_every_tensor_is_as_described(checkpoint, expected_shapes(CONFIG, MODELS[name]))
    assumed = [note for note in checkpoint.notes if "sizes are the tensors'" in note]
    assert len(assumed) == (name in WITHOUT_CONFIG)
    model = bert_tf.load(CHECKPOINTS / name)
    assert type(model).__name__ == MODELS[name].class_name
    assert_as_recorded(model, CHECKPOINTS / name)
    # Every tensor is used or named.
    prefix = (
        tf.train.latest_checkpoint(CHECKPOINTS / name) or CHECKPOINTS / name / "bert_model.ckpt"
    )
    stored = {key for key, _ in tf.train.list_variables(str(prefix))}
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
    old = model_garden.open_checkpoint(str(CHECKPOINTS / "old_pretrainer")).unused
    assert sum("/.OPTIMIZER_SLOT/optimizer/" in key for key in old) == 2 * 46


def test_tokenizer_and_casing(tmp_path):
    checkpoint = model_garden.open_checkpoint(str(CHECKPOINTS / "encoder"))
    assert checkpoint.tokenization.vocabulary[-2:] == ("##s", "The")
    assert not checkpoint.tokenization.do_lower_case
    assert "its vocabulary has capital letters" in checkpoint.notes[0]
    # The pieces alone would make this tokenizer uncased; params.yaml says that it is not.
    path = shutil.copytree(CHECKPOINTS / "span_labeler", tmp_path / "a")
    (path / "vocab.txt").write_text("\n".join((*SPECIAL_TOKENS, "the")))
    checkpoint = model_garden.open_checkpoint(str(path))
    assert (checkpoint.tokenization.do_lower_case, checkpoint.notes) == (False, ())
    # Nor is the masked-LM head's activation always the encoder's.
    path = shutil.copytree(CHECKPOINTS / "pretrainer", tmp_path / "b")
    said = (path / "params.yaml").read_text()
    (path / "params.yaml").write_text(said.replace("mlm_activation: gelu", "mlm_activation: relu"))
    assert model_garden.open_checkpoint(str(path)).model.arguments["mlm_activation"] == "relu"


# === Which path ===


def test_recognition(tmp_path):
    for name in MODELS:
        path = str(CHECKPOINTS / name)
        assert model_garden.is_checkpoint(path)
        assert not google.is_checkpoint(path) and not keras_hub.is_checkpoint(path)
    assert not model_garden.is_checkpoint(str(tmp_path))
    write_bundle(tmp_path / "a", b=tf.zeros(1))  # as TensorFlow 1 does: names, and no graph
    assert not model_garden.is_checkpoint(str(tmp_path))
    with pytest.raises(ValueError, match=r"a is a TensorFlow checkpoint without an object graph\."):
        model_garden.open_checkpoint(str(tmp_path))


def test_the_prefix_and_a_trailing_slash_are_paths_too():
    for path in (CHECKPOINTS / "pretrainer" / "ckpt-7", f"{CHECKPOINTS / 'pretrainer'}/"):
        assert model_garden.is_checkpoint(str(path))
        assert model_garden.open_checkpoint(str(path)).config == CONFIG


# === Errors ===


def test_what_is_no_encoder_is_refused(tmp_path):
    prefix = save(tmp_path, **{"word_embeddings/embeddings": np.zeros((25, 8), "float32")})
    sentence = "has no embeddings/position_embeddings from whose shape to read max_position_e"
    with pytest.raises(ValueError, match=sentence):
        model_garden.open_checkpoint(prefix)


FIELDS = {name: value for name, value in CONFIG.to_dict().items() if name != "layer_norm_eps"}
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


def params(path, encoder=None, model=None, kind="bert", **task):
    """Writes params.yaml; JSON is YAML."""
    inner = {"type": kind, kind: {**ENCODER, **(encoder or {})}}
    values = {"task": {"model": {"encoder": inner, **(model or {})}, **task}, "trainer": {}}
    (path / "params.yaml").write_text(json.dumps(values))
    return str(path)


def test_bert_config_json(tmp_path):
    assert read_settings(str(tmp_path)) == Settings("", {})
    values = {**FIELDS, "hidden_act": "gelu", "layer_norm_eps": 1e-6, "embedding_size": 8, "x": 1}
    (tmp_path / "bert_config.json").write_text(json.dumps(values))
    (tmp_path / "params.yaml").write_text("is not read: [")
    assert read_settings(str(tmp_path)) == Settings(str(tmp_path / "bert_config.json"), FIELDS)


def test_params_yaml(tmp_path):
    # A head without a layer of its own may have any activation.
    heads = [
        {"inner_dim": 8, "name": "next_sentence"},
        {"inner_dim": 0, "activation": "relu", "cls_token_idx": 3},
    ]
    path = params(
        tmp_path,
        kind="bert_v2",
        model={"mlm_activation": "gelu", "cls_heads": heads},
        train_data={"lower_case": True},
        class_names=["O", 7],
    )
    source = str(tmp_path / "params.yaml")
    assert read_settings(path) == Settings(source, FIELDS, "gelu_new", True, ("O", "7"))


@pytest.mark.parametrize(
    ("task", "field", "expected"),
    [
        ({"encoder": {"hidden_activation": "GELU"}}, "hidden_act", "gelu_new"),
        ({"encoder": {"hidden_activation": "identity"}}, "hidden_act", "linear"),
        ({"train_data": {"lower_case": "yes"}}, "do_lower_case", None),
        ({"train_data": [], "validation_data": {"do_lower_case": False}}, "do_lower_case", False),
        ({"train_data": {"lower_case": True}, "validation_data": {"do_lower_case": False}},
         "do_lower_case", True),
    ],
)  # fmt: skip
def test_activation_and_casing(tmp_path, task, field, expected):
    settings = read_settings(params(tmp_path, **task))
    assert {**settings.fields, "do_lower_case": settings.do_lower_case}[field] == expected


def yaml(text):
    return lambda path: (path / "params.yaml").write_text(text)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (yaml("#" * (1 << 20) + "\na: 1"), r"expected a YAML file of at most 1,048,576 bytes\."),
        (yaml("a: !!python/object/apply:os.system ['touch broken']"), "could not determine a con"),
        (yaml("[" * 500), "is not YAML that can be read: "),
        (yaml(""), "expected an object under task, as Model Garden's trainer writes it, got None"),
        ({"kind": "albert"}, "task.model.encoder.type is 'albert', expected one of bert, bert_v2"),
        ({"encoder": {"norm_first": True}}, "norm_first is True and embedding_size is None, expec"),
        ({"encoder": {"embedding_size": 4}}, "embedding_size is 4, expected false and 8: only BE"),
        ({"model": {"cls_heads": [{"inner_dim": 8, "activation": "relu", "name": "a"}]}},
         "the head 'a' has activation 'relu' at token 0, expected 'tanh' at token 0"),
        ({"model": {"cls_heads": ["a"]}}, "expected cls_heads to be a list of objects, got 'a'"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(tmp_path, change, sentence):
    if callable(change):
        change(tmp_path)
    else:
        params(tmp_path, **change)
    with pytest.raises(ValueError, match=rf"params\.yaml:? .*{sentence}"):
        read_settings(str(tmp_path))


TABLE = Variable("table", "word_embeddings/embeddings", frozenset())


def variable(name, *attributes):
    return Variable(f"key of {name}", name, frozenset(attributes))


def find(*variables, shapes=None):
    shapes = {v.key: (8, 2) for v in variables} | (shapes or {})
    return find_weights([TABLE, *variables], shapes, "ckpt")


def test_names():
    """The other names are those of the recorded checkpoints; and what is no weight."""
    names = {
        "embeddings/word_embeddings": "word_embeddings/embeddings",
        "embeddings/position_embeddings": "encoder_1/position_embedding/embeddings",
        "embeddings/layer_norm/beta": "a/b/embeddings/layer_norm/beta",
        "layer_0/attention/key/bias": "transformer/layer_0/self_attention/key/bias",
        "layer_11/attention/query/kernel": "e/transformer/layer_11/self_attention/query/kernel",
        "masked_lm/layer_norm/gamma": "cls/predictions/transform/LayerNorm/gamma",
        "masked_lm/output_bias": "bert/cls/predictions/output_bias/bias",
    }
    expected = {here: variable(there) for here, there in names.items()}
    assert find_weights(expected.values(), {}, "ckpt") == (expected, "", "")
    for name in (
        "my_word_embeddings/embeddings",
        "word_embeddings/kernel",
        *(f"transformer/layer_0/self_attention/{leaf}" for leaf in ("query/gamma", "other/kernel")),
        *(f"transformer/layer_{number}/output/kernel" for number in ("00", "x")),
        "transformer/layer_0",
        "embeddings/layer_norm/kernel",
        "global_step",
        "",
    ):
        assert set(find(variable(name)).weights) == {"embeddings/word_embeddings"}, name


@pytest.mark.parametrize(
    ("name", "attributes", "head"),
    [
        ("bert/next_sentence", ["out_proj", "classification_heads"], "next_sentence"),
        ("predictions/transform", ["classification"], "next_sentence"),
        ("sentence_prediction", ["out_proj", "classifier"], "classifier"),
        ("predictions/transform", ["classifier"], "token_classifier"),
        ("predictions/transform", ["span_labeling"], "span"),
        ("bert/another", ["out_proj", "classification_heads"], ""),
        ("predictions/transform", ["layer_with_weights-1"], ""),
    ],
)
def test_heads_by_what_holds_them(name, attributes, head):
    module = "next_sentence/dense" if head == "next_sentence" else head
    kernel = variable(f"{name}/logits/kernel", *attributes)
    bias = variable(f"{name}/logits/bias", *attributes)
    for variables in ((kernel, bias), (kernel,), (bias,)):
        found = find(*variables)
        leaves = {v.name.rpartition("/")[2]: v for v in variables}
        expected = {f"{module}/{leaf}": v for leaf, v in leaves.items()} if module else {}
        table = {"embeddings/word_embeddings": TABLE}
        assert (found.head, found.weights) == (head, {**table, **expected})
    # One class is a regressor.
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


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ([],
         r"ckpt holds no variable of a BERT of Model Garden, no word_embeddings/embeddings for"),
        (["pooler_transform/kernel"], "ckpt holds no variable of a BERT of Model Garden"),
        (["word_embeddings/embeddings", "generator/word_embeddings/embeddings"],
         r"holds 'key of wo.*' and 'key of gen.*', both embeddings/word_embeddings: expect"),
        (["embedding_projection/kernel"],
         r"has 'embedding_projection/kernel', embeddings of anoth"),
    ],
)  # fmt: skip
def test_what_is_not_one_bert_is_an_error(names, sentence):
    with pytest.raises(ValueError, match=sentence):
        find_weights(map(variable, names), {}, "ckpt")


def write_bundle(prefix, **tensors):
    """A checkpoint of tensors by name."""
    names, values = list(tensors), list(tensors.values())
    tf.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=values
    )
    return bundles.Bundle(str(prefix))


def save_graph(path, graph, key="a/.ATTRIBUTES/VARIABLE_VALUE"):
    """A checkpoint of one tensor and a graph, an object or bytes."""
    content = graph if isinstance(graph, bytes) else graph.SerializeToString()
    stored = {key: tf.zeros(3), model_garden.GRAPH_KEY: tf.constant(content)}
    return write_bundle(path / "ckpt", **stored)


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


def graph_of(*children):
    """A graph of as many objects, each with the child that is described, if any."""
    graph = TrackableObjectGraph()
    for child in children:
        node = graph.nodes.add()
        if child:
            node.children.add(local_name="a", **child)
    return graph


def test_a_variable_that_is_not_stored_is_none(tmp_path):
    graph = TrackableObjectGraph()
    graph.nodes.add().attributes.add(name="VARIABLE_VALUE", full_name="a", checkpoint_key="b")
    assert model_garden.read_variables(save_graph(tmp_path, graph), ()) == []
    assert model_garden.read_variables(save_graph(tmp_path, b""), ()) == []


NODE = graph_of({"node_id": 1}, {}).nodes[0]


@pytest.mark.parametrize(
    ("graph", "sentence"),
    [
        (TrackableObjectGraph(nodes=[NODE] * 80_000), "GRAPH has 160,000 objects, names and value"),
        (b"\x0a\x05abc", "ckpt: _CHECKPOINTABLE_OBJECT_GRAPH is no object graph, the checkpoint"),
        (graph_of({"node_id": 2}, {}), "names the object 2 of 2, the checkpoint is damaged"),
        (graph_of({"node_id": -1}, {}), "names the object -1 of 2, the checkpoint is damaged"),
    ],
)
def test_a_damaged_graph_is_refused(tmp_path, graph, sentence):
    with pytest.raises(ValueError, match=sentence):
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
