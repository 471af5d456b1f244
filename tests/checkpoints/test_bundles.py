"""TensorFlow's tensor bundles: found, read by tensor and by columns, written."""

import os
import pathlib

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import bundles
from tests.checkpoints.small_checkpoints import stored

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
    bundles.write(path, [(name, stored("x", array)) for name, array in ARRAYS.items()])
    return path


def test_tensorflow_and_this_library_read_what_was_written(prefix):
    reader, bundle = tf.train.load_checkpoint(prefix), bundles.Bundle(prefix)
    assert reader.get_variable_to_shape_map().keys() == ARRAYS.keys()
    assert bundle.shapes == {name: array.shape for name, array in ARRAYS.items()}
    for name, array in ARRAYS.items():
        tensor = bundle.tensor(name)
        assert (tensor.names, tensor.shape, tensor.dtype) == ((name,), array.shape, array.dtype)
        for value in (reader.get_tensor(name), tensor.read()):
            assert value.dtype == array.dtype and np.array_equal(value, array), name


# === Finding ===


def test_found_by_prefix_and_by_directory(prefix, tmp_path):
    assert bundles.find(prefix).prefix == bundles.find(str(tmp_path)).prefix == prefix
    (tmp_path / "empty").mkdir()
    assert bundles.find(str(tmp_path / "empty")) is None
    assert bundles.find(str(tmp_path / "nothing")) is None


@pytest.fixture
def several(tmp_path):
    for name in ("model.ckpt-10", "model.ckpt-20", "model.ckpt-30"):
        bundles.write(str(tmp_path / name), [("x", stored("x", np.zeros(1)))])
    return tmp_path


def test_the_last_saved_or_the_released_one_of_several(several):
    bundles.write(str(several / "bert_model.ckpt"), [("x", stored("x", np.zeros(1)))])
    assert bundles.find(str(several)).prefix == str(several / "bert_model.ckpt")
    (several / "checkpoint").write_text('model_checkpoint_path: "/old/place/model.ckpt-20"\n')
    assert bundles.find(str(several)).prefix == str(several / "model.ckpt-20")


@pytest.mark.parametrize(
    "state", [None, b"garbage {", b'model_checkpoint_path: "../../model.ckpt"', b"\xff\xfe", b"\0"]
)
def test_several_and_nothing_says_which(several, state):
    if state:
        (several / "checkpoint").write_bytes(state)
    sentence = (
        r"holds 3 checkpoints, model\.ckpt-10, model\.ckpt-20, model\.ckpt-30, and nothing says "
        r"which to take: name one, .*/model\.ckpt-30 for example\.$"
    )
    with pytest.raises(ValueError, match=sentence):
        bundles.find(str(several))


# === Damaged ===


@pytest.mark.parametrize(
    "file, change, sentence",
    [
        (".index", lambda path: os.truncate(path, 50),
         r"ckpt\.index: the checkpoint is damaged or cut off: "),
        (DATA, lambda path: os.truncate(path, 31),
         r"ckpt: a/kernel cannot be read, the checkpoint is damaged or cut off: it has 48 bytes"),
        (DATA, os.remove, r"a/kernel cannot be read, .* data files 0"),
    ],
)  # fmt: skip
def test_a_file_cut_off(prefix, file, change, sentence):
    change(prefix + file)
    with pytest.raises(ValueError, match=sentence):
        bundles.Bundle(prefix).tensor("a/kernel").read()


def test_data_with_a_bit_turned(prefix):
    data = pathlib.Path(prefix + DATA)
    content = bytearray(data.read_bytes())
    content[3] ^= 16
    data.write_bytes(content)
    with pytest.raises(ValueError, match=r"a/kernel cannot be read.*[Cc]hecksum") as caught:
        bundles.Bundle(prefix).tensor("a/kernel").read()
    assert "\n" not in str(caught.value)


def test_a_shape_without_its_bytes_takes_no_memory(tmp_path):
    """An index of another checkpoint: the same names, a hundred times the size."""
    small, large = str(tmp_path / "small"), str(tmp_path / "large")
    for prefix, rows in ((small, 1), (large, 100)):
        bundles.write(prefix, [("x", stored("x", np.zeros((rows, 8), np.float32)))])
    os.replace(f"{large}.index", f"{small}.index")
    with pytest.raises(ValueError, match="it has 3,200 bytes, and the data files 32"):
        bundles.Bundle(small).read("x")
