"""Google's pre-training TFRecords: read with the promises of ``pretraining_dataset``, and written.

A record is as google-research/bert's ``create_pretraining_data.py`` writes it: int64 lists
``input_ids``, ``input_mask``, ``segment_ids`` (S values), ``masked_lm_positions``,
``masked_lm_ids`` (P values), ``next_sentence_labels`` (1 value), and the float list
``masked_lm_weights`` (P values). The rows of a record are what they were when it was written: an
epoch changes their order alone.

A file has no table of its records: to find one means to follow their lengths from the first on, and
so to read the file. Where blocks of them begin is found once, and kept in one file of a cache
folder.
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
from bert_tf.io.paths import local_path
from bert_tf.io.wording import listed
from bert_tf.pipelines.corpora import files as corpus_files
from bert_tf.pipelines.corpora.files import SourceFile, describe_file, in_threads
from bert_tf.pipelines.randomness import Operation, fold, permutation

from .pools import Batching, PoolPlan, pool_batches

#: What Google's records call the features of the contract.
GOOGLE_NAMES = {
    features.INPUT_WORD_IDS: "input_ids",
    features.INPUT_MASK: "input_mask",
    features.INPUT_TYPE_IDS: "segment_ids",
    features.MASKED_LM_POSITIONS: "masked_lm_positions",
    features.MASKED_LM_IDS: "masked_lm_ids",
    features.MASKED_LM_WEIGHTS: "masked_lm_weights",
    features.NEXT_SENTENCE_LABELS: "next_sentence_labels",
}

# A block is a run of this many records of one file.
_RECORDS_PER_BLOCK = 1024

# A pool is read and shuffled at once.
_BLOCKS_PER_POOL = 16

# A record is its length (8 bytes), a checksum of that (4), the data, and a checksum of those (4).
_LENGTH = struct.Struct("<Q")
_FRAME_BYTES = 16
# Longer reads of a local file take a tenth of the bytes a second: their memory is new each time.
_READ_BYTES, _REMOTE_READ_BYTES = 1 << 20, 1 << 24

# To be raised when what is kept means something else.
_VERSION = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Records:
    """F TFRecord files in the order of their names, and their N blocks, runs of records."""

    files: tuple[SourceFile, ...]
    counts: np.ndarray  # (F,) int64, the records of each file
    values: np.ndarray  # (F, 7) int64, of GOOGLE_NAMES in its first record; 0 without one
    offsets: np.ndarray  # (N,) int64, where in its file each block begins

    @functools.cached_property
    def blocks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(N,) int64 each: a block's file, where it begins in bytes, how many records it has."""
        per_file = _count_blocks(self.counts)
        owners = np.repeat(np.arange(len(self.files)), per_file)
        firsts = np.concatenate([np.arange(blocks) for blocks in per_file]) * _RECORDS_PER_BLOCK
        return owners, self.offsets, np.minimum(self.counts[owners] - firsts, _RECORDS_PER_BLOCK)

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Checks how many values each feature has, so that a wrong length is told by name."""
        options = {"BS": "max_seq_length", "BP": "max_predictions_per_seq"}
        for file, records, values in zip(self.files, self.counts, self.values, strict=True):
            for key, count in zip(GOOGLE_NAMES, values, strict=True):
                if records and count != sizes[key]:
                    spec = features.PRETRAINING_FEATURES[key]
                    option = options.get(spec.dimensions)
                    shell = f"(on the command line --{option}={count})"
                    advice = f": pass {option}={count} {shell}" if option else ""
                    raise ValueError(
                        f"{file.path}: feature {GOOGLE_NAMES[key]!r} has {count} values of type "
                        f"{_list_type(spec)} in the first record; expected {sizes[key]}{advice}."
                    )


def _count_blocks(counts: np.ndarray) -> np.ndarray:
    """Numbers of blocks of files, by the files' ``counts`` of records."""
    return -(-counts // _RECORDS_PER_BLOCK)


def open_records(files: str | Sequence[str], cache_dir: str | None = None) -> Records:
    """Finds the records of TFRecord files.

    What is found is kept in ``cache_dir``, some bytes for a thousand records, for every process
    that sees the folder; without one, in this process. ``files`` are globs, in a list or separated
    by commas, on any file system of TensorFlow. A ``ValueError``: no file matches, a file is cut
    short or its first record is no pre-training example, or there is no record.
    """
    patterns = files.split(",") if isinstance(files, str) else files
    return _open(tuple(in_threads(describe_file, match_files(patterns))), cache_dir)


# Indexes without a cache folder, of the sets of files that were opened last.
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
        raise ValueError(f"No record in {names}: expected pre-training examples.")
    return records


def _load(path: str, files: tuple[SourceFile, ...]) -> Records | None:
    """Kept index of the files; None without one, or if it does not fit them."""
    arrays = corpus_files.load_arrays(path)
    if arrays is None:
        return None
    try:
        records = Records(files, **arrays)
        per_file = _count_blocks(records.counts)
        fits_files = (
            {each.dtype for each in arrays.values()} == {np.dtype(np.int64)}
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
    """Lists the files that globs match: sorted, each once."""
    paths: set[str] = set()
    for pattern, matches in zip(patterns, in_threads(tf.io.gfile.glob, patterns), strict=True):
        if not matches:
            raise ValueError(f"No file matches {pattern!r}: expected TFRecord files.")
        paths.update(matches)
    return sorted(paths)


def _index_file(file: SourceFile) -> tuple[int, tuple[int, ...], np.ndarray]:
    """A file's number of records, the values of each feature in the first, its blocks' offsets."""
    path, size = file.path, file.size
    limit = _REMOTE_READ_BYTES if local_path(path) is None else _READ_BYTES
    unpack = _LENGTH.unpack_from
    offsets, count, offset, start = list[int](), 0, 0, 0
    with tf.io.gfile.GFile(path, "rb") as stream:
        while offset < size:
            stream.seek(offset)
            # A file that ends within a length is cut short too.
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
                f"{path}: record {count - 1}, at byte {start}, would end at byte {offset}, but the "
                f"file has {size} bytes: it is cut short, or no uncompressed TFRecord file."
            )
        values = (0,) * len(GOOGLE_NAMES)
        if count:
            stream.seek(0)
            (length,) = unpack(stream.read(_LENGTH.size))
            values = _count_values(stream.read(4 + length)[4:], path)
    return count, values, np.array(offsets, np.int64)


def _count_values(record: bytes, path: str) -> tuple[int, ...]:
    """Number of values of each feature in a file's first record."""
    try:
        example = tf.train.Example.FromString(record)
    except DecodeError as error:
        raise ValueError(
            f"{path}: the first record is not a tf.train.Example ({error})."
        ) from error
    stored = example.features.feature
    if missing := [name for name in GOOGLE_NAMES.values() if name not in stored]:
        raise ValueError(
            f"{path}: the records have no feature {missing[0]!r} but {listed(sorted(stored))}; "
            f"expected {', '.join(GOOGLE_NAMES.values())}."
        )
    specs = {key: _list_type(features.PRETRAINING_FEATURES[key]) for key in GOOGLE_NAMES}
    lists = (getattr(stored[GOOGLE_NAMES[key]], f"{spec}_list") for key, spec in specs.items())
    return tuple(len(each.value) for each in lists)


def _list_type(spec: features.Feature) -> str:
    return "float" if spec.dtype == "float32" else "int64"


def fingerprint(records: Records) -> str:
    """32 hexadecimal digits that stand for files, and change with their names and sizes."""
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
    """Reads Google's pre-training TFRecords, in another order in every epoch.

    The order depends on ``seed`` and on the files in the order of their names. Blocks of 1,024
    records are read in random order; a pool is sixteen of them, its rows in random order.
    ``files`` are globs, in a list or separated by commas, on any file system of TensorFlow, or what
    ``open_records`` found, which can keep it; the records were written for the lengths
    ``max_seq_length``, S, and ``max_predictions_per_seq``, P. The other arguments, and the dataset,
    are those of ``pretraining.pretraining_dataset``.

    A ``ValueError``: no file matches, a file is cut short or holds no such records, or an argument
    is out of its range.
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
    """Parses (R,) records, ``sizes`` of values each, in-graph: the features of R rows."""
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


# === Writing ===


def write_tfrecords(
    batches: Iterable[Mapping[str, Any]], files: str | Sequence[str], *, are_new: bool = False
) -> int:
    """Writes pre-training batches as TFRecords that Google's ``run_pretraining.py`` reads.

    The batches, of ``features.PRETRAINING_FEATURES``, may be a finite ``pretraining_dataset``; rows
    of padding (``input_mask`` all 0) are left out. ``files`` are one path, or several: row i goes
    to file i modulo their number. They appear under their names when all is written; with
    ``are_new`` files that are there, or come in between, are an error and stay. Returns the number
    of rows written. A ``ValueError``: there is no file, one is named twice, or a batch breaks the
    contract.
    """
    paths = [files] if isinstance(files, str) else list(files)
    if not paths:
        raise ValueError("files: expected one path at least to write to; got none.")
    if len(set(paths)) < len(paths):
        raise ValueError(f"files: expected each file once; got {listed(paths)}.")
    written = 0
    with contextlib.ExitStack() as stack:
        # The stack closes the writers before the files take their names.
        temporary = [stack.enter_context(atomic_path(path, is_new=are_new)) for path in paths]
        writers = [stack.enter_context(tf.io.TFRecordWriter(path)) for path in temporary]
        for record in itertools.chain.from_iterable(map(_records, batches)):
            writers[written % len(writers)].write(record)
            written += 1
    return written


def _records(batch: Mapping[str, Any]) -> Iterator[bytes]:
    """A batch's rows, without those of padding, as serialised ``tf.train.Example``."""
    features.check_batch(batch, features.PRETRAINING_FEATURES)
    arrays = {key: np.asarray(batch[key]) for key in features.PRETRAINING_FEATURES}
    for row in np.flatnonzero(arrays[features.INPUT_MASK].any(axis=1)):
        example = tf.train.Example()
        for key, values in arrays.items():
            feature = example.features.feature[GOOGLE_NAMES[key]]
            stored = feature.float_list if values.dtype == np.float32 else feature.int64_list
            stored.value.extend(np.atleast_1d(values[row]).tolist())
        yield example.SerializeToString(deterministic=True)
