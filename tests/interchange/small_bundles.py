"""Indices of TensorFlow's tensor bundles with valid checksums, whatever they say."""

import struct

from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto

HEADER = BundleHeaderProto(num_shards=1)


def entry(dtype=types_pb2.DT_FLOAT, shape=(2,), offset=0, size=8, shard=0, slices=0, crc32c=0):
    """What an index says of a tensor."""
    made = BundleEntryProto(dtype=dtype, offset=offset, size=size, shard_id=shard, crc32c=crc32c)
    for number in shape:
        made.shape.dim.add(size=number)
    for _ in range(slices):
        made.slices.add().extent.add(start=0, length=2)
    return made


def write_index(prefix, entries, header=HEADER, data=bytes(64), **table):
    """Writes the index of entries, (key, message or bytes) in their order, and a data file."""
    items = [(b"", header), *entries]
    with open(f"{prefix}.index", "wb") as file:
        file.write(make_table(items, **table))
    with open(f"{prefix}.data-00000-of-00001", "wb") as file:
        file.write(data)
    return str(prefix)


def make_table(items, *, limit=b"\x7f", compression=0, restarts=(0,)):
    """A table of one block: every key is written whole."""
    content = b""
    for key, value in items:
        value = value if isinstance(value, bytes) else value.SerializeToString()
        content += varint(0) + varint(len(key)) + varint(len(value)) + key + value
    block = content + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    handle = varint(0) + varint(len(block))
    index = varint(0) + varint(len(limit)) + varint(len(handle)) + limit + handle
    index += struct.pack("<2I", 0, 1)
    data = _sealed(block, compression)
    place = varint(len(data)) + varint(len(index))
    footer = (varint(0) * 2 + place).ljust(40, b"\0")
    return data + _sealed(index, 0) + footer + struct.pack("<Q", 0xDB4775248B80FB57)


def varint(number):
    """A number, seven bits a byte, as LevelDB and protocol buffers write it."""
    number &= (1 << 64) - 1
    made = b""
    while number > 127:
        made += bytes([number & 127 | 128])
        number >>= 7
    return made + bytes([number])


def _sealed(block, compression):
    sealed = block + bytes([compression])
    return sealed + struct.pack("<I", masked_crc(sealed))


def masked_crc(content):
    """CRC-32C by its definition, bit by bit, masked as LevelDB and bundles do."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    rotated = (crc >> 15) | (crc << 17) & 0xFFFFFFFF
    return (rotated + 0xA282EAD8) & 0xFFFFFFFF
