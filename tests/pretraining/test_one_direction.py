"""``--objective=ltr`` and ``rtl``: a run, its resumption and evaluation, its model afterwards."""

import json

import pytest
import tensorflow as tf

import bert_tf

from .commands import pretrain, refusal_of

pytestmark = pytest.mark.slow
PREDICTED = {"ltr": "next token  ", "rtl": "token before"}


@pytest.fixture(scope="module", params=["ltr", "rtl"])
def objective(request):
    return request.param


@pytest.fixture(scope="module")
def ran(inputs, tmp_path_factory, objective):
    model_dir = tmp_path_factory.mktemp(objective) / "run"
    done = pretrain(inputs, model_dir, objective=objective)
    assert done.returncode == 0, done.stderr
    return model_dir, done.stdout


def test_it_learns_and_says_what(ran, objective):
    model_dir, printed = ran
    evaluation = json.loads((model_dir / "results.json").read_text())["evaluation"]
    assert f"  {PREDICTED[objective]}  {evaluation['masked_lm_accuracy']:6.1%}" in printed
    assert "masked LM" not in printed and "next sentence" not in printed and "MLM" not in printed
    assert evaluation["masked_lm_accuracy"] > 0 and evaluation["next_sentence_rows"] == 0
    assert json.loads((model_dir / "bert_config.json").read_text())["is_decoder"] is True
    model = bert_tf.load(model_dir)
    assert model.config.direction == objective and not model.nsp
    exported = tf.saved_model.load(str(model_dir / "export" / "1"))
    assert set(exported.signatures) == {"serving_default", "tokens"}
    classifier = bert_tf.load(model_dir, bert_tf.BertClassifier, num_classes=2)
    assert classifier.encoder.config.direction == objective


def test_a_causal_start_keeps_its_direction(ran, objective, inputs, tmp_path):
    start = {"bert_config": None, "vocab_size": None, "init_checkpoint": ran[0]}
    other = {"ltr": "rtl", "rtl": "ltr"}[objective]
    own = {"ltr": "left", "rtl": "right"}
    for asked, sides in (("mlm", "both sides"), (other, f"the {own[other]}")):
        refused = refusal_of(inputs, tmp_path, **start, objective=asked)
        assert refused.endswith(f"--objective={asked} from {sides}: give --objective={objective}.")
        seen = f"it predicts from the {own[objective]} alone, and"
        assert f"{ran[0]} is causal (is_decoder): {seen}" in refused
