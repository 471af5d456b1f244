import numpy as np
import tensorflow as tf

from bert_tf.pipelines.randomness import Operation, below, bits, fold, permutation, uniform


def test_draws_do_not_change_between_versions():
    """A resumed run must continue with the same random numbers."""
    seed = fold(7, 1, Operation.ROW_ORDER)
    assert bits([3], seed).numpy().tolist() == [1386894878, 3584523963, 1270026929]
    assert permutation(6, seed).numpy().tolist() == [5, 2, 0, 3, 4, 1]
    assert permutation(0, seed).shape == (0,)
    assert list(map(int, Operation)) == [*range(13), 14]
    # The same for the public functions.
    folded = tf.random.fold_in(fold(7), tf.constant(1, tf.int64), "philox")
    public = tf.random.stateless_uniform([9], folded, alg="philox")
    np.testing.assert_array_equal(uniform([9], fold(7, 1)), public)


def test_below_is_uniform_and_never_reaches_the_bound():
    extremes = tf.constant([0, 2**32 - 1], tf.int64)
    for bound, last in [(1, 0), (0, 0), (3, 2), (2**31 - 1, 2**31 - 2)]:
        assert below(extremes, bound).numpy().tolist() == [0, last]
    counts = np.bincount(below(bits([30_000], fold(1)), 3).numpy())
    np.testing.assert_allclose(counts / 30_000, 1 / 3, atol=4 * (2 / 9 / 3e4) ** 0.5)
