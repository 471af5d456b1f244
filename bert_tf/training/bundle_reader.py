"""TensorFlow's tensor bundles (``.index`` and ``.data-...`` files), read as data from a stranger.

TensorFlow's own readers end the process where an index is not what its writer makes. So the index
is parsed here, and everything that it says is checked against itself and against the data files'
sizes; only then does TensorFlow read a tensor, and compare the tensor's checksum.

The index is an immutable table of LevelDB's: blocks of ascending keys with their values, an index
block of the last key and the place of each, and a footer with the place of the index block. Its
first value is a ``BundleHeaderProto``, each other one the ``BundleEntryProto`` of a tensor, by the
tensor's name. Source: google/leveldb ``doc/table_format.md``; tensorflow
``core/util/tensor_bundle/tensor_bundle.cc``, ``core/protobuf/tensor_bundle.proto``.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto

from bert_tf.untrusted import MAX_TENSORS, one_line, quote, reason

INDEX = ".index"
_VERSION = 1
_FOOTER_BYTES = 48
_MAGIC = 0xDB4775248B80FB57
_TRAILER_BYTES = 5  # of a block: how it is compressed, and a checksum
_MAX_INDEX_BYTES = 16 << 20  # BERT-large's, with an optimizer's tensors, has 100 KB
# Names share their beginnings in the file, not in memory: a few megabytes could spell terabytes.
_MAX_NAME_BYTES = 2_048
_MAX_DIMENSIONS = 32  # what every release of NumPy can hold
_MAX_BYTES = 1 << 48
_MAX_STRING_BYTES = 8 << 20  # an object graph's
_NAMES = {
    number: name.removeprefix("DT_").lower()
    for name, number in types_pb2.DataType.items()
    if number
}
_NUMBERS = {
    dtype.as_datatype_enum: dtype
    for dtype in (
        *(tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.bool),
        *(tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64),
    )
}
_NAMES |= {number: dtype.name for number, dtype in _NUMBERS.items()}


class Bundle:
    """A bundle opened for reading: ``prefix`` is its path up to ``.index``.

    ``shapes`` and ``dtypes``, as TensorFlow calls them, are every tensor's, by name. A ValueError
    says that the bundle is damaged, a part of it is missing, or what it says of a tensor cannot be.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        self._entries: dict[str, BundleEntryProto] = {}
        try:
            self._state = _file_state(prefix + INDEX)
            self._open(_read_index(prefix + INDEX, self._state[0]))
        except (tf.errors.OpError, _DamageError) as error:
            raise ValueError(
                f"{prefix}{INDEX} is not a TensorFlow checkpoint that can be read: "
                f"{reason(error).rstrip('.')}."
            ) from error

    def read(self, name: str) -> np.ndarray:
        """A tensor of numbers; a ValueError where it is none, is damaged or has changed."""
        if self._entries[name].dtype not in _NUMBERS:
            raise ValueError(
                f"{self.prefix}: {one_line(name)} is {self.dtypes[name]}, expected a tensor of "
                "numbers."
            )
        value = self._restore(name)
        # value.numpy() copies, which matters for the large ones: those of plain floats.
        plain = value.dtype in (tf.float16, tf.float32, tf.float64)
        return np.asarray(memoryview(value)) if plain else value.numpy()

    def read_string(self, name: str) -> bytes:
        """A tensor that is one string; a ValueError where it is none, too long or damaged."""
        entry = self._entries[name]
        size = entry.size
        if (entry.dtype, self.shapes[name]) != (types_pb2.DT_STRING, ()):
            raise ValueError(
                f"{self.prefix}: {one_line(name)} is {self.dtypes[name]} {self.shapes[name]}, "
                "expected one string."
            )
        # The string's length, four bytes of checksum, the string.
        try:
            with tf.io.gfile.GFile(self._data_path(entry.shard_id), "rb") as file:
                file.seek(entry.offset)
                length, begin = _varint(file.read(min(size, 10)), 0)
            if length > _MAX_STRING_BYTES or begin + 4 + length != size:
                raise _DamageError(f"expected a string of {size:,} bytes, got one of {length:,}")
        except (tf.errors.OpError, _DamageError) as error:
            raise self._unreadable(name, error) from error
        return bytes(self._restore(name).numpy())

    # === What the index says ===

    def _open(self, table: Iterator[tuple[bytes, bytes]]) -> None:
        key, value = next(table, (None, b""))
        if key != b"":
            raise _DamageError("it has no header")
        header = _parse(BundleHeaderProto(), value, "the header")
        self._shards = header.num_shards
        if header.endianness != BundleHeaderProto.LITTLE:
            raise _DamageError("its numbers are big-endian: save it on a little-endian machine")
        if header.version.min_consumer > _VERSION:
            raise _DamageError(f"its version is {header.version.min_consumer}, expected {_VERSION}")
        for key, value in table:
            if key.startswith(b"\0"):
                raise _DamageError("it holds a partitioned variable: save the variable whole")
            try:
                name = key.decode()
            except UnicodeDecodeError as error:
                raise _DamageError(f"a tensor's name is not UTF-8: {error}") from error
            if len(self._entries) == MAX_TENSORS:
                raise _DamageError(f"it names more than {MAX_TENSORS:,} tensors")
            entry = _parse(BundleEntryProto(), value, name)
            self.shapes[name] = _checked_shape(name, entry)
            self.dtypes[name] = _NAMES[entry.dtype]
            self._entries[name] = entry
        self._check_places()

    def _check_places(self) -> None:
        """Checks that each tensor has its own place in a data file, and lies there whole."""
        places = sorted((e.shard_id, e.offset, e.size, name) for name, e in self._entries.items())
        last, end, length = -1, 0, 0
        for shard, offset, size, name in places:
            if not 0 <= shard < self._shards:
                raise _DamageError(
                    f"{one_line(name)} lies in the data file {shard} of {self._shards}"
                )
            try:
                if shard != last:
                    last, end, length = shard, 0, tf.io.gfile.stat(self._data_path(shard)).length
                if offset < end:
                    raise _DamageError(f"it begins at {offset:,}, within another tensor")
                if offset + size > length:
                    raise _DamageError(
                        f"it ends at {offset + size:,} of the {length:,} bytes of "
                        f"{self._data_path(shard)}"
                    )
            except (tf.errors.OpError, _DamageError) as error:
                raise self._unreadable(name, error) from error
            end = offset + size

    # === Reading ===

    def _data_path(self, shard: int) -> str:
        return f"{self.prefix}.data-{shard:05d}-of-{self._shards:05d}"

    def _restore(self, name: str) -> tf.Tensor:
        try:
            if _file_state(self.prefix + INDEX) != self._state:
                raise ValueError(
                    f"{self.prefix}{INDEX} has changed since it was opened: open it again."
                )
            with tf.device("CPU:0"):
                (value,) = tf.raw_ops.RestoreV2(
                    prefix=self.prefix,
                    tensor_names=[name],
                    # TensorFlow reads no slices of float16.
                    shape_and_slices=[""],
                    dtypes=[tf.as_dtype(self._entries[name].dtype)],
                )
        except tf.errors.OpError as error:
            raise self._unreadable(name, error) from error
        return value

    def _unreadable(self, name: str, error: Exception) -> ValueError:
        return ValueError(
            f"{self.prefix}: {one_line(name)} cannot be read, the checkpoint's data file is "
            f"damaged or cut off: {reason(error).rstrip('.')}."
        )


