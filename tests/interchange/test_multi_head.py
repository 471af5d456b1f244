"""Kernels by head become matrices whose column n * D + d is head n's."""

import numpy as np
import pytest

from bert_tf.interchange.checkpoint import StoredTensor
from bert_tf.interchange.multi_head import merge_heads


def stored(value):
    return StoredTensor(("there",), value.shape, value.dtype.name, lambda: value)


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("layer_0/attention/query/kernel", (6, 2, 3), (6, 6)),
        ("layer_10/attention/value/bias", (2, 3), (6,)),
        ("layer_0/attention/output/kernel", (2, 3, 6), (6, 6)),
        ("layer_0/attention/output/bias", (6,), (6,)),
        # Found otherwise, they are left for the loader to complain of.
        ("layer_0/attention/key/kernel", (6, 6), (6, 6)),
        ("layer_0/attention/output/bias", (2, 3), (2, 3)),
        ("layer_0/output/kernel", (2, 3, 6), (2, 3, 6)),
        ("layer_0/attention/key/bias", (), ()),
    ],
)
def test_heads_are_merged(name, shape, expected):
    value = np.arange(np.prod(shape, dtype=int), dtype="float32").reshape(shape)
    merged = merge_heads(name, stored(value), 2, "config.json")
    assert merged.shape == expected
    assert merged.read().shape == expected
    assert merged.names == ("there",)
    if shape == (6, 2, 3):
        for head in range(2):
            np.testing.assert_array_equal(merged.read()[:, 3 * head : 3 * head + 3], value[:, head])
    if shape == (2, 3, 6) and expected == (6, 6):
        for head in range(2):
            np.testing.assert_array_equal(merged.read()[3 * head : 3 * head + 3], value[head])


@pytest.mark.parametrize(
    ("part", "shape"),
    [("query/kernel", (6, 2, 3)), ("key/bias", (2, 3)), ("output/kernel", (2, 3, 6))],
)
def test_another_number_of_heads_is_an_error(part, shape):
    value = np.zeros(shape, "float32")
    sentence = r"config\.json says that attention has 3 heads, but there of shape \(.*\) has 2"
    with pytest.raises(ValueError, match=sentence):
        merge_heads(f"layer_0/attention/{part}", stored(value), 3, "config.json")
