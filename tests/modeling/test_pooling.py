"""Pooling of hidden states, compared with plain loops."""

import numpy as np
import pytest

from bert_tf.choices import POOLINGS
from bert_tf.modeling import BertClassifier
from bert_tf.modeling.pooling import Pooling, normalize, pool
from tests.modeling.conftest import TINY


def states_and_mask(dtype="float32"):
    states = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(dtype)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], "int32")
    return states, mask


@pytest.mark.parametrize("pooling", POOLINGS)
def test_equals_plain_loops(pooling):
    states, mask = states_and_mask()
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
def test_pooling_ignores_padding(pooling, padding):
    states, mask = states_and_mask()
    expected = pool(states, mask, pooling)
    states[mask == 0] = padding
    np.testing.assert_array_equal(pool(states, mask, pooling), expected)


def test_normalized_vectors_equal_plain_loops():
    vectors = np.random.default_rng(0).normal(size=(3, 2, 4)).astype("float32") * 50
    vectors[0, 1] = 0
    scaled = np.asarray(normalize(vectors))
    for index in np.ndindex(3, 2):
        length = sum(float(x) ** 2 for x in vectors[index]) ** 0.5
        np.testing.assert_allclose(scaled[index], vectors[index] / (length or 1), atol=1e-6)


def test_sequence_of_padding_is_finite():
    states, mask = states_and_mask()
    mask[2] = 0
    for pooling in ("mean", "max"):
        read = np.asarray(Pooling(pooling)(states, mask))
        np.testing.assert_array_equal(read[2], states[2, 0])
        np.testing.assert_allclose(read[:2], pool(states[:2], mask[:2], pooling), atol=1e-6)


def test_half_precision_is_summed_in_float32():
    states = np.full((1, 4095, 1), 1.001, "float16")  # float16 cannot represent their sum
    read = Pooling("mean", dtype="mixed_float16")(states, np.ones((1, 4095), "int32"))
    assert np.asarray(read).item() == pytest.approx(float(np.float16(1.001)), abs=1e-5)


def test_invalid_pooling_is_rejected():
    with pytest.raises(ValueError, match="pooling='last': expected one of cls, mean, max"):
        BertClassifier(TINY, num_classes=3, pooling="last")
    message = "pooling='sum': expected one of none, cls, mean, max, last"
    with pytest.raises(ValueError, match=message):
        pool(*states_and_mask(), "sum")
