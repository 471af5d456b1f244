"""Dropout seeds as a pure function of where the training stands.

A Keras seed generator keeps a counter, which is mirrored (every replica would draw the same mask)
and which a checkpoint would have to save. The loop gives each generator a fresh value per step,
replica and micro-batch instead, through ``keras.StatelessScope(state_mapping=...)``.
"""

from typing import Any

import tensorflow as tf


def dropout_seeds(seed: int, step: Any, replica: Any, micro_batch: Any, count: int) -> tf.Tensor:
    """Independent seeds, one per seed generator.

    Args:
        seed: the training's seed.
        step: scalar integer, the updates made before this one.
        replica: scalar integer, the replica's number among all.
        micro_batch: scalar integer, the micro-batch's number within the replica's share.
        count: how many seeds are needed.

    Returns:
        (count, 2) int64, each value within int32's range.

    >>> first, again = (dropout_seeds(7, 0, 0, 0, 1).numpy().tolist() for _ in range(2))
    >>> first == again, first == dropout_seeds(7, 0, 1, 0, 1).numpy().tolist()
    (True, False)
    """
    # Stateless operations take two 32-bit numbers as their key.
    key = tf.constant([seed & 0x7FFFFFFF, (seed >> 31) & 0x7FFFFFFF], tf.int32)
    for number in (step, replica, micro_batch):
        key = tf.random.fold_in(key, tf.cast(number, tf.int32))
    drawn = tf.random.stateless_uniform((count, 2), key, minval=None, maxval=None, dtype=tf.int32)
    return tf.cast(drawn, tf.int64)
