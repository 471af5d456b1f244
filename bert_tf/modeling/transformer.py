"""One block of the encoder: self-attention, then a feed-forward network, each normalised.

Legend: B batch, S sequence, N heads, D head size, H = N * D hidden, R rows, W any width.
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

from .layers import (
    INDEX_DTYPE,
    BertLayer,
    Dropout,
    LayerNorm,
    add_residual,
    current_plan,
    get_activation,
)


class TokenRows:
    """Rows of a matrix that hold a batch's tokens: all B * S of them, or the real ones alone.

    Everything in a Transformer but attention acts on each token by itself, so the rows of padding
    can be left out. XLA needs to know the number of rows before the batch is there: a step that it
    compiles keeps padding. ``real_tokens`` are (B, S), 1 = real; the first token of each text
    counts as real whatever the mask says, because the pooler reads it. ``time_major``, never
    together with ``without_padding``: rows are in the order of S * B.

    Attributes:
        keys: the mask (B, S) of the tokens that are attended to; ``None`` if the caller knows that
            all are real, and attention is not causal (``all_real``).
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
            # (R,) the places of the rows among B * S, and (B * S,) the rows of the places; one that
            # is left out has the row behind the last.
            self._places = ops.cast(ops.nonzero(is_row)[0], INDEX_DTYPE)
            count = ops.cumsum(ops.cast(is_row, INDEX_DTYPE))
            self._rows = ops.where(is_row, count - 1, ops.shape(self._places)[0])

    @property
    def row_indices(self) -> Any:
        """(B, S) int32: which row a token is; R where it is left out."""
        rows = self._rows if self._without_padding else ops.arange(self._batch * self._sequence)
        return ops.reshape(ops.cast(rows, "int32"), (self._batch, self._sequence))

    def from_batch(self, batch: Any) -> Any:
        """(B, S, W) -> (R, W)."""
        if self._time_major:
            batch = ops.swapaxes(batch, 0, 1)  # XLA cancels it against the block before
        matrix = ops.reshape(batch, (-1, batch.shape[-1]))
        if not self._without_padding:
            return matrix
        # Written out: the derived gradient of a gather adds row by row.
        return custom_gradient(lambda x: (self._leave_out(x), self._fill_in))(matrix)

    def to_batch(self, matrix: Any) -> Any:
        """(R, W) -> (B, S, W), 0 where padding was left out."""
        if self._time_major:
            shape = (self._sequence, self._batch, matrix.shape[-1])
            return ops.swapaxes(ops.reshape(matrix, shape), 0, 1)
        if self._without_padding:
            matrix = custom_gradient(lambda x: (self._fill_in(x), self._leave_out))(matrix)
        return ops.reshape(matrix, (self._batch, self._sequence, matrix.shape[-1]))

    def _leave_out(self, matrix: Any) -> Any:
        return current_plan().take_rows(matrix, self._places)

    def _fill_in(self, matrix: Any) -> Any:
        behind = ops.zeros((1, matrix.shape[-1]), matrix.dtype)
        return current_plan().take_rows(ops.concatenate([matrix, behind], axis=0), self._rows)


# Added to the score of a padded key. Its exponential is exactly 0 next to any real key's, and it
# leaves a float16 (up to 65,504) room for the score; -1e9 would be -inf there, and a row of
# nothing but padding NaN.
MASKED_SCORE = -30000.0


def attention_bias(mask: Any, dtype: str, causal: bool = False) -> Any:
    """(B, S) mask, 1 = real -> (B, 1, 1, S) to add to scores: 0, or ``MASKED_SCORE`` at padding.

    Causal attention has (B, 1, S, S), and ``MASKED_SCORE`` also at the keys behind the query.
    """
    bias = ops.expand_dims((1.0 - ops.cast(mask, dtype)) * MASKED_SCORE, (1, 2))
    if not causal:
        return bias
    place = ops.arange(ops.shape(mask)[1])
    sees = place[None, :] <= place[:, None]
    # One of both, not their sum: it would be near a float16's end.
    return ops.where(sees, bias, ops.cast(MASKED_SCORE, dtype))


# Makes contexts (R, H) in training, of queries, keys and values (R, 3 * H), the rows, the number of
# heads and the layer that drops weights out; True at the end: attention is causal.
Attend = Callable[[Any, TokenRows, int, Dropout, bool], Any]


