"""``--objective=ltr``: training, resuming, evaluation and the model."""

import json

import pytest
import tensorflow as tf

import bert_tf

from .commands import pretrain, refusal_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ran(inputs, tmp_path_factory):
    model_dir = tmp_path_factory.mktemp("ltr") / "run"
    done = pretrain(inputs, model_dir, objective="ltr")
    assert done.returncode == 0, done.stderr
    return model_dir, done.stdout


def test_it_learns_and_says_what(ran):
    model_dir, printed = ran
    evaluation = json.loads((model_dir / "results.json").read_text())["evaluation"]
    assert f"  next token    {evaluation['masked_lm_accuracy']:6.1%}" in printed
    assert "masked LM" not in printed and "next sentence" not in printed and "MLM" not in printed
    assert evaluation["masked_lm_accuracy"] > 0 and evaluation["next_sentence_rows"] == 0
    assert json.loads((model_dir / "bert_config.json").read_text())["is_decoder"] is True
    model = bert_tf.load(model_dir)
    assert model.config.is_decoder and not model.nsp
    exported = tf.saved_model.load(str(model_dir / "export" / "1"))
    assert set(exported.signatures) == {"serving_default", "tokens"}
    classifier = bert_tf.load(model_dir, bert_tf.BertClassifier, num_classes=2)
    assert classifier.encoder.config.is_decoder


def test_a_causal_start_keeps_its_direction(ran, inputs, tmp_path):
    start = {"bert_config": None, "vocab_size": None, "init_checkpoint": ran[0]}
    refused = refusal_of(inputs, tmp_path, **start, objective="mlm")
    assert refused.endswith("Pass --objective=ltr.")
    assert f"{ran[0]} is a causal model (is_decoder), and --objective=mlm trains" in refused
