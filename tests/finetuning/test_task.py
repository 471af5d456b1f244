import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertRegressor
from bert_tf.pipelines.classification import classification_examples

from .small_tasks import CONFIG, TOKENIZER, StandIn, by_token, inference


@pytest.mark.parametrize("labels", [None, [0, 1, 0, 1, 0]])
def test_gives_every_example_once_with_its_output(labels):
    texts = ["a0", "a0 a0 b0", "b0", "a0 b0 b0 b0 b0 b0 b0 a0", "a0 a0 a0"]
    examples = classification_examples(TOKENIZER, texts, labels=labels, max_seq_length=32)
    model = StandIn(lambda inputs: tf.reduce_sum(by_token({"a0": 1.0})(inputs), 1))
    found = {}
    for batch, outputs in inference(model, batch_size=2).outputs(examples):
        assert len(outputs) <= 2
        found.update(zip(batch["example_index"].tolist(), outputs.tolist(), strict=True))
    assert found == {index: text.split().count("a0") for index, text in enumerate(texts)}
    again = classification_examples(TOKENIZER, ["b0 a0"], labels=labels and [0], max_seq_length=9)
    ((_, outputs),) = inference(model, batch_size=2).outputs(again)
    assert outputs.tolist() == [1.0]
    assert model.traces == 1, "a later call is not traced again"


def test_traces_are_kept_and_the_model_can_be_saved(tmp_path):
    examples = classification_examples(TOKENIZER, ["a0", "b0 b1 b2"])
    model = BertRegressor(CONFIG)
    before = [outputs for _, outputs in inference(model, batch_size=2).outputs(examples)]
    model.encoder.pooler.dense.kernel.assign(model.encoder.pooler.dense.kernel * -1.0)
    after = [outputs for _, outputs in inference(model, batch_size=2).outputs(examples)]
    assert np.all(before[0] != after[0]), "the weights of the moment count"
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    ((_, reloaded),) = inference(again, batch_size=2).outputs(examples)
    np.testing.assert_allclose(reloaded, after[0], rtol=1e-5)
