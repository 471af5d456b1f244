"""What a head reads: by default what the checkpoint says, kept in all that comes of a run."""

import json

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import BertClassifier, api
from bert_tf.finetuning.data import read_task
from bert_tf.finetuning.run import run
from bert_tf.interchange import conversion
from bert_tf.modeling.pooling import SentenceEmbedding

from .small_runs import parse, settings, write_model

TEXTS = ["good film", "the plot was so poor and bad", "fine"]


@pytest.fixture(scope="module")
def sentence_model(inputs, tmp_path_factory):
    """A model of sentence-transformers, by the mean, that has a pooler which nobody trained."""
    path = tmp_path_factory.mktemp("sentence") / "model"
    model = bert_tf.load(inputs / "tiny")
    model.sentence_embedding = SentenceEmbedding("mean", normalize=True, max_seq_length=16)
    bert_tf.save(model, path.with_name("ours"))
    conversion.convert(str(path.with_name("ours")), str(path), "huggingface")
    assert (path / "1_Pooling" / "config.json").is_file()
    return path


def test_a_run_reads_what_its_checkpoint_says(inputs, sentence_model, tmp_path, capsys):
    path = tmp_path / "run"
    flags = {"init_checkpoint": sentence_model, "num_train_epochs": 1, "export": True}
    run(settings(inputs, path, **flags))
    said = capsys.readouterr().out
    assert (
        f"The head reads the mean over a text's tokens, as {sentence_model} does; --pooling=cls "
        "reads [CLS] through the pooler."
    ) in said
    model = bert_tf.load(path)
    assert (model.pooling, model.encoder.pooler) == ("mean", None)
    expected = tf.nn.softmax(model(model.preprocessor(TEXTS)) / model.thresholds["temperature"])
    order = [list(model.labels).index(label) for label in ("neg", "pos")]
    # predict, and an export, which a directory beside it describes.
    records = api.predict(path, TEXTS)
    found = [[row["probabilities"][label] for label in ("neg", "pos")] for row in records]
    np.testing.assert_allclose(found, expected.numpy()[:, order], atol=1e-5)
    served = tf.saved_model.load(str(path / "export" / "1")).signatures["serving_default"]
    answers = served(text=tf.constant(TEXTS))
    by_label = [
        dict(zip(names, shares, strict=True))
        for names, shares in zip(
            answers["labels"].numpy(), answers["probabilities"].numpy(), strict=True
        )
    ]
    shares = [[row[label] for label in (b"neg", b"pos")] for row in by_label]
    np.testing.assert_allclose(shares, found, atol=1e-5)
    card = (path / "export" / "1" / "assets.extra" / "README.md").read_text()
    assert "- The head reads the mean over a text's tokens.\n" in card
    assert "- The head reads the mean over a text's tokens." in (path / "README.md").read_text()
    # What other libraries call a classifier reads [CLS].
    with pytest.raises(ValueError, match=r"whose head reads the mean over all tokens, which huggi"):
        conversion.convert(str(path), str(tmp_path / "out"), "huggingface")
    conversion.convert(str(path), str(tmp_path / "out.keras"), "keras")
    assert bert_tf.load(tmp_path / "out.keras").pooling == "mean"
    # Its own pooling is that of a run which starts from it.
    capsys.readouterr()
    run(settings(inputs, tmp_path / "further", **{**flags, "init_checkpoint": path}))
    assert "new (train before use)" not in capsys.readouterr().out
    assert bert_tf.load(tmp_path / "further").pooling == "mean"


def test_the_flag_says_otherwise(inputs, sentence_model, tmp_path, capsys):
    flags = {"num_train_epochs": 1, "pooling": "cls", "init_checkpoint": sentence_model}
    run(settings(inputs, tmp_path / "cls", **flags))
    assert "The head reads [CLS] through the pooler, as --pooling says." in capsys.readouterr().out
    model = bert_tf.load(tmp_path / "cls")
    assert model.pooling == "cls" and model.encoder.pooler is not None
    with pytest.raises(ValueError, match=r"--pooling=max \(was cls\)"):
        run(settings(inputs, tmp_path / "cls", **{**flags, "pooling": "max"}))
    # One vector of the wrong kind is no start for a head.
    flags = {"num_train_epochs": 1, "pooling": "max", "init_checkpoint": tmp_path / "cls"}
    run(settings(inputs, tmp_path / "max", **flags))
    assert "new (train before use): classifier/kernel" in capsys.readouterr().out


def test_in_python(sentence_model):
    assert BertClassifier.from_checkpoint(sentence_model, num_classes=2).pooling == "mean"
    given = BertClassifier.from_checkpoint(sentence_model, num_classes=2, pooling="cls")
    assert given.pooling == "cls"
    assert BertClassifier.from_checkpoint(sentence_model, num_classes=2, bilstm=True).bilstm


def test_a_model_of_before_reads_cls(tmp_path):
    model = write_model(tmp_path, "BertClassifier", {"num_classes": 2}, labels=("a", "b"))
    assert "pooling" not in json.loads((tmp_path / "model.json").read_text())["arguments"]
    loaded = bert_tf.load(tmp_path)
    assert loaded.pooling == "cls"
    batch = bert_tf.load(tmp_path).preprocessor(TEXTS)
    np.testing.assert_array_equal(loaded(batch), model(batch))


def test_a_head_on_every_token_has_none(tmp_path):
    (tmp_path / "train.txt").write_text("".join(f"Ann{n} B-PER\nsaw O\n\n" for n in range(5)))
    given = (f"--train_file={tmp_path}/train.txt", "--init_checkpoint=c", "--dev_fraction=0.4")
    with pytest.raises(ValueError, match="--pooling=mean: the head of ner reads each token"):
        read_task(parse("--task=ner", *given, "--pooling=mean")[0])
