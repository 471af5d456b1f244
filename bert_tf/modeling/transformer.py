"""Transformer block: self-attention and a feed-forward network, each with layer normalization.

Dimensions: B batch, S sequence, N heads, D head size, H = N * D hidden, R rows, W any width.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops
from keras.random import SeedGenerator

from bert_tf.config import BertConfig
from bert_tf.graph_gradients import custom_gradient, owned_by_graph

from .layers import INDEX_DTYPE, BertLayer, Dropout, add_residual, current_plan, get_activation


class TokenRows:
    """Mapping from the tokens of a batch to the rows of a matrix, with or without padding.

    All operations of a Transformer except attention apply to each token separately, so padding rows
    can be skipped. XLA requires a static number of rows, so compiled steps include padding.

    Args:
        real_tokens: Mask (B, S), 1 for tokens and 0 for padding. The first token of each text is
            always included, because the pooler reads it.
        without_padding: Whether to skip padding.
        time_major: Whether the rows are ordered as (S, B); requires ``without_padding=False``.
        all_real: Whether there is no padding and attention is not causal.

    Attributes:
        keys: The mask (B, S) for attention, or ``None`` if ``all_real``.
        sizes: B and S.
    """

    def __init__(
        self,
        real_tokens: Any,
        without_padding: bool = False,
        time_major: bool = False,
        all_real: bool = False,
    ) -> None:
        self.keys: Any = None if all_real else real_tokens
        self.sizes = self._batch, self._sequence = ops.shape(real_tokens)
        self._without_padding = without_padding
        self._time_major = time_major
        if without_padding:
            first = ops.arange(self._sequence) == 0
            # (B * S,)
            is_row = ops.reshape(ops.logical_or(ops.cast(real_tokens, "bool"), first), (-1,))
            # (R,) index of each row among the B * S tokens, and (B * S,) row of each token, R for
            # skipped padding.
            self._token_indices = ops.cast(ops.nonzero(is_row)[0], INDEX_DTYPE)
            count = ops.cumsum(ops.cast(is_row, INDEX_DTYPE))
            self._rows = ops.where(is_row, count - 1, ops.shape(self._token_indices)[0])

    @property
    def row_indices(self) -> Any:
        """Row of each token, (B, S) int32; R for skipped padding."""
        rows = self._rows if self._without_padding else ops.arange(self._batch * self._sequence)
        return ops.reshape(ops.cast(rows, "int32"), (self._batch, self._sequence))

    def from_batch(self, batch: Any) -> Any:
        """Converts (B, S, W) to (R, W)."""
        if self._time_major:
            batch = ops.swapaxes(batch, 0, 1)  # XLA removes it with the previous block's
        matrix = ops.reshape(batch, (-1, batch.shape[-1]))
        if not self._without_padding:
            return matrix
        # The gradient is explicit, because a gather's gradient adds the rows one by one.
        return custom_gradient(lambda x: (self._remove_padding(x), self._add_padding))(matrix)

    def to_batch(self, matrix: Any) -> Any:
        """Converts (R, W) to (B, S, W), with 0 at skipped padding."""
        if self._time_major:
            shape = (self._sequence, self._batch, matrix.shape[-1])
            return ops.swapaxes(ops.reshape(matrix, shape), 0, 1)
        if self._without_padding:
            matrix = custom_gradient(lambda x: (self._add_padding(x), self._remove_padding))(matrix)
        return ops.reshape(matrix, (self._batch, self._sequence, matrix.shape[-1]))

    def _remove_padding(self, matrix: Any) -> Any:
        return current_plan().take_rows(matrix, self._token_indices)

    def _add_padding(self, matrix: Any) -> Any:
        padding = ops.zeros((1, matrix.shape[-1]), matrix.dtype)
        return current_plan().take_rows(ops.concatenate([matrix, padding], axis=0), self._rows)


# Added to the scores of padded keys, whose weights are then exactly 0 if another key exists. -1e9
# would be -inf in float16, and all weights would be NaN if all keys are padding.
MASKED_SCORE = -30000.0


def attention_bias(mask: Any, dtype: str, causal: bool = False) -> Any:
    """Computes the bias that masks attention scores: 0, or ``MASKED_SCORE`` at padding.

    For a mask of shape (B, S), the result has shape (B, 1, 1, S). For causal attention, the result
    has shape (B, 1, S, S) and is ``MASKED_SCORE`` also at keys after the query.
    """
    bias = ops.expand_dims((1.0 - ops.cast(mask, dtype)) * MASKED_SCORE, (1, 2))
    if not causal:
        return bias
    position = ops.arange(ops.shape(mask)[1])
    is_visible = position[None, :] <= position[:, None]
    # The values are selected instead of added, because a sum could exceed the range of float16.
    return ops.where(is_visible, bias, ops.cast(MASKED_SCORE, dtype))


# Computes contexts (R, H) in training, from queries, keys and values (R, 3 * H), the rows, the
# number of heads, the dropout layer of the weights and whether attention is causal.
Attend = Callable[[Any, TokenRows, int, Dropout, bool], Any]


def split_heads(
    projected: Any, heads: int, parts: int = 3, sizes: tuple[Any, Any] | None = None
) -> list[Any]:
    """Splits (B, S, parts * H) into ``parts`` tensors of shape (B, N, S, D)."""
    batch, sequence = sizes or ops.shape(projected)[:2]
    # (B, S, 3 * H) -> (B, S, 3 * N, D) -> (B, 3 * N, S, D)
    shape = (batch, sequence, parts * heads, projected.shape[-1] // (parts * heads))
    projected = ops.transpose(ops.reshape(projected, shape), (0, 2, 1, 3))
    return list(ops.split(projected, parts, axis=1))


def join_heads(contexts: Any) -> Any:
    """Joins the heads (B, N, S, D) to (B, S, H)."""
    batch, heads, sequence, size = ops.shape(contexts)
    return ops.reshape(ops.transpose(contexts, (0, 2, 1, 3)), (batch, sequence, heads * size))


def attention_weights(query: Any, key: Any, real_tokens: Any, causal: bool = False) -> Any:
    """Computes attention weights (B, N, S, S) from queries and keys (B, N, S, D).

    ``real_tokens`` is the mask (B, S), or ``None`` if there is no padding and attention is not
    causal.
    """
    # (B, N, S, D) x (B, N, D, S) -> (B, N, S, S)
    scores = ops.matmul(query * score_scale(query), ops.swapaxes(key, 2, 3))
    return softmax(scores, real_tokens, causal)


def score_scale(query: Any) -> float:
    """Returns the factor of the attention scores, 1 / sqrt(D)."""
    return 1.0 / math.sqrt(query.shape[-1])


def softmax(scores: Any, real_tokens: Any, causal: bool) -> Any:
    """Computes attention weights from scores (B, N, S, S)."""
    if real_tokens is None:
        return ops.softmax(scores, axis=-1)
    dtype = keras.backend.standardize_dtype(scores.dtype)
    return ops.softmax(scores + attention_bias(real_tokens, dtype, causal), axis=-1)


def attend_full_batch(
    projected: Any, rows: TokenRows, heads: int, dropout: Callable[[Any], Any], causal: bool = False
) -> Any:
    """Computes the contexts (R, H) of the full batch, including padding."""
    # The sizes are taken from the mask, because tf2onnx infers wrong shapes if a reshape follows
    # another reshape.
    query, key, value = split_heads(rows.to_batch(projected), heads, sizes=rows.sizes)
    weights = attention_weights(query, key, rows.keys, causal)
    # (B, N, S, S) x (B, N, S, D) -> (B, N, S, D) -> (B, S, H) -> (R, H)
    return rows.from_batch(join_heads(ops.matmul(dropout(weights), value)))


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(BertLayer):
    """Multi-head scaled dot-product attention to all tokens, or in a causal model to earlier ones.

    Source: Vaswani et al. 2017, section 3.2; google-research/bert ``modeling.py``,
    ``attention_layer``. Queries, keys and values come from one matrix product, whose kernel
    (H, 3 * H) and bias concatenate the three kernels and biases of a published checkpoint, in this
    order. In each of the three, column n * D + d belongs to head n.
    """

    def __init__(
        self, config: BertConfig, seed_generator: SeedGenerator | None = None, **kwargs: Any
    ) -> None:
        super().__init__(config, **kwargs)
        self.query_key_value = self.new_dense(3 * config.hidden_size, "query_key_value")
        rate = config.attention_probs_dropout_prob
        self.dropout = self.new_dropout(rate, seed_generator, "dropout")
        self.attention_output = self.new_dense(config.hidden_size, "output")

    def build(self, *input_shapes: Any) -> None:
        """Creates both kernels."""
        shape = (None, self.config.hidden_size)
        self.query_key_value.build(shape)
        self.attention_output.build(shape)

    def call(
        self,
        hidden: Any,
        rows: TokenRows,
        attend: Attend | None = None,
        training: bool | None = False,
    ) -> Any:
        """Computes (R, H) from hidden states (R, H), by default with ``attend_full_batch``."""
        dropout: Any = self.dropout
        if attend is None:
            attend, dropout = attend_full_batch, functools.partial(dropout, training=training)
        heads, causal = self.config.num_attention_heads, self.config.is_decoder
        # (R, H) -> (R, 3 * H) -> (R, H)
        return self.attention_output(
            attend(self.query_key_value(hidden), rows, heads, dropout, causal)
        )

    def probabilities(self, hidden: Any, real_tokens: Any) -> Any:
        """Computes attention weights (B, N, S, S) before dropout, from (B, S, H) and the mask."""
        query, key, _ = split_heads(self.query_key_value(hidden), self.config.num_attention_heads)
        return attention_weights(query, key, real_tokens, self.config.is_decoder)


class ComputePlan:
    """Defines how an encoder's blocks compute their outputs.

    Subclasses can replace parts of the computation. The outputs then differ only in rounding, in
    the dropout masks, and in zeros at skipped padding. ``BertEncoder`` documents the attributes.
    """

    trains_without_padding = False
    infers_without_padding = False
    recomputes_blocks = False
    training_attention: Attend | None = None
    time_major = False  # whether rows are ordered as (S, B)

    def rows(self, real_tokens: Any, training: bool) -> TokenRows:
        """Returns the rows of a batch with a mask (B, S)."""
        skips_padding = self.trains_without_padding if training else self.infers_without_padding
        return TokenRows(real_tokens, skips_padding, self.time_major)

    # ``training`` is passed to each layer, because recomputed layers run outside the block's call.

    def attention(self, block: Any, states: Any, rows: TokenRows, training: bool) -> Any:
        """Applies attention and the residual connection to (R, H)."""
        attend = self.training_attention if training else None
        attended = block.attention(states, rows=rows, attend=attend, training=training)
        return add_residual(attended, block.attention_dropout, states, training)

    def feed_forward(self, block: Any, states: Any, training: bool) -> Any:
        """Applies the feed-forward network and the residual connection to (R, H)."""
        inner = block.activation(block.intermediate(states, training=training), training)  # (R, F)
        output = block.feed_forward_output(inner, training=training)
        return add_residual(output, block.output_dropout, states, training)


@keras.saving.register_keras_serializable(package="bert_tf")
class TransformerBlock(BertLayer):
    """Post-norm Transformer block, which uses its encoder's ``plan``.

    Source: Vaswani et al. 2017, section 3.1; google-research/bert ``transformer_model``.
    """

    def __init__(
        self,
        config: BertConfig,
        seed_generator: SeedGenerator | None = None,
        plan: ComputePlan | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        rate = config.hidden_dropout_prob
        self.plan = plan or ComputePlan()
        self.activation = get_activation(config.hidden_act)

        self.attention = SelfAttention(
            config, seed_generator, name="attention", dtype=self.dtype_policy
        )
        self.attention_dropout = self.new_dropout(rate, seed_generator, "attention_dropout")
        self.attention_layer_norm = self.new_norm("attention_layer_norm")
        self.intermediate = self.new_dense(config.intermediate_size, "intermediate")
        self.feed_forward_output = self.new_dense(config.hidden_size, "output")
        self.output_dropout = self.new_dropout(rate, seed_generator, "output_dropout")
        self.output_layer_norm = self.new_norm("output_layer_norm")

    def build(self, *input_shapes: Any) -> None:
        """Creates the variables of all sublayers."""
        shape = (None, self.config.hidden_size)
        self.attention.build()
        self.attention_layer_norm.build(shape)
        self.intermediate.build(shape)
        self.feed_forward_output.build((None, self.config.intermediate_size))
        self.output_layer_norm.build(shape)

    @property
    def supports_jit(self) -> bool:
        """Whether Keras' ``jit_compile="auto"`` can enable XLA in models with this block."""
        return not (self.plan.trains_without_padding or self.plan.training_attention)

    @supports_jit.setter
    def supports_jit(self, value: bool) -> None:
        """Ignores the value that Keras sets on a new layer."""

    def call(self, hidden: Any, real_tokens: Any, training: bool | None = False) -> Any:
        """Computes (B, S, H) from hidden states (B, S, H); skipped padding is 0."""
        if training and self.plan.recomputes_blocks:
            return self._recompute(hidden, real_tokens)
        return self._transform_batch(hidden, real_tokens, bool(training))

    def _recompute(self, hidden: Any, real_tokens: Any) -> Any:
        """Computes the output and stores only the inputs; the backward pass recomputes the rest."""
        if keras.backend.backend() != "tensorflow":
            # The scope below would hide the values that JAX has for the variables.
            raise ValueError(
                "recomputes_blocks=True: expected the TensorFlow backend of Keras, got "
                f"{keras.backend.backend()}. Set it to False."
            )
        dropouts = (self.attention.dropout, self.attention_dropout, self.output_dropout)
        states = list({id(d.seed_generator): d.seed_generator.state for d in dropouts}.values())
        new_states: list[Any] = []

        def compute(hidden: Any, real_tokens: Any, *seeds: Any) -> Any:
            # The recomputation draws the same dropout masks from the same seeds.
            mapping = list(zip(states, seeds, strict=True))
            with keras.StatelessScope(state_mapping=mapping) as scope:
                outputs = self._transform_batch(hidden, real_tokens, True)
            new_states[:] = [scope.get_current_value(state) for state in states]
            return outputs

        seeds = [ops.convert_to_tensor(state.value) for state in states]
        outputs = owned_by_graph(keras.remat(compute))(hidden, real_tokens, *seeds)
        for state, value in zip(states, new_states, strict=True):
            state.assign(value)
        return outputs

    def _transform_batch(self, hidden: Any, real_tokens: Any, training: bool) -> Any:
        plan = current_plan().blocks
        if plan is None or not plan.suits(self, hidden, training):
            plan = self.plan
        rows = plan.rows(real_tokens, training)
        return rows.to_batch(self.transform(rows.from_batch(hidden), rows, plan, training))

    def transform(self, states: Any, rows: TokenRows, plan: Any, training: bool = False) -> Any:
        """Computes (R, H) from states (R, H) with a ``ComputePlan``."""
        attended = plan.attention(self, states, rows, training)
        attended = self.attention_layer_norm(attended, training=training)
        output = plan.feed_forward(self, attended, training)
        return self.output_layer_norm(output, training=training)

    def compute_output_shape(
        self, hidden_shape: tuple[int | None, ...], real_tokens_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        """Returns (B, S, H)."""
        return hidden_shape
