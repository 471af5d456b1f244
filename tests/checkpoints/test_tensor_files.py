"""Tensor files: exact round trips, and errors for damaged files."""

import collections
import functools
import json
import os
import pathlib
import pickle
import sys
import types
import zipfile

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from bert_tf.checkpoints import tensor_files
from bert_tf.checkpoints.checkpoint import StoredTensor
from bert_tf.checkpoints.tensor_files import (
    Bundle,
    find_prefix,
    open_hdf5,
    open_pickle,
    open_safetensors,
    open_shards,
    write_bundle,
    write_safetensors,
)
from tests.checkpoints.small_checkpoints import stored

PARITY = pytest.mark.parity
read_pickle = functools.partial(open_pickle, allow_pickle=True)


def assert_read(opened, values):
    assert set(opened) == set(values)
    for name, value in values.items():
        tensor = opened[name]
        assert (tensor.name, tensor.dtype, tensor.shape) == (name, value.dtype.name, value.shape)
        found = tensor.read()
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
        assert found.tobytes() == value.tobytes()


@pytest.mark.parametrize(
    ("open_file", "name", "make"),
    [
        (open_safetensors, "a.safetensors", safetensors.numpy.save_file),
        (open_hdf5, "a.h5", lambda values, path: h5py.File(path, "w").update(values)),
    ],
)
def test_files_on_remote_file_systems_are_read(tmp_path, open_file, name, make):
    values = {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(2, np.float16)}
    make(values, tmp_path / name)
    assert_read(open_file(str(tmp_path / name)), values)
    tf.io.gfile.copy(str(tmp_path / name), f"ram://tensors/{name}", overwrite=True)
    assert_read(open_file(f"ram://tensors/{name}"), values)


# === Shards ===


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    for name, tensors in {"1.bin": "a b", "2.bin": "c", "3.bin": "c a"}.items():
        (tmp_path / "model" / name).write_text(tensors)
    (tmp_path / "outside.bin").write_text("a")
    return tmp_path / "model"


def _open_shards(folder, weight_map):
    def open_shard(path):
        names = pathlib.Path(path).read_text().split()
        value = float(path.endswith("3.bin"))
        return {
            name: StoredTensor(name, (), "float32", lambda: np.full((), value)) for name in names
        }

    index = folder / "index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    return open_shards(str(index), open_shard)


def test_tensors_of_all_shards_are_read(folder, tmp_path):
    tensors = _open_shards(folder, {"c": "2.bin", "a": "1.bin", "b": "1.bin"})
    assert {name: entry.name for name, entry in tensors.items()} == {"a": "a", "b": "b", "c": "c"}
    # In the hub's cache, the shards are links to files outside the directory.
    snapshot = tmp_path / "snapshots" / "revision"
    snapshot.mkdir(parents=True)
    os.symlink("../../outside.bin", snapshot / "1.bin")
    assert set(_open_shards(snapshot, {"a": "1.bin"})) == {"a"}


def test_index_selects_the_shard_of_duplicate_tensors(folder):
    tensors = _open_shards(folder, {"a": "3.bin", "b": "1.bin", "c": "3.bin"})
    assert [tensors[name].read() for name in "abc"] == [1, 0, 1]
    (folder / "4.bin").write_text("d a")  # a copy, with the same value
    tensors = _open_shards(folder, {"a": "1.bin", "b": "1.bin", "d": "4.bin"})
    assert [tensors[name].read() for name in "abd"] == [0, 0, 0]


OUTSIDE = ["", "..", "../outside.bin", "/etc/passwd", "x/../1.bin", "..\\1.bin", "gs://a/1.bin"]
GOOD = {"a": "1.bin", "b": "1.bin"}


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        *(
            ({"a": name}, r"index\.json: expected file names without a directory, got ")
            for name in (*OUTSIDE, "1.bin\0", "1.bin\n", "\ud800", 1, None)
        ),
        *(
            (weight_map, r"weight_map: expected an object that maps tensors to file names")
            for weight_map in ({}, None, ["1.bin"], "1.bin")
        ),
        ({**GOOD, "c": "4.bin"}, r"No such file: .*4\.bin, listed in .*index\.json"),
        ({**GOOD, "d": "1.bin", "c": "2.bin"},
         r"index\.json: expected 'd' in 1\.bin, but .*1\.bin lacks it"),
        ({"a": "1.bin", "b": "2.bin", "c": "2.bin"},
         r"index\.json: expected 'b' in 2\.bin, but .*2\.bin lacks it"),
        ({"a": "1.bin", "c": "2.bin"}, r"index\.json: expected 'b' in none, but .*1\.bin contains"),
        # A later file contains a different tensor with the same name.
        ({**GOOD, "c": "3.bin"},
         r"index\.json: expected 'a' in 1\.bin, but .*3\.bin contains a different one"),
    ],
    ids=repr,
)  # fmt: skip
def test_invalid_index_raises_error(folder, weight_map, message):
    with pytest.raises(ValueError, match=message):
        _open_shards(folder, weight_map)


