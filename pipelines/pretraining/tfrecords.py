"""Reads and writes Google's pre-training TFRecords; reading can resume at any row.

Records have the format of google-research/bert, ``create_pretraining_data.py``: int64 lists
``input_ids``, ``input_mask``, ``segment_ids`` (S values), ``masked_lm_positions``,
``masked_lm_ids`` (P values), ``next_sentence_labels`` (1 value), and the float list
``masked_lm_weights`` (P values). Rows were masked when written, so epochs differ only in row order.

TFRecord files have no index: finding a record requires reading the lengths of all records before
it. The offsets of blocks of records are found once, and stored in a cache folder.
"""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import math
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Unpack

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from bert_tf import features
from bert_tf.io.files import atomic_path
from bert_tf.io.messages import listed
from bert_tf.io.paths import local_path
from bert_tf.pipelines.corpora import files as corpus_files
from bert_tf.pipelines.corpora.files import SourceFile, describe_file, in_threads
from bert_tf.pipelines.randomness import Operation, fold, permutation

from .pools import Batching, PoolPlan, pool_batches

#: Names of the features in Google's records.
GOOGLE_NAMES = {
    features.INPUT_WORD_IDS: "input_ids",
    features.INPUT_MASK: "input_mask",
    features.INPUT_TYPE_IDS: "segment_ids",
    features.MASKED_LM_POSITIONS: "masked_lm_positions",
    features.MASKED_LM_IDS: "masked_lm_ids",
    features.MASKED_LM_WEIGHTS: "masked_lm_weights",
    features.NEXT_SENTENCE_LABELS: "next_sentence_labels",
}

# Number of records per block, a run of records in one file.
_RECORDS_PER_BLOCK = 1024

# Number of blocks that are read and shuffled together, as a pool.
_BLOCKS_PER_POOL = 16

# A record consists of its length (8 bytes), a checksum (4), the data, and a checksum (4).
_LENGTH = struct.Struct("<Q")
_FRAME_BYTES = 16
# Longer reads of local files have a tenth of the throughput, because they allocate new memory.
_READ_BYTES, _REMOTE_READ_BYTES = 1 << 20, 1 << 24

