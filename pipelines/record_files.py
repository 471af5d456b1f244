"""TFRecord files: where their records begin, found once and kept.

A file has no table of its records: to find one means to follow their lengths from the first on, and
so to read the file. What was found is kept in one file of a cache folder, see ``kept_files``.
"""

import dataclasses
import functools
import os
import struct
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from bert_tf import features
from bert_tf.paths import local_path
from bert_tf.untrusted import listed

from . import corpus_cache, kept_files
from .corpus_files import SourceFile, describe_file, in_threads

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

# A record is its length (8 bytes), a checksum of that (4), the data, and a checksum of those (4).
_LENGTH = struct.Struct("<Q")
_FRAME_BYTES = 16
# Longer reads of a local file take a tenth of the bytes a second: their memory is new each time.
_READ_BYTES, _REMOTE_READ_BYTES = 1 << 20, 1 << 24

# To be raised when what is kept means something else.
_VERSION = 1


@dataclasses.dataclass(frozen=True)
class _Found:
    """Index of a file: its records, the values of each feature in the first, its blocks."""

    count: int
    values: tuple[int, ...]  # in the order of GOOGLE_NAMES; zeros without a record
    offsets: np.ndarray  # (blocks,) int64, where each block begins

    def fits(self, size: int) -> bool:
        """True if a file of that size may hold this."""
        inside = self.offsets.dtype == np.int64 and ((self.offsets >= 0) & (self.offsets < size))
        return bool(np.all(inside)) and len(self.values) == len(GOOGLE_NAMES)


@dataclasses.dataclass(frozen=True, eq=False)
class Records:
    """TFRecord files in the order of their names, as ``open_records`` found them: N blocks."""

    files: tuple[SourceFile, ...]
    found: tuple[_Found, ...]

    @functools.cached_property
    def blocks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(N,) int64 each: a block's file, where it begins in bytes, how many records it has."""
        per_file = [len(each.offsets) for each in self.found]
        owners = np.repeat(np.arange(len(self.files)), per_file)
        firsts = np.concatenate([np.arange(blocks) for blocks in per_file]) * _RECORDS_PER_BLOCK
        counts = np.array([each.count for each in self.found])
        sizes = np.minimum(counts[owners] - firsts, _RECORDS_PER_BLOCK)
        return owners, np.concatenate([each.offsets for each in self.found]), sizes

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Checks how many values each feature has, so that a wrong length is told by name."""
        options = {"BS": "max_seq_length", "BP": "max_predictions_per_seq"}
        for file, found in zip(self.files, self.found, strict=True):
            for key, count in zip(GOOGLE_NAMES, found.values, strict=True):
                if found.count and count != sizes[key]:
                    kind = features.PRETRAINING_FEATURES[key]
                    option = options.get(kind.dimensions)
                    shell = f"(on the command line --{option}={count})"
                    advice = f": pass {option}={count} {shell}" if option else ""
                    raise ValueError(
                        f"{file.path}: feature {GOOGLE_NAMES[key]!r} has {count} values of type "
                        f"{_stored_as(kind)} in the first record; expected {sizes[key]}{advice}."
                    )


def open_records(files: str | Sequence[str], cache_dir: str | None = None) -> Records:
    """Finds the records of TFRecord files.

    With ``cache_dir`` what is found is kept there, in one file of some bytes for a thousand
    records, which every process that sees the folder may use; without, in this process.

    Args:
        files: globs, in a list or separated by commas, on any file system of TensorFlow.
        cache_dir: the folder; None for none.

    Returns:
        The files' records.

    Raises:
        ValueError: no file matches, a file is cut short or its first record is no pre-training
            example, or there is no record.
    """
    patterns = files.split(",") if isinstance(files, str) else files
    return _open(tuple(in_threads(describe_file, match_files(patterns))), cache_dir)


# Indexes without a cache folder, of the sets of files that were opened last.
@functools.lru_cache(maxsize=16)
def _open(files: tuple[SourceFile, ...], cache_dir: str | None) -> Records:
    name = f"index-{corpus_cache.digest('records', _VERSION, _RECORDS_PER_BLOCK, files)}.npz"
    path = None if cache_dir is None else os.path.join(cache_dir, name)
    found = None if path is None else _load(path, files)
    if found is None:
        found = list(in_threads(_find, files))
        if path is not None:
            _save(path, found)
    if not any(each.count for each in found):
        names = ", ".join(file.path for file in files)
        raise ValueError(f"No record in {names}: expected pre-training examples.")
    return Records(files, tuple(found))


def match_files(patterns: Sequence[str]) -> list[str]:
    """Lists the files that globs match: sorted, each once."""
    paths: set[str] = set()
    for pattern, found in zip(patterns, in_threads(tf.io.gfile.glob, patterns), strict=True):
        if not found:
            raise ValueError(f"No file matches {pattern!r}: expected TFRecord files.")
        paths.update(found)
    return sorted(paths)


# === Finding ===


def _find(file: SourceFile) -> _Found:
    """Follows the lengths of a file's records from the first to the last."""
    path, size = file.path, file.size
    most = _REMOTE_READ_BYTES if local_path(path) is None else _READ_BYTES
    unpack = _LENGTH.unpack_from
    offsets, count, offset, start = list[int](), 0, 0, 0
    with tf.io.gfile.GFile(path, "rb") as stream:
        while offset < size:
            stream.seek(offset)
            # A file that ends within a length is cut short too.
            data = stream.read(most).ljust(_LENGTH.size, b"\0")
            place, last = 0, len(data) - _LENGTH.size
            while place <= last:
                if not count % _RECORDS_PER_BLOCK:
                    offsets.append(offset + place)
                count += 1
                start = place
                place += _FRAME_BYTES + unpack(data, place)[0]
            start, offset = offset + start, offset + place
        if offset > size:
            raise ValueError(
                f"{path}: record {count - 1}, at byte {start}, would end at byte {offset}, but the "
                f"file has {size} bytes: it is cut short, or no uncompressed TFRecord file."
            )
        values = (0,) * len(GOOGLE_NAMES)
        if count:
            stream.seek(0)
            (length,) = unpack(stream.read(_LENGTH.size))
            values = _values_of(stream.read(4 + length)[4:], path)
    return _Found(count, values, np.array(offsets, np.int64))