def split_heads(
    projected: Any, heads: int, parts: int = 3, sizes: tuple[Any, Any] | None = None
) -> list[Any]:
    """(B, S, 3 * H) -> query, key and value, each (B, N, S, D); ``sizes``: B and S, if known."""
    batch, sequence = sizes or ops.shape(projected)[:2]
    # (B, S, 3 * H) -> (B, S, 3 * N, D) -> (B, 3 * N, S, D)
    shape = (batch, sequence, parts * heads, projected.shape[-1] // (parts * heads))
    projected = ops.transpose(ops.reshape(projected, shape), (0, 2, 1, 3))
    return list(ops.split(projected, parts, axis=1))


def join_heads(contexts: Any) -> Any:
    """(B, N, S, D) -> (B, S, H)."""
    batch, heads, sequence, size = ops.shape(contexts)
    return ops.reshape(ops.transpose(contexts, (0, 2, 1, 3)), (batch, sequence, heads * size))


def attention_weights(query: Any, key: Any, real_tokens: Any, causal: bool = False) -> Any:
    """(B, N, S, D) queries and keys, (B, S) mask -> (B, N, S, S), whose sum over the keys is 1.

    The mask is ``None`` where all tokens are real, and attention is not causal.
    """
    # (B, N, S, D) x (B, N, D, S) -> (B, N, S, S)
    scores = ops.matmul(query * score_scale(query), ops.swapaxes(key, 2, 3))
    return softmax(scores, real_tokens, causal)


def score_scale(query: Any) -> float:
    """The factor of scores: 1 over the root of the head size."""
    return 1.0 / math.sqrt(query.shape[-1])


def softmax(scores: Any, real_tokens: Any, causal: bool) -> Any:
    """Scores (B, N, S, S) -> weights, as ``attention_weights`` returns them."""
    if real_tokens is None:  # all are real
        return ops.softmax(scores, axis=-1)
    dtype = keras.backend.standardize_dtype(scores.dtype)
    return ops.softmax(scores + attention_bias(real_tokens, dtype, causal), axis=-1)


def attend_full_batch(
    projected: Any,
    rows: TokenRows,
    heads: int,
    dropout: Callable[[Any], Any],
    causal: bool = False,
) -> Any:
    """Makes the contexts of all rows together: B * S queries and keys, whatever the padding."""
    # By the mask's sizes: tf2onnx makes wrong shapes of a reshape by its own input's, if that is
    # the output of another reshape.
    query, key, value = split_heads(rows.to_batch(projected), heads, sizes=rows.sizes)
    weights = attention_weights(query, key, rows.keys, causal)
    # (B, N, S, S) x (B, N, S, D) -> (B, N, S, D) -> (B, S, H) -> (R, H)
    return rows.from_batch(join_heads(ops.matmul(dropout(weights), value)))


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(BertLayer):
    """Scaled dot-product attention in N heads, to the real tokens, or those among them so far.

    Source: Vaswani et al. 2017, section 3.2; google-research/bert ``modeling.py``,
    ``attention_layer``. One matrix product makes queries, keys and values: its kernel (H, 3 * H)
    has a published checkpoint's three side by side, in that order, as has its bias. Within
    each, column n * D + d belongs to head n.
    """

    def __init__(
        self, config: BertConfig, seed_generator: SeedGenerator | None = None, **kwargs: Any
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
        self,
        hidden: Any,
        rows: TokenRows,
        attend: Attend | None = None,
        training: bool | None = False,
    ) -> Any:
        """(R, H) states -> (R, H), before dropout; ``attend``: by default, all texts at once."""
        dropout: Any = self.dropout
        if attend is None:
            attend, dropout = attend_full_batch, functools.partial(dropout, training=training)
        heads, causal = self.config.num_attention_heads, self.config.is_decoder
        # (R, H) -> (R, 3 * H) -> (R, H)
        return self.attention_output(
            attend(self.query_key_value(hidden), rows, heads, dropout, causal)
        )

    def probabilities(self, hidden: Any, real_tokens: Any) -> Any:
        """(B, S, H) states and the (B, S) mask -> (B, N, S, S): the weights before dropout."""
        query, key, _ = split_heads(self.query_key_value(hidden), self.config.num_attention_heads)
        return attention_weights(query, key, real_tokens, self.config.is_decoder)


class ComputePlan:
    """How the blocks of an encoder compute: here as written; subclasses do a part otherwise.

    The results are the same but for rounding, which masks are drawn, and zeros at padding that is
    left out. ``BertEncoder`` documents the attributes.
    """

    trains_without_padding = False
    infers_without_padding = False
    recomputes_blocks = False
    training_attention: Attend | None = None
    time_major = False  # rows are in the order of S * B

    def rows(self, real_tokens: Any, training: bool) -> TokenRows:
        """The rows of a batch with a mask (B, S)."""
        leaves_out = self.trains_without_padding if training else self.infers_without_padding
        return TokenRows(real_tokens, leaves_out, self.time_major)

    # Layers are told each time whether it is training: recomputed, they are called outside of the
    # block's own call.

    def attention(self, block: Any, states: Any, rows: TokenRows, training: bool) -> Any:
        """(R, H) states -> (R, H): the sum of them and of what attention makes of them."""
        attend = self.training_attention if training else None
        attended = block.attention(states, rows=rows, attend=attend, training=training)
        return add_residual(attended, block.attention_dropout, states, training)

    def feed_forward(self, block: Any, states: Any, training: bool) -> Any:
        """(R, H) states -> (R, H): the sum of them and of what the network makes of them."""
        inner = block.activation(block.intermediate(states, training=training), training)  # (R, F)
        output = block.feed_forward_output(inner, training=training)
        return add_residual(output, block.output_dropout, states, training)


@keras.saving.register_keras_serializable(package="bert_tf")
class TransformerBlock(BertLayer):
    """Post-normalised Transformer block, which computes by the ``plan`` of its encoder.

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
        policy = self.dtype_policy
        rate = config.hidden_dropout_prob
        self.plan = plan or ComputePlan()
        self.activation = get_activation(config.hidden_act)

        self.attention = SelfAttention(config, seed_generator, name="attention", dtype=policy)
        drop = functools.partial(Dropout, rate, seed_generator, dtype=policy)
        norm = functools.partial(LayerNorm, config.layer_norm_eps, dtype=policy)
        self.attention_dropout = drop(name="attention_dropout")
        self.attention_layer_norm = norm(name="attention_layer_norm")
        self.intermediate = self.new_dense(config.intermediate_size, "intermediate")
        self.feed_forward_output = self.new_dense(config.hidden_size, "output")
        self.output_dropout = drop(name="output_dropout")
        self.output_layer_norm = norm(name="output_layer_norm")

    def build(self, *input_shapes: Any) -> None:
        """Makes the variables of every sub-layer."""
        shape = (None, self.config.hidden_size)
        self.attention.build()
        self.attention_layer_norm.build(shape)
        self.intermediate.build(shape)
        self.feed_forward_output.build((None, self.config.intermediate_size))
        self.output_layer_norm.build(shape)

    @property
    def supports_jit(self) -> bool:
        """Whether Keras' ``jit_compile="auto"`` may mean True, in any model with the block."""
        return not (self.plan.trains_without_padding or self.plan.training_attention)

    @supports_jit.setter
    def supports_jit(self, value: bool) -> None:
        """Ignores the value that Keras sets on a new layer."""

    def call(self, hidden: Any, real_tokens: Any, training: bool | None = False) -> Any:
        """(B, S, H) -> (B, S, H); 0 at padding where it is left out."""
        if training and self.plan.recomputes_blocks:
            return self._recomputed(hidden, real_tokens)
        return self._transform_batch(hidden, real_tokens, bool(training))

    def _recomputed(self, hidden: Any, real_tokens: Any) -> Any:
        """Output of ``call`` in training; the backward pass computes all but the inputs again."""
        if keras.backend.backend() != "tensorflow":
            # The scope below would hide values that JAX has for the variables.
            raise ValueError(
                "Blocks are recomputed on Keras' TensorFlow backend only, this one is "
                f"{keras.backend.backend()}: leave recomputes_blocks False."
            )
        dropouts = (self.attention.dropout, self.attention_dropout, self.output_dropout)
        states = list({id(d.seed_generator): d.seed_generator.state for d in dropouts}.values())
        new_states: list[Any] = []

        def compute(hidden: Any, real_tokens: Any, *seeds: Any) -> Any:
            # The second time, too, the masks are drawn from the seeds of the first.
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
        """(R, H) -> (R, H), by a ``ComputePlan``; a product of matrices beats one of batches."""
        attended = plan.attention(self, states, rows, training)
        attended = self.attention_layer_norm(attended, training=training)
        output = plan.feed_forward(self, attended, training)
        return self.output_layer_norm(output, training=training)

    def compute_output_shape(
        self, hidden_shape: tuple[int | None, ...], real_tokens_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        """(B, S, H)."""
        return hidden_shape