# Increase this if the content of cached indexes changes.
_VERSION = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Records:
    """F TFRecord files, sorted by name, and their N blocks of records."""

    files: tuple[SourceFile, ...]
    counts: np.ndarray  # (F,) int64, number of records
    values: np.ndarray  # (F, 7) int64, value counts of GOOGLE_NAMES in the first record
    offsets: np.ndarray  # (N,) int64, start of each block in its file

    @functools.cached_property
    def blocks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """File index, start in bytes, and number of records of each block, (N,) int64."""
        per_file = _count_blocks(self.counts)
        owners = np.repeat(np.arange(len(self.files)), per_file)
        firsts = np.concatenate([np.arange(blocks) for blocks in per_file]) * _RECORDS_PER_BLOCK
        return owners, self.offsets, np.minimum(self.counts[owners] - firsts, _RECORDS_PER_BLOCK)

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Checks the number of values per feature, so that an error names the feature."""
        options = {"BS": "max_seq_length", "BP": "max_predictions_per_seq"}
        for file, records, values in zip(self.files, self.counts, self.values, strict=True):
            for key, count in zip(GOOGLE_NAMES, values, strict=True):
                if records and count != sizes[key]:
                    spec = features.PRETRAINING_FEATURES[key]
                    option = options.get(spec.dimensions)
                    advice = f". Pass {option}={count}, or --{option}={count}" if option else ""
                    raise ValueError(
                        f"{file.path}: expected {sizes[key]} values of type {_list_type(spec)} in "
                        f"feature {GOOGLE_NAMES[key]!r} of the first record, got {count}{advice}."
                    )


def _count_blocks(counts: np.ndarray) -> np.ndarray:
    """Returns the numbers of blocks of files with ``counts`` records."""
    return -(-counts // _RECORDS_PER_BLOCK)


def open_records(files: str | Sequence[str], cache_dir: str | None = None) -> Records:
    """Finds the records of TFRecord files.

    Args:
        files: Globs, in a list or with commas, on any TensorFlow file system.
        cache_dir: Folder that stores the index for all processes, with a few bytes per 1,000
            records; by default, only this process caches the index.

    Returns:
        The ``Records``.

    Raises:
        ValueError: If no file matches, a file is incomplete, its first record is not a
            pre-training example, or there are no records.
    """
    patterns = files.split(",") if isinstance(files, str) else files
    return _open(tuple(in_threads(describe_file, match_files(patterns))), cache_dir)


# Caches recent indexes for calls without a cache folder.
@functools.lru_cache(maxsize=16)
def _open(files: tuple[SourceFile, ...], cache_dir: str | None) -> Records:
    key = corpus_files.digest("records", _VERSION, _RECORDS_PER_BLOCK, files)
    path = None if cache_dir is None else os.path.join(cache_dir, f"index-{key}.npz")
    records = None if path is None else _load(path, files)
    if records is None:
        counts, values, offsets = zip(*in_threads(_index_file, files), strict=True)
        arrays = {
            "counts": np.array(counts, np.int64),
            "values": np.array(values, np.int64),
            "offsets": np.concatenate(offsets),
        }
        records = Records(files, **arrays)
        if path is not None:
            corpus_files.save_arrays(path, arrays)
    if not records.counts.any():
        names = ", ".join(file.path for file in files)
        raise ValueError(f"No records in {names}. Pass files of pre-training examples.")
    return records


def _load(path: str, files: tuple[SourceFile, ...]) -> Records | None:
    """Loads the index of files; returns ``None`` if it is missing or does not match."""
    arrays = corpus_files.load_arrays(path)
    if arrays is None:
        return None
    try:
        records = Records(files, **arrays)
        per_file = _count_blocks(records.counts)
        fits_files = (
            {array.dtype for array in arrays.values()} == {np.dtype(np.int64)}
            and records.counts.shape == (len(files),)
            and records.values.shape == (len(files), len(GOOGLE_NAMES))
            and 0 <= per_file.min() <= per_file.max() <= len(records.offsets) == per_file.sum()
        )
        limits = np.repeat([file.size for file in files], per_file) if fits_files else np.zeros(0)
        inside = (records.offsets >= 0) & (records.offsets < limits)
    except corpus_files.ERRORS:
        return None
    return records if fits_files and inside.all() else None


def match_files(patterns: Sequence[str]) -> list[str]:
    """Lists the files that globs match, sorted and without duplicates."""
    paths: set[str] = set()
    for pattern, matches in zip(patterns, in_threads(tf.io.gfile.glob, patterns), strict=True):
        if not matches:
            raise ValueError(f"No file matches {pattern!r}. Pass TFRecord files.")
        paths.update(matches)
    return sorted(paths)


def _index_file(file: SourceFile) -> tuple[int, tuple[int, ...], np.ndarray]:
    """Returns a file's number of records, value counts of the first record, and block offsets."""
    path, size = file.path, file.size
    limit = _REMOTE_READ_BYTES if local_path(path) is None else _READ_BYTES
    unpack = _LENGTH.unpack_from
    offsets, count, offset, start = list[int](), 0, 0, 0
    with tf.io.gfile.GFile(path, "rb") as stream:
        while offset < size:
            stream.seek(offset)
            # With padding, a file that ends within a length raises the error for incomplete files.
            data = stream.read(limit).ljust(_LENGTH.size, b"\0")
            position, last = 0, len(data) - _LENGTH.size
            while position <= last:
                if not count % _RECORDS_PER_BLOCK:
                    offsets.append(offset + position)
                count += 1
                start = position
                position += _FRAME_BYTES + unpack(data, position)[0]
            start, offset = offset + start, offset + position
        if offset > size:
            raise ValueError(
                f"{path}: record {count - 1}, at byte {start}, ends at byte {offset}, but the file "
                f"has only {size} bytes. Pass complete, uncompressed TFRecord files."
            )
        values = (0,) * len(GOOGLE_NAMES)
        if count:
            stream.seek(0)
            (length,) = unpack(stream.read(_LENGTH.size))
            values = _count_values(stream.read(4 + length)[4:], path)
    return count, values, np.array(offsets, np.int64)


def _count_values(record: bytes, path: str) -> tuple[int, ...]:
    """Returns the number of values of each feature in a file's first record."""
    try:
        example = tf.train.Example.FromString(record)
    except DecodeError as error:
        raise ValueError(
            f"{path}: the first record is not a tf.train.Example ({error})."
        ) from error
    stored = example.features.feature
    if missing := [name for name in GOOGLE_NAMES.values() if name not in stored]:
        raise ValueError(
            f"{path}: the records have no feature {missing[0]!r}: expected "
            f"{', '.join(GOOGLE_NAMES.values())}, got {listed(sorted(stored))}."
        )
    specs = {key: _list_type(features.PRETRAINING_FEATURES[key]) for key in GOOGLE_NAMES}
    lists = (getattr(stored[GOOGLE_NAMES[key]], f"{spec}_list") for key, spec in specs.items())
    return tuple(len(values.value) for values in lists)


def _list_type(spec: features.Feature) -> str:
    return "float" if spec.dtype == "float32" else "int64"


def fingerprint(records: Records) -> str:
    """Returns a fingerprint of 32 hexadecimal digits for the names and sizes of files."""
    digest = hashlib.sha256()
    for file in records.files:
        digest.update(f"{os.path.basename(file.path)}\n{file.size}\n".encode())
    return digest.hexdigest()[:32]


# === Reading ===


