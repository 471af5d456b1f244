import itertools
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.pretraining.pools import PoolPlan, pool_batches

SIZES = [3, 0, 5, 1]  # number of rows in each pool of an epoch


def _make_rows(epoch, pool, order):
    """Creates rows that encode their cursor: 1000 epochs + 100 pools + rows."""
    rows = 1000 * order[0] + 100 * pool + tf.range(tf.gather(SIZES, pool), dtype=tf.int64)
    return {"input_word_ids": tf.ensure_shape(rows[:, None], [None, 1])}


def _expected(epochs):
    return [
        (epoch, pool, row)
        for epoch in epochs
        for pool, size in enumerate(SIZES)
        for row in range(size)
    ]


def _batches(batch_size, **options):
    options.setdefault("drop_remainder", False)

    def make_order(epoch):
        return tf.stack([epoch, 5])

    return pool_batches(_make_rows, make_order, num_pools=4, batch_size=batch_size, **options)


def _cursors(dataset):
    """Returns the cursors of rows, after comparing them with the rows."""
    batches = list(dataset)
    cursors = np.concatenate([np.zeros((0, 3), int), *(batch["cursor"] for batch in batches)])
    rows = [batch["input_word_ids"][:, 0] for batch in batches]
    np.testing.assert_array_equal(np.concatenate([np.zeros(0), *rows]), cursors @ [1000, 100, 1])
    return list(map(tuple, cursors.tolist()))


@pytest.mark.parametrize(("batch_size", "parallel"), [(1, 3), (4, 3), (100, 1)])
def test_row_order_does_not_depend_on_batch_size_or_threads(batch_size, parallel):
    batches = list(_batches(batch_size, num_epochs=3, num_parallel_calls=parallel))
    assert _cursors(batches) == _expected(range(3))
    sizes = [len(batch["cursor"]) for batch in batches]
    assert sizes[:-1] == [batch_size] * (len(sizes) - 1)


def test_resumes_at_any_row():
    expected = _expected(range(2))
    # Within a pool, and in the last pool of an epoch.
    for done in (1, 8):
        assert _cursors(_batches(2, start=expected[done], num_epochs=2)) == expected[done:]
    # The last row of a pool precedes the first row of the next one, which may be empty.
    assert _cursors(_batches(2, start=(0, 0, 3), num_epochs=2)) == expected[3:]


def test_repeated_full_and_padded_final_batches():
    assert _cursors(_batches(4).take(20)) == _expected(range(9))[:80]
    dataset = _batches(4, num_epochs=1, drop_remainder=True)
    assert dataset.element_spec["cursor"] == tf.TensorSpec([4, 3], tf.int32)
    assert _cursors(dataset) == _expected(range(1))[:8]
    dataset = _batches(4, num_epochs=1, pad_final_batch=True, drop_remainder=True)
    assert dataset.element_spec["cursor"] == tf.TensorSpec([4, 3], tf.int32)
    *_, last = dataset.as_numpy_iterator()
    assert last["cursor"].tolist() == [[0, 3, 0], [-1] * 3, [-1] * 3, [-1] * 3]
    assert last["input_word_ids"].tolist() == [[300], [0], [0], [0]]


def test_shards_partition_every_epoch():
    num_shards = 5  # for four pools per epoch
    shared = [
        {"num_epochs": 5, "shard_index": i, "num_shards": num_shards} for i in range(num_shards)
    ]
    shards = [_cursors(_batches(2, **options)) for options in shared]
    assert sorted([*itertools.chain(*shards)]) == _expected(range(5))
    for index, shard in enumerate(shards):
        assert {(4 * epoch + pool) % num_shards for epoch, pool, _ in shard} == {index}
    # A resumed shard continues with its own rows.
    assert _cursors(_batches(3, start=shards[1][5], **shared[1])) == shards[1][5:]


def test_changed_number_of_shards_reads_remaining_rows_once():
    positions, read = [], []
    for num_shards in (2, 3, 1):
        cursors = []
        for index in range(num_shards):
            shard = {"shard_index": index, "num_shards": num_shards, "num_epochs": 4}
            dataset = _batches(1, start=positions or (0, 0, 0), **shard)
            # Shards are not in step, because the sizes of pools differ.
            rows = _cursors(dataset if num_shards == 1 else dataset.take(3 + index))
            read += rows
            cursors.append((*rows[-1][:2], rows[-1][2] + 1) if rows else (3, 3, 9))
        positions.append(cursors)
    assert sorted(read) == _expected(range(4))


def test_every_epoch_has_every_block_once_in_new_order():
    plan = PoolPlan(num_blocks=23, num_pools=5)
    epochs = []
    for epoch in range(3):
        order = plan.order(1, epoch)
        pools = [plan.pool_blocks(order, pool).numpy().tolist() for pool in range(5)]
        assert [len(pool) for pool in pools] == [4, 5, 4, 5, 5]
        epochs.append([*itertools.chain(*pools)])
        assert sorted(epochs[-1]) == list(range(23))
    assert epochs[0] != epochs[1] != epochs[2]
    assert plan.order(2, 0)[:4].numpy().tolist() != epochs[0][:4]


SHARD = "shard_index=2: expected 0 to 1, as num_shards is 2."
START = (
    "start={}: expected non-negative (epoch, pool, row) with pool below 4. Use the same corpus "
    "and blocks_per_pool as before."
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size: expected at least 1, got 0."),
        ({"num_shards": 0}, "num_shards: expected at least 1, got 0."),
        ({"num_shards": 2, "shard_index": 2}, SHARD),
        ({"num_epochs": 0}, "num_epochs: expected at least 1, got 0."),
        *(({"start": start}, START.format(start)) for start in ((0, 4, 0), (0, 0, -1))),
    ],
)
def test_invalid_arguments_raise_error(options, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        _batches(**{"batch_size": 2, **options})
