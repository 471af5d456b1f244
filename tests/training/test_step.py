"""The step's parts: what it asks of its batches, and its dropout seeds."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.training import pretraining
from bert_tf.training.input_pipelines import check_static_batches
from bert_tf.training.step import dropout_seeds

from .conftest import batches_dataset, random_batch


def test_model_inputs_leave_the_labels_out():
    assert sorted(pretraining.model_inputs(random_batch(0))) == [
        "input_mask", "input_type_ids", "input_word_ids", "masked_lm_positions"
    ]  # fmt: skip


def test_a_static_dataset_is_accepted():
    check_static_batches(batches_dataset(1, rows=8), num_replicas=2, micro_batches=4)


def test_a_missing_cursor_is_named():
    dataset = batches_dataset(1).map(lambda b: {k: b[k] for k in features.PRETRAINING_FEATURES})
    with pytest.raises(ValueError, match="The batch has no 'cursor'"):
        check_static_batches(dataset)


def test_an_unknown_number_of_rows_is_refused():
    dataset = batches_dataset(1).unbatch().batch(8)
    message = r"Feature '\w+' has the shape \(None, .*drop_remainder=True, or fill the last"
    with pytest.raises(ValueError, match=message):
        check_static_batches(dataset)


def test_rows_that_cannot_be_shared_equally_are_refused():
    message = (
        "A batch of 8 rows cannot be shared equally by 2 replicas with 3 micro-batches each: "
        "choose a multiple of 6."
    )
    with pytest.raises(ValueError, match=message):
        check_static_batches(batches_dataset(1, rows=8), 2, 3)


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
