"""Pooling of a head: by default that of the checkpoint, saved with the run."""

import json

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import BertClassifier, api
from bert_tf.finetuning.run import run

from .small_runs import settings, started, write_model

TEXTS = ["good film", "the plot was so poor and bad", "fine"]


def test_pooling_comes_from_checkpoint_or_flag(inputs, sentence_model, tmp_path):
    model, notes = started(settings(inputs, tmp_path, init_checkpoint=sentence_model))
    assert (model.pooling, model.encoder.pooler) == ("mean", None)
    assert notes[-1] == (f"Pooling: mean (as in {sentence_model}; use --pooling=cls for [CLS]).")
    given = settings(inputs, tmp_path, init_checkpoint=sentence_model, pooling="cls")
    model, notes = started(given)
    assert model.pooling == "cls" and model.encoder.pooler is not None
    assert notes[-1] == "Pooling: cls (--pooling)."


def test_run_saves_pooling(flagged_run, inputs, tmp_path):
    model = bert_tf.load(flagged_run.path)
    assert (model.pooling, model.encoder.pooler) == ("mean", None)
    expected = tf.nn.softmax(model(model.preprocessor(TEXTS)) / model.thresholds["temperature"])
    order = [list(model.labels).index(label) for label in ("neg", "pos")]
    records = api.predict(flagged_run.path, TEXTS)
    predicted = [[row["probabilities"][label] for label in ("neg", "pos")] for row in records]
    np.testing.assert_allclose(predicted, expected.numpy()[:, order], atol=1e-5)
    card = (flagged_run.path / "README.md").read_text()
    assert "- The head reads the mean of the token embeddings.\n" in card
    with pytest.raises(ValueError, match=r"--pooling=max \(was not set\)"):
        run(settings(inputs, flagged_run.path, **flagged_run.flags, pooling="max"))
    # A head with the same pooling is reused; with another pooling it is randomly initialized.
    model, notes = started(settings(inputs, tmp_path, init_checkpoint=flagged_run.path))
    assert model.pooling == "mean" and not any("(train before use)" in one for one in notes)
    given = settings(inputs, tmp_path, init_checkpoint=flagged_run.path, pooling="max")
    model, notes = started(given)
    assert any("classifier/kernel" in one.split("(train before use)")[-1] for one in notes)
    assert model.encoder.pooler is None


def test_from_checkpoint_accepts_pooling(sentence_model):
    assert BertClassifier.from_checkpoint(sentence_model, num_classes=2).pooling == "mean"
    given = BertClassifier.from_checkpoint(sentence_model, num_classes=2, pooling="cls")
    assert given.pooling == "cls"


def test_directory_without_pooling_uses_cls(tmp_path):
    model = write_model(tmp_path / "cls", "BertClassifier", {"num_classes": 2}, labels=("a", "b"))
    assert "pooling" not in json.loads((tmp_path / "cls/model.json").read_text())["arguments"]
    loaded = bert_tf.load(tmp_path / "cls")
    assert loaded.pooling == "cls"
    batch = loaded.preprocessor(TEXTS)
    np.testing.assert_array_equal(loaded(batch), model(batch))
