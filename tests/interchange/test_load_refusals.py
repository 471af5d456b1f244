"""``bert_tf.load`` refuses what does not fit, and says what and where; nothing is left random."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from bert_tf.interchange.load import load, load_with_report
from bert_tf.modeling import BertClassifier, BertEncoder, BertPretrainer, BertTokenClassifier
from tests.interchange.hugging_face_files import ENCODER, POOLER, random_tensors, write_directory
from tests.interchange.small_checkpoints import CONFIG, stored


def test_a_missing_head_that_nobody_asked_for(save):
    _, path = save("classifier", without=["classifier/"])
    sentence = (
        r"m lacks classifier/kernel, classifier/bias, which the model has that its files describe "
        r"or that was asked for: take a whole checkpoint, or a model without them\.$"
    )
    with pytest.raises(ValueError, match=sentence):
        load(path)
    assert load_with_report(path, BertClassifier)[1].new == ("classifier/kernel", "classifier/bias")


def test_a_head_of_which_a_part_is_missing(save):
    _, path = save("pretrainer", without=["masked_lm/layer_norm/beta"])
    for model_class in (None, BertPretrainer):
        with pytest.raises(ValueError, match=r"m lacks masked_lm/layer_norm/beta, which the model"):
            load(path, model_class)
    report = load_with_report(path, BertPretrainer, new_head=True)[1]
    assert report.new[0] == "masked_lm/dense/kernel"


@pytest.mark.parametrize("name", ["embeddings/layer_norm/gamma", "layer_1/output/bias"])
def test_a_missing_weight_of_the_encoder(save, name):
    _, path = save("pretrainer", without=[name])
    for model_class in (None, BertEncoder, BertPretrainer):
        with pytest.raises(ValueError, match=rf"m lacks {name}, which the model"):
            load(path, model_class, new_head=model_class is not None)


def test_a_missing_layer(save):
    _, path = save("encoder", without=["layer_1/"])
    with pytest.raises(ValueError, match=r"m lacks layer_1/.*, .* and 8 more, which the model has"):
        load(path)


@pytest.mark.parametrize(
    "changed, arguments, sentence",
    [
        ({"classifier/kernel": stored("k", np.zeros((8, 4), "float32"))}, {},
         r"m does not fit its config, or the arguments given .*: "
         r"model/bert_classifier/classifier/kernel is \(8, 4\), expected \(8, 3\)\. Mend"),
        ({}, {"model_class": BertClassifier, "num_classes": 5},
         r"classifier/kernel is \(8, 3\), expected \(8, 5\); .*/classifier/bias is \(3,\), "
         r"expected \(5,\)\. .* pass new_head=True for a new head of another size\.$"),
    ],
)  # fmt: skip
def test_another_shape(save, changed, arguments, sentence):
    _, path = save("classifier", changed=changed)
    with pytest.raises(ValueError, match=sentence):
        load(path, **arguments)


def test_all_shapes_differ_and_nothing_is_built(save, monkeypatch, tmp_path):
    _, path = save("encoder")
    config = dataclasses.replace(CONFIG, vocab_size=10**7, intermediate_size=10**6)
    (tmp_path / "m" / "bert_config.json").write_text(config.to_json())
    described = json.loads((tmp_path / "m" / "model.json").read_text())
    del described["sha256"]
    (tmp_path / "m" / "model.json").write_text(json.dumps(described))
    monkeypatch.setattr("bert_tf.interchange.load.build_model", None)
    sentence = r"word_embeddings is \(20, 8\), expected \(10000000, 8\); .*\)\. Mend"
    with pytest.raises(ValueError, match=sentence):
        load(path)


def test_numbers_that_are_no_floats(tmp_path):
    tensors = random_tensors({**ENCODER, **POOLER})
    tensors["pooler.dense.weight"] = np.ones((8, 8), "int8")
    sentence = r"pooler\.dense\.weight is stored as int8, expected one of float32, float16"
    with pytest.raises(ValueError, match=sentence):
        load(write_directory(tmp_path / "hf", tensors))


class _Classifier(BertEncoder):
    pass


@pytest.mark.parametrize(
    "model_class, arguments, sentence",
    [
        (None, {"num_classes": 3, "dropout": 0.1},
         r"^num_classes, dropout would be an argument of a model that is not named: pass "
         r"model_class too; .*m holds a BertEncoder\.$"),
        (keras.Model, {}, "model_class is <class .*>, expected one of BertEncoder"),
        (_Classifier, {}, "model_class is <class .*>, expected one of BertEncoder"),
        (BertClassifier, {},
         r"m holds a BertEncoder, which does not say how many classes a BertClassifier has: "
         r"pass num_classes\.$"),
        (BertTokenClassifier, {}, r"how many classes a BertTokenClassifier has: pass num_classes"),
    ],
)  # fmt: skip
def test_wrong_arguments(save, model_class, arguments, sentence):
    _, path = save("encoder")
    with pytest.raises(ValueError, match=sentence):
        load(path, model_class, **arguments)