# === safetensors ===

# A header of 200 bytes, including seven spaces, then b, c and a with 4, 4 and 2 bytes.
GOLDEN = (
    b"\xc8\0\0\0\0\0\0\0"
    b'{"__metadata__":{"format":"pt"},'
    b'"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},'
    b'"c":{"dtype":"BF16","shape":[2,1],"data_offsets":[4,8]},'
    b'"a":{"dtype":"U8","shape":[2],"data_offsets":[8,10]}}'
    b"       "
    b"\0\0\xc0\x3f\x80\x3f\x00\xc0\x07\xff"
)
F8 = GOLDEN.replace(b'"BF16","shape":[2,1]', b'"F8_E4M3","shape":[4]').replace(b" " * 7, b" " * 6)
VALUES = {
    "a": np.uint8([7, 255]),
    "b": np.asarray(np.float32(1.5)),
    "c": np.array([[1], [-2]], ml_dtypes.bfloat16),
}


def write(path, values):
    write_safetensors(str(path), [stored(name, array) for name, array in values.items()])
    return str(path)


def test_safetensors_file_equals_literal_bytes(tmp_path):
    path = write(tmp_path / "folder" / "m.safetensors", VALUES)
    assert pathlib.Path(path).read_bytes() == GOLDEN
    assert_read(open_safetensors(path), VALUES)


def test_safetensors_round_trip_of_all_dtypes(tmp_path):
    rng = np.random.default_rng(0)
    values = {"größe\x01": np.asarray(np.float32(2))}
    for dtype in tensor_files._DTYPES.values():
        data = rng.integers(0, 2 if dtype == np.bool_ else 256, (3, 5 * dtype.itemsize), np.uint8)
        values[f"a.{dtype.name}"] = data.view(dtype)
        values[f"empty.{dtype.name}"] = np.zeros((2, 0), dtype)
    values["turned"] = np.arange(63 * 41, dtype=np.float32).reshape(63, 41)[::-1, ::2].T
    assert_read(open_safetensors(write(tmp_path / "m.safetensors", values)), values)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *(
            (content, "cannot be read as safetensors")
            for content in (
                *(b"", b"\xff" * 7 + b"\0" + bytes(40), GOLDEN[:100], GOLDEN[:-1], GOLDEN + b"\0"),
                GOLDEN.replace(b"[8,10]", b"[0,10]"),
                GOLDEN.replace(b'"shape":[2,1]', b'"shape":[9,9]'),
            )
        ),
        (F8, "expected one of BOOL, U8, I8, I16, U16, F16, BF16, I32, U32, F32, F64, I64, U64, got "
         "'F8_E4M3'"),
        (None, "No such file or directory"),
    ],
)  # fmt: skip
def test_invalid_safetensors_file_raises_error(tmp_path, content, message):
    path = tmp_path / "m.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        open_safetensors(str(path))
    assert "\n" not in str(caught.value)


def test_failed_write_keeps_the_previous_file(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"old")
    with pytest.raises(Exception, match="complex"):
        write(path, {"a": np.zeros(2, "complex256")})
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_full_disk_raises_oserror(tmp_path, full_disk):
    message = r"Cannot write .*new\.safetensors: .*too large"
    with pytest.raises(OSError, match=message), full_disk(1000):
        write(tmp_path / "new.safetensors", {"a": np.ones([999])})
    assert list(tmp_path.iterdir()) == []


# === HDF5 ===


def write_hdf5(path, change):
    with h5py.File(path, "w") as file:
        file["layers/dense/vars/0"] = np.arange(6, dtype="float32").reshape(2, 3)
        change(file)
    return str(path)


def test_keras_weights_are_read_exactly(tmp_path):
    layers = [keras.layers.Dense(3, dtype="bfloat16"), keras.layers.Dense(2, dtype="float16")]
    model = keras.Sequential(layers)
    model.build((None, 4))
    path = str(tmp_path / "m.weights.h5")
    model.save_weights(path)
    names = [f"layers/{layer}/vars/{number}" for layer in ("dense", "dense_1") for number in "01"]
    values = zip(names, (np.array(weight.value) for weight in model.weights), strict=True)
    assert_read(open_hdf5(path), dict(values))


def test_hdf5_links_are_not_followed(tmp_path):
    def link(file):
        file["a"] = h5py.SoftLink("/layers")
        file["layers/a"] = h5py.ExternalLink("/etc/hosts", "/a")
        file["layers/again"] = file["/"]

    assert list(open_hdf5(write_hdf5(tmp_path / "a.h5", link))) == ["layers/dense/vars/0"]


