import numpy as np
import pytest

from bert_tf.choices import POOLINGS
from bert_tf.modeling.pooling import normalize, pool


def make(dtype="float32"):
    states = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(dtype)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], "int32")
    return states, mask


@pytest.mark.parametrize("pooling", POOLINGS)
def test_equals_plain_loops(pooling):
    states, mask = make()
    pooled = np.asarray(pool(states, mask, pooling))
    if pooling == "none":
        np.testing.assert_array_equal(pooled, states)
        return
    for row in range(3):
        real = [state for state, is_real in zip(states[row], mask[row], strict=True) if is_real]
        for number in range(4):
            column = [float(state[number]) for state in real]
            expected = {"cls": column[0], "mean": sum(column) / len(column), "max": max(column)}
            expected["last"] = column[-1]
            assert pooled[row, number] == pytest.approx(expected[pooling], abs=1e-6)


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "last"])
@pytest.mark.parametrize("padding", [np.inf, np.nan, -1e30])
def test_what_padding_has_does_not_matter(pooling, padding):
    states, mask = make()
    expected = pool(states, mask, pooling)
    states[mask == 0] = padding
    np.testing.assert_array_equal(pool(states, mask, pooling), expected)


def test_normalized():
    vectors = np.random.default_rng(0).normal(size=(3, 2, 4)).astype("float32") * 50
    vectors[0, 1] = 0
    scaled = np.asarray(normalize(vectors))
    for index in np.ndindex(3, 2):
        length = sum(float(x) ** 2 for x in vectors[index]) ** 0.5
        np.testing.assert_allclose(scaled[index], vectors[index] / (length or 1), atol=1e-6)


def test_no_such_pooling():
    with pytest.raises(ValueError, match="pooling is 'sum', expected one of none, cls, mean, max"):
        pool(*make(), "sum")
