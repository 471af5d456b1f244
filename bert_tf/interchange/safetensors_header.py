"""The header of a safetensors file: parsed, and checked against the file before it is believed.

A file is the header's length (8 bytes, little-endian), the header (a JSON object: per tensor its
dtype, its shape and where its bytes begin and end), and the tensors' bytes, which fill the rest
without a gap. Source: the format's description in huggingface/safetensors, ``README.md``.
"""

import math
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from bert_tf.untrusted import MAX_TENSORS, parse_json_object, quote

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


class Region(NamedTuple):
    """A tensor as the header describes it.

    Attributes:
        name: its name.
        begin: its first byte, counted from the end of the header.
        end: the byte after its last.
        dtype: what its bytes are.
        shape: its shape.
    """

    name: str
    begin: int
    end: int
    dtype: np.dtype
    shape: tuple[int, ...]


def check_header(raw: bytes, data_size: int, path: str) -> tuple[dict[str, str], list[Region]]:
    """Parses a header and checks it.

    Args:
        raw: the JSON object.
        data_size: how many bytes the file has after it.
        path: the file, for errors.

    Returns:
        The metadata, and the tensors in the order in which they lie in the file.

    Raises:
        ValueError: the header is not what the format allows, or does not fit the file.
    """
    header = _parse(raw, path)
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
    return metadata, regions


def _parse(raw: bytes, path: str) -> dict[str, Any]:
    if not raw.startswith(b"{"):
        raise ValueError(f"{path}: expected a header that begins with '{{', got {quote(raw[:20])}.")
    return parse_json_object(raw, f"{path}: the header", unique_keys=True)


def _region(name: str, fields: Any, path: str) -> Region:
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
    return Region(name, begin, end, DTYPES[code], tuple(shape))


def _are_sizes(value: Any) -> bool:
    """Whether it is a list of integers that a file's size or a shape can have."""
    # bool is a subclass of int.
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 1 << 63 for v in value)


def _check_filled(regions: list[Region], data_size: int, path: str) -> None:
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