def virtual(file):
    layout = h5py.VirtualLayout((2,), "float32")
    layout[:] = h5py.VirtualSource("other.h5", "a", (2,))
    file.create_virtual_dataset("a", layout)


def dataset(*arguments, **named):
    return lambda file: file.create_dataset("a", *arguments, **named)


NOT_STORED = (
    r"'a': the [\d,]+ bytes are not stored in the file \([\d,]+ bytes\): the dataset is "
    r"compressed, external or truncated\. Save the file again uncompressed\.$"
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dataset((4,), "u1", external=[("/etc/hosts", 0, 4)]), NOT_STORED),
        (virtual, NOT_STORED),
        (dataset((1 << 40,), "float32"), NOT_STORED),
        (dataset((1 << 40,), "float32", chunks=(1024,)), NOT_STORED),
        (dataset(data=np.zeros(9999, "uint8"), compression="gzip"), NOT_STORED),
        (dataset((2,), dtype=h5py.vlen_dtype("float32")),
         r"'a': expected a numeric array, got the type dtype\('O'\)\."),
        (dataset(data=h5py.Empty("f4")),
         r"'a': expected a numeric array, got an empty dataset\."),
    ],
    ids=["external", "virtual", "shape only", "chunks", "compressed", "variable length", "empty"],
)  # fmt: skip
def test_unsupported_hdf5_dataset_raises_error(tmp_path, change, message):
    path = write_hdf5(tmp_path / "a.h5", change)
    with pytest.raises(ValueError, match=rf"a\.h5: {message}"):
        open_hdf5(path)


# === PyTorch pickles ===


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (None, "PyTorch is not installed. Run pip install torch, or use a safetensors file"),
        ("2.5.1+cu121", r"expected torch 2\.6 or later, got 2\.5\.1\+cu121"),
    ],
)
def test_missing_or_unsafe_torch_version_raises_error(path, monkeypatch, version, message):
    module = version and types.SimpleNamespace(__version__=version)
    monkeypatch.setitem(sys.modules, "torch", module)
    with pytest.raises(ValueError, match=message):
        read_pickle(path)


def _values(torch):
    generator = torch.Generator().manual_seed(0)
    values = {
        f"a.{dtype}": torch.randn((3, 5), generator=generator).to(dtype)
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64)
    }
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool):
        values[f"a.{dtype}"] = torch.randint(0, 2, (4,), generator=generator).to(dtype)
    values["all.bf16"] = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.bfloat16)
    values["transposed"] = torch.randn((3, 5), generator=generator).T
    values["part"] = torch.arange(10.0)[2:8:3]
    values["negative"] = torch._neg_view(torch.tensor([1.0, -2.0]))
    values["parameter"] = torch.nn.Parameter(torch.ones(2))
    values["scalar"] = torch.tensor(3)
    values["empty"] = torch.zeros((0, 4))
    values["tied"] = values["a.torch.float32"]
    return collections.OrderedDict(values)


@PARITY
@pytest.mark.parametrize("zipped", [True, False])
def test_pickled_tensors_are_read_exactly(torch, path, zipped):
    values = _values(torch)
    torch.save(values, path, _use_new_zipfile_serialization=zipped)
    assert zipfile.is_zipfile(path) == zipped
    entries = read_pickle(path)
    assert list(entries) == list(values)
    for name, value in values.items():
        entry = entries[name]
        array = entry.read()
        found = (entry.name, entry.dtype, entry.shape)
        assert found == (name, str(value.dtype)[6:], tuple(value.shape))
        assert (array.dtype, array.shape) == (np.dtype(entry.dtype), entry.shape)
        bits = value.detach().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
        assert array.tobytes() == bytes(bits.numpy())
        assert array.flags.owndata and array.flags.writeable
    assert entries["all.bf16"].read().dtype == ml_dtypes.bfloat16
    # Changing an array does not affect later reads.
    entries["part"].read()[:] = 0
    assert entries["part"].read().tolist() == [2, 5]
    assert entries["negative"].read().tolist() == [-1, 2]


class _Malicious:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (self.target,)


@PARITY
@pytest.mark.parametrize("form", ["zip", "old", "bare"])
def test_malicious_pickle_is_not_executed(torch, path, tmp_path, form):
    target = str(tmp_path / "made by a pickle")
    content = {"b": _Malicious(target)}
    if form == "bare":
        pathlib.Path(path).write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    message = r"bin: expected a dict of tensors; torch\.load failed with .*mkdir [^.\n]*\.$"
    with pytest.raises(ValueError, match=message):
        read_pickle(path)
    assert not os.path.exists(target)
    # pickle.loads executes the code, so the test is meaningful.
    if form == "bare":
        pickle.loads(pathlib.Path(path).read_bytes())
        assert os.path.isdir(target)


