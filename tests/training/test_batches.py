"""What a training dataset has to look like."""

import pytest

from bert_tf import features
from bert_tf.training import batches

from .conftest import batches_dataset, random_batch


def test_model_inputs_leave_the_labels_out():
    assert sorted(batches.model_inputs(random_batch(0))) == [
        "input_mask", "input_type_ids", "input_word_ids", "masked_lm_positions"
    ]  # fmt: skip


def test_a_static_dataset_is_accepted():
    batches.check_static_batches(batches_dataset(1, rows=8), num_replicas=2, micro_batches=4)


def test_a_missing_cursor_is_named():
    dataset = batches_dataset(1).map(lambda b: {k: b[k] for k in features.PRETRAINING_FEATURES})
    with pytest.raises(ValueError, match="The batch has no 'cursor'"):
        batches.check_static_batches(dataset)


def test_an_unknown_number_of_rows_is_refused():
    dataset = batches_dataset(1).unbatch().batch(8)
    message = r"Feature '\w+' has the shape \(None, .*drop_remainder=True, or fill the last"
    with pytest.raises(ValueError, match=message):
        batches.check_static_batches(dataset)


def test_rows_that_cannot_be_shared_equally_are_refused():
    message = (
        "A batch of 8 rows cannot be shared equally by 2 replicas with 3 micro-batches each: "
        "choose a multiple of 6."
    )
    with pytest.raises(ValueError, match=message):
        batches.check_static_batches(batches_dataset(1, rows=8), 2, 3)
