"""Every model, written in every format and read again: weights bit for bit, and all besides."""

import dataclasses

import pytest

from bert_tf.interchange import conversion
from bert_tf.interchange.checkpoint import ModelSpec
from bert_tf.interchange.recognition import open_checkpoint
from bert_tf.modeling import BertPretrainer, BertSpanPredictor, BertTokenClassifier
from tests.interchange.small_checkpoints import (
    CASED,
    CONFIG,
    MODELS,
    OURS_ALONE,
    UNCASED,
    assert_bit_equal,
    make_checkpoint,
    read_all,
    write,
)

# What Hugging Face has no place for.
OTHERS = {
    "masked lm with a pooler": ModelSpec(
        BertPretrainer, {"mlm": True, "nsp": False, "pooler": True}
    ),
    "token classifier with a pooler": ModelSpec(
        BertTokenClassifier, {"num_classes": 2, "dropout": 0.9, "pooler": True}
    ),
    "span predictor with a pooler": ModelSpec(BertSpanPredictor, {"pooler": True}),
    "masked lm of KerasHub": ModelSpec(
        BertPretrainer,
        {**MODELS["pretrainer"].arguments, "mlm_activation": "relu", "mlm_layer_norm_eps": 1e-3},
    ),
}


def _same_model(spec, expected):
    """Whether both make the same model, whatever is left to defaults."""
    assert (spec.model_class, spec.has_pooler) == (expected.model_class, expected.has_pooler)
    for key in ("mlm", "nsp", "num_classes", "mlm_activation", "mlm_layer_norm_eps", "dropout"):
        assert spec.arguments.get(key) == expected.arguments.get(key)


def _cases():
    for form in conversion.FORMATS:
        for name in (*MODELS, *OTHERS, *OURS_ALONE):
            if form == "huggingface" and name in OTHERS:
                continue
            if form in ("huggingface", "google_tf1") and name in OURS_ALONE:
                continue
            # Keras takes a tenth of a second for each.
            slow = form == "keras" and name not in ("pretrainer", "classifier", *OTHERS)
            yield pytest.param(name, form, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("name, form", _cases())
def test_there_and_back(tmp_path, name, form):
    spec = {**MODELS, **OTHERS, **OURS_ALONE}[name]
    classes = spec.arguments.get("num_classes", 0)
    checkpoint = make_checkpoint(
        spec,
        tokenization=CASED if len(name) % 2 else UNCASED,
        labels=tuple(f"class {number}" for number in range(classes)),
        multi_label=spec.class_name == "BertClassifier",
        thresholds={} if form == "huggingface" else {"null": 0.5},
    )
    path = write(checkpoint, form, tmp_path)
    read = open_checkpoint(path)
    assert (read.format, read.config, read.unused, read.notes) == (form, CONFIG, (), ())
    expected = spec
    if form == "keras" and "num_classes" in spec.arguments:
        # Keras keeps the rate that the config gave.
        arguments = {"dropout": CONFIG.hidden_dropout_prob, **spec.arguments}
        expected = dataclasses.replace(spec, arguments=arguments)
    _same_model(read.model, expected)
    assert (read.tokenization, read.labels) == (checkpoint.tokenization, checkpoint.labels)
    assert read.multi_label == checkpoint.multi_label
    assert read.thresholds == checkpoint.thresholds
    assert_bit_equal(read_all(read), read_all(checkpoint))


@pytest.mark.parametrize("name", ["pretrainer", "classifier", "regressor", "span predictor"])
def test_through_all_of_them(tmp_path, name):
    checkpoint = make_checkpoint(MODELS[name], tokenization=UNCASED)
    current = checkpoint
    for number, form in enumerate(["google_tf1", "keras", "huggingface", "bert_tf", "huggingface"]):
        current = open_checkpoint(write(current, form, tmp_path, f"m{number}"))
    assert_bit_equal(read_all(current), read_all(checkpoint))
    assert (current.config, current.tokenization) == (CONFIG, UNCASED)
    assert current.model.class_name == MODELS[name].class_name and current.unused == ()


@pytest.mark.parametrize("act", ["gelu", "gelu_approximate", "relu"])
@pytest.mark.parametrize("form", conversion.FORMATS)
def test_activations(tmp_path, form, act):
    config = dataclasses.replace(CONFIG, hidden_act=act, num_hidden_layers=1)
    path = write(make_checkpoint(MODELS["encoder"], config), form, tmp_path)
    read = open_checkpoint(path).config.hidden_act
    # Hugging Face spells it in another way, which means the same.
    renamed = act == "gelu_approximate" and form == "huggingface"
    assert read == ("gelu_pytorch_tanh" if renamed else act)


def test_the_toy_of_tensorflow_1_there_and_back(data_dir, tmp_path):
    toy = open_checkpoint(data_dir / "checkpoints" / "toy_tf1")
    ours = open_checkpoint(write(toy, "bert_tf", tmp_path, "ours"))
    back = open_checkpoint(write(ours, "google_tf1", tmp_path, "back"))
    assert_bit_equal(read_all(back), read_all(toy))
    there = {name: tensor.names for name, tensor in back.tensors.items()}
    assert there == {name: tensor.names for name, tensor in toy.tensors.items()}
    assert len(there) == 16 * 2 + 5 + 2 + 5 + 2
    assert (back.config, back.model, back.tokenization) == (toy.config, toy.model, toy.tokenization)
    assert back.notes == () and back.unused == ()  # it says the casing now, and has no adam slots
