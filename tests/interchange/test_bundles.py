"""TensorFlow's tensor bundles: found, read by tensor and by columns, written."""

import os
import re

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.interchange import bundles
from tests.interchange.small_checkpoints import stored

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


def test_tensorflow_reads_what_was_written(prefix):
    reader = tf.train.load_checkpoint(prefix)
    assert reader.get_variable_to_shape_map().keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        value = reader.get_tensor(name)
        assert value.dtype == array.dtype and np.array_equal(value, array), name


def test_tensors_are_read_one_by_one(prefix):
    bundle = bundles.Bundle(prefix)
    assert bundle.shapes == {name: array.shape for name, array in ARRAYS.items()}
    for name, array in ARRAYS.items():
        tensor = bundle.tensor(name)
        assert (tensor.names, tensor.shape, tensor.dtype) == ((name,), array.shape, array.dtype)
        assert tensor.read().dtype == array.dtype and np.array_equal(tensor.read(), array)


def test_columns(prefix):
    tensor = bundles.Bundle(prefix).tensor("a/kernel", (1, 2))
    assert tensor.shape == (3, 2)
    assert tensor.read().tolist() == [[1, 2], [5, 6], [9, 10]]
    assert bundles.Bundle(prefix).tensor("half", (1, 1)).read().tolist() == [-2]


# === Finding ===


def test_found_by_prefix_and_by_directory(prefix):
    assert bundles.find_prefix(prefix) == prefix
    assert bundles.find_prefix(os.path.dirname(prefix)) == prefix


def test_none_to_be_found(tmp_path):
    assert bundles.find_prefix(str(tmp_path)) is None
    assert bundles.find_prefix(str(tmp_path / "nothing")) is None


@pytest.fixture
def several(tmp_path):
    for name in ("model.ckpt-10", "model.ckpt-20", "model.ckpt-30"):
        (tmp_path / f"{name}.index").touch()
    return tmp_path


def test_the_last_saved_of_several_wherever_it_was_saved(several):
    (several / "checkpoint").write_text('model_checkpoint_path: "/old/place/model.ckpt-20"\n')
    assert bundles.find_prefix(str(several)) == str(several / "model.ckpt-20")


def test_the_preferred_of_several(several):
    assert bundles.find_prefix(str(several), "model.ckpt-30") == str(several / "model.ckpt-30")


@pytest.mark.parametrize("state", [None, "garbage {", 'model_checkpoint_path: "../../model.ckpt"'])
def test_several_and_nothing_says_which(several, state):
    if state:
        (several / "checkpoint").write_text(state)
    with pytest.raises(
        ValueError,
        match=r"holds 3 checkpoints, model\.ckpt-10, model\.ckpt-20, model\.ckpt-30, and nothing "
        r"says which to take: name one, .*/model\.ckpt-30 for example\.$",
    ):
        bundles.find_prefix(str(several), "bert_model.ckpt")


# === Damaged ===


@pytest.mark.parametrize("content", [b"", b"garbage" * 20])
def test_an_index_that_is_none(prefix, content):
    with open(prefix + ".index", "wb") as file:
        file.write(content)
    with pytest.raises(ValueError, match=r"ckpt\.index is not a TensorFlow checkpoint that can be"):
        bundles.Bundle(prefix)


def test_an_index_cut_off(prefix):
    with open(prefix + ".index", "rb+") as file:
        file.truncate(os.path.getsize(prefix + ".index") // 2)
    with pytest.raises(ValueError, match=r"ckpt\.index is not a TensorFlow checkpoint that can be"):
        bundles.Bundle(prefix)


def test_data_cut_off(prefix):
    data = prefix + ".data-00000-of-00001"
    with open(data, "rb+") as file:
        file.truncate(os.path.getsize(data) // 2)
    bundle = bundles.Bundle(prefix)
    unreadable = (
        r"bert_model\.ckpt: .+ cannot be read, the checkpoint's data file is damaged or cut"
    )
    with pytest.raises(ValueError, match=unreadable):
        for name in ARRAYS:
            bundle.tensor(name).read()


def test_data_that_is_not_there(prefix):
    os.remove(prefix + ".data-00000-of-00001")
    with pytest.raises(ValueError, match=r"half cannot be read, .* No such file"):
        bundles.Bundle(prefix).tensor("half").read()


def test_data_with_a_bit_turned(prefix):
    data = prefix + ".data-00000-of-00001"
    with open(data, "rb+") as file:
        content = bytearray(file.read())
        content[3] ^= 16
        file.seek(0)
        file.write(content)
    with pytest.raises(ValueError, match=r"a/kernel cannot be read.*[Cc]hecksum") as caught:
        bundles.Bundle(prefix).tensor("a/kernel").read()
    assert not re.search(r"\n", str(caught.value))
