"""safetensors files, and headers that lie."""

import json
import os
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.interchange import safetensors
from bert_tf.interchange.checkpoint import StoredTensor
from bert_tf.interchange.safetensors import open_file, write_file

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
DTYPES = safetensors.DTYPES.values()
assert len(DTYPES) == 13


def entry(name, array):
    return StoredTensor((name,), array.shape, array.dtype.name, lambda: array)


def entries(values):
    return [entry(name, array) for name, array in values.items()]


def assert_equal(got, expected):
    assert got.dtype == expected.dtype and got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


def random_values():
    """Tensors of every dtype, with bytes of every kind: NaN's, infinities, subnormal numbers."""
    rng = np.random.default_rng(0)
    values = {}
    for dtype in DTYPES:
        data = rng.integers(0, 2 if dtype == np.bool_ else 256, (3, 5 * dtype.itemsize), np.uint8)
        values[f"a.{dtype.name}"] = data.view(dtype)
        values[f"empty.{dtype.name}"] = np.zeros((2, 0), dtype)
    values["größe\x01\n\"'"] = np.asarray(np.float32(2))
    return values


def test_literal_bytes(tmp_path):
    path = tmp_path / "folder" / "m.safetensors"
    write_file(str(path), entries(VALUES), {"format": "pt"})
    assert path.read_bytes() == GOLDEN
    opened = open_file(str(path))
    assert list(opened) == ["b", "c", "a"]
    for name, value in VALUES.items():
        tensor = opened[name]
        assert (tensor.name, tensor.dtype, tensor.shape) == (name, value.dtype.name, value.shape)
        for _ in range(2):
            assert_equal(tensor.read(), value)


def test_every_dtype_returns(tmp_path):
    path = str(tmp_path / "m.safetensors")
    values = random_values()
    write_file(path, entries(values))
    opened = open_file(path)
    assert set(opened) == set(values)
    for name, value in values.items():
        assert_equal(opened[name].read(), value)


def test_any_truth_is_true(tmp_path):
    header = b'{"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}}'
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0\1\2")
    truths = open_file(str(path))["a"].read()
    np.testing.assert_array_equal(truths.view(np.uint8), [0, 1, 1])


@pytest.mark.parametrize("make", [np.transpose, lambda a: a[::2, ::3], lambda a: a[::-1]])
def test_what_is_not_contiguous_is_written_in_order(tmp_path, monkeypatch, make):
    monkeypatch.setattr(safetensors, "_CHUNK_BYTES", 100)
    array = make(np.arange(63 * 41, dtype=np.float32).reshape(63, 41))
    path = str(tmp_path / "m.safetensors")
    write_file(path, [entry("a", array)])
    got = open_file(path)["a"].read()
    np.testing.assert_array_equal(got, array)
    assert got.flags.c_contiguous and got.flags.writeable


# === Refusals ===


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", r"m\.safetensors is no safetensors file: .* got 0 in a file of 0 bytes\."),
        (b"\2\0\0\0\0\0\0", r"is no safetensors file: .* got 2 in a file of 7 bytes\."),
        (b"\1\0\0\1" + bytes(40), r"at most 16,777,216 bytes, got 16,777,217 in a file of 44"),
        (GOLDEN[:100], r"is cut short: its header should end at byte 208 and the file has 100;"),
        (GOLDEN[:-1], r"tensor 'a' ends at byte 10 of the data, which has 9 bytes"),
        (GOLDEN + b"\0", r"has 1 bytes after its last tensor: expected none\."),
        (None, r"m\.safetensors cannot be read: .*No such file"),
        ("folder", r"cannot be read: .*Is a directory|no safetensors file"),
    ],
)
def test_what_is_no_whole_file_is_refused(tmp_path, content, sentence):
    path = tmp_path / "m.safetensors"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        open_file(str(path))


def test_a_file_that_changes_is_noticed(tmp_path, monkeypatch):
    path = tmp_path / "m.safetensors"
    path.write_bytes(GOLDEN)
    read = open_file(str(path))["a"].read
    assert_equal(read(), VALUES["a"])

    def touch():
        path.write_bytes(GOLDEN)
        os.utime(path, (0, 0))

    for change, sentence in (
        (lambda: path.write_bytes(GOLDEN + b"\0"), "has changed since it was opened: open"),
        (touch, "has changed since it was opened: open"),
        (path.unlink, "cannot be read: .*No such file"),
    ):
        change()
        with pytest.raises(ValueError, match=rf"m\.safetensors {sentence}"):
            read()
    # Between the look at it and the reading.
    path.write_bytes(GOLDEN[:-1])
    monkeypatch.setattr(safetensors, "check_unchanged", lambda path, state: None)
    with pytest.raises(ValueError, match=r"m\.safetensors was cut short while it was read: open"):
        read()


