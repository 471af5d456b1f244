"""safetensors files: what is written is read again, what is damaged is refused."""

import resource

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import save_file

from bert_tf.checkpoints import safetensors
from bert_tf.checkpoints.safetensors import open_file, write_file
from tests.checkpoints.small_checkpoints import stored

# A header of 200 bytes, seven spaces among them, then b, c and a: 4, 4 and 2 bytes.
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


def entries(values):
    return [stored(name, array) for name, array in values.items()]


def assert_read(path, values):
    opened = open_file(str(path))
    assert set(opened) == set(values)
    for name, value in values.items():
        tensor = opened[name]
        assert (tensor.name, tensor.dtype, tensor.shape) == (name, value.dtype.name, value.shape)
        got = tensor.read()
        assert got.dtype == value.dtype and got.shape == value.shape
        assert got.tobytes() == value.tobytes()


def test_literal_bytes(tmp_path):
    path = tmp_path / "folder" / "m.safetensors"
    write_file(str(path), entries(VALUES), {"format": "pt"})
    assert path.read_bytes() == GOLDEN
    assert_read(path, VALUES)


def test_every_dtype_returns(tmp_path):
    rng = np.random.default_rng(0)
    values = {"größe\x01": np.asarray(np.float32(2))}
    for dtype in safetensors.DTYPES.values():
        data = rng.integers(0, 2 if dtype == np.bool_ else 256, (3, 5 * dtype.itemsize), np.uint8)
        values[f"a.{dtype.name}"] = data.view(dtype)
        values[f"empty.{dtype.name}"] = np.zeros((2, 0), dtype)
    values["turned"] = np.arange(63 * 41, dtype=np.float32).reshape(63, 41)[::-1, ::2].T
    write_file(str(tmp_path / "m.safetensors"), entries(values), {})
    assert_read(tmp_path / "m.safetensors", values)


def test_other_file_systems_are_read(tmp_path):
    with tf.io.gfile.GFile("ram://safetensors/m.safetensors", "wb") as file:
        file.write(GOLDEN)
    assert_read("ram://safetensors/m.safetensors", VALUES)


def test_the_reference_implementations_file_is_read(tmp_path):
    values = {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(2, np.float16)}
    save_file(values, tmp_path / "m.safetensors")
    assert_read(tmp_path / "m.safetensors", values)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is no safetensors file that can be read, it is damaged or cut short"),
        (b"\xff" * 7 + b"\0" + bytes(40), "it is damaged or cut short"),
        (GOLDEN[:100], "it is damaged or cut short"),
        (GOLDEN[:-1], "it is damaged or cut short"),
        (GOLDEN + b"\0", "it is damaged or cut short"),
        (GOLDEN.replace(b"[8,10]", b"[0,10]"), "it is damaged or cut short"),
        (GOLDEN.replace(b'"shape":[2,1]', b'"shape":[9,9]'), "it is damaged or cut short"),
        (F8, "has the dtype 'F8_E4M3': expected one of BOOL, "),
        (None, "No such file"),
    ],
)
def test_what_is_no_whole_file_is_refused(tmp_path, content, sentence):
    path = tmp_path / "m.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=sentence) as caught:
        open_file(str(path))
    assert "\n" not in str(caught.value)


def test_what_cannot_be_written_leaves_what_was_there(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"old")
    with pytest.raises(Exception, match="complex"):
        write_file(str(path), [stored("a", np.zeros(2, "complex256"))], {})
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_an_error_of_the_system(tmp_path):
    was = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, was[1]))
    try:
        with pytest.raises(OSError, match=r"new\.safetensors cannot be written: .*too large"):
            write_file(str(tmp_path / "new.safetensors"), entries({"a": np.ones([999])}), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, was)
    assert list(tmp_path.iterdir()) == []