def _file_state(path: str) -> tuple[int, int]:
    stat = tf.io.gfile.stat(path)
    return stat.length, stat.mtime_nsec


def _checked_shape(name: str, entry: Any) -> tuple[int, ...]:
    """A tensor's shape, once its entry is seen to describe a tensor that can be."""
    shown = one_line(name)
    if entry.slices:
        raise _DamageError(f"{shown} is a partitioned variable: save it whole")
    if entry.dtype not in _NAMES:
        raise _DamageError(f"{shown} is of the unknown type {entry.dtype}")
    if len(entry.shape.dim) > _MAX_DIMENSIONS or entry.shape.unknown_rank:
        raise _DamageError(
            f"{shown} has {len(entry.shape.dim)} dimensions or an unknown number of them"
        )
    shape = tuple(dimension.size for dimension in entry.shape.dim)
    number = _NUMBERS.get(entry.dtype)
    width = number.size if number else 1
    if min(shape, default=0) < 0 or math.prod(max(1, n) for n in shape) * width > _MAX_BYTES:
        raise _DamageError(f"{shown} has the shape {quote(shape)}")
    if number and entry.size != math.prod(shape) * width:
        raise _DamageError(f"{shown} is {number.name} {shape}, and has {entry.size:,} bytes")
    if entry.offset < 0 or not 0 <= entry.size <= _MAX_BYTES:
        raise _DamageError(f"{shown} has the {entry.size:,} bytes from {entry.offset:,}")
    return shape


