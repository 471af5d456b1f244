import math

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
    "name, layers, hidden, heads, intermediate",
    [
        ("bert-tiny", 2, 128, 2, 512),
        ("bert-base", 12, 768, 12, 3072),
        ("bert-large", 24, 1024, 16, 4096),
        ("bert-L10-H512", 10, 512, 8, 2048),
    ],
)
def test_presets(name, layers, hidden, heads, intermediate):
    preset = BertConfig.from_preset(name)
    assert (preset.num_hidden_layers, preset.hidden_size) == (layers, hidden)
    assert (preset.num_attention_heads, preset.intermediate_size) == (heads, intermediate)


def test_presets_include_24_miniatures():
    assert sum(name.startswith("bert-L") for name in config.PRESETS) == 24
    for name in config.PRESETS:
        BertConfig.from_preset(name)


def test_json_round_trip(tmp_path):
    path = tmp_path / "bert_config.json"
    written = BertConfig.from_preset("bert-mini", vocab_size=99, layer_norm_eps=1e-7)
    path.write_text(written.to_json())
    assert BertConfig.from_json(path) == written


def test_irrelevant_hugging_face_keys_are_ignored():
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
        ({"vocab_size": 0}, "vocab_size=0: expected a positive integer"),
        ({"hidden_size": "768"}, "hidden_size='768': expected a positive integer"),
        ({"num_hidden_layers": True}, "num_hidden_layers=True: expected a positive integer"),
        ({"hidden_size": 100}, "hidden_size=100: expected a multiple of num_attention_heads=12"),
        ({"hidden_dropout_prob": 1.0}, r"hidden_dropout_prob=1\.0: expected a number in "),
        ({"hidden_dropout_prob": "x"}, "hidden_dropout_prob='x': expected a finite number"),
        ({"hidden_dropout_prob": math.nan}, "hidden_dropout_prob=nan: expected a finite number"),
        ({"initializer_range": float("inf")}, "initializer_range=inf: expected a finite number"),
        ({"initializer_range": 10**400}, rf"initializer_range=1{'0' * 57}\.\.\.{'0' * 59}: "
         "expected a finite number"),
        ({"layer_norm_eps": [1]}, r"layer_norm_eps=\[1\]: expected a finite number"),
        ({"vocab_size": ["x" * 10**6]}, r"vocab_size=\['x{9,60}"),
        ({"hidden_act": ["gelu"]}, r"hidden_act=\['gelu'\]: expected one of"),
        ({"layer_norm_eps": 0.0}, "layer_norm_eps=0.0: expected a positive number"),
        ({"hidden_act": "mish"}, "hidden_act='mish': expected one of gelu, gelu_new, "
         "gelu_pytorch_tanh, gelu_approximate, relu, silu, swish, tanh, linear"),
    ],
)  # fmt: skip
def test_invalid_values_raise_errors(values, message):
    with pytest.raises(ValueError, match=message):
        BertConfig(**values)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"Cannot read .*bad\.json: No such file or directory"),
        ("{", "is not JSON: Expecting property name enclosed in double quotes"),
        ("[1]" + " " * (32 << 20), "expected a config of at most 33,554,432 bytes"),
        ("[1]", "expected a JSON object, got list"),
        ('{"hidden_size": 8}', "expected the keys of .*, such as vocab_size, got hidden_size"),
        ('{"vocab_size": 8, "hidden_size": 7}',
         "hidden_size=7: expected a multiple of num_attention_heads=12"),
        ('{"vocab_size": 8, "num_hidden_layers": 1001}',
         "num_hidden_layers=1001: expected at most 1,000"),
        ('{"vocab_size": 8, "hidden_size": 1000000000}',
         "hidden_size=10+: expected at most 100,000"),
        ('{"vocab_size": 1%s}' % ("0" * 99),
         "vocab_size=10+: expected at most 10,000,000"),
        ('{"vocab_size": 8, "position_embedding_type": "relative_key"}',
         "position_embedding_type='relative_key': expected 'absolute'"),
        ('{"vocab_size": 8, "is_decoder": "yes"}', "is_decoder='yes': expected true or false"),
        ('{"vocab_size": 8, "right_to_left": true}', "right_to_left=True: expected False. Other "
         "models are not supported"),
        ('{"vocab_size": 8, "add_cross_attention": true}',
         "add_cross_attention=True: expected False"),
    ],
)  # fmt: skip
def test_invalid_files_raise_errors(tmp_path, content, message):
    if content is not None:
        (tmp_path / "bad.json").write_text(content)
    with pytest.raises(ValueError, match=rf"bad\.json:? {message}" if content else message):
        BertConfig.from_json(tmp_path / "bad.json")


def test_unknown_preset_raises_error():
    with pytest.raises(
        ValueError,
        match="Unknown preset 'bert-huge': expected one of bert-tiny, bert-mini, bert-small, "
        "bert-medium, bert-base, bert-large, or a miniature "
        r"bert-L\{2,4,6,8,10,12\}-H\{128,256,512,768\}",
    ):
        BertConfig.from_preset("bert-huge")


def test_is_decoder_is_written_only_for_causal_models():
    assert "is_decoder" not in BertConfig().to_dict()
    assert BertConfig.from_dict({"vocab_size": 8, "is_decoder": False}) == BertConfig(vocab_size=8)
    causal = BertConfig(vocab_size=8, is_decoder=True)
    assert BertConfig.from_dict(causal.to_dict()) == causal != BertConfig(vocab_size=8)
