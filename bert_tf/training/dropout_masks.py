"""Dropout masks of a training's step, as functions of numbers: nothing random has to be saved.

A mask depends on the run's seed, the step, the replica, the micro-batch, the dropout's place in the
model and the element's place in the tensor, and on nothing else.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.modeling.layers import Draw, draw_in_pairs


def dropout_seeds(
    seed: int,
    step: Any,
    replica: Any,
    micro_batch: Any,
    count: int,
    words: tf.DType = tf.int32,
) -> tf.Tensor:
    """Independent seeds, one for each of ``count`` seed generators: (count, 2) int64.

    The counter of a Keras seed generator is mirrored, so that every replica would draw the same
    mask, and would have to be saved. A function of the numbers needs neither.

    >>> first, again = (dropout_seeds(7, 0, 0, 0, 1).numpy().tolist() for _ in range(2))
    >>> first == again, first == dropout_seeds(7, 0, 1, 0, 1).numpy().tolist()
    (True, False)
    """
    # Stateless operations take two 32-bit numbers as their key.
    key = tf.constant([seed & 0x7FFFFFFF, (seed >> 31) & 0x7FFFFFFF], tf.int32)
    for number in (step, replica, micro_batch):
        key = tf.random.fold_in(key, tf.cast(number, tf.int32))
    drawn = tf.random.stateless_uniform((count, 2), key, minval=None, maxval=None, dtype=words)
    return tf.cast(drawn, tf.int64)


# === On a GPU without XLA ===


def draw_by_counter(shape: Sequence[Any], generator: Any) -> Callable[[int], tf.Tensor]:
    """Draws masks (``layers.Draw``) of Philox's words, from the generator's two on.

    They are the counter, whose key is always the same: TensorFlow makes keys on the host, and each
    dropout would wait for its own.
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


# === Where XLA compiles for a GPU or a TPU ===
# Philox and Threefry write their words to memory, in shapes that XLA does not join with what reads
# them. A hash of an element's place is computed within the kernel that applies the mask.


def hashed_seeds(seed: int, step: Any, replica: Any, micro_batch: Any, count: int) -> tf.Tensor:
    """As ``dropout_seeds``, by the hash: a few operations where Philox's keys are a thousand."""
    key = tf.range(2 * count, dtype=tf.int32)
    key = _hash_words(tf.cast(key, tf.uint32))
    for number in (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF, step, replica, micro_batch):
        key = _hash_words(tf.bitwise.bitwise_xor(key, tf.cast(number, tf.uint32)))
    return tf.reshape(tf.cast(key, tf.int64), [count, 2])


def draw_by_hash(shape: Sequence[Any], generator: Any) -> Callable[[int], tf.Tensor]:
    """Draws masks (``layers.Draw``): each element hashes its place and the generator's two words.

    Places count rows first, in the tensor's own shape: a device that tiles arrays pads none.
    """
    first, second = tf.unstack(tf.cast(generator.next(), tf.uint32))
    # The seed comes first, as large as the tensor: no sum is a constant to be folded, or a kernel.
    positions, stride = tf.broadcast_to(first, shape), 1
    for axis in reversed(range(len(shape))):
        along = tf.cast(tf.range(shape[axis]), tf.uint32) * tf.cast(stride, tf.uint32)
        positions = positions + tf.reshape(along, [-1, *[1] * (len(shape) - 1 - axis)])
        stride *= shape[axis]
    words = _hash_words(tf.bitwise.bitwise_xor(_hash_words(positions), second))
    return lambda level: words >= tf.constant(level << 16, tf.uint32)


def _hash_words(words: tf.Tensor) -> tf.Tensor:
    """A bijection of uint32 numbers, each of whose bits decides about half of the result's.

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
    """A way to draw masks, by its name: the seeds of a step's dropouts, and the masks of these."""

    name: str
    seeds: Callable[..., tf.Tensor]
    draw: Draw


DRAWN = Masks("keys", dropout_seeds, draw_in_pairs)
COUNTED = Masks("a counter", functools.partial(dropout_seeds, words=tf.int64), draw_by_counter)
HASHED = Masks("a hash", hashed_seeds, draw_by_hash)
