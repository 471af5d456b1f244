"""``--bilstm``: a run, its resumption, its export, and what its head is to other runs."""

import json

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.finetuning.run import run
from tests.killing import kill_at_a_write

from .small_runs import arguments, assert_ends_as, settings, write_model


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_run(inputs, tmp_path, capsys):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(settings(inputs, whole, bilstm=True))
    assert json.loads((whole / "model.json").read_text())["arguments"]["bilstm"] is True
    model = bert_tf.load(whole)
    assert model.encoder.pooler is None and model.classifier.kernel.shape == (32, 2)
    # Killed with a state of its first epoch, it ends as the other.
    flags = arguments(inputs, cut, bilstm=True)
    kill_at_a_write("bert_tf.finetune", flags, "after", "last/step-00000006/manifest.json")
    run(settings(inputs, cut, bilstm=True))
    assert_ends_as(whole, cut)
    with pytest.raises(ValueError, match=r"--bilstm=False \(was True\)"):
        run(settings(inputs, cut))
    # The export answers as the model does, for texts of different lengths.
    run(settings(inputs, whole, bilstm=True, export=True))
    exported = tf.saved_model.load(str(whole / "export" / "1"))
    texts = ["good film", "the plot was so poor and bad", "fine"]
    served = exported.signatures["serving_default"](text=tf.constant(texts))
    shares = tf.nn.softmax(model(model.preprocessor(texts)) / model.thresholds["temperature"])
    order = [model.labels.index(label.decode()) for label in served["labels"][0].numpy()]
    np.testing.assert_allclose(served["probabilities"], shares.numpy()[:, order], atol=1e-5)
    # A head that reads a BiLSTM is none for a model without it.
    capsys.readouterr()
    run(settings(inputs, tmp_path / "without", init_checkpoint=whole, num_train_epochs=1))
    assert "new (train before use): pooler/dense/kernel, " in capsys.readouterr().out


def test_a_directory_says_that_it_is_there(tmp_path):
    arguments = {"pooler": False, "bilstm": True}
    model = write_model(tmp_path, "BertSpanPredictor", arguments)
    loaded = bert_tf.load(tmp_path)
    assert loaded.get_config()["bilstm"] is True
    ids = np.array([[2, 5, 3, 6, 7, 3]], np.int32)
    inputs = {"input_word_ids": ids, "input_mask": 0 * ids + 1, "input_type_ids": 0 * ids}
    for key, logits in model(inputs).items():
        np.testing.assert_array_equal(loaded(inputs)[key], logits)
