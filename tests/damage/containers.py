"""Mutations inside of files with a structure: safetensors, zip, TensorFlow's bundles, HDF5.

What a byte's flip would hardly reach is written again around the change: lengths and checksums.
"""

import functools
import hashlib
import io
import json
import os
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Mapping
from random import Random

import h5py
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from bert_tf.training import bundle_reader
from tests.interchange.small_bundles import make_table

from .mutations import Mutator, mutate_bytes, mutate_json

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_DATA = ".data-00000-of-00001"
Files = Mapping[str, bytes]


def mutate_safetensors(rng: Random, content: bytes) -> bytes:
    """Changes a safetensors file: its header's JSON, the header's length, or any bytes."""
    if rng.random() < 0.3:
        return mutate_bytes(rng, content)
    (length,) = struct.unpack("<Q", content[:8])
    values, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    names = [name for name in values if name != "__metadata__"]
    one, other = (values[rng.choice(names)] for _ in range(2))
    key = rng.choice(("dtype", "shape", "data_offsets", ""))
    if key:
        one[key], other[key] = other[key], one[key]
        one[key] = rng.choice((one[key], "F16", "x", [0], [2**32, 2**32], [4, 1 << 40], [1] * 300))
    header = json.dumps(values).encode() if key else mutate_json(rng, json.dumps(values).encode())
    wrong = rng.choice((0, len(header) - 1, len(header) + 1, 2**32, 2**64 - 1))
    return struct.pack("<Q", wrong if rng.random() < 0.1 else len(header)) + header + body


def mutate_zip(rng: Random, content: bytes, mutators: Mapping[str, Mutator] | None = None) -> bytes:
    """Changes an archive: a member by its suffix' mutator, the members' list, or any bytes."""
    kind = rng.random()
    if kind < 0.3:
        return mutate_bytes(rng, content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at = rng.randrange(len(members))
    name, data = members[at]
    if kind < 0.8:
        mutator = (mutators or {}).get(name.rsplit(".", 1)[-1], mutate_bytes)
        members[at] = name, mutator(rng, data)
    elif kind < 0.85:
        members[at] = rng.choice((f"../{name}", f"/tmp/{name}", "\x1b[31m", name + "/")), data
    elif kind < 0.9:
        members.append((name, mutate_bytes(rng, data)))
    elif kind < 0.95:
        members[at] = name, bytes(1 << 26)
    else:
        del members[at]
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore")  # of names that come twice
        for name, data in members:
            archive.writestr(name, data, method)
    return file.getvalue()


def mutate_hdf5(rng: Random, content: bytes) -> bytes:
    """Changes an HDF5 file: a dataset, a group or an attribute, or any bytes."""
    if rng.random() < 0.4:
        return mutate_bytes(rng, content)
    file = io.BytesIO(content)
    with h5py.File(file, "r+") as opened:
        found: list[h5py.Dataset | h5py.Group] = []
        opened.visititems(lambda _, item: found.append(item))
        item = rng.choice(found)
        name, kind = item.name, rng.randrange(10)
        value = item[()] if isinstance(item, h5py.Dataset) else np.float32([1])
        if kind == 0:
            opened.move(name, name + rng.choice(("x", "\x1b[31m", "a" * 5000)))
        elif kind == 1:
            opened[f"{name}_again" if isinstance(item, h5py.Dataset) else f"{name}/loop"] = item
        elif kind == 2:
            item.attrs["layer_names"] = rng.choice((np.arange(3), b"\xff\xfe", "\x1b[31m"))
        else:
            del opened[name]
        if kind == 3:
            opened[name] = value.astype(rng.choice(("float16", "int32", "S3")))
        elif kind == 4:
            opened[name] = value.reshape(-1)
        elif kind == 5:  # takes no room until it is written
            opened.create_dataset(name, shape=(1 << 40,), dtype="f4", chunks=(8,))
        elif kind == 6:
            links = h5py.SoftLink("/"), h5py.ExternalLink("/etc/passwd", "/")
            opened[name] = rng.choice(links)
        elif kind == 7:
            opened[name] = np.full_like(value, rng.choice((np.nan, np.inf, 1e38)))
        elif kind == 8:
            opened.create_group(name)
    return file.getvalue()


# === TensorFlow's bundles, of which two files change at once ===


def mutate_bundle(rng: Random, files: Files) -> dict[str, bytes]:
    """Changes what a bundle's index says, or what it holds; its checksums are right."""
    index = next(name for name in files if name.endswith(".index"))
    prefix = index.removesuffix(".index")
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, "a")
        for end, name in ((".index", index), (_DATA, prefix + _DATA)):
            with open(place + end, "wb") as file:
                file.write(files[name])
        if rng.random() < 0.5:
            return {index: _listed_otherwise(rng, place + ".index")}
        _save_otherwise(rng, place)
        changed = {}
        for end in (".index", _DATA):
            with open(place + end, "rb") as file:
                changed[prefix + end] = file.read()
        return changed


