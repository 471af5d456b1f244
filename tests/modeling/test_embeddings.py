import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling.embeddings import BertEmbeddings
from tests.modeling.conftest import TINY, randomise, weights_by_path
from tests.modeling.numpy_bert import layer_norm

IDS = np.array([[3, 14, 0], [0, 7, 7]], "int32")
TYPES = np.array([[0, 0, 1], [1, 0, 0]], "int32")


def test_is_the_normalised_sum_of_three_rows():
    layer = BertEmbeddings(TINY, name="embeddings", dtype="float64")
    outputs = randomise_after_call(layer)
    weights = weights_by_path(layer)
    words, positions, types, gamma, beta = (
        weights[f"embeddings/{name}"]
        for name in (
            "word_embeddings",
            "position_embeddings",
            "token_type_embeddings",
            "layer_norm/gamma",
            "layer_norm/beta",
        )
    )
    for b in range(2):
        for s in range(3):
            total = words[IDS[b, s]] + positions[s] + types[TYPES[b, s]]
            expected = layer_norm(total, gamma, beta, 1e-12)
            np.testing.assert_allclose(outputs[b, s], expected, atol=1e-12)


def randomise_after_call(layer):
    layer(IDS, TYPES)
    randomise(layer)
    return layer(IDS, TYPES).numpy()


def test_gradient_adds_up_over_repeated_ids():
    layer = BertEmbeddings(TINY, dtype="float64")
    randomise_after_call(layer)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(layer(IDS, TYPES) * tf.range(8, dtype="float64"))
    table = layer.word_embeddings
    gradient = tf.convert_to_tensor(tape.gradient(total, table.value)).numpy()
    step = 1e-6
    for row in (7, 14, 5):
        values = keras.ops.convert_to_numpy(table)
        sums = []
        for sign in (1, -1):
            moved = values.copy()
            moved[row, 2] += sign * step
            table.assign(moved)
            sums.append(float(tf.reduce_sum(layer(IDS, TYPES) * tf.range(8, dtype="float64"))))
        table.assign(values)
        np.testing.assert_allclose(
            gradient[row, 2], (sums[0] - sums[1]) / (2 * step), atol=1e-7, err_msg=f"row {row}"
        )
    assert not gradient[5].any()  # no token has this id


@pytest.mark.parametrize("training", [False, True])
def test_dropout_acts_in_training_only(training):
    layer = BertEmbeddings(TINY)
    outputs = layer(IDS, TYPES, training=training).numpy()
    assert (outputs == 0.0).any() == training


def test_starts_as_a_truncated_normal():
    config = dataclasses.replace(TINY, vocab_size=20_000, initializer_range=0.05)
    layer = BertEmbeddings(config)
    layer(IDS, TYPES)
    values = layer.word_embeddings.numpy()
    assert np.abs(values).max() <= 0.1  # cut at two deviations
    # A normal cut at two deviations has 0.8796 of the deviation.
    np.testing.assert_allclose(values.std(), 0.05 * 0.8796, rtol=0.01)
    assert np.abs(values[:12] - layer.position_embeddings.numpy()).max() > 0.01


def test_config_round_trip():
    layer = BertEmbeddings.from_config(BertEmbeddings(TINY, name="e").get_config())
    assert (layer.config, layer.name) == (TINY, "e")
