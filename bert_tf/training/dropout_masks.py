"""Stateless dropout masks of the training step.

A mask depends only on the seed of the run, the step, the replica, the micro-batch, the index of the
dropout layer and the position in the tensor, so that checkpoints contain no random state.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.modeling.layers import Draw, draw_in_pairs


def dropout_seeds(
    seed: int, step: Any, replica: Any, micro_batch: Any, count: int, words: tf.DType = tf.int32
) -> tf.Tensor:
    """Returns independent seeds (count, 2) int64, one per seed generator.

    They replace the counters of Keras seed generators, which are the same on all replicas and would
    have to be saved.

    >>> first, again = (dropout_seeds(7, 0, 0, 0, 1).numpy().tolist() for _ in range(2))
    >>> first == again, first == dropout_seeds(7, 0, 1, 0, 1).numpy().tolist()
    (True, False)
    """
    # The key of stateless operations is two 32-bit numbers.
    key = tf.constant([seed & 0x7FFFFFFF, (seed >> 31) & 0x7FFFFFFF], tf.int32)
    for number in (step, replica, micro_batch):
        key = tf.random.fold_in(key, tf.cast(number, tf.int32))
    drawn = tf.random.stateless_uniform((count, 2), key, minval=None, maxval=None, dtype=words)
    return tf.cast(drawn, tf.int64)


# === On a GPU without XLA ===


def draw_by_counter(shape: Sequence[Any], generator: Any) -> Callable[[int], tf.Tensor]:
    """Draws masks (``layers.Draw``) with Philox, from the two words of the generator.

    The words are the counter. The key is constant, because TensorFlow computes keys on the host,
    which would delay each dropout.
    """
    count = math.prod(shape)
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[(count + 1) // 2],
        key=tf.constant([0x9E3779B97F4A7C15], tf.uint64),
        counter=tf.bitcast(generator.next(), tf.uint64),
        alg=1,
        dtype=tf.uint32,
    )
    draws = tf.reshape(tf.bitcast(words, tf.uint16), [-1])[:count]
    return lambda level: tf.reshape(draws >= level, shape)


# === With XLA, on a GPU or a TPU ===
# XLA does not fuse Philox and Threefry with the operations that use their words. A hash of the
# position is computed within the kernel that applies the mask.


def hashed_seeds(seed: int, step: Any, replica: Any, micro_batch: Any, count: int) -> tf.Tensor:
    """Returns seeds like ``dropout_seeds``, computed by the hash in fewer operations."""
    key = tf.range(2 * count, dtype=tf.int32)
    key = _hash_words(tf.cast(key, tf.uint32))
    for number in (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF, step, replica, micro_batch):
        key = _hash_words(tf.bitwise.bitwise_xor(key, tf.cast(number, tf.uint32)))
    return tf.reshape(tf.cast(key, tf.int64), [count, 2])


def draw_by_hash(shape: Sequence[Any], generator: Any) -> Callable[[int], tf.Tensor]:
    """Draws masks (``layers.Draw``) by a hash of positions and the two words of the generator.

    Positions are computed in the shape of the tensor, to avoid padding on devices that tile arrays.
    """
    first, second = tf.unstack(tf.cast(generator.next(), tf.uint32))
    # Broadcasting the seed first prevents XLA from folding the positions to a constant.
    positions, stride = tf.broadcast_to(first, shape), 1
    for axis in reversed(range(len(shape))):
        along = tf.cast(tf.range(shape[axis]), tf.uint32) * tf.cast(stride, tf.uint32)
        positions = positions + tf.reshape(along, [-1, *[1] * (len(shape) - 1 - axis)])
        stride *= shape[axis]
    words = _hash_words(tf.bitwise.bitwise_xor(_hash_words(positions), second))
    return lambda level: words >= tf.constant(level << 16, tf.uint32)


def _hash_words(words: tf.Tensor) -> tf.Tensor:
    """Hashes uint32 numbers bijectively.

    Source: C. Wellons, "Prospecting for Hash Functions", 2018: lowbias32.
    """
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        words = _xor_shift(words, shift) * tf.constant(factor, tf.uint32)
    return _xor_shift(words, 16)


def _xor_shift(words: tf.Tensor, shift: int) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(
        words, tf.bitwise.right_shift(words, tf.constant(shift, tf.uint32))
    )


# === Both ===


class Masks(NamedTuple):
    """Method for drawing masks: the seeds of a step and the masks for the seeds."""

    name: str
    seeds: Callable[..., tf.Tensor]
    draw: Draw


DRAWN = Masks("keys", dropout_seeds, draw_in_pairs)
COUNTED = Masks("a counter", functools.partial(dropout_seeds, words=tf.int64), draw_by_counter)
HASHED = Masks("a hash", hashed_seeds, draw_by_hash)
