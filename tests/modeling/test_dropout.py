import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertClassifier, BertPretrainer, BertSpanPredictor, seed_variables
from bert_tf.modeling.dropout import Dropout, MaskSeeds
from tests.modeling.conftest import TINY, made, make_batch


def generator(seed=7):
    return MaskSeeds(seed, name="dropout_seed")


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_rate_and_scale(rate):
    count = 200_001  # odd: the last word of random bits is half used
    y = Dropout(rate, generator())(np.ones(count, "float32"), training=True).numpy()
    dropped = np.mean(y == 0.0)
    # Five standard deviations of a binomial share.
    assert abs(dropped - rate) < 5 * np.sqrt(rate * (1 - rate) / count)
    levels = round(rate * 65536)
    np.testing.assert_array_equal(np.unique(y), np.float32([0.0, 65536 / (65536 - levels)]))


def test_both_halves_of_a_random_word_are_fair_and_independent():
    rate, pairs = 0.25, 100_000
    y = Dropout(rate, generator())(np.ones((pairs, 2), "float32"), training=True).numpy()
    dropped = y == 0.0
    tolerance = 5 * np.sqrt(rate * (1 - rate) / pairs)
    np.testing.assert_allclose(dropped.mean(axis=0), rate, atol=tolerance)
    assert abs(dropped.all(axis=1).mean() - rate**2) < tolerance


def test_neighbouring_seeds_are_independent():
    layer = Dropout(0.5, generator())
    x = np.ones(100_000, "float32")
    first, second = (layer(x, training=True).numpy() == 0.0 for _ in range(2))
    assert abs(np.mean(first & second) - 0.25) < 5 * np.sqrt(0.25 * 0.75 / x.size)


def test_outside_training_and_at_rate_0_nothing_changes():
    x = np.arange(6, dtype="float32")
    np.testing.assert_array_equal(Dropout(0.5)(x, training=False), x)
    np.testing.assert_array_equal(Dropout(0.0)(x, training=True), x)


def test_a_rate_that_rounds_to_1_keeps_a_few():
    y = Dropout(1.0 - 1e-9, generator())(np.ones(1_000_000, "float32"), training=True).numpy()
    np.testing.assert_array_equal(np.unique(y), [0.0, 65536.0])


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_rate_out_of_range(rate):
    with pytest.raises(ValueError, match=f"must be at least 0 and less than 1, got {rate}"):
        Dropout(rate)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_dynamic_shape_in_a_graph_equals_eager(jit_compile):
    spec = tf.TensorSpec((3, 5) if jit_compile else (None, None), tf.float32)
    layer = Dropout(0.5, generator())
    state = layer.seed_generator.state

    @tf.function(input_signature=[spec], jit_compile=jit_compile)
    def in_graph(x):
        with keras.StatelessScope(state_mapping=[(state, tf.constant([3, 4], tf.int64))]):
            return layer(x, training=True)

    x = np.ones((3, 5), "float32")
    with keras.StatelessScope(state_mapping=[(state, tf.constant([3, 4], tf.int64))]):
        eager = layer(x, training=True)
    np.testing.assert_array_equal(in_graph(x), eager)


def test_gradient_has_the_mask_of_the_values():
    x = tf.ones((1000,))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = Dropout(0.5, generator())(x, training=True)
    np.testing.assert_array_equal(tape.gradient(y, x), y)


def test_a_model_has_one_seed_and_is_a_function_of_it():
    model = made(BertPretrainer)
    (seed,) = seed_variables(model)
    before = seed.numpy()
    batch = make_batch()

    def logits(value):
        with keras.StatelessScope(state_mapping=[(seed, value)]):
            return model(batch, training=True)["masked_lm_logits"]

    first = logits(tf.constant([1, 0], tf.int64)).numpy()
    np.testing.assert_array_equal(logits(tf.constant([1, 0], tf.int64)), first)
    assert np.abs(logits(tf.constant([2, 0], tf.int64)) - first).max() > 1e-3
    np.testing.assert_array_equal(seed.numpy(), before)  # nothing to save


@pytest.mark.parametrize(
    ("model_class", "arguments", "own"),
    [
        (BertPretrainer, {}, 0),
        (BertClassifier, {"num_classes": 3}, 1),  # in front of the classifier
        (BertSpanPredictor, {}, 0),  # nothing is dropped in front of the dense layer
    ],
)
def test_every_dropout_of_a_model_draws_its_own_seed(model_class, arguments, own):
    model = made(model_class, **arguments)
    (seed,) = seed_variables(model)
    with keras.StatelessScope(state_mapping=[(seed, tf.constant([1, 0], tf.int64))]) as scope:
        model(make_batch(), training=True)
    # embeddings; attention weights, attention output and feed-forward output of each block
    np.testing.assert_array_equal(scope.get_current_value(seed), [1, 1 + 3 * 2 + own])


def test_a_model_without_dropout_still_has_its_seed():
    config = dataclasses.replace(TINY, hidden_dropout_prob=0.0)
    assert len(seed_variables(BertPretrainer(config))) == 1
