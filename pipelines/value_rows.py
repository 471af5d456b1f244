"""Rows of ragged tensors, in memory that grows with the values alone.

TensorFlow's ``value_rowids``, ``tf.repeat`` and ``tf.ragged.boolean_mask`` go by way of a table of
the rows times the longest row: one long text among many short ones would fill the memory.
"""

import tensorflow as tf


def value_rows(row_splits: tf.Tensor) -> tf.Tensor:
    """The row of each value, (N,) of the splits' dtype.

    >>> value_rows(tf.constant([0, 2, 2, 3])).numpy()
    array([0, 0, 2], dtype=int32)
    """
    begins = row_splits[1:-1]
    # Rows that are empty at the end begin behind the last value.
    counts = tf.math.unsorted_segment_sum(tf.ones_like(begins), begins, row_splits[-1] + 1)
    return tf.cumsum(counts[:-1])


def keep_values(rows: tf.RaggedTensor, kept: tf.Tensor) -> tf.RaggedTensor:
    """The rows without the values that ``kept``, (N,) bool, leaves out.

    >>> keep_values(tf.ragged.constant([[1, 2], [3]]), tf.constant([True, False, False])).to_list()
    [[1], []]
    """
    before = tf.pad(tf.cumsum(tf.cast(kept, rows.row_splits.dtype)), [[1, 0]])
    return tf.RaggedTensor.from_row_splits(
        tf.boolean_mask(rows.values, kept), tf.gather(before, rows.row_splits), validate=False
    )
