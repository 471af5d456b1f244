"""Hugging Face directories, read and written."""

import dataclasses

import ml_dtypes  # noqa: F401  (NumPy knows bfloat16 by it)
import numpy as np
import pytest

from bert_tf.checkpoints import hugging_face
from bert_tf.checkpoints.checkpoint import ModelSpec, Tokenization
from bert_tf.checkpoints.hugging_face_config import config_values, model_spec, read_labels
from bert_tf.modeling import (
    BertClassifier,
    BertEncoder,
    BertMultipleChoice,
    BertPretrainer,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)
from tests.checkpoints.hugging_face_files import (
    ENCODER,
    MASKED_LM,
    NEXT_SENTENCE,
    POOLER,
    classifier,
    random_tensors,
    span,
    with_prefix,
    write_directory,
)
from tests.checkpoints.small_checkpoints import (
    CONFIG,
    MODELS,
    PIECES,
    assert_bit_equal,
    make_checkpoint,
    read_all,
)

WITH_POOLER = {**ENCODER, **POOLER}
PRETRAINING = {**WITH_POOLER, **MASKED_LM, **NEXT_SENTENCE}
SEQUENCES = {"architectures": ["BertForSequenceClassification"]}
TOKENS = {"architectures": ["BertForTokenClassification"]}
CHOICES = {"architectures": ["BertForMultipleChoice"]}


@pytest.fixture
def directory(tmp_path):
    """Writes a directory, and gives its path."""
    return lambda tensors, **changes: write_directory(tmp_path / "hf", tensors, **changes)


# === Reading ===


def test_names_and_layouts(directory):
    tensors = random_tensors(PRETRAINING)
    checkpoint = hugging_face.open_checkpoint(directory(with_prefix(tensors)))
    read = read_all(checkpoint)
    names = {
        "embeddings/word_embeddings": "embeddings.word_embeddings.weight",
        "embeddings/position_embeddings": "embeddings.position_embeddings.weight",
        "embeddings/token_type_embeddings": "embeddings.token_type_embeddings.weight",
        "embeddings/layer_norm/gamma": "embeddings.LayerNorm.weight",
        "embeddings/layer_norm/beta": "embeddings.LayerNorm.bias",
        "layer_1/attention/query/kernel": "encoder.layer.1.attention.self.query.weight",
        "layer_1/attention/query/bias": "encoder.layer.1.attention.self.query.bias",
        "layer_1/attention/key/kernel": "encoder.layer.1.attention.self.key.weight",
        "layer_1/attention/value/kernel": "encoder.layer.1.attention.self.value.weight",
        "layer_1/attention/output/kernel": "encoder.layer.1.attention.output.dense.weight",
        "layer_1/attention_layer_norm/gamma": "encoder.layer.1.attention.output.LayerNorm.weight",
        "layer_1/intermediate/kernel": "encoder.layer.1.intermediate.dense.weight",
        "layer_1/output/kernel": "encoder.layer.1.output.dense.weight",
        "layer_1/output_layer_norm/beta": "encoder.layer.1.output.LayerNorm.bias",
        "pooler/dense/kernel": "pooler.dense.weight",
        "masked_lm/dense/kernel": "cls.predictions.transform.dense.weight",
        "masked_lm/layer_norm/gamma": "cls.predictions.transform.LayerNorm.weight",
        "masked_lm/output_bias": "cls.predictions.bias",
        "next_sentence/dense/kernel": "cls.seq_relationship.weight",
    }
    for ours, theirs in names.items():
        expected = tensors[theirs].T if ours.endswith("kernel") else tensors[theirs]
        assert np.array_equal(read[ours], expected), ours
        there = theirs if theirs.startswith("cls.") else f"bert.{theirs}"
        assert checkpoint.tensors[ours].names == (there,)
    assert len(read) == len(tensors) and checkpoint.unused == ()
    assert checkpoint.model == MODELS["pretrainer"]
    assert checkpoint.config.num_hidden_layers == 2 and checkpoint.config.intermediate_size == 12


def test_old_names_no_prefix_and_position_ids(directory):
    tensors = random_tensors(PRETRAINING)
    expected = read_all(hugging_face.open_checkpoint(directory(tensors)))
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta"): array
        for name, array in with_prefix(tensors).items()
    }
    assert sum("gamma" in name for name in old) == 6
    old["bert.embeddings.position_ids"] = np.arange(12)[None]
    checkpoint = hugging_face.open_checkpoint(directory(old))
    assert_bit_equal(read_all(checkpoint), expected)
    assert checkpoint.unused == ()  # the positions are no weight


