"""Arrays become tensors bit for bit, in pieces."""

import ml_dtypes
import numpy as np
import pytest

from bert_tf.interchange import in_place


@pytest.mark.parametrize("chunk", [1, 16, 24, 1 << 20])
@pytest.mark.parametrize("dtype", ["float32", "float16", ml_dtypes.bfloat16, "float64", "int64"])
@pytest.mark.parametrize("shape", [(7, 3), (5,), (2, 3, 4), (), (0, 4), (1, 1)])
def test_bit_for_bit(monkeypatch, shape, dtype, chunk):
    monkeypatch.setattr(in_place, "_CHUNK_BYTES", chunk)
    array = (np.random.default_rng(0).normal(size=shape) * 100).astype(dtype)
    tensor = in_place.to_tensor(array)
    assert tensor.shape == shape and tensor.dtype.as_numpy_dtype == array.dtype.type
    assert tensor.numpy().tobytes() == array.tobytes()


def test_rows_that_are_not_beside_each_other_in_memory():
    array = np.arange(12.0).reshape(3, 4)
    assert in_place.to_tensor(array.T).numpy().tolist() == array.T.tolist()
    assert in_place.to_tensor(array[:, 1:3]).numpy().tolist() == array[:, 1:3].tolist()


def test_the_tensor_does_not_follow_the_array():
    array = np.zeros((2, 2))
    tensor = in_place.to_tensor(array)
    array[:] = 1
    assert tensor.numpy().tolist() == [[0, 0], [0, 0]]
