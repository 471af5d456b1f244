"""Stateless randomness: every draw is a pure function of a seed and of what it is drawn for.

``fold(seed, epoch, pool, operation)`` makes the seed of one operation on one pool of rows. Nothing
here keeps a state, so that a draw depends on no thread, no batch size and no order of calls, and a
stream can start anywhere.

The generator is named (Philox) wherever TensorFlow lets it be: with the default, ``auto_select``,
the same seed gives other numbers on another kind of device. What ``tf.random`` does with a seed
and this generator, a dozen operations, is done by one that makes the same numbers: pipelines run
on a host, and half of the time to trace one went there.
"""

import enum
from collections.abc import Callable

import tensorflow as tf

_PHILOX = 1


class Operation(enum.IntEnum):
    """Purpose of a seed. The numbers are part of the data's order: add new ones, change none."""

    POOL = 0
    BLOCK_ORDER = 1
    TARGET_LENGTHS = 2
    SEGMENT_ENDS = 3
    RANDOM_NEXT = 4
    OTHER_DOCUMENTS = 5
    OTHER_STARTS = 6
    CUTS_A = 7
    CUTS_B = 8
    ROW_ORDER = 9
    MASK_CHOICE = 10
    MASK_REPLACEMENT = 11
    MASK_RANDOM_IDS = 12
    # 13 was of spans of words, 15 of batches that are sorted together: both stay free.
    EXAMPLE_ORDER = 14


def fold(seed: int | tf.Tensor, *data: int | tf.Tensor) -> tf.Tensor:
    """Folds integers, one after the other, into a seed: int64 of shape (2,), for ``stateless_*``.

    ``seed`` is a scalar integer, or a seed that ``fold`` has made; ``data`` are scalars of 64 bits.
    """
    folded = tf.cast(seed, tf.int64)
    if folded.shape.rank == 0:
        folded = tf.stack([folded, tf.zeros_like(folded)])
    for value in data:
        bits_of_seed = _drawn(tf.raw_ops.StatelessRandomUniformFullIntV2, [], folded, tf.int64)
        folded = tf.stack([bits_of_seed, tf.cast(value, tf.int64)])
    return folded


def _drawn(
    operation: Callable[..., tf.Tensor],
    shape: tf.Tensor | list[int],
    seed: tf.Tensor,
    dtype: tf.DType,
) -> tf.Tensor:
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
    shape = tf.convert_to_tensor(shape, tf.int32)
    return operation(shape=shape, key=key, counter=counter, alg=_PHILOX, dtype=dtype)


def bits(shape: tf.Tensor | list[int], seed: tf.Tensor) -> tf.Tensor:
    """Draws 32 random bits per element: int64 of ``shape``, uniform on [0, 2**32)."""
    drawn = _drawn(tf.raw_ops.StatelessRandomUniformFullIntV2, shape, seed, tf.uint32)
    return tf.cast(drawn, tf.int64)


def uniform(shape: tf.Tensor | list[int], seed: tf.Tensor) -> tf.Tensor:
    """Draws float32 numbers, uniform on [0, 1). ``shape`` and ``seed`` are those of ``bits``."""
    return _drawn(tf.raw_ops.StatelessRandomUniformV2, shape, seed, tf.float32)


def below(random_bits: tf.Tensor, bound: tf.Tensor | int) -> tf.Tensor:
    """Turns 32 random bits into an integer, uniform on [0, bound), int64; 0 for a bound of 0.

    The bits and the bound, below 2**31, are separate because a bound is often known only after the
    draw. The bias is at most ``bound / 2**32``.
    """
    return tf.bitwise.right_shift(random_bits * tf.cast(bound, tf.int64), tf.constant(32, tf.int64))


def permutation(size: tf.Tensor | int, seed: tf.Tensor) -> tf.Tensor:
    """Draws a permutation of [0, size), int32, each one equally likely.

    ``tf.random.experimental.index_shuffle`` would need no memory, but is far from uniform for small
    sizes (of the permutations of four things some come three times as often as others), and a
    hundred thousand numbers are sorted in eight milliseconds.
    """
    return tf.argsort(bits([size], seed), stable=True)