def _lying(array):
    """Two float32 values, it says."""
    return StoredTensor(("a",), (2,), "float32", lambda: array)


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        ([entry("a", np.zeros(2)), entry("a", np.zeros(3))], r"expected each name once .* got 'a'"),
        ([entry("__metadata__", np.zeros(2))], r"none of them __metadata__, got '__metadata__'\."),
        ([entry("a", np.zeros(2, "complex64"))], r"'a' has the dtype 'complex64': expected one of"),
        ([_lying(np.zeros(2))],
         r"'a' should be float32 of shape \(2,\) and was read as float64 of"),
        ([_lying(np.zeros(2, ">f4"))],
         r"'a' should be float32 of shape \(2,\) and was read as >f4"),
        ([entry("b", np.zeros(1)), _lying(np.float32([[1, 2]]))],
         r"'a' should be float32 of shape \(2,\) and was read as float32 of shape \(1, 2\)\."),
    ],
)  # fmt: skip
def test_what_cannot_be_written_leaves_no_file(tmp_path, tensors, sentence):
    path = tmp_path / "m.safetensors"
    for before in ([], [path]):
        for there in before:
            there.write_bytes(b"old")
        with pytest.raises(ValueError, match=rf"m\.safetensors: .*{sentence}"):
            write_file(str(path), tensors)
        assert list(tmp_path.iterdir()) == before
    assert path.read_bytes() == b"old"


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
        StoredTensor((str(n),), (1024, 1024), "float32", lambda n=n: make(n, n % 2 == 0))
        for n in range(10)
    ]
    assert 1 < peak_of(lambda: write_file(path, made)) < 1.6
    opened = open_file(path)
    assert 1 < peak_of(lambda: [tensor.read()[0, 0] for tensor in opened.values()]) < 2.6
    assert 1 < peak_of(opened["9"].read) < 1.6
    assert 1 < peak_of(lambda: write_file(path + ".copy", opened.values())) < 1.6
    assert tf.io.gfile.GFile(path, "rb").read() == tf.io.gfile.GFile(path + ".copy", "rb").read()


# === Parity ===


@pytest.mark.parity
def test_what_the_reference_implementation_writes_is_read_and_equal(tmp_path):
    reference = pytest.importorskip("safetensors.numpy")
    values = random_values()
    tensors = {name: value for name, value in values.items() if value.size}
    theirs, ours = tmp_path / "theirs.safetensors", tmp_path / "ours.safetensors"
    reference.save_file(tensors, str(theirs), {"format": "pt"})
    opened = open_file(str(theirs))
    assert set(opened) == set(tensors)
    for name in tensors:
        assert_equal(opened[name].read(), values[name])
    write_file(str(ours), opened.values(), {"format": "pt"})
    assert ours.read_bytes() == theirs.read_bytes()


def _field(dtype="F32", shape=(1,), data_offsets=(0, 4), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(data_offsets), **more}