def tfrecord_dataset(
    files: str | Sequence[str] | Records,
    *,
    max_seq_length: int = 128,
    max_predictions_per_seq: int = 20,
    seed: int = 0,
    **batching: Unpack[Batching],
) -> tf.data.Dataset:
    """Reads Google's pre-training TFRecords, in a different order in every epoch.

    The order depends on ``seed`` and on the files, sorted by name. Blocks of 1,024 records are read
    in random order. A pool consists of 16 blocks, with its rows in random order.

    Args:
        files: Globs, in a list or with commas, on any TensorFlow file system, or the result of
            ``open_records``.
        max_seq_length: Number of tokens per row, S, in the records.
        max_predictions_per_seq: Number of predictions per row, P, in the records.
        seed: 64-bit integer.
        **batching: As for ``pretraining.pretraining_dataset``.

    Returns:
        A dataset with the elements of ``pretraining.pretraining_dataset``.

    Raises:
        ValueError: If no file matches, or if a file, a record or an argument is invalid.
    """
    records = files if isinstance(files, Records) else open_records(files)
    counts = {"BS": max_seq_length, "BP": max_predictions_per_seq, "B": 1}
    specs = features.PRETRAINING_FEATURES
    value_counts = {key: counts[spec.dimensions] for key, spec in specs.items()}
    records.check_sizes(value_counts)
    paths = [file.path for file in records.files]
    owners, offsets, sizes = records.blocks
    plan = PoolPlan(sizes.size, math.ceil(sizes.size / _BLOCKS_PER_POOL))

    def make_rows(epoch: tf.Tensor, pool: tf.Tensor, blocks: tf.Tensor) -> dict[str, tf.Tensor]:
        numbers = plan.pool_blocks(blocks, pool)
        records = _read_blocks(
            tf.gather(tf.constant(paths), tf.gather(tf.constant(owners), numbers)),
            tf.gather(tf.constant(offsets), numbers),
            tf.gather(tf.constant(sizes), numbers),
        )
        order = permutation(
            tf.size(records), fold(seed, Operation.POOL, epoch, pool, Operation.ROW_ORDER)
        )
        return _parse_records(tf.gather(records, order), value_counts)

    return pool_batches(
        make_rows,
        lambda epoch: plan.order(seed, epoch),
        num_pools=plan.num_pools,
        **batching,
    )


def _parse_records(records: tf.Tensor, sizes: Mapping[str, int]) -> dict[str, tf.Tensor]:
    """Parses (R,) records, with ``sizes`` values per feature, into the features of R rows."""
    specs = {
        GOOGLE_NAMES[key]: tf.io.FixedLenFeature(
            [] if spec.dimensions == "B" else [sizes[key]],
            tf.float32 if spec.dtype == "float32" else tf.int64,
        )
        for key, spec in features.PRETRAINING_FEATURES.items()
    }
    parsed = tf.io.parse_example(records, specs)
    return {
        key: tf.cast(parsed[GOOGLE_NAMES[key]], spec.dtype)
        for key, spec in features.PRETRAINING_FEATURES.items()
    }


def _read_blocks(paths: tf.Tensor, offsets: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    """Reads runs of records, given the file, start and number of records of each run."""
    spec = tf.TensorSpec([], tf.string)
    records = tf.TensorArray(tf.string, tf.size(paths), element_shape=[None], infer_shape=False)

    def read_one(i: tf.Tensor, records: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        # The public TFRecordDataset has no argument for the start.
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


# === Writing ===


def write_tfrecords(
    batches: Iterable[Mapping[str, Any]], files: str | Sequence[str], *, are_new: bool = False
) -> int:
    """Writes pre-training batches as TFRecords for Google's ``run_pretraining.py``.

    Files are written atomically. Rows of padding (``input_mask`` all 0) are dropped.

    Args:
        batches: Batches of ``features.PRETRAINING_FEATURES``, such as a finite
            ``pretraining_dataset``.
        files: One path, or several to which rows are written in turn.
        are_new: Whether existing files raise an error, instead of being replaced.

    Returns:
        The number of rows.

    Raises:
        ValueError: If there are no files, a file is repeated, or a batch is invalid.
    """
    paths = [files] if isinstance(files, str) else list(files)
    if not paths:
        raise ValueError("files: expected at least one path, got none.")
    if len(set(paths)) < len(paths):
        raise ValueError(f"files: expected each file once, got {listed(paths)}.")
    written = 0
    with contextlib.ExitStack() as stack:
        # The stack closes the writers before the files are renamed.
        temporary = [stack.enter_context(atomic_path(path, is_new=are_new)) for path in paths]
        writers = [stack.enter_context(tf.io.TFRecordWriter(path)) for path in temporary]
        for record in itertools.chain.from_iterable(map(_records, batches)):
            writers[written % len(writers)].write(record)
            written += 1
    return written


def _records(batch: Mapping[str, Any]) -> Iterator[bytes]:
    """Serializes the rows of a batch as ``tf.train.Example``, without padding."""
    features.check_batch(batch, features.PRETRAINING_FEATURES)
    arrays = {key: np.asarray(batch[key]) for key in features.PRETRAINING_FEATURES}
    for row in np.flatnonzero(arrays[features.INPUT_MASK].any(axis=1)):
        example = tf.train.Example()
        for key, values in arrays.items():
            feature = example.features.feature[GOOGLE_NAMES[key]]
            stored = feature.float_list if values.dtype == np.float32 else feature.int64_list
            stored.value.extend(np.atleast_1d(values[row]).tolist())
        yield example.SerializeToString(deterministic=True)
