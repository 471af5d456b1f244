"""Creates resumable, sharded batches from pools of rows.

An epoch has a fixed number of pools. The rows of a pool are created together, and depend only on
the seed, the epoch and the pool's index. This module converts a function that creates the rows of a
pool into a dataset of batches that can start at any row.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Required, TypedDict, cast

import tensorflow as tf

from bert_tf import features
from bert_tf.io.runtime import usable_cores
from bert_tf.pipelines.packing import check_at_least
from bert_tf.pipelines.randomness import Operation, fold, permutation

Cursor = tuple[int, int, int]
# Cursors after the rows that each shard has read, one list per number of shards.
ReadCursors = Sequence[Sequence[Cursor]]


class Batching(TypedDict, total=False):
    """Options of ``pool_batches``, common to all datasets."""

    batch_size: Required[int]  # B, number of rows per batch on this host
    start: Cursor | ReadCursors  # first row, by default (0, 0, 0)
    num_epochs: int | None  # number of epochs, by default unlimited
    shard_index: int  # index of this host
    num_shards: int  # number of hosts; each reads every num_shards-th pool
    drop_remainder: bool  # drop a smaller last batch, by default True; B is then static
    # Pad a smaller last batch with rows in which all features, including mask and weights, are 0
    # and the cursor is -1; B is then static. The loss must ignore these rows.
    pad_final_batch: bool
    num_parallel_calls: int | None  # pools to create in parallel; by default one per core, up to 4


# Limits memory use, and is enough for the accelerators of the largest hosts.
_MAX_PARALLEL_POOLS = 4


@dataclasses.dataclass(frozen=True)
class PoolPlan:
    """Distributes an epoch's blocks evenly among 1 to ``num_blocks`` pools, in random order."""

    num_blocks: int
    num_pools: int

    def order(self, seed: tf.Tensor | int, epoch: tf.Tensor | int) -> tf.Tensor:
        """Returns the order of an epoch's blocks, (num_blocks,) int32."""
        return permutation(self.num_blocks, fold(seed, Operation.BLOCK_ORDER, epoch))

    def pool_blocks(self, order: tf.Tensor, pool: tf.Tensor | int) -> tf.Tensor:
        """Returns the blocks of a pool, an int64 vector; some pools have one block more."""
        pool = tf.cast(pool, tf.int64)
        begin = pool * self.num_blocks // self.num_pools
        end = (pool + 1) * self.num_blocks // self.num_pools
        return tf.cast(order[begin:end], tf.int64)


