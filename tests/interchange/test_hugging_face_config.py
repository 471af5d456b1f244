"""Which model a ``config.json`` and its tensors' names mean, and the ``config.json`` of a model."""

import dataclasses

import pytest

from bert_tf.interchange.checkpoint import ModelSpec, Tokenization
from bert_tf.interchange.hugging_face_config import (
    config_values,
    model_spec,
    read_labels,
)
from bert_tf.modeling import (
    BertClassifier,
    BertEncoder,
    BertMultipleChoice,
    BertPretrainer,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)
from tests.interchange.hugging_face_files import (
    ENCODER,
    MASKED_LM,
    NEXT_SENTENCE,
    POOLER,
    classifier,
    span,
)
from tests.interchange.small_checkpoints import CONFIG, MODELS, PIECES, make_checkpoint

WITH_POOLER = {**ENCODER, **POOLER}


@pytest.mark.parametrize(
    "shapes, values, expected",
    [
        (ENCODER, {}, ModelSpec(BertEncoder, {"pooler": False})),
        (WITH_POOLER, {}, ModelSpec(BertEncoder, {"pooler": True})),
        (
            {**WITH_POOLER, **MASKED_LM, **NEXT_SENTENCE},
            {},
            ModelSpec(BertPretrainer, {"mlm": True, "nsp": True, "pooler": True}),
        ),
        (
            {**ENCODER, **MASKED_LM},
            {},
            ModelSpec(BertPretrainer, {"mlm": True, "nsp": False, "pooler": False}),
        ),
        (
            {**WITH_POOLER, **MASKED_LM},
            {},
            ModelSpec(BertPretrainer, {"mlm": True, "nsp": False, "pooler": True}),
        ),
        (
            # The pooler is missing, and the loader says so.
            {**ENCODER, **NEXT_SENTENCE},
            {},
            ModelSpec(BertPretrainer, {"mlm": False, "nsp": True, "pooler": True}),
        ),
        ({**ENCODER, **span()}, {}, ModelSpec(BertSpanPredictor, {"pooler": False})),
        (
            {**WITH_POOLER, **classifier(3)},
            {"architectures": ["BertForSequenceClassification"], "classifier_dropout": 0.25},
            ModelSpec(BertClassifier, {"num_classes": 3, "dropout": 0.25}),
        ),
        (
            {**WITH_POOLER, **classifier(1)},
            {"architectures": ["BertForSequenceClassification"]},
            ModelSpec(BertRegressor, {}),
        ),
        (
            {**WITH_POOLER, **classifier(1)},
            {
                "architectures": ["BertForSequenceClassification"],
                "problem_type": "multi_label_classification",
            },
            ModelSpec(BertClassifier, {"num_classes": 1}),
        ),
        (
            {**WITH_POOLER, **classifier(3)},
            {"architectures": ["BertForTokenClassification"]},
            ModelSpec(BertTokenClassifier, {"num_classes": 3, "pooler": True}),
        ),
        (
            {**ENCODER, **classifier(1)},
            {"architectures": ["BertForTokenClassification"], "classifier_dropout": None},
            ModelSpec(BertTokenClassifier, {"num_classes": 1, "pooler": False}),
        ),
        (
            {**WITH_POOLER, **classifier(1)},
            {"architectures": ["BertForMultipleChoice"]},
            ModelSpec(BertMultipleChoice, {}),
        ),
    ],
)
def test_the_model(shapes, values, expected):
    assert model_spec(values, shapes, "config.json") == (expected, ())


@pytest.mark.parametrize("named", [None, [], ["Unheard"], "BertForTokenClassification", 5, [["x"]]])
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


@pytest.mark.parametrize("shape", [(), (0, 8)])
def test_a_classifier_without_classes(shape):
    shapes = {**WITH_POOLER, "classifier.weight": shape}
    with pytest.raises(ValueError, match=r"BertClassifier cannot be made with num_classes=0"):
        model_spec({"architectures": ["BertForSequenceClassification"]}, shapes, "config.json")


@pytest.mark.parametrize(
    "names, expected",
    [
        ({"0": "no", "1": "yes"}, ("no", "yes")),
        ({"1": "yes"}, ("LABEL_0", "yes")),
        ({"0": "LABEL_0", "1": "LABEL_1"}, ()),
        ({"0": 5, "1": "yes", "2": "more"}, ("5", "yes")),
        ({}, ()),
        (["no", "yes"], ()),
        (None, ()),
    ],
)
def test_labels(names, expected):
    two = ModelSpec(BertClassifier, {"num_classes": 2})
    assert read_labels({"id2label": names}, two, "c.json") == expected
    assert read_labels({"id2label": names}, MODELS["encoder"], "c.json") == ()


def test_labels_that_are_no_text():
    two = ModelSpec(BertClassifier, {"num_classes": 2})
    with pytest.raises(ValueError, match=r"^c\.json: the label \['b'\] is not a text\.$"):
        read_labels({"id2label": {"0": "a", "1": ["b"]}}, two, "c.json")


# === Writing ===

ARCHITECTURES = {
    "encoder": "BertModel",
    "encoder without pooler": "BertModel",
    "pretrainer": "BertForPreTraining",
    "masked lm": "BertForMaskedLM",
    "next sentence": "BertForNextSentencePrediction",
    "classifier": "BertForSequenceClassification",
    "classifier of one": "BertForSequenceClassification",
    "regressor": "BertForSequenceClassification",
    "token classifier": "BertForTokenClassification",
    "span predictor": "BertForQuestionAnswering",
    "multiple choice": "BertForMultipleChoice",
}


@pytest.mark.parametrize("name", MODELS)
def test_architectures(name):
    assert config_values(make_checkpoint(MODELS[name]))["architectures"] == [ARCHITECTURES[name]]


def test_values():
    checkpoint = make_checkpoint(MODELS["classifier"], labels=("a", "b", "c"))
    assert config_values(checkpoint) == {
        "architectures": ["BertForSequenceClassification"],
        "model_type": "bert",
        "vocab_size": 20,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.2,
        "attention_probs_dropout_prob": 0.3,
        "max_position_embeddings": 12,
        "type_vocab_size": 3,
        "initializer_range": 0.05,
        "layer_norm_eps": 1e-5,
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


def test_an_activation_that_hugging_face_spells_otherwise():
    config = dataclasses.replace(CONFIG, hidden_act="gelu_approximate")
    values = config_values(make_checkpoint(MODELS["encoder"], config))
    assert values["hidden_act"] == "gelu_pytorch_tanh"


def test_kinds_of_problems():
    regressor = config_values(make_checkpoint(MODELS["regressor"]))
    assert (regressor["problem_type"], regressor["id2label"]) == ("regression", {"0": "LABEL_0"})
    several = config_values(make_checkpoint(MODELS["classifier"], multi_label=True))
    assert several["problem_type"] == "multi_label_classification"
    assert "problem_type" not in config_values(make_checkpoint(MODELS["token classifier"]))


def test_the_padding_token_is_the_vocabularys():
    moved = Tokenization((*PIECES[1:], PIECES[0]), True)
    values = config_values(make_checkpoint(MODELS["encoder"], tokenization=moved))
    assert values["pad_token_id"] == len(PIECES) - 1
