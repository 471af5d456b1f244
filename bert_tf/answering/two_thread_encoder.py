"""The encoder of ``serving_default`` in float32: two chains of operations, for two threads.

Each chain has half of a block's heads, then half of its feed-forward units, and multiplies by
columns of its own (Shoeybi et al. 2019, Megatron-LM, section 3), so that the threads meet twice a
block. For a sentence a product takes as long as its matrix takes to come from memory, which two
threads share; those within an operation take longer to wake than they save.

Legend: B batch, S sequence, H hidden, F feed-forward, R rows.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bert_tf import features
from bert_tf.modeling import BertEncoder
from bert_tf.modeling.transformer import TokenRows, TransformerBlock, attend_at_once


class Columns(NamedTuple):
    """Columns of a kernel or bias: from ``begin`` to ``end`` in each of ``groups`` side by side."""

    groups: int
    begin: int
    end: int

    def of(self, values: tf.Tensor) -> tf.Tensor:
        """(..., groups * W) -> (..., groups * (end - begin))."""
        *rows, width = values.shape
        grouped = tf.reshape(values, [*rows, self.groups, width // self.groups])
        size = self.groups * (self.end - self.begin)
        return tf.reshape(grouped[..., self.begin : self.end], [*rows, size])


# Reads some columns of a variable.
ReadColumns = Callable[[keras.Variable, Columns], tf.Tensor]


def encode_by_two(
    encoder: BertEncoder,
    inputs: Mapping[str, tf.Tensor],
    read: ReadColumns,
    are_whole: bool,
) -> dict[str, Any]:
    """The encoder's outputs at inference, 0 at padding; ``are_whole``: there is none."""
    mask = inputs[features.INPUT_MASK]
    embedded = encoder.embeddings(inputs[features.INPUT_WORD_IDS], inputs[features.INPUT_TYPE_IDS])
    rows = TokenRows(mask, without_padding=not are_whole)
    is_seen = None if are_whole and not encoder.config.is_decoder else mask
    matrix, states = rows.from_batch(embedded), []
    for block in encoder.blocks:
        matrix = _block(block, matrix, is_seen, rows, read)
        states.append(rows.to_batch(matrix))
    outputs = {
        features.SEQUENCE_OUTPUT: states[-1],
        features.ENCODER_OUTPUTS: states,
        features.EMBEDDING_OUTPUT: embedded,
    }
    if encoder.pooler is not None:
        outputs[features.POOLED_OUTPUT] = encoder.pooler(states[-1], mask)
    return outputs


def _block(
    block: TransformerBlock,
    matrix: tf.Tensor,
    is_seen: tf.Tensor | None,
    rows: TokenRows,
    read: ReadColumns,
) -> tf.Tensor:
    """(R, H) -> (R, H), as ``TransformerBlock`` computes it."""
    config, attention = block.config, block.attention
    size = config.hidden_size // config.num_attention_heads

    def attend(begin: int, end: int) -> tf.Tensor:
        columns = Columns(3, begin * size, end * size)
        projected = _project(attention.query_key_value, matrix, columns, read)
        heads = end - begin
        return attend_at_once(projected, is_seen, rows, heads, lambda x: x, config.is_decoder)

    def feed(begin: int, end: int) -> tf.Tensor:
        inner = _project(block.intermediate, attended, Columns(1, begin, end), read)
        return block.activation(inner, False)

    parts = [attend(*half) for half in _halves(config.num_attention_heads)]
    attended = block.attention_layer_norm(_sum(attention.attention_output, parts, matrix))
    parts = [feed(*half) for half in _halves(config.intermediate_size)]
    return block.output_layer_norm(_sum(block.feed_forward_output, parts, attended))


def _halves(count: int) -> list[tuple[int, int]]:
    """The beginnings and ends of two parts, or of one that cannot be parted."""
    middle = count // 2
    return [(0, middle), (middle, count)] if middle else [(0, count)]


def _project(dense: Any, x: tf.Tensor, columns: Columns, read: ReadColumns) -> tf.Tensor:
    """(R, K) -> (R, columns)."""
    return tf.nn.bias_add(tf.matmul(x, read(dense.kernel, columns)), read(dense.bias, columns))


def _sum(dense: Any, parts: list[tf.Tensor], residual: tf.Tensor) -> tf.Tensor:
    """What a dense layer makes of parts side by side, and the residual: (R, H)."""
    kernel, begin, products = dense.kernel.value.read_value(), 0, []
    for part in parts:
        end = begin + part.shape[-1]
        products.append(tf.matmul(part, kernel[begin:end]))  # rows are not copied
        begin = end
    products[0] = tf.nn.bias_add(products[0], dense.bias.value.read_value())
    return tf.add_n([residual, *products])
