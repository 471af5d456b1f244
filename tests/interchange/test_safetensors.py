"""safetensors files are read and written byte for byte, one tensor at a time."""

import json
import os
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.interchange import safetensors
from bert_tf.interchange.safetensors import open_file, open_sharded, write_file
from bert_tf.interchange.tensor_files import Entry

# A header of 200 bytes, seven spaces among them, then b, c and a: 4, 4 and 2 bytes. The reference
# implementation (0.8.0) writes the same.
GOLDEN = (
    b"\xc8\0\0\0\0\0\0\0"
    b'{"__metadata__":{"format":"pt"},'
    b'"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},'
    b'"c":{"dtype":"BF16","shape":[2,1],"data_offsets":[4,8]},'
    b'"a":{"dtype":"U8","shape":[2],"data_offsets":[8,10]}}'
    b"       "
    b"\0\0\xc0\x3f\x80\x3f\x00\xc0\x07\xff"
)
VALUES = {
    "a": np.uint8([7, 255]),
    "b": np.asarray(np.float32(1.5)),
    "c": np.array([[1], [-2]], ml_dtypes.bfloat16),
}
DTYPES = [np.bool_, np.uint8, np.int8, np.int16, np.uint16, np.float16, ml_dtypes.bfloat16]
DTYPES += [np.int32, np.uint32, np.float32, np.float64, np.int64, np.uint64]


def entry(name, array):
    return Entry(name, array.dtype.name, array.shape, lambda: array)


def entries(values):
    return [entry(name, array) for name, array in values.items()]


def assert_equal(got, expected):
    assert got.dtype == expected.dtype and got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


def random_values():
    """Tensors of every dtype, with bytes of every kind: NaN's, infinities, subnormal numbers."""
    rng = np.random.default_rng(0)
    values = {}
    for dtype in map(np.dtype, DTYPES):
        data = rng.integers(0, 2 if dtype == np.bool_ else 256, (3, 5 * dtype.itemsize), np.uint8)
        values[f"a.{dtype.name}"] = data.view(dtype)
        values[f"empty.{dtype.name}"] = np.zeros((2, 0), dtype)
    values["größe\x01\n\"'"] = np.asarray(np.float32(2))
    return values


def test_reads_literal_bytes(tmp_path):
    (tmp_path / "m.safetensors").write_bytes(GOLDEN)
    opened = open_file(str(tmp_path / "m.safetensors"))
    assert opened.metadata == {"format": "pt"}
    assert list(opened.tensors) == ["b", "c", "a"]
    for name, value in VALUES.items():
        tensor = opened.tensors[name]
        assert tensor[:3] == (name, value.dtype.name, value.shape)
        for _ in range(2):
            assert_equal(tensor.read(), value)


def test_writes_literal_bytes(tmp_path):
    path = tmp_path / "folder" / "m.safetensors"
    write_file(str(path), entries(VALUES), {"format": "pt"})
    assert path.read_bytes() == GOLDEN


def test_every_dtype_returns(tmp_path):
    path = str(tmp_path / "m.safetensors")
    values = random_values()
    write_file(path, entries(values))
    opened = open_file(path)
    assert opened.metadata == {} and set(opened.tensors) == set(values)
    for name, value in values.items():
        assert_equal(opened.tensors[name].read(), value)


def test_a_file_without_tensors(tmp_path):
    path = tmp_path / "m.safetensors"
    write_file(str(path), [])
    assert path.read_bytes() == b"\x08\0\0\0\0\0\0\0{}      "
    assert open_file(str(path)) == ({}, {})


def test_any_truth_is_true(tmp_path):
    header = b'{"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}}'
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0\1\2")
    truths = open_file(str(path)).tensors["a"].read()
    np.testing.assert_array_equal(truths.view(np.uint8), [0, 1, 1])