def _listed_otherwise(rng: Random, path: str) -> bytes:
    items = list(bundle_reader._read_index(path, os.path.getsize(path)))
    at = rng.randrange(len(items))
    key, value = items[at]
    kind = rng.randrange(6)
    if kind <= 2:
        items[at] = key, mutate_bytes(rng, value)
    elif kind == 3:
        items[at] = rng.choice((b"", b"\x1b[31m", key + b"\xff", b"a" * 3000, key[:-1])), value
    elif kind == 4:
        items.insert(at, rng.choice(items))
    else:
        del items[at]
    return make_table(items)


def _save_otherwise(rng: Random, prefix: str) -> None:
    reader = tf.train.load_checkpoint(prefix)
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    name = rng.choice(sorted(tensors))
    if rng.random() < 0.5 and _GRAPH in tensors:
        tensors[_GRAPH] = _change_graph(rng, tensors[_GRAPH])
    elif rng.random() < 0.2:
        tensors[rng.choice((name + "x", "\x1b[31m", "a/b"))] = tensors.pop(name)
    else:
        value = np.zeros(3, np.float32) if name == _GRAPH else np.array(tensors[name])
        odd = np.full_like(value, 1e300 if value.dtype == np.float64 else 3)
        odd.flat[-1:] = np.nan if odd.dtype.kind == "f" else 0
        tensors[name] = rng.choice((odd, value.reshape(-1)[:1], value.astype(np.int8), value[None]))
    names = sorted(tensors)
    given = [tf.constant(tensors[name]) for name in names]
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=given
    )


def _change_graph(rng: Random, content: bytes) -> bytes:
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(content)
    count, kind = len(graph.nodes), rng.randrange(6)
    node = rng.choice(graph.nodes)
    child = rng.choice([child for some in graph.nodes for child in some.children])
    attribute = rng.choice([found for some in graph.nodes for found in some.attributes])
    if kind == 0:
        child.node_id = rng.choice((-1, 0, count, rng.randrange(count)))
    elif kind == 1:
        child.local_name = rng.choice(("", "\x1b[31m", "a" * 10_000, "_layers"))
    elif kind == 2:
        attribute.checkpoint_key = rng.choice(("", "nowhere", "a" * 10_000, "\x1b[2J"))
    elif kind == 3:  # a clique of many nodes
        for number in range(300):
            fresh = graph.nodes.add()
            for target in range(number % 20):
                fresh.children.add(node_id=count + target, local_name=f"layer-{target}")
        node.children.add(node_id=count, local_name="_layers")
    elif kind == 4:
        node.ClearField(rng.choice(("children", "attributes")))
    else:
        return mutate_bytes(rng, content)
    return graph.SerializeToString()


def resealed(rng: Random, files: Files) -> dict[str, bytes]:
    """This library's checkpoint as a crafty stranger writes it: the hashes are right again."""
    manifest = next(name for name in files if name.endswith("manifest.json"))
    changes = mutate_bundle(rng, files)
    values = json.loads(files[manifest])
    for name, content in changes.items():
        values["files"][os.path.basename(name)] = {
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
    return {**changes, manifest: json.dumps(values).encode()}


mutate_keras = functools.partial(mutate_zip, mutators={"json": mutate_json, "h5": mutate_hdf5})
