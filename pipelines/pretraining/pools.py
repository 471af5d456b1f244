"""Pools of rows to batches: order, sharding, resuming.

An epoch is a fixed number of *pools*; a pool is a set of rows that is made at once, and depends on
the seed, the epoch and the pool's number only. This module turns "make that pool's rows" into a
dataset of batches that starts at any row.
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
# What was read before: of each number of shards that read, the cursor behind what each has read.
ReadCursors = Sequence[Sequence[Cursor]]


class Batching(TypedDict, total=False):
    """Options of ``pool_batches``, which datasets of every kind take."""

    batch_size: Required[int]  # B, rows in a batch, on this host
    start: Cursor | ReadCursors  # the first row, (0, 0, 0) by default
    num_epochs: int | None  # the epoch to end before; None, the default, for never
    shard_index: int  # this host's number
    num_shards: int  # how many hosts share the pools: this one has every num_shards-th
    drop_remainder: bool  # leave out a last, smaller batch, as is done by default; B is then static
    # Fill a last, smaller batch with rows that are all 0 (mask and weights too) and whose cursor is
    # -1; B is then static. Such rows must be given no weight.
    pad_final_batch: bool
    num_parallel_calls: int | None  # pools made at once; by default one per processor, at most four


# Pools made at once: enough to keep the largest hosts' accelerators busy, and a bound on memory.
_MAX_PARALLEL_POOLS = 4


@dataclasses.dataclass(frozen=True)
class PoolPlan:
    """Shares an epoch's blocks out among its pools, in a fresh order, evenly.

    There are from 1 to ``num_blocks`` pools.
    """

    num_blocks: int
    num_pools: int

    def order(self, seed: tf.Tensor | int, epoch: tf.Tensor | int) -> tf.Tensor:
        """The order of an epoch's blocks, (num_blocks,) int32; a million take 0.2 seconds."""
        return permutation(self.num_blocks, fold(seed, Operation.BLOCK_ORDER, epoch))

    def pool_blocks(self, order: tf.Tensor, pool: tf.Tensor | int) -> tf.Tensor:
        """Lists a pool's blocks, an int64 vector: of one length or, in some pools, one more."""
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
    """Makes a dataset of batches from a function that makes one pool's rows.

    Pools are numbered through the epochs; shard i has every ``num_shards``-th of them, from the
    i-th on. The rows of a shard follow each other without regard to pools and epochs, so that only
    the very last batch of a finite dataset can be smaller.

    ``make_rows`` takes (epoch, pool, order), two scalar int64 and what ``make_order`` returns for
    the epoch, once for all its pools; it returns features with a common first dimension, to which
    the dataset adds ``cursor``, (B, 3) int32. Both run in the graph, ``make_rows`` for several
    pools at a time, and are not converted by AutoGraph. ``start`` is the (epoch, pool, row) of the
    first row wanted; a row beyond its pool's last stands for the first one of the shard's next
    pool, so that one resumes after row r with r + 1. Where n shards read before, it is ``[[cursor
    of shard 0, ..., of shard n - 1]]``, and any other number of shards go on with the rows that are
    left; where their number changed more than once, it is such a list for each number. The other
    arguments are ``Batching``.
    """
    check_at_least("batch_size", batch_size, 1)
    check_at_least("num_shards", num_shards, 1)
    if not 0 <= shard_index < num_shards:
        raise ValueError(
            f"shard_index: expected 0 to {num_shards - 1} (num_shards is {num_shards}); "
            f"got {shard_index}."
        )
    if num_epochs is not None:
        check_at_least("num_epochs", num_epochs, 1)
    reached = [
        [_pool_and_row(cursor, num_pools) for cursor in shards] for shards in _as_lists(start)
    ]
    # The first pool that no list of shards has read whole.
    first = max(min(pool for pool, _ in shards) for shards in reached)
    begin = first + (shard_index - first) % num_shards
    end = tf.int64.max // num_pools if num_epochs is None else num_epochs

    # Nothing here or below needs AutoGraph, whose first conversion takes seconds.
    @tf.autograph.experimental.do_not_convert
    def make_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        order = make_order(epoch)
        # The first pool of the epoch that is this shard's, and none before the start.
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
    # The shards are pools; tf.data must not cut a second time.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)


def _as_lists(start: Cursor | ReadCursors) -> ReadCursors:
    return [[cast(Cursor, start)]] if isinstance(start[0], int) else cast(ReadCursors, start)


def _pool_and_row(cursor: Cursor, num_pools: int) -> tuple[int, int]:
    """The cursor's pool, numbered through the epochs, and its row."""
    epoch, pool, row = (int(number) for number in cursor)
    if min(epoch, pool, row) < 0 or pool >= num_pools:
        raise ValueError(
            f"start: expected (epoch, pool, row), none negative and pool below {num_pools}, the "
            f"pools of an epoch; got {(epoch, pool, row)}: it belongs to another corpus or "
            "another blocks_per_pool."
        )
    return epoch * num_pools + pool, row


def _rows_read(number: tf.Tensor, shards: Sequence[tuple[int, int]]) -> tf.Tensor:
    """Number of a pool's rows that its shard had read, one of the shards that read together."""
    pools, rows = tf.unstack(tf.constant(shards, tf.int64), axis=1)
    shard = number % len(shards)
    all_rows = tf.constant(tf.int32.max, tf.int64)
    rows_in_last = tf.where(number == pools[shard], rows[shard], 0)
    return tf.where(number < pools[shard], all_rows, rows_in_last)


@tf.autograph.experimental.do_not_convert
def _padded(batch: dict[str, tf.Tensor], batch_size: int) -> dict[str, tf.Tensor]:
    """Fills a batch up to its size: 0 in every feature, -1 in the cursor."""
    padded = {}
    for key, value in batch.items():
        missing = batch_size - tf.shape(value)[0]
        paddings = [[0, missing]] + [[0, 0]] * (value.shape.rank - 1)
        filled = tf.pad(value, paddings, constant_values=-1 if key == features.CURSOR else 0)
        padded[key] = tf.ensure_shape(filled, [batch_size, *value.shape[1:]])
    return padded