def test_copies_of_the_tied_matrix_and_bias(directory):
    tensors = random_tensors(PRETRAINING)
    copies = {
        "cls.predictions.decoder.weight": tensors["embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
    }
    expected = read_all(hugging_face.open_checkpoint(directory(tensors)))
    checkpoint = hugging_face.open_checkpoint(directory({**tensors, **copies}))
    assert_bit_equal(read_all(checkpoint), expected)
    assert checkpoint.unused == ()
    assert checkpoint.tensors["masked_lm/output_bias"].names == (
        "cls.predictions.bias", "cls.predictions.decoder.bias",
    )  # fmt: skip
    del tensors["cls.predictions.bias"]
    checkpoint = hugging_face.open_checkpoint(directory({**tensors, **copies}))
    assert_bit_equal(read_all(checkpoint), expected)


# === Writing ===


def test_a_masked_lm_head_that_hugging_face_has_not(tmp_path):
    arguments = {"mlm": True, "nsp": False, "mlm_activation": "relu", "mlm_layer_norm_eps": 1e-5}
    checkpoint = make_checkpoint(ModelSpec(BertPretrainer, arguments))
    sentence = r"its masked-LM head has mlm_activation=relu and mlm_layer_norm_eps=1e-05 of its own"
    with pytest.raises(ValueError, match=sentence):
        hugging_face.write(checkpoint, str(tmp_path))


@pytest.mark.parametrize(
    "shapes, values, model_class, arguments",
    [
        (ENCODER, {}, BertEncoder, {"pooler": False}),
        (WITH_POOLER, {}, BertEncoder, {"pooler": True}),
        (PRETRAINING, {}, BertPretrainer, {"mlm": True, "nsp": True, "pooler": True}),
        (ENCODER | MASKED_LM, {}, BertPretrainer, {"mlm": True, "nsp": False, "pooler": False}),
        (WITH_POOLER | MASKED_LM, {}, BertPretrainer, {"mlm": True, "nsp": False, "pooler": True}),
        # The pooler is missing, and the loader says so.
        (ENCODER | NEXT_SENTENCE, {}, BertPretrainer, {"mlm": False, "nsp": True, "pooler": True}),
        (ENCODER | span(), {}, BertSpanPredictor, {"pooler": False}),
        (WITH_POOLER | classifier(3), SEQUENCES | {"classifier_dropout": 0.25}, BertClassifier,
         {"num_classes": 3, "dropout": 0.25}),
        (WITH_POOLER | classifier(1), SEQUENCES, BertRegressor, {}),
        (WITH_POOLER | classifier(1), SEQUENCES | {"problem_type": "multi_label_classification"},
         BertClassifier, {"num_classes": 1}),
        (WITH_POOLER | classifier(3), TOKENS, BertTokenClassifier,
         {"num_classes": 3, "pooler": True}),
        (ENCODER | classifier(1), TOKENS | {"classifier_dropout": None}, BertTokenClassifier,
         {"num_classes": 1, "pooler": False}),
        (WITH_POOLER | classifier(1), CHOICES, BertMultipleChoice, {}),
    ],
)  # fmt: skip
def test_the_model(shapes, values, model_class, arguments):
    expected = ModelSpec(model_class, arguments)
    assert model_spec(values, shapes, "config.json") == (expected, ())


@pytest.mark.parametrize("named", [None, ["Unheard"], "BertForTokenClassification", [["x"]]])
@pytest.mark.parametrize(
    "shapes, expected, taken",
    [(WITH_POOLER, "BertClassifier", "Sequence"), (ENCODER, "BertTokenClassifier", "Token")],
)
def test_a_classifier_of_an_unknown_architecture(named, shapes, expected, taken):
    values = {"architectures": named}
    spec, (note,) = model_spec(values, {**shapes, **classifier(2)}, "config.json")
    assert spec.class_name == expected and spec.arguments["num_classes"] == 2
    assert "config.json names the architecture " in note
    assert note.endswith(f"classifies: it is taken as BertFor{taken}Classification's.")


TWO = ModelSpec(BertClassifier, {"num_classes": 2})


@pytest.mark.parametrize(
    "names, expected",
    [
        ({"0": "no", "1": "yes"}, ("no", "yes")),
        ({"1": "yes"}, ("LABEL_0", "yes")),
        ({"0": "LABEL_0", "1": "LABEL_1"}, ()),
        ({"0": 5, "1": "yes", "2": "more"}, ("5", "yes")),
        (["no", "yes"], ()),
        (None, ()),
    ],
)
def test_labels(names, expected):
    assert read_labels({"id2label": names}, TWO, "c.json") == expected
    assert read_labels({"id2label": names}, MODELS["encoder"], "c.json") == ()


def test_values():
    checkpoint = make_checkpoint(MODELS["classifier"], labels=("a", "b", "c"))
    assert config_values(checkpoint) == {
        "architectures": ["BertForSequenceClassification"],
        "model_type": "bert",
        **CONFIG.to_dict(),
        "position_embedding_type": "absolute",
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "use_cache": True,
        "dtype": "float32",
        "classifier_dropout": 0.4,
        "problem_type": "single_label_classification",
        "id2label": {"0": "a", "1": "b", "2": "c"},
        "label2id": {"a": 0, "b": 1, "c": 2},
    }


def test_values_of_other_models():
    config = dataclasses.replace(CONFIG, hidden_act="gelu_approximate")
    encoder = make_checkpoint(MODELS["encoder"], config)
    assert config_values(encoder)["hidden_act"] == "gelu_pytorch_tanh"  # as it is spelled there
    regressor = config_values(make_checkpoint(MODELS["regressor"]))
    assert (regressor["problem_type"], regressor["id2label"]) == ("regression", {"0": "LABEL_0"})
    several = config_values(make_checkpoint(MODELS["classifier"], multi_label=True))
    assert several["problem_type"] == "multi_label_classification"
    assert "problem_type" not in config_values(make_checkpoint(MODELS["token classifier"]))
    moved = Tokenization((*PIECES[1:], PIECES[0]), True)
    values = config_values(make_checkpoint(MODELS["encoder"], tokenization=moved))
    assert values["pad_token_id"] == len(PIECES) - 1