def _open(tmp_path, header, data_size=4):
    """Opens a file of a header, as bytes or as an object, and of zeros."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(data_size))
    return open_file(str(path))


def _spelled(old, new):
    """The header of a tensor, with something in it spelled otherwise."""
    return json.dumps({"a": _field()}).replace(old, new).encode()


REFUSED = {
    r"m\.safetensors: the header is not JSON: 'utf-8' codec": [b'{"a":\xff}'],
    "the header is not JSON: Expecting value": [b'{"a":'],
    r"m\.safetensors: expected a header that begins with '\{', got b": [b"[1]", b' {"a":1}', b""],
    "the header is not JSON: Extra data": [b'{"a":1} {}'],
    "the header is not JSON that is read: it is nested deeper than 64": [b'{"a":' * 200_000],
    r"the header is not JSON: 'a' stands twice in it\.": [b'{"a":1,"a":2}'],
    "the header is not JSON: .*surrogates not allowed": [b'{"\\ud800":1}'],
    "the header is not JSON: Exceeds the limit": [b'{"a":' + b"9" * 5000 + b"}"],
    "expected __metadata__ to map strings to strings, got ": [
        {"__metadata__": metadata, "a": _field()} for metadata in ({"format": 1}, ["a"], None)
    ],
    "tensor 'a' must have dtype, shape and data_offsets and nothing else, got ": [
        *({"a": fields} for fields in ({}, {"dtype": "F32", "shape": [1]}, [1, 2, 3])),
        {"a": _field(extra=None)},
    ],
    "tensor 'a' has the dtype .*: expected one of BOOL, U8, .*BF16.*; convert the file": [
        {"a": _field(dtype)} for dtype in ("F8_E4M3", "float32", 32, [])
    ],
    "'a' has the shape .*: expected at most 32 integers": [
        _spelled("[1]", shape)
        for shape in (
            *("[-1]", "[1.0]", "[true]", "[null]", "1", "[9223372036854775808]"),
            f"[{','.join('1' * 33)}]",
        )
    ],
    "'a' has the data_offsets .*: expected two integers": [
        _spelled("[0, 4]", offsets)
        for offsets in (
            *("[0]", "[-4,0]", "[0,4.0]", "[false,4]", "4", "[0,18446744073709551616]"),
        )
    ],
    r"tensor 'a' has the shape .*: no memory holds that\.": [
        # Products that are 0, or 4, modulo 2**64: what arithmetic that overflows would believe.
        {"a": _field(shape=[2**32, 2**32], data_offsets=[0, 0])},
        {"a": _field(shape=[2**62 + 1, 4])},
        # NumPy has no such array, though no byte of it is stored.
        {"a": _field(shape=[2**62, 0], data_offsets=[0, 0])},
    ],
    r"tensor 'a' takes 4 bytes by its data_offsets and 8 by its dtype and shape\.": [
        {"a": _field(shape=[2])}
    ],
    "tensor 'a' takes 4 bytes by its data_offsets and 2 by ": [{"a": _field("BF16")}],
    "tensor 'a' takes -4 bytes by its data_offsets and 4 by ": [{"a": _field("F32", [1], [4, 0])}],
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_header_that_lies_is_refused(tmp_path, sentence):
    for header in REFUSED[sentence]:
        with pytest.raises(ValueError, match=sentence):
            _open(tmp_path, header)


@pytest.mark.parametrize(
    ("offsets", "data_size", "sentence"),
    [
        ([[0, 4], [4, 8]], 7, r"tensor 'b' ends at byte 8 of the data, which has 7 bytes: .*short"),
        ([[0, 4], [4 << 60, 4 + (4 << 60)]], 8, r"tensor 'b' ends at byte 4,611,686,018,427,387,9"),
        ([[0, 4], [0, 4]], 8, r"tensor 'b' begins at byte 0 .* tensor before it ends at 4: "),
        ([[0, 4], [5, 9]], 9, r"tensor 'b' begins at byte 5 .* ends at 4: expected tensors w"),
        ([[0, 4], [4, 8]], 11, r"m\.safetensors has 3 bytes after its last tensor: expected none"),
    ],
)
def test_tensors_fill_the_data(tmp_path, offsets, data_size, sentence):
    header = {n: _field(data_offsets=o) for n, o in zip("ab", offsets, strict=True)}
    with pytest.raises(ValueError, match=sentence):
        _open(tmp_path, header, data_size)


def test_a_tensor_without_bytes_lies_in_no_other(tmp_path):
    empty = {"dtype": "F32", "shape": [3, 0]}
    for position in (0, 4):
        header = {"a": _field(), "b": {**empty, "data_offsets": [position] * 2}}
        assert _open(tmp_path, header)["b"].read().shape == (3, 0)
    with pytest.raises(ValueError, match=r"tensor 'b' begins at byte 2 .* ends at 4"):
        _open(tmp_path, {"a": _field(), "b": {**empty, "data_offsets": [2, 2]}})


def test_more_tensors_than_any_model_has(tmp_path, monkeypatch):
    monkeypatch.setattr(safetensors, "MAX_TENSORS", 1)
    with pytest.raises(ValueError, match="names 2 tensors: expected at most 1, more than any B"):
        _open(tmp_path, dict.fromkeys("ab", _field()))
