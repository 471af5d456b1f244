"""safetensors files: the header checked before it is believed, the tensors read and written singly.

A file is the header's length (8 bytes, little-endian), the header (a JSON object: per tensor its
dtype, its shape and where its bytes begin and end), and the tensors' bytes, which fill the rest
without a gap. Source: the format's description in huggingface/safetensors, ``README.md``.
"""

import functools
import json
import math
from collections.abc import Iterable, Mapping
from typing import IO, Any, NamedTuple

import ml_dtypes
import numpy as np
import tensorflow as tf

from bert_tf.files import readable, replace_whole
from bert_tf.untrusted import MAX_TENSORS, parse_json_object, quote

from .checkpoint import StoredTensor
from .tensor_files import check_unchanged, file_state

METADATA = "__metadata__"
_MAX_DIMENSIONS = 32  # what every release of NumPy can hold
_FIELDS = {"dtype", "shape", "data_offsets"}

# By ascending alignment. Files are written from the last to the first, so that a tensor whose items
# have n bytes begins at a multiple of n.
DTYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "I16": np.dtype(np.int16),
    "U16": np.dtype(np.uint16),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I32": np.dtype(np.int32),
    "U32": np.dtype(np.uint32),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
    "I64": np.dtype(np.int64),
    "U64": np.dtype(np.uint64),
}


class _Region(NamedTuple):
    """A tensor as the header describes it; its bytes are counted from the end of the header."""

    name: str
    begin: int
    end: int
    dtype: np.dtype
    shape: tuple[int, ...]


def _check_header(raw: bytes, data_size: int, path: str) -> list[_Region]:
    """The tensors of a header in the order of their bytes; ``data_size`` bytes come after it."""
    if not raw.startswith(b"{"):
        raise ValueError(f"{path}: expected a header that begins with '{{', got {quote(raw[:20])}.")
    header = parse_json_object(raw, f"{path}: the header", unique_keys=True)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ValueError(
            f"{path}: expected {METADATA} to map strings to strings, got {quote(metadata)}."
        )
    if len(header) > MAX_TENSORS:
        raise ValueError(
            f"{path} names {len(header):,} tensors: expected at most {MAX_TENSORS:,}, more than "
            "any BERT has."
        )
    regions = [_region(name, fields, path) for name, fields in header.items()]
    regions.sort(key=lambda region: (region.begin, region.end))
    _check_filled(regions, data_size, path)
    return regions


def _region(name: str, fields: Any, path: str) -> _Region:
    tensor = f"{path}: tensor {quote(name)}"
    if not isinstance(fields, dict) or set(fields) != _FIELDS:
        raise ValueError(
            f"{tensor} must have dtype, shape and data_offsets and nothing else, got "
            f"{quote(fields)}."
        )
    code, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        raise ValueError(
            f"{tensor} has the dtype {quote(code)}: expected one of {', '.join(DTYPES)}; "
            "convert the file to one of these."
        )
    if not _are_sizes(shape) or len(shape) > _MAX_DIMENSIONS:
        raise ValueError(
            f"{tensor} has the shape {quote(shape)}: expected at most {_MAX_DIMENSIONS} "
            "integers from 0 on."
        )
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(
            f"{tensor} has the data_offsets {quote(offsets)}: expected two integers, begin and end."
        )
    itemsize = DTYPES[code].itemsize
    # Zeros aside: NumPy refuses (2**62, 0) as it does (2**62, 2).
    if math.prod(size for size in shape if size) * itemsize >= 1 << 63:
        raise ValueError(f"{tensor} has the shape {quote(shape)}: no memory holds that.")
    begin, end = offsets
    if end - begin != math.prod(shape) * itemsize:
        raise ValueError(
            f"{tensor} takes {end - begin:,} bytes by its data_offsets and "
            f"{math.prod(shape) * itemsize:,} by its dtype and shape."
        )
    return _Region(name, begin, end, DTYPES[code], tuple(shape))


def _are_sizes(value: Any) -> bool:
    """Whether it is a list of integers that a file's size or a shape can have."""
    # bool is a subclass of int.
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 1 << 63 for v in value)


def _check_filled(regions: list[_Region], data_size: int, path: str) -> None:
    """Checks that the regions, in their order, fill the data without a gap or an overlap."""
    position = 0
    for region in regions:
        tensor = f"{path}: tensor {quote(region.name)}"
        if region.end > data_size:
            raise ValueError(
                f"{tensor} ends at byte {region.end:,} of the data, which has {data_size:,} bytes: "
                "the file is cut short or damaged; fetch it again."
            )
        if region.begin != position:
            raise ValueError(
                f"{tensor} begins at byte {region.begin:,} of the data and the tensor before it "
                f"ends at {position:,}: expected tensors without overlap or gap."
            )
        position = region.end
    if position != data_size:
        raise ValueError(
            f"{path} has {data_size - position:,} bytes after its last tensor: expected none."
        )