@pytest.mark.parametrize("make", [np.transpose, lambda a: a[::2, ::3], lambda a: a[::-1]])
def test_what_is_not_contiguous_is_written_in_order(tmp_path, monkeypatch, make):
    monkeypatch.setattr(safetensors, "_CHUNK_BYTES", 100)
    array = make(np.arange(63 * 41, dtype=np.float32).reshape(63, 41))
    path = str(tmp_path / "m.safetensors")
    write_file(path, [entry("a", array)])
    got = open_file(path).tensors["a"].read()
    np.testing.assert_array_equal(got, array)
    assert got.flags.c_contiguous and got.flags.writeable


# === Refusals ===


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", r"m\.safetensors is no safetensors file: .* got 0 in a file of 0 bytes\."),
        (b"\2\0\0\0\0\0\0", r"is no safetensors file: .* got 2 in a file of 7 bytes\."),
        (
            b"version https://",
            r"is no safetensors file: .* at most 16,777,216 bytes, got 2,336,927",
        ),
        (
            b"\1\0\0\1" + bytes(40),
            r"at most 16,777,216 bytes, got 16,777,217 in a file of 44",
        ),
        (GOLDEN[:100], r"is cut short: its header should end at byte 208 and the file has 100;"),
        (GOLDEN[:-1], r"tensor 'a' ends at byte 10 of the data, which has 9 bytes"),
        (GOLDEN + b"\0", r"has 1 bytes after its last tensor: expected none\."),
        (None, r"m\.safetensors cannot be read: .*No such file"),
    ],
)
def test_what_is_no_whole_file_is_refused(tmp_path, content, sentence):
    path = tmp_path / "m.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        open_file(str(path))


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"cannot be read: .*Is a directory|no safetensors file"):
        open_file(str(tmp_path))


def test_a_file_that_changes_is_noticed(tmp_path, monkeypatch):
    path = tmp_path / "m.safetensors"
    path.write_bytes(GOLDEN)
    read = open_file(str(path)).tensors["a"].read
    assert_equal(read(), VALUES["a"])
    path.write_bytes(GOLDEN + b"\0")
    with pytest.raises(ValueError, match=r"m\.safetensors has changed since it was opened: open"):
        read()
    path.write_bytes(GOLDEN)
    os.utime(path, (0, 0))
    with pytest.raises(ValueError, match=r"m\.safetensors has changed since it was opened: open"):
        read()
    path.unlink()
    with pytest.raises(ValueError, match=r"m\.safetensors cannot be read: .*No such file"):
        read()
    # Between the look at it and the reading.
    path.write_bytes(GOLDEN[:-1])
    monkeypatch.setattr(safetensors, "check_unchanged", lambda path, state: None)
    with pytest.raises(ValueError, match=r"m\.safetensors was cut short while it was read: open"):
        read()


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        ([entry("a", np.zeros(2)), entry("a", np.zeros(3))], r"expected each name once .* got 'a'"),
        ([entry("__metadata__", np.zeros(2))], r"none of them __metadata__, got '__metadata__'\."),
        (
            [entry("a", np.zeros(2, np.complex64))],
            r"'a' has the dtype 'complex64': expected one of",
        ),
        (
            [Entry("a", "float32", (2,), lambda: np.zeros(2))],
            r"'a' should be float32 of shape \(2,\) and was read as float64 of shape \(2,\)\.",
        ),
        (
            [Entry("a", "float32", (2,), lambda: np.zeros(2, ">f4"))],
            r"'a' should be float32 of shape \(2,\) and was read as >f4 of shape \(2,\)\.",
        ),
        (
            [entry("b", np.zeros(1)), Entry("a", "float32", (2,), lambda: np.float32([[1, 2]]))],
            r"'a' should be float32 of shape \(2,\) and was read as float32 of shape \(1, 2\)\.",
        ),
    ],
)
def test_what_cannot_be_written_leaves_no_file(tmp_path, tensors, sentence):
    path = tmp_path / "m.safetensors"
    with pytest.raises(ValueError, match=rf"m\.safetensors: .*{sentence}"):
        write_file(str(path), tensors)
    assert list(tmp_path.iterdir()) == []


