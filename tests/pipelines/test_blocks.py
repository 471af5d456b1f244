"""Blocks against the whole."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.blocks import in_blocks


def thirds(size):
    """Of each number below ``size`` a row, and its own number; three at once."""
    begins = []

    def step(begin):
        begins.append(begin)
        numbers = tf.range(begin, tf.minimum(begin + 3, size))
        return begin + 3, {
            "rows": tf.tile(numbers[:, None], [1, 2]),
            "texts": tf.as_string(numbers),
        }

    return in_blocks(size, step), begins


@pytest.mark.parametrize("size", [0, 1, 3, 7])
def test_blocks_are_joined_in_their_order(size):
    graph = tf.function(lambda size: thirds(size)[0], autograph=False)
    eager, begins = thirds(tf.constant(size))
    assert [int(begin) for begin in begins] == list(range(0, max(size, 1), 3))
    for found in (eager, graph(tf.constant(size))):
        assert found["rows"].dtype == tf.int32 and found["rows"].shape == (size, 2)
        np.testing.assert_array_equal(found["rows"], np.arange(size)[:, None].repeat(2, 1))
        assert found["texts"].numpy().tolist() == [str(number).encode() for number in range(size)]
