"""Compute plan of ``serving_default`` in float32: two parallel chains for two threads.

Each chain computes half of a block's attention heads, then half of its feed-forward units, with its
own columns of the kernels (Shoeybi et al. 2019, Megatron-LM, section 3), so that the threads
synchronize twice per block. For a single sentence, reading the matrices from memory dominates the
time of a product, and two threads share that work. Threads within an operation take longer to start
than they save.

Dimensions: B batch, S sequence, H hidden, F feed-forward, R rows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bert_tf.modeling.transformer import ComputePlan, attend_full_batch


class Columns(NamedTuple):
    """Columns ``begin`` to ``end`` of each of ``groups`` equal parts of a kernel or bias."""

    groups: int
    begin: int
    end: int

    def select(self, values: tf.Tensor) -> tf.Tensor:
        """Selects the columns: (..., groups * W) -> (..., groups * (end - begin))."""
        *rows, width = values.shape
        grouped = tf.reshape(values, [*rows, self.groups, width // self.groups])
        size = self.groups * (self.end - self.begin)
        return tf.reshape(grouped[..., self.begin : self.end], [*rows, size])


# Function that reads some columns of a variable.
ReadColumns = Callable[[keras.Variable, Columns], tf.Tensor]


class TwoChains(ComputePlan):
    """Compute plan for inference in two chains."""

    def __init__(self, read: ReadColumns) -> None:
        self._read = read

    def attention(self, block: Any, states: Any, rows: Any, training: bool) -> tf.Tensor:
        """Returns the sum of the outputs of both halves of the heads: (R, H) -> (R, H)."""
        heads, layer = block.config.num_attention_heads, block.attention
        size = block.config.hidden_size // heads

        def contexts(begin: int, end: int) -> tf.Tensor:
            columns = Columns(3, begin * size, end * size)
            projected = self._project(layer.query_key_value, states, columns)
            causal = block.config.is_decoder
            return attend_full_batch(projected, rows, end - begin, lambda x: x, causal)

        return _sum(layer.attention_output, [contexts(*half) for half in _halves(heads)], states)

    def feed_forward(self, block: Any, states: Any, training: bool) -> tf.Tensor:
        """Returns the sum of the outputs of both halves of the units: (R, H) -> (R, H)."""

        def inner(begin: int, end: int) -> tf.Tensor:
            columns = Columns(1, begin, end)
            return block.activation(self._project(block.intermediate, states, columns), False)

        halves = _halves(block.config.intermediate_size)
        return _sum(block.feed_forward_output, [inner(*half) for half in halves], states)

    def _project(self, dense: Any, x: tf.Tensor, columns: Columns) -> tf.Tensor:
        """Projects to the columns: (R, K) -> (R, columns)."""
        product = tf.matmul(x, self._read(dense.kernel, columns))
        return tf.nn.bias_add(product, self._read(dense.bias, columns))


def _halves(count: int) -> list[tuple[int, int]]:
    """Returns the ranges of two halves, or of one part if ``count`` is 1."""
    middle = count // 2
    return [(0, middle), (middle, count)] if middle else [(0, count)]


def _sum(dense: Any, parts: list[tf.Tensor], residual: tf.Tensor) -> tf.Tensor:
    """Applies a dense layer to adjacent parts and adds the residual: (R, H)."""
    kernel, begin, products = dense.kernel.value.read_value(), 0, []
    for part in parts:
        end = begin + part.shape[-1]
        products.append(tf.matmul(part, kernel[begin:end]))  # slicing rows does not copy
        begin = end
    products[0] = tf.nn.bias_add(products[0], dense.bias.value.read_value())
    return tf.add_n([residual, *products])
