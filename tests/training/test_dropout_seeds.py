"""Dropout seeds are a function of their arguments, and of nothing else."""

import itertools

import numpy as np
import tensorflow as tf

from bert_tf.training.dropout_seeds import dropout_seeds


def test_every_argument_changes_every_seed():
    drawn = {
        point: dropout_seeds(*point, 3).numpy()
        for point in itertools.product((0, 1, 1 << 31), (0, 1), (0, 1), (0, 1))
    }
    rows = [tuple(row) for seeds in drawn.values() for row in seeds]
    assert len(set(rows)) == len(rows) == 24 * 3


def test_equal_arguments_give_equal_seeds_eagerly_and_in_a_graph():
    traced = tf.function(lambda step: dropout_seeds(5, step, 1, 2, 2))
    expected = dropout_seeds(5, 9, 1, 2, 2).numpy()
    np.testing.assert_array_equal(traced(tf.constant(9, tf.int64)).numpy(), expected)
    assert expected.dtype == np.int64
    assert np.abs(expected).max() < 1 << 31


def test_a_model_without_dropout_takes_none():
    assert dropout_seeds(1, 2, 3, 4, 0).shape == (0, 2)
