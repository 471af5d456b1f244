"""The Hub's endpoints: their structure, and training through them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertClassifier, BertEncoder
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.saved_models import embeddings, exporting, precision
from bert_tf.saved_models.served import ExportOptions

from .conftest import VOCAB, make

INPUTS = {
    "input_word_ids": tf.constant([[2, 5, 7, 3], [2, 8, 3, 0]]),
    "input_mask": tf.constant([[1, 1, 1, 1], [1, 1, 1, 0]]),
    "input_type_ids": tf.constant([[0, 0, 1, 1], [0, 0, 0, 0]]),
}


def serve(model, **options):
    return precision.serve(model, BertTokenizer(VOCAB), ExportOptions(**options))


def save(folder, model, **options):
    served = serve(model, **options)
    exporting._save(str(folder), {}, embeddings.endpoints(served), served.resources)
    return str(folder)


@pytest.mark.parametrize("pooler", [True, False])
def test_the_structure(tmp_path, pooler):
    model = make(BertEncoder, pooler=pooler)
    if pooler:
        loaded = tf.saved_model.load(save(tmp_path, model))
        outputs = loaded.encoder(INPUTS)
    else:
        outputs = embeddings.endpoints(serve(model))[embeddings.ENCODER](INPUTS)
    expected = model(INPUTS)
    assert set(outputs) == {"default", "sequence_output", "encoder_outputs"} | (
        {"pooled_output"} if pooler else set()
    )
    assert len(outputs["encoder_outputs"]) == 2
    for got, wanted in zip(outputs["encoder_outputs"], expected["encoder_outputs"], strict=True):
        np.testing.assert_allclose(got, wanted, atol=5e-6)
    np.testing.assert_allclose(outputs["sequence_output"], expected["sequence_output"], atol=5e-6)
    default = expected["pooled_output"] if pooler else expected["sequence_output"][:, 0]
    np.testing.assert_allclose(outputs["default"], default, atol=5e-6)
    if pooler:
        np.testing.assert_array_equal(outputs["pooled_output"], outputs["default"])


@pytest.mark.parametrize("arithmetic", ["float32", "bfloat16"])
def test_a_layer_of_it_learns(tmp_path, arithmetic):
    path = save(tmp_path, make(BertClassifier, 3), precision=arithmetic)
    layer = keras.layers.TFSMLayer(
        path, call_endpoint="encoder", call_training_endpoint="encoder_training"
    )
    inputs = {key: keras.Input((None,), dtype="int32", name=key) for key in INPUTS}
    dense = keras.layers.Dense(2, kernel_initializer=keras.initializers.GlorotUniform(seed=3))
    model = keras.Model(inputs, dense(layer(inputs)["default"]))
    before = layer(INPUTS)["default"].numpy()
    assert before.dtype == np.float32
    # Dropout acts in training, each time another, and nowhere else.
    noisy = [layer(INPUTS, training=True)["default"].numpy() for _ in range(2)]
    assert np.abs(noisy[0] - noisy[1]).max() > 1e-3
    np.testing.assert_array_equal(layer(INPUTS)["default"], before)
    # The matrices, tables, biases and normalisations: 3 + 2 + 12 for each block + the pooler's 2.
    assert len(layer.trainable_weights) == 31
    weights = [variable.numpy() for variable in layer.trainable_weights]
    model.compile(
        keras.optimizers.SGD(0.05),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    labels = tf.constant([0, 1])
    first_loss = model.evaluate(INPUTS, labels, verbose=0)
    model.fit(INPUTS, labels, epochs=40, verbose=0)
    # At inference, through the other endpoint: it sees what was trained.
    assert model.evaluate(INPUTS, labels, verbose=0) < 0.5 * first_loss
    changed = [
        np.abs(new.numpy() - old).max() > 1e-4
        for new, old in zip(layer.trainable_weights, weights, strict=True)
    ]
    assert all(changed)
    assert np.abs(layer(INPUTS)["default"] - before).max() > 0.01


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
def test_rounded_weights_are_not_trained(weights):
    model = make(BertEncoder)
    found = embeddings.endpoints(serve(model, weights=weights))
    assert found.keys() == {embeddings.ENCODER}
    np.testing.assert_allclose(
        found[embeddings.ENCODER](INPUTS)["default"], model(INPUTS)["pooled_output"], atol=0.1
    )
