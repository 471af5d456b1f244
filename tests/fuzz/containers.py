"""Mutations inside of files with a structure: safetensors, zip, TensorFlow's bundles, HDF5.

What a byte's flip would hardly reach is rebuilt around the change: lengths, checksums, directories.
"""

import io
import json
import struct
import warnings
import zipfile
from collections.abc import Mapping
from random import Random

import h5py
import numpy as np
from tensorflow.core.protobuf import tensor_bundle_pb2, trackable_object_graph_pb2

from .mutations import Mutator, mutate_bytes, mutate_json

_OBJECT_GRAPH = b"_CHECKPOINTABLE_OBJECT_GRAPH"


def mutate_safetensors(rng: Random, content: bytes) -> bytes:
    """Changes a safetensors file: its header's JSON, the header's length, or any bytes."""
    if rng.random() < 0.4:
        return mutate_bytes(rng, content)
    (length,) = struct.unpack("<Q", content[:8])
    header, body = content[8 : 8 + length], content[8 + length :]
    if rng.random() < 0.85:
        header = _mutate_header(rng, header)
        length = len(header)
    if rng.random() < 0.2:
        length = rng.choice((0, 1, length - 1, length + 1, len(content), 2**32, 2**63, 2**64 - 1))
    return struct.pack("<Q", length) + header + body


def _mutate_header(rng: Random, header: bytes) -> bytes:
    values = json.loads(header)
    names = [name for name in values if name != "__metadata__"]
    kind = rng.random()
    if kind < 0.5:
        return mutate_json(rng, header)
    one, other = (values[rng.choice(names)] for _ in range(2))
    if kind < 0.6:
        one["data_offsets"] = list(other["data_offsets"])
    elif kind < 0.7:
        place = rng.randrange(2)
        step = rng.choice((-1, 1, 4, -4, 1 << 40, -(1 << 40)))
        one["data_offsets"][place] += step
    elif kind < 0.8:
        one["dtype"] = rng.choice(
            ("F16", "BF16", "F64", "I64", "U8", "BOOL", "F8_E4M3", "C64", "x")
        )
    elif kind < 0.9:
        one["shape"] = rng.choice(([], [0], one["shape"][::-1], [1, *one["shape"]], [-1, -1],
                                   [2**32, 2**32], [2**62, 4], [1] * 300))  # fmt: skip
    else:
        one["shape"], other["shape"] = other["shape"], one["shape"]
    return json.dumps(values).encode()