def _values_of(record: bytes, path: str) -> tuple[int, ...]:
    """Number of values of each feature in a file's first record."""
    try:
        example = tf.train.Example.FromString(record)
    except DecodeError as error:
        raise ValueError(
            f"{path}: the first record is not a tf.train.Example ({error})."
        ) from error
    found = example.features.feature
    if missing := [name for name in GOOGLE_NAMES.values() if name not in found]:
        raise ValueError(
            f"{path}: the records have no feature {missing[0]!r} but {listed(sorted(found))}; "
            f"expected {', '.join(GOOGLE_NAMES.values())}."
        )
    kinds = {name: _stored_as(features.PRETRAINING_FEATURES[key]) for key, name in
             GOOGLE_NAMES.items()}  # fmt: skip
    return tuple(len(getattr(found[name], f"{kinds[name]}_list").value) for name in kinds)


def _stored_as(kind: features.Feature) -> str:
    return "float" if kind.dtype == "float32" else "int64"


# === Keeping ===


def _save(path: str, found: Sequence[_Found]) -> None:
    arrays = {
        "counts": np.array([each.count for each in found], np.int64),
        "values": np.array([each.values for each in found], np.int64),
        "offsets": np.concatenate([each.offsets for each in found]),
    }
    kept_files.save_arrays(path, arrays)


def _load(path: str, files: Sequence[SourceFile]) -> list[_Found] | None:
    """Kept index of the files; None without one, or if it cannot be theirs."""
    kept = kept_files.load_arrays(path)
    if kept is None:
        return None
    try:
        counts, values, offsets = (kept[name] for name in ("counts", "values", "offsets"))
        blocks = -(-counts // _RECORDS_PER_BLOCK)
        if not 0 <= blocks.min() <= blocks.max() <= len(offsets) == blocks.sum():
            return None
        of_files = np.split(offsets, np.cumsum(blocks)[:-1])
        found = [
            _Found(int(count), tuple(each.tolist()), its)
            for count, each, its in zip(counts, values, of_files, strict=True)
        ]
        fit = all(each.fits(file.size) for each, file in zip(found, files, strict=True))
    except kept_files.ERRORS:
        return None
    return found if fit else None