@PARITY
def test_unsupported_pickle_contents_raise_error(torch, path):
    torch.save([1], path)
    with pytest.raises(ValueError, match="expected a dict of tensors, got list"):
        read_pickle(path)
    for tensor, message in (
        ({}, "expected a tensor, got dict. Save only the model's state_dict"),
        (torch.zeros(2).to(torch.float8_e4m3fn), r"expected a dense .*, got float8_e4m3fn, .*\.$"),
        (torch.zeros(2).to_sparse(), r"expected a dense .*, got float32, torch\.sparse_coo, "),
        (torch.zeros(2, device="meta"), r"expected a dense tensor of .*, got float32, .*, meta\."),
        (
            torch.zeros(1).expand(1 << 40),
            r"the shape \(1099511627776,\) is larger than the stored data",
        ),
    ):
        torch.save({"a": tensor}, path)
        with pytest.raises(ValueError, match=f"'a': {message}"):
            read_pickle(path)


# === TensorFlow bundles ===

DATA = ".data-00000-of-00001"
ARRAYS = {
    "a/kernel": np.arange(12, dtype=np.float32).reshape(3, 4),
    "half": np.float16([1.5, -2]),
    "brain": np.array([[3.0]], ml_dtypes.bfloat16),
    "step": np.int64(7),
}


@pytest.fixture
def prefix(tmp_path):
    path = str(tmp_path / "bert_model.ckpt")
    write_bundle(path, [stored(name, array) for name, array in ARRAYS.items()])
    return path


def test_written_bundle_is_read_by_tensorflow_and_bert_tf(prefix):
    reader, bundle = tf.train.load_checkpoint(prefix), Bundle(prefix)
    assert reader.get_variable_to_shape_map().keys() == ARRAYS.keys()
    assert_read({name: bundle.tensor(name) for name in bundle.shapes}, ARRAYS)
    for name, array in ARRAYS.items():
        assert np.array_equal(reader.get_tensor(name), array), name


def test_bundle_is_found_by_prefix_and_directory(prefix, tmp_path):
    assert find_prefix(prefix) == find_prefix(str(tmp_path)) == prefix
    assert find_prefix(str(tmp_path / "nothing")) is None


@pytest.fixture
def prefixes(tmp_path):
    for name in ("model.ckpt-10", "model.ckpt-20", "model.ckpt-30"):
        write_bundle(str(tmp_path / name), [stored("x", np.zeros(1))])
    return tmp_path


def test_latest_or_released_checkpoint_is_selected(prefixes):
    write_bundle(str(prefixes / "bert_model.ckpt"), [stored("x", np.zeros(1))])
    assert find_prefix(str(prefixes)) == str(prefixes / "bert_model.ckpt")
    (prefixes / "checkpoint").write_text('model_checkpoint_path: "/old/place/model.ckpt-20"\n')
    assert find_prefix(str(prefixes)) == str(prefixes / "model.ckpt-20")


@pytest.mark.parametrize(
    "state", [None, b"garbage {", b'model_checkpoint_path: "../../model.ckpt"', b"\xff\xfe", b"\0"]
)
def test_ambiguous_directory_raises_error(prefixes, state):
    if state:
        (prefixes / "checkpoint").write_bytes(state)
    message = (
        r"expected one checkpoint, got 3: model\.ckpt-10, model\.ckpt-20, model\.ckpt-30\. Pass "
        r"one of them, such as .*/model\.ckpt-30\.$"
    )
    with pytest.raises(ValueError, match=message):
        find_prefix(str(prefixes))


def flip_bit(path):
    content = bytearray(pathlib.Path(path).read_bytes())
    content[3] ^= 16
    pathlib.Path(path).write_bytes(content)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (".index", lambda path: os.truncate(path, 50),
         r"ckpt\.index: the checkpoint is damaged or truncated: "),
        (DATA, lambda path: os.truncate(path, 31),
         "ckpt: cannot read a/kernel, the checkpoint is damaged or truncated: it has 48 "
         "bytes, but the data files have 31"),
        (DATA, os.remove, r"cannot read a/kernel, .* data files have 0"),
        (DATA, flip_bit, "cannot read a/kernel.*[Cc]hecksum does not match"),
    ],
)  # fmt: skip
def test_damaged_bundle_raises_error(prefix, file, change, message):
    change(prefix + file)
    with pytest.raises(ValueError, match=message) as caught:
        Bundle(prefix).tensor("a/kernel").read()
    assert "\n" not in str(caught.value)
