import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.modeling import BertSpanPredictor, seed_variables
from tests.modeling.conftest import TINY, encoder_batch, randomise, weights_by_path
from tests.modeling.numpy_bert import encode, head


def test_equals_plain_loops():
    model = randomise(BertSpanPredictor(TINY, dtype="float64"))
    batch = encoder_batch()
    outputs = model(batch)
    weights = weights_by_path(model)
    for b in range(2):
        states, _ = encode(weights, TINY, *(batch[key][b] for key in features.ENCODER_FEATURES))
        expected = [head(weights, "bert_span_predictor/span", state) for state in states[-1]]
        both = np.stack([outputs["start_logits"][b], outputs["end_logits"][b]], axis=-1)
        np.testing.assert_allclose(both, expected, atol=1e-10)


def test_padding_has_no_influence():
    model = randomise(BertSpanPredictor(TINY))
    batch = encoder_batch()
    outputs = model(batch)
    batch["input_word_ids"][1, 4:] = [1, 2]
    batch["input_type_ids"][1, 4:] = 1
    others = model(batch)
    for key in ("start_logits", "end_logits"):
        np.testing.assert_array_equal(others[key][1, :4], outputs[key][1, :4])
        assert np.abs(others[key][1, 4:] - outputs[key][1, 4:]).max() > 0.01


def test_in_training_padding_counts_nothing_in_the_loss():
    config = dataclasses.replace(TINY, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = randomise(BertSpanPredictor(config))
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    batch = encoder_batch()
    batch["input_mask"][:, 4:] = 0
    answers = {"start_logits": np.array([1, 0]), "end_logits": np.array([3, 2])}
    losses = {
        width: float(
            model.compute_loss(
                y=answers,
                y_pred=model({key: ids[:, :width] for key, ids in batch.items()}, training=True),
            )
        )
        for width in (4, 6)
    }
    assert losses[4] == pytest.approx(losses[6], rel=1e-6) and losses[4] > 0.1
    np.testing.assert_array_equal(model(batch, training=True)["end_logits"][:, 4:], -30000.0)


def test_nothing_is_dropped_in_front_of_the_dense_layer():
    model = BertSpanPredictor(TINY)
    (seed,) = seed_variables(model)
    with keras.StatelessScope(state_mapping=[(seed, tf.constant([1, 0], tf.int64))]) as scope:
        model(encoder_batch(), training=True)
    # The encoder's dropouts drew one each: embeddings, and three in each block.
    np.testing.assert_array_equal(scope.get_current_value(seed), [1, 1 + 3 * 2])


def test_a_loss_for_each_end():
    model = randomise(BertSpanPredictor(TINY))
    batch = encoder_batch(batch=3)
    answers = {
        "start_logits": np.array([1, 0, 2], "int32"),
        "end_logits": np.array([4, 0, 3], "int32"),
    }
    outputs = model(batch)
    expected = {}
    for key, answer in answers.items():
        logits = outputs[key].numpy()
        likelihood = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        expected[key + "_loss"] = -likelihood[np.arange(3), answer].mean()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=dict.fromkeys(answers, loss))
    measured = model.evaluate(batch, answers, verbose=0, return_dict=True)
    np.testing.assert_allclose(measured.pop("loss"), sum(expected.values()), rtol=1e-5)
    assert measured == pytest.approx(expected, rel=1e-5)
