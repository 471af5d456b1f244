"""What bert_config.json and params.yaml say of a model, and what of it cannot be built."""

import json
import sys

import pytest

from bert_tf.interchange.model_garden_config import Settings, read_settings

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