def _parse(message: Any, value: bytes, name: str) -> Any:
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise _DamageError(
            f"what it says of {one_line(name)} is not what TensorFlow writes"
        ) from error
    return message


# === The table ===


class _DamageError(Exception):
    """What is wrong with an index; the message says it, without a full stop."""


def _read_index(path: str, size: int) -> Iterator[tuple[bytes, bytes]]:
    """The keys of a table and their values, in ascending order."""
    if not _FOOTER_BYTES <= size <= _MAX_INDEX_BYTES:
        raise _DamageError(
            f"it has {size:,} bytes, expected {_FOOTER_BYTES} at least and {_MAX_INDEX_BYTES:,} at "
            "most"
        )
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read(size)
    footer = content[-_FOOTER_BYTES:]
    if len(content) != size or int.from_bytes(footer[-8:], "little") != _MAGIC:
        raise _DamageError("it does not end as a table ends: it is another file, or is cut off")
    _, _, at = _handle(footer, 0)
    last, end = None, 0
    for limit, handle in _entries(_block(content, *_handle(footer, at)[:2])):
        offset, length, _ = _handle(handle, 0)
        if offset != end:
            raise _DamageError(f"a block begins at byte {offset:,} instead of {end:,}")
        end = offset + length + _TRAILER_BYTES
        for key, value in _entries(_block(content, offset, length)):
            if last is not None and key <= last:
                raise _DamageError("its names are not in ascending order")
            yield key, value
            last = key
        # TensorFlow looks a name up by the blocks' limits.
        if last is None or limit < last:
            raise _DamageError("a block's names are not those of the table's index")
        last = limit if limit > last else last


def _block(content: bytes, offset: int, size: int) -> bytes:
    end = offset + size
    if end + _TRAILER_BYTES > len(content) - _FOOTER_BYTES:
        raise _DamageError(f"a block of {size:,} bytes from {offset:,} would end beyond the file")
    masked = int.from_bytes(content[end + 1 : end + _TRAILER_BYTES], "little")
    if _masked_checksum(content[offset : end + 1]) != masked:
        raise _DamageError("a checksum is not that of its block: the file is damaged")
    if content[end]:
        raise _DamageError("it is compressed, as TensorFlow writes none")
    return content[offset:end]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """A block's keys and values; each key is written as what differs from the one before."""
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * restarts
    if restarts == 0 or end < 0:
        raise _DamageError(f"a block of {len(block):,} bytes has {restarts:,} restarts")
    whole = [int.from_bytes(block[at : at + 4], "little") for at in range(end, len(block) - 4, 4)]
    # Where a key is written whole, so that TensorFlow can look for one by bisection.
    waiting = whole[::-1]
    key, at = b"", 0
    while at < end:
        start = at
        shared, at = _varint(block, at)
        unshared, at = _varint(block, at)
        length, at = _varint(block, at)
        if waiting and waiting[-1] == start:
            waiting.pop()
            if shared:
                raise _DamageError("a restart of a block shares a name's beginning")
        if shared > len(key) or at + unshared + length > end:
            raise _DamageError("an entry reaches beyond its block")
        if shared + unshared > _MAX_NAME_BYTES:
            raise _DamageError(
                f"a name has {shared + unshared:,} bytes, expected {_MAX_NAME_BYTES:,} at most"
            )
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + length]
        at += length
    if waiting or whole[0]:
        raise _DamageError("a block's restarts are not where its entries are")


def _handle(data: bytes, at: int) -> tuple[int, int, int]:
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return offset, size, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    raise _DamageError("a number has no end")


# === CRC-32C ===


def _checksum_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _checksum_table()


def _masked_checksum(data: bytes) -> int:
    """CRC-32C, rotated and shifted as LevelDB stores it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
