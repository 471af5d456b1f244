"""``bert_tf.save``: what it writes is loaded as it was, by ``load`` and by the commands."""

import json

import numpy as np
import pytest

import bert_tf
from bert_tf.modeling import MODEL_CLASSES
from tests.finetuning.small_runs import TINY, VOCAB, write_model

ARGUMENTS = {
    "BertClassifier": {"num_classes": 3, "dropout": 0.25},
    "BertTokenClassifier": {"num_classes": 3},
    "BertPretrainer": {"nsp": False},
    "BertEncoder": {"pooler": False},
    "BertFeatureTagger": {"num_classes": 3, "variant": "last", "lstm_units": 4},
}


def make(name):
    model_class = MODEL_CLASSES[name]
    return model_class(TINY, **ARGUMENTS.get(name, {}))


@pytest.mark.parametrize("name", MODEL_CLASSES)
def test_every_class_is_loaded_as_it_was_saved(name, tmp_path):
    model = make(name)
    model.preprocessor = bert_tf.BertPreprocessor(VOCAB, do_lower_case=False, max_seq_length=8)
    bert_tf.save(model, tmp_path / "saved")
    loaded = bert_tf.load(tmp_path / "saved")
    assert type(loaded) is type(model)
    for before, after in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(before, after, before.path)
    ours, theirs = model.get_config(), loaded.get_config()
    assert {n: ours[n] for n in model.argument_checks} == {
        n: theirs[n] for n in model.argument_checks
    }
    assert tuple(loaded.preprocessor.tokenizer.vocab) == VOCAB
    assert not loaded.preprocessor.tokenizer.do_lower_case


def test_all_that_a_run_said_of_its_model_is_kept(tmp_path):
    said = {"labels": ("a", "b"), "multi_label": True, "thresholds": {"probability": 0.25}}
    write_model(tmp_path / "run", "BertClassifier", {"num_classes": 2}, **said)
    task = {"format_version": 1, "kind": "multilabel", "name": "mine"}
    model = bert_tf.load(tmp_path / "run")
    model.task = task
    bert_tf.save(model, tmp_path / "saved")
    loaded = bert_tf.load(tmp_path / "saved")
    assert {name: getattr(loaded, name) for name in said} == said
    assert loaded.task == task == json.loads((tmp_path / "saved" / "task.json").read_text())


def test_what_cannot_be_saved(tmp_path):
    model = make("BertClassifier")
    with pytest.raises(ValueError, match="The model is a object: expected one of"):
        bert_tf.save(object(), tmp_path / "saved")
    model.labels = ("a", "b")
    with pytest.raises(ValueError, match=r"labels has 2 names \(a, b\), and the model 3 classes"):
        bert_tf.save(model, tmp_path / "saved")
    model.labels = ()
    model.encoder.blocks[0].intermediate.enable_lora(2)
    with pytest.raises(ValueError, match="intermediate/lora_kernel_a.*: merge adapters"):
        bert_tf.save(model, tmp_path / "saved")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="saved"):
        bert_tf.save(make("BertClassifier"), tmp_path / "saved")
    assert (tmp_path / "saved" / "mine.txt").read_text() == "mine"
