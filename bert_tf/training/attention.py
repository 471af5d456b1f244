"""Attention without padding that recomputes attention weights in the backward pass.

Standard attention stores the weights (B, N, S, S) of each layer for the backward pass, before and
after dropout. This module processes one group of texts at a time, padded to the longest text of the
group. As in Dao et al. 2022, the backward pass recomputes scores and weights from queries, keys,
values, contexts and dropout masks. XLA cannot compile the loop over the groups, because its shapes
depend on the lengths of the texts.

Dimensions: B batch, S sequence, G texts per group, L length of the longest text of a group,
N heads, D head size, H = N * D hidden, R rows, W any width.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.graph_gradients import custom_gradient
from bert_tf.modeling.layers import LEVELS, Dropout, cast_to_logits_dtype
from bert_tf.modeling.transformer import (
    Attend,
    TokenRows,
    attend_full_batch,
    attention_bias,
    join_heads,
    score_scale,
    split_heads,
)

# Maximum number of scores per group. In float32, they take 16 MB, which fits in a CPU's cache.
# Dropout masks depend on this number and on ``choose_attention``. If you change either, increase
# ``_FORMAT`` in run_directory.py, so that runs do not resume with different masks.
_MAX_SCORES = 1 << 22


def attend_in_groups(
    projected: tf.Tensor, rows: TokenRows, heads: int, dropout: Dropout, causal: bool = False
) -> tf.Tensor:
    """Computes contexts (R, H) from queries, keys and values (R, 3 * H)."""
    size, length = rows.keys.shape
    texts: int | tf.Tensor
    if length is None:
        texts = tf.maximum(1, _MAX_SCORES // (heads * tf.square(tf.shape(rows.keys)[1])))
    else:
        texts = max(1, _MAX_SCORES // (heads * length**2))
    # With several workers, B is not static.
    if length is not None and size is not None and texts >= size:
        return attend_full_batch(
            projected, rows, heads, lambda x: dropout(x, training=True), causal
        )
    attention = _GroupedAttention(rows, heads, dropout, texts, causal)

    def attend(projected: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        contexts, masks = attention.forward(projected)
        return contexts, lambda upstream: attention.backward(projected, contexts, masks, upstream)

    contexts: tf.Tensor = custom_gradient(attend)(projected)
    return contexts


def choose_attention(lengths: np.ndarray, texts: int, heads: int) -> Attend | None:
    """Chooses the attention for batches of ``texts`` texts; None means standard attention.

    The loop over groups is slower for few scores. ``lengths`` (N,) contains all text lengths.
    """
    # Approximate length of the longest text of a batch.
    longest = float(np.quantile(lengths, 1 - 1 / (texts + 1)))
    is_large = texts * heads * longest**2 > _MAX_SCORES
    return attend_in_groups if is_large else None


class _Group(NamedTuple):
    """Texts that are processed together, padded to the longest."""

    index: tf.Tensor
    row_indices: tf.Tensor  # (G, L): row of each token, R for padding without a row
    real_tokens: tf.Tensor  # (G, L)

    def take(self, matrix: tf.Tensor) -> tf.Tensor:
        """Gathers (G, L, W) from (R, W); values at padding positions are arbitrary."""
        return tf.gather(matrix, tf.minimum(self.row_indices, tf.shape(matrix)[0] - 1))

    def rows(self, batch: tf.Tensor, num_rows: tf.Tensor) -> tf.Tensor:
        """Gathers the rows of real tokens from (G, L, W)."""
        matrix = tf.reshape(batch, [-1, batch.shape[-1]])
        return tf.gather(matrix, tf.where(tf.reshape(self.row_indices, [-1]) < num_rows)[:, 0])


class _GroupedAttention:
    """Forward and backward pass, each a loop over groups of texts."""

    def __init__(
        self, rows: TokenRows, heads: int, dropout: Dropout, texts: int | tf.Tensor, causal: bool
    ) -> None:
        self._real_tokens = rows.keys
        self._row_indices = rows.row_indices
        self._heads = heads
        self._dropped, self._scale = dropout.dropped, dropout.scale
        self._seed = tf.cast(dropout.seed_generator.next(), tf.int32) if self._dropped else None
        self._texts = texts
        self._causal = causal
        self._num_groups = (tf.shape(rows.keys)[0] + texts - 1) // texts

    def forward(self, projected: tf.Tensor) -> tuple[tf.Tensor, tf.TensorArray]:
        """Returns the contexts (R, H) and the dropout mask (G, N, L, L) of each group, if any."""

        def contexts(group: _Group, masks: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            query, key, value = split_heads(group.take(projected), self._heads)
            weights = self._weights(group, query, key)
            if self._dropped:
                mask = self._draw(group)
                masks = masks.write(group.index, mask)
                weights = weights * tf.cast(mask, weights.dtype)
            return join_heads(tf.matmul(weights, self._scaled(value))), masks

        masks = self._new_array(tf.bool, [None, self._heads, None, None])
        return self._loop(contexts, masks, projected, projected.shape[-1] // 3)

    def backward(
        self, projected: tf.Tensor, contexts: tf.Tensor, masks: tf.TensorArray, upstream: tf.Tensor
    ) -> tf.Tensor:
        """Returns the gradient (R, 3 * H) of ``projected`` from the contexts' gradient (R, H)."""

        def gradients(group: _Group, masks: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            query, key, value = split_heads(group.take(projected), self._heads)
            (context,) = split_heads(group.take(contexts), self._heads, parts=1)
            has_row = tf.cast(group.row_indices < tf.shape(projected)[0], upstream.dtype)
            context_gradients = group.take(upstream) * has_row[:, :, None]
            (context_grad,) = split_heads(context_gradients, self._heads, parts=1)
            weights = self._weights(group, query, key)
            # The gradient of a softmax w is w * (g - sum(g * w)). The sum over the keys equals a
            # sum over the context.
            mean = tf.reduce_sum(context_grad * context, axis=-1, keepdims=True)
            context_grad = self._scaled(context_grad)
            dropped, weights_grad = weights, tf.matmul(context_grad, value, transpose_b=True)
            if self._dropped:
                mask = tf.cast(masks.read(group.index), weights.dtype)
                dropped, weights_grad = weights * mask, weights_grad * mask
            scores_grad = (weights_grad - mean) * weights
            scale = score_scale(query)
            gradients = [
                tf.matmul(scores_grad, key * scale),
                tf.matmul(scores_grad, query * scale, transpose_a=True),
                tf.matmul(dropped, context_grad, transpose_a=True),
            ]
            return join_heads(tf.concat(gradients, axis=1)), masks

        return self._loop(gradients, masks, projected, projected.shape[-1])[0]

    def _scaled(self, x: tf.Tensor) -> tf.Tensor:
        """Multiplies by the dropout scale, then rounds; a rounded scale would bias all contexts."""
        return tf.cast(cast_to_logits_dtype(x) * self._scale, x.dtype)

    def _weights(self, group: _Group, query: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        """Returns the weights (G, N, L, L) before dropout."""
        # TensorFlow fuses the operations in this order.
        scores = tf.matmul(query, key, transpose_b=True) * score_scale(query)
        bias = attention_bias(group.real_tokens, scores.dtype.name, self._causal)
        return tf.nn.softmax(scores + bias)

    def _draw(self, group: _Group) -> tf.Tensor:
        """Draws the dropout mask (G, N, L, L), True for kept weights."""
        texts, length = tf.unstack(tf.shape(group.row_indices))
        # Each random word is used for two elements.
        words = tf.random.stateless_uniform(
            [texts, self._heads, length, (length + 1) // 2],
            tf.random.fold_in(self._seed, group.index),
            minval=None,
            maxval=None,
            dtype=tf.int32,
        )
        draws = tf.reshape(tf.bitcast(words, tf.int16), [texts, self._heads, length, -1])
        return draws[..., :length] >= self._dropped - LEVELS // 2

    def _new_array(self, dtype: tf.DType, shape: list[int | None]) -> tf.TensorArray:
        return tf.TensorArray(
            dtype, self._num_groups, clear_after_read=True, element_shape=shape, infer_shape=False
        )

    def _loop(
        self,
        compute: Callable[[_Group, tf.TensorArray], tuple[tf.Tensor, tf.TensorArray]],
        masks: tf.TensorArray,
        projected: tf.Tensor,
        width: int,
    ) -> tuple[tf.Tensor, tf.TensorArray]:
        """Computes all groups; returns the results (R, W) of all rows and the masks."""
        num_rows = tf.shape(projected)[0]

        def turn(
            index: tf.Tensor, done: tf.TensorArray, masks: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.TensorArray, tf.TensorArray]:
            texts = slice(index * self._texts, (index + 1) * self._texts)
            row_indices = self._row_indices[texts]
            # Length of the longest text of the group.
            used = tf.where(tf.reduce_any(row_indices < num_rows, axis=0))
            length = tf.cast(used[-1, 0], tf.int32) + 1
            group = _Group(index, row_indices[:, :length], self._real_tokens[texts, :length])
            computed, masks = compute(group, masks)
            return index + 1, done.write(index, group.rows(computed, num_rows)), masks

        # Sequential iterations can reuse memory.
        _, done, masks = tf.while_loop(
            lambda index, *_: index < self._num_groups,
            turn,
            (tf.constant(0), self._new_array(projected.dtype, [None, width]), masks),
            parallel_iterations=1,
        )
        return tf.ensure_shape(done.concat(), [projected.shape[0], width]), masks
