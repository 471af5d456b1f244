"""Names and layouts of another library."""

import numpy as np
import pytest

from bert_tf.interchange.spelling import Names, Spelling, transpose
from tests.interchange.small_checkpoints import stored

NAMES = Names(
    {"tables/words": "w", "layer_{}/dense": "h.{}.d", "layer_{}/norm": "n{}", "head": "top"},
    {"kernel": ".weight", "bias": ".bias", "gamma": ".g"},
    transposed=True,
)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("tables/words", Spelling("w", False)),
        ("layer_0/dense/kernel", Spelling("h.0.d.weight", True)),
        ("layer_11/dense/bias", Spelling("h.11.d.bias", False)),
        ("layer_2/norm/gamma", Spelling("n2.g", False)),
        ("head/kernel", Spelling("top.weight", True)),
    ],
)
def test_names(name, expected):
    assert NAMES.spell(name) == expected


def test_another_library_may_keep_kernels_as_they_are():
    names = Names({"head": "top"}, {"kernel": "/k"}, transposed=False)
    assert names.spell("head/kernel") == Spelling("top/k", False)


def test_transposed_when_it_is_read():
    array = np.arange(6, dtype=np.float16).reshape(2, 3)
    tensor = transpose(stored("w", array))
    assert (tensor.names, tensor.shape, tensor.dtype) == (("w",), (3, 2), "float16")
    assert tensor.read().tolist() == [[0, 3], [1, 4], [2, 5]]