def pool_batches(
    make_rows: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Mapping[str, tf.Tensor]],
    make_order: Callable[[tf.Tensor], tf.Tensor],
    *,
    num_pools: int,
    batch_size: int,
    start: Cursor | ReadCursors = (0, 0, 0),
    num_epochs: int | None = None,
    shard_index: int = 0,
    num_shards: int = 1,
    drop_remainder: bool = True,
    pad_final_batch: bool = False,
    num_parallel_calls: int | None = None,
) -> tf.data.Dataset:
    """Creates a dataset of batches from a function that creates the rows of a pool.

    Pools are numbered consecutively over all epochs, and shard i reads every ``num_shards``-th pool
    from i on. Batches of a shard extend over pools and epochs, so only the last batch of a finite
    dataset may be smaller. Both functions run in the graph without AutoGraph; ``make_rows`` runs
    for several pools in parallel.

    Args:
        make_rows: Function that maps the epoch and the pool, scalar int64, and the epoch's order to
            features with a common first dimension.
        make_order: Function that maps the epoch to an order; called once per epoch.
        num_pools: Number of pools per epoch.
        batch_size: See ``Batching``.
        start: (epoch, pool, row) of the first row; to resume after row r, pass r + 1, even if the
            pool ends there. To continue after n shards with any number of shards, pass ``[[cursor
            of shard 0, ..., cursor of shard n - 1]]``; if the number of shards changed repeatedly,
            pass one list per number.
        num_epochs: See ``Batching``.
        shard_index: See ``Batching``.
        num_shards: See ``Batching``.
        drop_remainder: See ``Batching``.
        pad_final_batch: See ``Batching``.
        num_parallel_calls: See ``Batching``.

    Returns:
        A dataset of features and ``cursor``, `(B, 3)`, int32.

    Raises:
        ValueError: If an argument is out of range.
    """
    check_at_least("batch_size", batch_size, 1)
    check_at_least("num_shards", num_shards, 1)
    if not 0 <= shard_index < num_shards:
        raise ValueError(
            f"shard_index={shard_index}: expected 0 to {num_shards - 1}, as num_shards is "
            f"{num_shards}."
        )
    if num_epochs is not None:
        check_at_least("num_epochs", num_epochs, 1)
    reached = [
        [_pool_and_row(cursor, num_pools) for cursor in shards] for shards in _as_lists(start)
    ]
    # First pool that not all shards have read completely.
    first = max(min(pool for pool, _ in shards) for shards in reached)
    begin = first + (shard_index - first) % num_shards
    end = tf.int64.max // num_pools if num_epochs is None else num_epochs

    # Skips AutoGraph, whose first conversion takes seconds.
    @tf.autograph.experimental.do_not_convert
    def make_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        order = make_order(epoch)
        # First pool of this shard in the epoch that is not before the start.
        before = tf.maximum(epoch * num_pools - begin, 0)
        numbers = tf.data.Dataset.range(
            begin + -(-before // num_shards) * num_shards, (epoch + 1) * num_pools, num_shards
        )
        return tf.data.Dataset.zip((numbers, tf.data.Dataset.from_tensors(order).repeat()))

    @tf.autograph.experimental.do_not_convert
    def make_pool(number: tf.Tensor, order: tf.Tensor) -> dict[str, tf.Tensor]:
        epoch, pool = number // num_pools, number % num_pools
        rows = dict(make_rows(epoch, pool, order))
        count = tf.shape(rows[features.INPUT_WORD_IDS])[0]
        epochs = tf.fill([count], tf.cast(epoch, tf.int32))
        pools = tf.fill([count], tf.cast(pool, tf.int32))
        rows[features.CURSOR] = tf.stack([epochs, pools, tf.range(count)], axis=1)
        num_read = tf.reduce_max([_rows_read(number, shards) for shards in reached])
        return {key: value[num_read:] for key, value in rows.items()}

    parallel = num_parallel_calls or min(_MAX_PARALLEL_POOLS, usable_cores())
    dataset = tf.data.Dataset.range(begin // num_pools, end).flat_map(make_epoch)
    dataset = dataset.map(make_pool, num_parallel_calls=parallel, deterministic=True)
    dataset = dataset.rebatch(batch_size, drop_remainder=drop_remainder and not pad_final_batch)
    if pad_final_batch:
        dataset = dataset.map(lambda batch: _padded(batch, batch_size))
    options = tf.data.Options()
    # Pools are already sharded, so disable sharding by tf.data.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)


def _as_lists(start: Cursor | ReadCursors) -> ReadCursors:
    return [[cast(Cursor, start)]] if isinstance(start[0], int) else cast(ReadCursors, start)


def _pool_and_row(cursor: Cursor, num_pools: int) -> tuple[int, int]:
    """Returns a cursor's pool, numbered over all epochs, and row."""
    epoch, pool, row = (int(number) for number in cursor)
    if min(epoch, pool, row) < 0 or pool >= num_pools:
        raise ValueError(
            f"start={(epoch, pool, row)}: expected non-negative (epoch, pool, row) with pool below "
            f"{num_pools}. Use the same corpus and blocks_per_pool as before."
        )
    return epoch * num_pools + pool, row


def _rows_read(number: tf.Tensor, shards: Sequence[tuple[int, int]]) -> tf.Tensor:
    """Returns the number of rows of a pool that the pool's shard had read."""
    pools, rows = tf.unstack(tf.constant(shards, tf.int64), axis=1)
    shard = number % len(shards)
    all_rows = tf.constant(tf.int32.max, tf.int64)
    rows_in_last = tf.where(number == pools[shard], rows[shard], 0)
    return tf.where(number < pools[shard], all_rows, rows_in_last)


@tf.autograph.experimental.do_not_convert
def _padded(batch: dict[str, tf.Tensor], batch_size: int) -> dict[str, tf.Tensor]:
    """Pads a batch with 0 in every feature and -1 in the cursor."""
    padded = {}
    for key, value in batch.items():
        missing = batch_size - tf.shape(value)[0]
        paddings = [[0, missing]] + [[0, 0]] * (value.shape.rank - 1)
        filled = tf.pad(value, paddings, constant_values=-1 if key == features.CURSOR else 0)
        padded[key] = tf.ensure_shape(filled, [batch_size, *value.shape[1:]])
    return padded