def test_an_error_while_reading_keeps_the_file_before(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(GOLDEN)
    broken = open_file(str(path)).tensors["a"]._replace(name="z")
    path.write_bytes(GOLDEN + b"\0")
    with pytest.raises(ValueError, match=r"has changed since it was opened"):
        write_file(str(path), [entry("b", np.zeros(9)), broken])
    assert path.read_bytes() == GOLDEN + b"\0"
    assert list(tmp_path.iterdir()) == [path]


# === Memory ===


def test_one_tensor_at_a_time(tmp_path):
    size = 4 << 20
    path = str(tmp_path / "m.safetensors")

    def make(number, transposed):
        array = np.full((1024, size // 4096), number, np.float32)
        return array.T if transposed else array

    def peak_of(function):
        tracemalloc.start()
        function()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak / size

    made = [
        Entry(str(n), "float32", (1024, 1024), lambda n=n: make(n, n % 2 == 0)) for n in range(10)
    ]
    assert 1 < peak_of(lambda: write_file(path, made)) < 1.6
    opened = open_file(path).tensors
    assert 1 < peak_of(lambda: [tensor.read()[0, 0] for tensor in opened.values()]) < 2.6
    assert 1 < peak_of(opened["9"].read) < 1.6
    assert 1 < peak_of(lambda: write_file(path + ".copy", opened.values())) < 1.6
    assert tf.io.gfile.GFile(path, "rb").read() == tf.io.gfile.GFile(path + ".copy", "rb").read()


# === Shards ===


def test_shards_are_one_checkpoint(tmp_path):
    write_file(str(tmp_path / "1.safetensors"), entries({"a": VALUES["a"], "b": VALUES["b"]}))
    write_file(str(tmp_path / "2.safetensors"), entries({"c": VALUES["c"]}))
    weight_map = {"c": "2.safetensors", "a": "1.safetensors", "b": "1.safetensors"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 10}, "weight_map": weight_map}))
    tensors = open_sharded(str(index))
    assert set(tensors) == set(VALUES)
    for name, value in VALUES.items():
        assert_equal(tensors[name].read(), value)


# === Parity ===


@pytest.mark.parity
def test_the_reference_implementation_reads_what_is_written(tmp_path):
    reference = pytest.importorskip("safetensors")
    torch = pytest.importorskip("torch")
    path = str(tmp_path / "m.safetensors")
    values = random_values()
    write_file(path, entries(values), {"format": "pt"})
    with reference.safe_open(path, framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert set(file.keys()) == set(values)
        for name, value in values.items():
            tensor = file.get_tensor(name)
            assert tuple(tensor.shape) == value.shape
            assert str(tensor.dtype) == f"torch.{value.dtype.name}"
            assert bytes(tensor.reshape(-1).view(torch.uint8).numpy()) == value.tobytes()


@pytest.mark.parity
def test_what_the_reference_implementation_writes_is_read_and_equal(tmp_path):
    reference = pytest.importorskip("safetensors.torch")
    torch = pytest.importorskip("torch")
    values = random_values()
    tensors = {
        name: torch.from_numpy(np.frombuffer(value.tobytes() or b"\0", np.uint8).copy())
        .view(getattr(torch, value.dtype.name))[: value.size]
        .reshape(value.shape)
        for name, value in values.items()
        if value.size
    }
    theirs, ours = tmp_path / "theirs.safetensors", tmp_path / "ours.safetensors"
    reference.save_file(tensors, str(theirs), {"format": "pt"})
    opened = open_file(str(theirs))
    assert opened.metadata == {"format": "pt"} and set(opened.tensors) == set(tensors)
    for name in tensors:
        assert_equal(opened.tensors[name].read(), values[name])
    write_file(str(ours), opened.tensors.values(), opened.metadata)
    assert ours.read_bytes() == theirs.read_bytes()