# A sixth of the format's own limit: BERT-large's header has 50 KB.
_MAX_HEADER_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20
_CODES = {dtype.name: code for code, dtype in DTYPES.items()}
_RANKS = {code: rank for rank, code in enumerate(DTYPES)}


# === Reading ===


def open_file(path: str) -> dict[str, StoredTensor]:
    """A file's tensors by name, in their order there: its header is read, and no tensor."""
    state = size, _ = file_state(path)
    with readable(path), tf.io.gfile.GFile(path, "rb") as file:
        header_size = int.from_bytes(file.read(8), "little")
        if size < 8 or header_size > _MAX_HEADER_BYTES:
            raise ValueError(
                f"{path} is no safetensors file: expected its first 8 bytes to give the length of "
                f"a header of at most {_MAX_HEADER_BYTES:,} bytes, got {header_size:,} in a file "
                f"of {size:,} bytes."
            )
        data_begin = 8 + header_size
        if data_begin > size:
            raise ValueError(
                f"{path} is cut short: its header should end at byte {data_begin:,} and the file "
                f"has {size:,}; fetch it again."
            )
        raw = file.read(header_size)
    tensors = {}
    for region in _check_header(raw, size - data_begin, path):
        read = functools.partial(_read_tensor, path, state, region, data_begin)
        tensors[region.name] = StoredTensor((region.name,), region.shape, region.dtype.name, read)
    return tensors


def _read_tensor(path: str, state: tuple[int, int], region: _Region, data_begin: int) -> np.ndarray:
    check_unchanged(path, state)
    # Not mapped: pages that were read once count as the process' memory from then on. Not in one
    # call either, which would hold the bytes twice.
    data = np.empty(region.end - region.begin, np.uint8)
    with readable(path), tf.io.gfile.GFile(path, "rb") as file:
        file.seek(data_begin + region.begin)
        position = 0
        while position < data.size:
            chunk = file.read(min(_CHUNK_BYTES, data.size - position))
            if not chunk:
                raise ValueError(f"{path} was cut short while it was read: open it again.")
            data[position : position + len(chunk)] = np.frombuffer(chunk, np.uint8)
            position += len(chunk)
    if region.dtype == np.bool_:
        data = data != 0  # NumPy knows no third truth value
    return data.view(region.dtype).reshape(region.shape)


# === Writing ===


def write_file(
    path: str, tensors: Iterable[StoredTensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes a safetensors file, one tensor in memory at a time; it appears whole or not at all.

    The bytes are those that the reference implementation writes: tensors by descending alignment
    of their dtypes, then by name. transformers reads no file without the metadata
    ``{"format": "pt"}``.
    """
    entries = list(tensors)
    seen = {METADATA}
    for entry in entries:
        if entry.name in seen:
            raise ValueError(
                f"{path}: expected each name once and none of them {METADATA}, got {entry.name!r}."
            )
        seen.add(entry.name)
        if entry.dtype not in _CODES:
            raise ValueError(
                f"{path}: tensor {entry.name!r} has the dtype {entry.dtype!r}: expected one of "
                f"{', '.join(_CODES)}."
            )
    entries.sort(key=lambda entry: (-_RANKS[_CODES[entry.dtype]], entry.name))
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    position = 0
    for entry in entries:
        begin, code = position, _CODES[entry.dtype]
        position += math.prod(entry.shape) * DTYPES[code].itemsize
        shape = [int(size) for size in entry.shape]
        header[entry.name] = {"dtype": code, "shape": shape, "data_offsets": [begin, position]}
    raw = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    raw += b" " * (-len(raw) % 8)
    with replace_whole(path) as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        for entry in entries:
            _write_tensor(file, entry, path)


def _write_tensor(file: IO[bytes], entry: StoredTensor, path: str) -> None:
    # A function of its own: its end frees the tensor before the next one is read.
    array = entry.read()
    if array.dtype != np.dtype(entry.dtype) or array.shape != tuple(entry.shape):
        raise ValueError(
            f"{path}: tensor {entry.name!r} should be {entry.dtype} of shape {tuple(entry.shape)} "
            f"and was read as {array.dtype} of shape {array.shape}."
        )
    array = np.atleast_1d(array)
    # By rows: a transposed tensor would be copied as a whole otherwise.
    step = max(1, _CHUNK_BYTES // max(1, array[:1].nbytes))
    for row in range(0, len(array), step):
        file.write(array[row : row + step].tobytes())
