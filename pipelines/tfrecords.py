"""Google's pre-training TFRecords: read with the promises of ``pretraining_dataset``, and written.

A record is as google-research/bert's ``create_pretraining_data.py`` writes it: int64 lists
``input_ids``, ``input_mask``, ``segment_ids`` (S values), ``masked_lm_positions``,
``masked_lm_ids`` (P values), ``next_sentence_labels`` (1 value), and the float list
``masked_lm_weights`` (P values). The rows of a record are what they were when it was written: an
epoch changes their order alone.
"""

import contextlib
import hashlib
import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.files import whole_file
from bert_tf.untrusted import listed

from .pools import Cursor, PoolPlan, Reached, pool_batches
from .randomness import Operation, fold, permutation
from .record_files import GOOGLE_NAMES, Records, open_records


def _serialize_row(row: Mapping[str, np.ndarray]) -> bytes:
    """Makes one row, features of a vector each, a serialised ``tf.train.Example``."""
    example = tf.train.Example()
    for key, values in row.items():
        feature = example.features.feature[GOOGLE_NAMES[key]]
        if values.dtype == np.float32:
            feature.float_list.value.extend(values.tolist())
        else:
            feature.int64_list.value.extend(values.tolist())
    record: bytes = example.SerializeToString(deterministic=True)
    return record


def _parse_records(
    records: tf.Tensor, max_seq_length: int, max_predictions_per_seq: int
) -> dict[str, tf.Tensor]:
    """Parses (R,) records, in-graph: the contract's features, of R rows."""
    stored = {"int32": tf.int64, "float32": tf.float32}
    sizes = _feature_sizes(max_seq_length, max_predictions_per_seq)
    parsed = tf.io.parse_example(
        records,
        {
            GOOGLE_NAMES[key]: tf.io.FixedLenFeature(
                [] if kind.dimensions == "B" else [sizes[key]], stored[kind.dtype]
            )
            for key, kind in features.PRETRAINING_FEATURES.items()
        },
    )
    return {
        key: tf.cast(parsed[GOOGLE_NAMES[key]], kind.dtype)
        for key, kind in features.PRETRAINING_FEATURES.items()
    }


def _feature_sizes(max_seq_length: int, max_predictions_per_seq: int) -> dict[str, int]:
    """Number of values of each of the contract's features in a record."""
    sizes = {"BS": max_seq_length, "BP": max_predictions_per_seq, "B": 1}
    return {key: sizes[kind.dimensions] for key, kind in features.PRETRAINING_FEATURES.items()}


# A pool is read and shuffled at once.
_BLOCKS_PER_POOL = 16


def tfrecord_dataset(
    files: str | Sequence[str] | Records,
    *,
    batch_size: int,
    max_seq_length: int = 128,
    max_predictions_per_seq: int = 20,
    seed: int = 0,
    start: Cursor | Reached = (0, 0, 0),
    num_epochs: int | None = None,
    shard_index: int = 0,
    num_shards: int = 1,
    drop_remainder: bool = True,
    pad_final_batch: bool = False,
    num_parallel_calls: int | None = None,
) -> tf.data.Dataset:
    """Reads Google's pre-training TFRecords, in another order in every epoch.

    The order depends on ``seed`` and on the files in the order of their names, and the dataset
    can start at any row, as ``pretraining.pretraining_dataset`` does and says. Blocks of 1,024
    records are read in random order; a pool is sixteen of them, its rows in random order. Where
    the records begin is found by reading every file once, see ``record_files.open_records``.

    Args:
        files: globs, in a list or separated by commas, on any file system of TensorFlow; or what
            ``record_files.open_records`` found, which can keep it.
        batch_size: B.
        max_seq_length: S, what the records were written for.
        max_predictions_per_seq: P, what the records were written for.
        seed: any integer of 64 bits.
        start: (epoch, pool, row) of the first row; or what some number of shards have read, the
            cursor behind the last row of each, ``[[cursor, ...]]``: see ``pools.pool_batches``.
        num_epochs: the epoch to end before; ``None`` for never.
        shard_index: this host's number.
        num_shards: how many hosts share the pools.
        drop_remainder: leave out a last, smaller batch.
        pad_final_batch: fill a last, smaller batch with rows of zeros.
        num_parallel_calls: how many pools are made at once.

    Returns:
        A dataset of ``features.PRETRAINING_FEATURES`` and ``cursor``.

    Raises:
        ValueError: no file matches, a file is cut short or holds no such records, or an argument
            is out of its range.
    """
    records = files if isinstance(files, Records) else open_records(files)
    records.check_sizes(_feature_sizes(max_seq_length, max_predictions_per_seq))
    paths = [file.path for file in records.files]
    owners, offsets, sizes = records.blocks
    plan = PoolPlan(sizes.size, math.ceil(sizes.size / _BLOCKS_PER_POOL))

    def make_rows(epoch: tf.Tensor, pool: tf.Tensor, blocks: tf.Tensor) -> dict[str, tf.Tensor]:
        numbers = plan.blocks_of(blocks, pool)
        records = _read_blocks(
            tf.gather(tf.constant(paths), tf.gather(tf.constant(owners), numbers)),
            tf.gather(tf.constant(offsets), numbers),
            tf.gather(tf.constant(sizes), numbers),
        )
        order = permutation(
            tf.size(records), fold(seed, Operation.POOL, epoch, pool, Operation.ROW_ORDER)
        )
        return _parse_records(tf.gather(records, order), max_seq_length, max_predictions_per_seq)

    return pool_batches(
        make_rows,
        lambda epoch: plan.order(seed, epoch),
        num_pools=plan.num_pools,
        batch_size=batch_size,
        start=start,
        num_epochs=num_epochs,
        shard_index=shard_index,
        num_shards=num_shards,
        drop_remainder=drop_remainder,
        pad_final_batch=pad_final_batch,
        num_parallel_calls=num_parallel_calls,
    )


