import json

import pytest

from bert_tf import config
from bert_tf.config import BertConfig


def test_defaults_are_bert_base():
    assert BertConfig().to_dict() == {
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
    }


@pytest.mark.parametrize(
    "name, sizes",
    [
        ("bert-tiny", (2, 128, 2, 512)),
        ("bert-mini", (4, 256, 4, 1024)),
        ("bert-base", (12, 768, 12, 3072)),
        ("bert-large", (24, 1024, 16, 4096)),
        ("bert-L10-H512", (10, 512, 8, 2048)),
    ],
)
def test_presets(name, sizes):
    preset = BertConfig.from_preset(name)
    assert sizes == (
        preset.num_hidden_layers,
        preset.hidden_size,
        preset.num_attention_heads,
        preset.intermediate_size,
    )


def test_the_24_miniatures_are_there():
    assert sum(name.startswith("bert-L") for name in config.PRESETS) == 24
    for name in config.PRESETS:
        BertConfig.from_preset(name)


def test_json_round_trip(tmp_path):
    path = tmp_path / "bert_config.json"
    written = BertConfig.from_preset("bert-mini", vocab_size=99, layer_norm_eps=1e-7)
    path.write_text(written.to_json())
    assert BertConfig.from_json(path) == written


def test_hugging_face_keys_that_say_nothing_are_left_alone():
    values = {
        "vocab_size": 7,
        "architectures": ["BertForMaskedLM"],
        "model_type": "bert",
        "use_cache": True,
    }
    assert BertConfig.from_dict(values) == BertConfig(vocab_size=7)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"vocab_size": 0}, "vocab_size must be a positive integer, got 0"),
        ({"hidden_size": "768"}, "hidden_size must be a positive integer, got '768'"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a positive integer, got True"),
        ({"hidden_size": 100}, "hidden_size 100 is not a multiple of num_attention_heads 12"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob must be at least 0 and less than 1"),
        ({"hidden_dropout_prob": "x"}, "hidden_dropout_prob must be a finite number, got 'x'"),
        ({"hidden_dropout_prob": float("nan")}, "hidden_dropout_prob must be a finite number"),
        ({"initializer_range": float("inf")}, "initializer_range must be a finite number, got inf"),
        ({"initializer_range": 10**400}, "initializer_range must be a finite number, got 1000"),
        ({"layer_norm_eps": [1]}, r"layer_norm_eps must be a finite number, got \[1\]"),
        ({"vocab_size": ["x" * 10**6]}, r"vocab_size must be a positive integer, got \['x{9,60}"),
        ({"hidden_act": ["gelu"]}, r"hidden_act \['gelu'\] is unknown"),
        ({"layer_norm_eps": 0.0}, "layer_norm_eps must be greater than 0, got 0.0"),
        ({"hidden_act": "mish"}, "hidden_act 'mish' is unknown: expected one of gelu"),
    ],
)  # fmt: skip
def test_errors(values, message):
    with pytest.raises(ValueError, match=message):
        BertConfig(**values)


def test_errors_of_files(tmp_path):
    with pytest.raises(ValueError, match=r"'bert-huge' is no preset: expected one of bert-tiny"):
        BertConfig.from_preset("bert-huge")
    with pytest.raises(ValueError, match=r"none\.json: cannot be read: No such file"):
        BertConfig.from_json(tmp_path / "none.json")
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    with pytest.raises(ValueError, match=r"bad\.json is not JSON: Expecting"):
        BertConfig.from_json(bad)
    bad.write_text("[" * 100_000)
    with pytest.raises(
        ValueError, match=r"bad\.json is not JSON that is read: it is nested deeper"
    ):
        BertConfig.from_json(bad)
    bad.write_text("[1]" + " " * (32 << 20))
    with pytest.raises(ValueError, match=r"bad\.json: expected a config of at most 33,554,432 by"):
        BertConfig.from_json(bad)
    bad.write_text("[1]")
    with pytest.raises(ValueError, match=r"bad\.json: expected a JSON object, got a list"):
        BertConfig.from_json(bad)
    bad.write_text(json.dumps({"hidden_size": 8}))
    with pytest.raises(ValueError, match=r"bad\.json: no vocab_size: .* got hidden_size"):
        BertConfig.from_json(bad)
    bad.write_text(json.dumps({"vocab_size": 8, "hidden_size": 7}))
    with pytest.raises(ValueError, match=r"bad\.json: hidden_size 7 is not a multiple"):
        BertConfig.from_json(bad)
    for name, size in (("num_hidden_layers", 1001), ("hidden_size", 10**9), ("vocab_size", 10**99)):
        bad.write_text(json.dumps({"vocab_size": 8, name: size}))
        with pytest.raises(ValueError, match=rf"bad\.json: {name} is 10+1?: expected at most \d"):
            BertConfig.from_json(bad)
    bad.write_text(json.dumps({"vocab_size": 8, "position_embedding_type": "relative_key"}))
    with pytest.raises(ValueError, match="position_embedding_type is 'relative_key', expected"):
        BertConfig.from_json(bad)
