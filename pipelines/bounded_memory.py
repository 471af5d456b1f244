"""Operations on ragged tensors whose memory is linear in the number of values.

TensorFlow's ``value_rowids``, ``tf.repeat`` and ``tf.ragged.boolean_mask`` create a matrix that is
as wide as the longest row, which fills the memory if one of many texts is long.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Function that maps the start of a block to the start of the next block, and to the block's
# outputs, a nest of tensors with any number of rows.
Step = Callable[[tf.Tensor], tuple[tf.Tensor, Any]]


def map_blocks(size: tf.Tensor, step: Step) -> Any:
    """Runs a step on consecutive blocks of an axis, and concatenates the outputs.

    An axis of length 0 has one block, which defines the shapes of the outputs.
    """
    if tf.executing_eagerly():
        begin = tf.constant(0)
        blocks: list[Any] = []
        while not blocks or begin < size:
            begin, outputs = step(begin)
            blocks.append(outputs)
        return tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *blocks)

    # The step is traced first, because tensor lists need the dtypes and shapes of the outputs.
    traced = tf.function(step, autograph=False).get_concrete_function(tf.TensorSpec([], tf.int32))
    outputs = traced.structured_outputs[1]
    specs = tf.nest.flatten(outputs)
    shapes = [[-1, *(size or -1 for size in spec.shape.as_list()[1:])] for spec in specs]

    def run(begin: tf.Tensor, lists: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        end, outputs = traced(begin)
        pairs = zip(lists, tf.nest.flatten(outputs), strict=True)
        return tf.maximum(end, begin + 1), [
            tf.raw_ops.TensorListPushBack(input_handle=handle, tensor=value)
            for handle, value in pairs
        ]

    empty = [
        tf.raw_ops.EmptyTensorList(
            element_shape=shape, max_num_elements=-1, element_dtype=spec.dtype
        )
        for shape, spec in zip(shapes, specs, strict=True)
    ]
    _, lists = tf.while_loop(
        lambda begin, lists: begin < tf.maximum(size, 1),
        run,
        (tf.constant(0), empty),
        parallel_iterations=1,
    )
    concatenated = [
        tf.raw_ops.TensorListConcatV2(
            input_handle=handle, element_shape=shape, leading_dims=[], element_dtype=spec.dtype
        )[0]
        for handle, shape, spec in zip(lists, shapes, specs, strict=True)
    ]
    return tf.nest.pack_sequence_as(outputs, concatenated)


def value_rows(row_splits: tf.Tensor) -> tf.Tensor:
    """Returns the row index of each value, (N,), with the dtype of the splits."""
    row_starts = row_splits[1:-1]
    # Empty rows at the end start after the last value.
    counts = tf.math.unsorted_segment_sum(tf.ones_like(row_starts), row_starts, row_splits[-1] + 1)
    return tf.cumsum(counts[:-1])
