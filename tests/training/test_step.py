"""The step's parts: what it asks of its batches, and its dropout seeds."""

import itertools

import pytest

from bert_tf.pretraining.objective import check_static_batches
from bert_tf.training.step import dropout_seeds

from .conftest import batches_dataset


@pytest.mark.parametrize(
    ("change", "shares", "message"),
    [
        (lambda batches: batches.map(lambda batch: {k: batch[k] for k in batch if k != "cursor"}),
         (1, 1), "The batch has no 'cursor'"),
        (lambda batches: batches.unbatch().batch(8), (1, 1),
         r"Feature '\w+' has the shape \(None, .*drop_remainder=True, or fill the last"),
        (lambda batches: batches, (2, 3), "A batch of 8 rows cannot be shared equally by 2 repli"
         "cas with 3 micro-batches each: choose a multiple of 6."),
    ],
)  # fmt: skip
def test_batches_that_a_step_cannot_take(change, shares, message):
    with pytest.raises(ValueError, match=message):
        check_static_batches(change(batches_dataset(1, rows=8)), *shares)


def test_every_argument_changes_every_seed():
    drawn = {
        point: dropout_seeds(*point, 3).numpy()
        for point in itertools.product((0, 1, 1 << 31), (0, 1), (0, 1), (0, 1))
    }
    rows = [tuple(row) for seeds in drawn.values() for row in seeds]
    assert len(set(rows)) == len(rows) == 24 * 3