def mutate_zip(rng: Random, content: bytes, mutators: Mapping[str, Mutator]) -> bytes:
    """Changes an archive: a member by its suffix' mutator, the members' list, or any bytes."""
    kind = rng.random()
    if kind < 0.3:
        return mutate_bytes(rng, content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    at = rng.randrange(len(members))
    info, data = members[at]
    name, method = info.filename, info.compress_type
    if kind < 0.75:
        suffix = name.rsplit(".", 1)[-1]
        data = mutators.get(suffix, mutate_bytes)(rng, data)
    elif kind < 0.8:
        name = rng.choice((f"../{name}", f"/tmp/{name}", name.upper(), "\x1b[31m", "a" * 60_000,
                           name + "/", "config.json"))  # fmt: skip
    elif kind < 0.85:
        method = rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    elif kind < 0.9:
        members.append((info, mutate_bytes(rng, data)))
    elif kind < 0.93:
        data, method = bytes(rng.choice((1 << 20, 1 << 26))), zipfile.ZIP_DEFLATED
    elif kind < 0.97:
        return _without(members, at)
    else:
        return _archive([(i.filename, i.compress_type, d) for i, d in members][::-1])
    changed = [(i.filename, i.compress_type, d) for i, d in members]
    changed[at] = (name, method, data)
    return _archive(changed)


def _without(members: list[tuple[zipfile.ZipInfo, bytes]], at: int) -> bytes:
    return _archive([(i.filename, i.compress_type, d) for i, d in members[:at] + members[at + 1 :]])


def _archive(members: list[tuple[str, int, bytes]]) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore")  # of names that come twice
        for name, method, data in members:
            archive.writestr(name, data, method)
    return file.getvalue()


def mutate_hdf5(rng: Random, content: bytes) -> bytes:
    """Changes an HDF5 file: its datasets, links and attributes, or any bytes."""
    if rng.random() < 0.5:
        return mutate_bytes(rng, content)
    file = io.BytesIO(content)
    with h5py.File(file, "r+") as opened:
        found: list[h5py.Dataset | h5py.Group] = []
        opened.visititems(lambda _, item: found.append(item))
        item = rng.choice(found)
        if isinstance(item, h5py.Dataset) and rng.random() < 0.8:
            _change_dataset(rng, opened, item)
        else:
            _change_links(rng, opened, item)
    return file.getvalue()


def _change_dataset(rng: Random, opened: h5py.File, item: h5py.Dataset) -> None:
    name, values = item.name, item[()]
    shape, kind = item.shape, rng.randrange(9)
    del opened[name]
    if kind == 0:
        opened[name] = values.astype(rng.choice(("float16", "float64", "int32", "uint8", "S3")))
    elif kind == 1:
        opened[name] = values.reshape(-1)
    elif kind == 2:
        opened.create_dataset(name, data=values, chunks=shape or None, compression="gzip"
                              if shape else None)  # fmt: skip
    elif kind == 3:  # takes no room until it is written
        huge = rng.choice(((1 << 40,), (1 << 20, 1 << 20), (1 << 32, 8), shape or (3,)))
        opened.create_dataset(name, shape=huge, dtype="f4", chunks=tuple(min(s, 8) for s in huge))
    elif kind == 4:
        opened[name] = h5py.SoftLink(rng.choice((name, "/", "/nowhere", "\x1b[2J")))
    elif kind == 5:
        opened[name] = h5py.ExternalLink("/etc/passwd", "/")
    elif kind == 6:
        opened.create_dataset(name, shape=shape, dtype="f4", external=[("/dev/zero", 0, 1 << 20)])
    elif kind == 7:
        opened[name] = np.full_like(values, rng.choice((np.nan, np.inf, 1e38)))
    else:
        opened.create_group(name)


def _change_links(rng: Random, opened: h5py.File, item: h5py.Dataset | h5py.Group) -> None:
    kind, name = rng.randrange(5), item.name
    if kind == 0:
        del opened[name]
    elif kind == 1:
        opened.move(name, name + rng.choice(("x", "\x1b[31m", "a" * 5000)))
    elif kind == 2:
        opened[f"{name}_again" if isinstance(item, h5py.Dataset) else f"{name}/loop"] = item
    elif kind == 3:
        item.attrs[rng.choice(("weight_names", "layer_names", "dtype", "x"))] = rng.choice(
            (np.arange(3), "a" * 5000, b"\xff\xfe", np.nan, "\x1b[31m")
        )
    else:
        holder = [opened[place] for place in (name, "/") if opened[place].attrs]
        for attributes in (h.attrs for h in holder[:1]):
            del attributes[rng.choice(list(attributes))]


# === TensorFlow's bundles: a table of LevelDB's, whose values are protocol buffers ===


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC_TABLE = _crc_table()
_MAGIC = 0xDB4775248B80FB57


def _crc(data: bytes, crc: int = 0) -> int:
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at


def _block(data: bytes, offset: int, size: int) -> list[tuple[bytes, bytes]]:
    block = data[offset : offset + size]
    (restarts,) = struct.unpack("<I", block[-4:])
    end, at, key, entries = len(block) - 4 - 4 * restarts, 0, b"", []
    while at < end:
        shared, at = _read_varint(block, at)
        fresh, at = _read_varint(block, at)
        length, at = _read_varint(block, at)
        key = key[:shared] + block[at : at + fresh]
        entries.append((key, block[at + fresh : at + fresh + length]))
        at += fresh + length
    return entries


def read_index(content: bytes) -> list[tuple[bytes, bytes]]:
    """The entries of a bundle's ``.index``: names, and protocol buffers."""
    footer = content[-48:]
    at = 0
    for _ in range(2):  # the handle of the meta index is of no use
        _, at = _read_varint(footer, at)
    offset, at = _read_varint(footer, at)
    size, at = _read_varint(footer, at)
    entries = []
    for _, handle in _block(content, offset, size):
        start, at = _read_varint(handle, 0)
        length, _ = _read_varint(handle, at)
        entries += _block(content, start, length)
    return entries


def write_index(entries: list[tuple[bytes, bytes]]) -> bytes:
    """A bundle's ``.index`` of one block, every checksum right."""
    out = bytearray()

    def add(block_entries: list[tuple[bytes, bytes]]) -> bytes:
        block = b"".join(
            b"\x00" + _varint(len(key)) + _varint(len(value)) + key + value
            for key, value in block_entries
        ) + struct.pack("<II", 0, 1)
        handle = _varint(len(out)) + _varint(len(block))
        out.extend(block + b"\x00" + struct.pack("<I", _masked(_crc(block + b"\x00"))))
        return handle

    data = add(entries)
    meta = add([])
    index = add([(entries[-1][0] if entries else b"", data)])
    footer = meta + index
    return bytes(out) + footer + bytes(40 - len(footer)) + struct.pack("<Q", _MAGIC)


def mutate_index(rng: Random, content: bytes) -> bytes:
    """Changes a bundle's index: an entry, or the entries' list, the checksums right; or bytes."""
    if rng.random() < 0.4:
        return mutate_bytes(rng, content)
    entries = read_index(content)
    at = rng.randrange(len(entries))
    key, value = entries[at]
    kind = rng.random()
    if kind < 0.15:
        entries[at] = (key, mutate_bytes(rng, value))
    elif kind < 0.2:
        del entries[at]
    elif kind < 0.25:
        entries.insert(at, entries[at])
    elif kind < 0.3:
        entries.append((key, value))  # out of order
    elif kind < 0.4:
        name = rng.choice((b"", b"\x1b[31m", key + b"\xff", b"a" * 100_000, key[:-1], b"\x00"))
        entries[at] = (name, value)
        entries.sort()
    elif kind < 0.45:
        entries[0] = (entries[0][0], _change_header(rng, entries[0][1]))
    elif at and kind < 0.5:
        entries[at] = (key, entries[rng.randrange(1, len(entries))][1])
    elif at:
        entries[at] = (key, _change_entry(rng, value))
    return write_index(entries)


def _change_header(rng: Random, value: bytes) -> bytes:
    header = tensor_bundle_pb2.BundleHeaderProto.FromString(value)
    kind = rng.randrange(4)
    if kind == 0:
        header.num_shards = rng.choice((0, -1, 2, 2**31 - 1))
    elif kind == 1:
        header.endianness = 1
    elif kind == 2:
        header.version.producer = rng.choice((0, -1, 2**31 - 1))
    else:
        header.version.min_consumer = rng.choice((0, 99, 2**31 - 1))
    return header.SerializeToString()


def _change_entry(rng: Random, value: bytes) -> bytes:
    entry = tensor_bundle_pb2.BundleEntryProto.FromString(value)
    kind = rng.randrange(7)
    sizes = (0, -1, -5, 1, 2**31, 2**60, 2**62, 2**63 - 1)
    if kind == 0:
        entry.dtype = rng.choice((0, -1, 1, 2, 3, 7, 9, 14, 19, 20, 21, 23, 101, 9999))
    elif kind == 1 and entry.shape.dim:
        rng.choice(entry.shape.dim).size = rng.choice(sizes)
    elif kind == 2:
        for _ in range(rng.choice((1, 3, 300))):
            entry.shape.dim.add(size=rng.choice((1, 1, 2, 2**40)))
    elif kind == 3:
        field = rng.choice(("offset", "size"))
        setattr(entry, field, rng.choice((*sizes, getattr(entry, field) + rng.choice((-4, 4)))))
    elif kind == 4:
        entry.shard_id = rng.choice((-1, 1, 2**31 - 1))
    elif kind == 5:
        for _ in range(rng.choice((1, 2))):
            extent = entry.slices.add().extent.add()
            extent.start = rng.choice((0, -1, 2**40))
            extent.length = rng.choice((0, 4, -1, 2**62))
    else:
        entry.shape.unknown_rank = True
    return entry.SerializeToString()


def mutate_object_graph(rng: Random, index: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Changes the object graph of a bundle, which is a string behind its tensors; all sums right.

    Returns:
        The ``.index`` and the ``.data-00000-of-00001``.
    """
    entries = dict(read_index(index))
    entry = tensor_bundle_pb2.BundleEntryProto.FromString(entries[_OBJECT_GRAPH])
    stored = data[entry.offset : entry.offset + entry.size]
    _, at = _read_varint(stored, 0)
    content = stored[at + 4 :]
    length = len(content)
    content = mutate_bytes(rng, content) if rng.random() < 0.25 else _change_graph(rng, content)
    length = len(content)
    if rng.random() < 0.1:
        length = rng.choice((0, length - 1, length + 1, 10**11, 2**32, 2**60, 2**63))
    sizes = struct.pack("<I" if length < 2**32 else "<Q", length)
    crc = _crc(sizes)
    checksum = struct.pack("<I", _masked(crc))
    stored = _varint(length) + checksum + content
    crc = _crc(content, _crc(checksum, crc))
    entry.offset, entry.size, entry.crc32c = len(data), len(stored), _masked(crc)
    entries[_OBJECT_GRAPH] = entry.SerializeToString()
    return write_index(sorted(entries.items())), data + stored


def _change_graph(rng: Random, content: bytes) -> bytes:
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(content)
    count, kind = len(graph.nodes), rng.randrange(9)
    node = rng.choice(graph.nodes)
    children = [child for some in graph.nodes for child in some.children]
    attributes = [attribute for some in graph.nodes for attribute in some.attributes]
    if kind == 0:
        rng.choice(children).node_id = rng.choice((-1, 0, count, count + 5, rng.randrange(count)))
    elif kind == 1:
        rng.choice(children).local_name = rng.choice(("", "\x1b[31m", "a" * 10_000, "_layers"))
    elif kind == 2:
        rng.choice(attributes).checkpoint_key = rng.choice(("", "nowhere", "a" * 10_000, "\x1b[2J"))
    elif kind == 3:  # a chain, or a clique, of many nodes
        size = rng.choice((50, 400, 3000))
        for number in range(size):
            fresh = graph.nodes.add()
            for target in (number + 1, rng.randrange(size)):
                child = fresh.children.add()
                child.node_id, child.local_name = count + target % size, f"layer-{target}"
        child = graph.nodes[0].children.add()
        child.node_id, child.local_name = count, "_layers"
    elif kind == 4:
        for _ in range(rng.choice((1, 30))):
            node.children.add().CopyFrom(rng.choice(children))
    elif kind == 5:
        node.ClearField(rng.choice(("children", "attributes")))
    elif kind == 6:
        del graph.nodes[rng.randrange(count) :]
    elif kind == 7:
        rng.choice(attributes).name = rng.choice(("", "OBJECT_CONFIG_JSON", "VARIABLE_VALUE2"))
    else:
        one, other = rng.choice(children), rng.choice(children)
        one.node_id, other.node_id = other.node_id, one.node_id
    return graph.SerializeToString()


def mutate_data(rng: Random, index: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Changes a tensor's bytes in a bundle, the checksum of them right."""
    entries = read_index(index)
    numeric = [
        (at, entry)
        for at, (key, value) in enumerate(entries)
        if key and (entry := tensor_bundle_pb2.BundleEntryProto.FromString(value)).dtype in (1, 9)
    ]
    at, entry = rng.choice(numeric)
    stored = bytearray(data[entry.offset : entry.offset + entry.size])
    odd = rng.choice(
        (b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xff\xff\x7f\x7f", rng.randbytes(4))
    )
    place = 4 * rng.randrange(max(1, len(stored) // 4))
    stored[place : place + 4] = odd
    entry.crc32c = _masked(_crc(bytes(stored)))
    entries[at] = (entries[at][0], entry.SerializeToString())
    changed = data[: entry.offset] + bytes(stored) + data[entry.offset + entry.size :]
    return write_index(entries), changed