def write_tfrecords(
    batches: Iterable[Mapping[str, Any]], files: str | Sequence[str], *, are_new: bool = False
) -> int:
    """Writes pre-training batches as TFRecords that Google's ``run_pretraining.py`` reads.

    Row i goes to file i modulo their number. The files appear under their names when all is
    written.

    Args:
        batches: of ``features.PRETRAINING_FEATURES``, such as a finite ``pretraining_dataset``;
            rows of padding (``input_mask`` all 0) are left out.
        files: one path, or several.
        are_new: files that are there, or come in between, are an error and stay.

    Returns:
        The number of rows written.

    Raises:
        ValueError: there is no file, one is named twice, or a batch breaks the contract.
    """
    paths = [files] if isinstance(files, str) else list(files)
    if not paths:
        raise ValueError("files: expected one path at least to write to; got none.")
    if len(set(paths)) < len(paths):
        raise ValueError(f"files: expected each file once; got {listed(paths)}.")
    written = 0
    with contextlib.ExitStack() as stack:
        # The stack closes the writers before the files take their names.
        temporary = [stack.enter_context(whole_file(path, is_new=are_new)) for path in paths]
        writers = [stack.enter_context(tf.io.TFRecordWriter(path)) for path in temporary]
        for row in itertools.chain.from_iterable(map(_rows, batches)):
            writers[written % len(writers)].write(_serialize_row(row))
            written += 1
    return written


def fingerprint(records: Records) -> str:
    """Which files these are in 32 hexadecimal digits, which change with their names and sizes."""
    digest = hashlib.sha256()
    for file in records.files:
        digest.update(f"{os.path.basename(file.path)}\n{file.size}\n".encode())
    return digest.hexdigest()[:32]


def _read_blocks(paths: tf.Tensor, offsets: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    """Reads runs of records: for each, its file, where it begins, and how many records it has."""
    spec = tf.TensorSpec([], tf.string)
    records = tf.TensorArray(tf.string, tf.size(paths), element_shape=[None], infer_shape=False)

    def read_one(i: tf.Tensor, records: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        # The public TFRecordDataset has no argument for where to begin.
        variant = tf.raw_ops.TFRecordDatasetV2(
            filenames=paths[i][None],
            compression_type="",
            buffer_size=tf.constant(1 << 20, tf.int64),
            byte_offsets=offsets[i][None],
        )
        run = tf.data.experimental.from_variant(variant, spec).take(sizes[i]).batch(sizes[i])
        return i + 1, records.write(i, run.get_single_element())

    _, records = tf.while_loop(lambda i, _: i < tf.size(paths), read_one, (0, records))
    return records.concat()


def _rows(batch: Mapping[str, Any]) -> Iterable[dict[str, np.ndarray]]:
    """A batch's rows, without those of padding."""
    features.check_batch(batch, features.PRETRAINING_FEATURES)
    arrays = {key: np.asarray(batch[key]) for key in features.PRETRAINING_FEATURES}
    for row in np.flatnonzero(arrays[features.INPUT_MASK].any(axis=1)):
        yield {key: np.atleast_1d(value[row]) for key, value in arrays.items()}
