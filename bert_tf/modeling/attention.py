"""Bidirectional multi-head self-attention.

Legend: B batch, S sequence, N heads, D head size, H = N * D hidden.
"""

import math
from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig

from .base import BertLayer
from .dropout import Dropout
from .token_rows import TokenRows

# Added to the score of a padded key. Its exponential is exactly 0 beside any real key's, and it
# leaves a float16 (up to 65,504) room for the score; -1e9 would be -inf there, and a row of
# nothing but padding NaN.
MASKED_SCORE = -30000.0


def attention_bias(mask: Any, dtype: str) -> Any:
    """Turns a mask of tokens into what is added to attention scores.

    Args:
        mask: (B, S), 1 = real and 0 = padding.
        dtype: the scores'.

    Returns:
        (B, 1, 1, S): 0 at real keys and ``MASKED_SCORE`` at padded ones, for every query and head.

    >>> attention_bias(ops.array([[1, 0]]), "float32").shape == (1, 1, 1, 2)
    True
    """
    return ops.expand_dims((1.0 - ops.cast(mask, dtype)) * MASKED_SCORE, (1, 2))


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(BertLayer):
    """Scaled dot-product attention of every token to every real token, in N heads.

    Source: Vaswani et al. 2017, section 3.2; google-research/bert ``modeling.py``,
    ``attention_layer`` and the dense layer after it.

    One matrix product makes queries, keys and values. Its kernel (H, 3 * H) is the query, key and
    value kernels of a published checkpoint side by side, in that order, and its bias (3 * H,)
    their biases: ``numpy.concatenate([query, key, value], axis=-1)``, and ``numpy.split(kernel,
    3, axis=-1)`` back. Within each of the three, column n * D + d belongs to head n.

    Args:
        config: sizes and rates.
        seed_generator: the model's; by default the layer has its own.
        **kwargs: ``name``, ``dtype``, as for every Keras layer.
    """

    def __init__(
        self,
        config: BertConfig,
        seed_generator: keras.random.SeedGenerator | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        self.query_key_value = self.new_dense(3 * config.hidden_size, "query_key_value")
        self.dropout = Dropout(
            config.attention_probs_dropout_prob,
            seed_generator,
            name="dropout",
            dtype=self.dtype_policy,
        )
        self.attention_output = self.new_dense(config.hidden_size, "output")

    def build(self, *input_shapes: Any) -> None:
        """Makes both kernels."""
        shape = (None, self.config.hidden_size)
        self.query_key_value.build(shape)
        self.attention_output.build(shape)

    def call(
        self, hidden: Any, real_tokens: Any, rows: TokenRows, training: bool | None = False
    ) -> Any:
        """Attends.

        Args:
            hidden: (R, H), the states of the rows.
            real_tokens: (B, S) int32, 1 = real and 0 = padding.
            rows: which tokens of the batch the R rows are.
            training: whether dropout acts.

        Returns:
            (R, H), before dropout, residual and normalisation.
        """
        batch, sequence = ops.shape(real_tokens)
        width = self.config.hidden_size
        heads = self.config.num_attention_heads
        size = width // heads
        # (R, H) -> (R, 3 * H) -> (B, S, 3 * H) -> (B, S, 3 * N, D) -> (B, 3 * N, S, D)
        projected = rows.to_batch(self.query_key_value(hidden))
        projected = ops.reshape(projected, (batch, sequence, 3 * heads, size))
        projected = ops.transpose(projected, (0, 2, 1, 3))
        query, key, value = ops.split(projected, 3, axis=1)
        # (B, N, S, D) x (B, N, D, S) -> (B, N, S, S)
        scores = ops.matmul(query * (1.0 / math.sqrt(size)), ops.swapaxes(key, 2, 3))
        scores = scores + attention_bias(real_tokens, self.compute_dtype)
        weights = self.dropout(ops.softmax(scores, axis=-1), training=training)
        # (B, N, S, S) x (B, N, S, D) -> (B, N, S, D) -> (B, S, N, D) -> (B, S, H) -> (R, H)
        context = ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))
        context = ops.reshape(context, (batch, sequence, width))
        return self.attention_output(rows.from_batch(context))

    def compute_output_shape(
        self, hidden_shape: tuple[int | None, ...], *others: Any
    ) -> tuple[int | None, ...]:
        """(R, H)."""
        return hidden_shape
