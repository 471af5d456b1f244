"""What a head reads: by default what the checkpoint says, kept in what a run leaves."""

import json

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import BertClassifier, api
from bert_tf.finetuning.run import run

from .small_runs import settings, started, write_model

TEXTS = ["good film", "the plot was so poor and bad", "fine"]


def test_a_head_reads_what_its_checkpoint_says_or_the_flag(inputs, sentence_model, tmp_path):
    model, notes = started(settings(inputs, tmp_path, init_checkpoint=sentence_model))
    assert (model.pooling, model.encoder.pooler) == ("mean", None)
    assert notes[-1] == (f"Pooling: mean (as in {sentence_model}; use --pooling=cls for [CLS]).")
    given = settings(inputs, tmp_path, init_checkpoint=sentence_model, pooling="cls")
    model, notes = started(given)
    assert model.pooling == "cls" and model.encoder.pooler is not None
    assert notes[-1] == "Pooling: cls (--pooling)."


def test_a_run_says_what_its_head_reads(unusual, inputs, tmp_path):
    model = bert_tf.load(unusual.path)
    assert (model.pooling, model.encoder.pooler) == ("mean", None)
    expected = tf.nn.softmax(model(model.preprocessor(TEXTS)) / model.thresholds["temperature"])
    order = [list(model.labels).index(label) for label in ("neg", "pos")]
    records = api.predict(unusual.path, TEXTS)
    predicted = [[row["probabilities"][label] for label in ("neg", "pos")] for row in records]
    np.testing.assert_allclose(predicted, expected.numpy()[:, order], atol=1e-5)
    card = (unusual.path / "README.md").read_text()
    assert "- The head reads the mean of the token embeddings.\n" in card
    with pytest.raises(ValueError, match=r"--pooling=max \(was None\)"):
        run(settings(inputs, unusual.path, **unusual.flags, pooling="max"))
    # A head of its kind is gone on with; one vector of the wrong kind is no start for a head.
    model, notes = started(settings(inputs, tmp_path, init_checkpoint=unusual.path))
    assert model.pooling == "mean" and not any("(train before use)" in one for one in notes)
    given = settings(inputs, tmp_path, init_checkpoint=unusual.path, pooling="max")
    model, notes = started(given)
    assert any("classifier/kernel" in one.split("(train before use)")[-1] for one in notes)
    assert model.encoder.pooler is None


def test_in_python(sentence_model):
    assert BertClassifier.from_checkpoint(sentence_model, num_classes=2).pooling == "mean"
    given = BertClassifier.from_checkpoint(sentence_model, num_classes=2, pooling="cls")
    assert given.pooling == "cls"


def test_a_directory_says_what_its_head_reads(tmp_path):
    model = write_model(tmp_path / "cls", "BertClassifier", {"num_classes": 2}, labels=("a", "b"))
    assert "pooling" not in json.loads((tmp_path / "cls/model.json").read_text())["arguments"]
    loaded = bert_tf.load(tmp_path / "cls")
    assert loaded.pooling == "cls"
    batch = loaded.preprocessor(TEXTS)
    np.testing.assert_array_equal(loaded(batch), model(batch))
