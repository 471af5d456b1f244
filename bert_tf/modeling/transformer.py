"""One block of the encoder: self-attention, then a feed-forward network, each normalised.

Legend: B batch, S sequence, N heads, D head size, H = N * D hidden, R rows, W any width.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.graph_gradients import custom_gradient, owned_by_graph

from .layers import (
    INDEX,
    BertLayer,
    Dropout,
    LayerNorm,
    MaskSeeds,
    Seed,
    add_bias,
    add_residual,
    bias_gradient,
    get_activation,
)
from .xla_plan import Plan, plan_for


def take_rows(matrix: Any, numbers: Any) -> Any:
    """(R, W) and (N,) numbers, none negative -> (N, W)."""
    return ops.take(matrix, numbers, axis=0)


class TokenRows:
    """Rows of a matrix that hold a batch's tokens: all B * S of them, or the real ones alone.

    Everything in a Transformer but attention acts on each token by itself, so the rows of padding
    can be left out. XLA needs to know the number of rows before the batch is there: a step that it
    compiles keeps padding. ``real_tokens`` are (B, S), 1 = real; the first token of each text
    counts as real whatever the mask says, because the pooler reads it. ``places_first``,
    never together with ``without_padding``: rows are in the order of S * B.
    """

    def __init__(
        self,
        real_tokens: Any,
        without_padding: bool,
        take: Callable[[Any, Any], Any] = take_rows,
        places_first: bool = False,
    ) -> None:
        self._batch, self._sequence = ops.shape(real_tokens)
        self._without_padding = without_padding
        self._take = take
        self._places_first = places_first
        if without_padding:
            first = ops.arange(self._sequence) == 0
            # (B * S,)
            is_row = ops.reshape(ops.logical_or(ops.cast(real_tokens, "bool"), first), (-1,))
            # (R,) the places of the rows among B * S, and (B * S,) the rows of the places; one that
            # is left out has the row behind the last.
            self._places = ops.cast(ops.nonzero(is_row)[0], INDEX)
            count = ops.cumsum(ops.cast(is_row, INDEX))
            self._rows = ops.where(is_row, count - 1, ops.shape(self._places)[0])

    @property
    def sizes(self) -> tuple[Any, Any]:
        """B and S."""
        return self._batch, self._sequence

    @property
    def numbers(self) -> Any:
        """(B, S) int32: which row a token is; R where it is left out."""
        rows = self._rows if self._without_padding else ops.arange(self._batch * self._sequence)
        return ops.reshape(ops.cast(rows, "int32"), (self._batch, self._sequence))

    def from_batch(self, batch: Any) -> Any:
        """(B, S, W) -> (R, W)."""
        if self._places_first:
            batch = ops.swapaxes(batch, 0, 1)  # XLA cancels it against the block before
        matrix = ops.reshape(batch, (-1, batch.shape[-1]))
        if not self._without_padding:
            return matrix
        # Written out: the derived gradient of a gather adds row by row.
        return custom_gradient(lambda x: (self._leave_out(x), self._fill_in))(matrix)

    def to_batch(self, matrix: Any) -> Any:
        """(R, W) -> (B, S, W), 0 where padding was left out."""
        if self._places_first:
            shape = (self._sequence, self._batch, matrix.shape[-1])
            return ops.swapaxes(ops.reshape(matrix, shape), 0, 1)
        if self._without_padding:
            matrix = custom_gradient(lambda x: (self._fill_in(x), self._leave_out))(matrix)
        return ops.reshape(matrix, (self._batch, self._sequence, matrix.shape[-1]))

    def _leave_out(self, matrix: Any) -> Any:
        return self._take(matrix, self._places)

    def _fill_in(self, matrix: Any) -> Any:
        behind = ops.zeros((1, matrix.shape[-1]), matrix.dtype)
        return self._take(ops.concatenate([matrix, behind], axis=0), self._rows)


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


# Makes contexts (R, H) in training, of queries, keys and values (R, 3 * H), the (B, S) mask, the
# number of heads and the layer that drops weights out; True at the end: attention is causal.
Attend = Callable[[Any, Any, TokenRows, int, Dropout, bool], Any]


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
    scores = ops.matmul(query * _score_scale(query), ops.swapaxes(key, 2, 3))
    return _softmax(scores, real_tokens, causal)


def _score_scale(query: Any) -> float:
    return 1.0 / math.sqrt(query.shape[-1])


def _softmax(scores: Any, real_tokens: Any, causal: bool) -> Any:
    if real_tokens is None:  # all are real
        return ops.softmax(scores, axis=-1)
    dtype = keras.backend.standardize_dtype(scores.dtype)
    return ops.softmax(scores + attention_bias(real_tokens, dtype, causal), axis=-1)


def attend_at_once(
    projected: Any,
    real_tokens: Any,
    rows: TokenRows,
    heads: int,
    dropout: Callable[[Any], Any],
    causal: bool = False,
) -> Any:
    """Makes the contexts of all rows together: B * S queries and keys, whatever the padding."""
    # By the mask's sizes: tf2onnx makes wrong shapes of a reshape by its own input's, if that is
    # the output of another reshape.
    query, key, value = split_heads(rows.to_batch(projected), heads, sizes=rows.sizes)
    weights = attention_weights(query, key, real_tokens, causal)
    # (B, N, S, S) x (B, N, S, D) -> (B, N, S, D) -> (B, S, H) -> (R, H)
    return rows.from_batch(join_heads(ops.matmul(dropout(weights), value)))


def _project_by_parts(
    barrier: Callable[[Any], Any], hidden: Any, kernel: Any, bias: Any
) -> tuple[list[Any], Callable[..., tuple[Any, Any, Any]]]:
    """(R, H), (H, 3 * H), (3 * H,) -> states for the residual, queries, keys, values: (R, H)."""
    kernels, biases = ops.split(kernel, 3, axis=1), ops.split(bias, 3)

    def gradient(of_hidden: Any, *of_parts: Any) -> tuple[Any, Any, Any]:
        of_kernels = [ops.matmul(ops.transpose(hidden), of_part) for of_part in of_parts]
        of_biases = [bias_gradient(of_part, bias.dtype) for of_part in of_parts]
        # XLA adds the sum so far, from the residual's on, within a product if it is on the right.
        for of_part, part in zip(of_parts, kernels, strict=True):
            of_hidden = ops.matmul(of_part, ops.transpose(part)) + of_hidden
        of_kernel = barrier(ops.concatenate(of_kernels, axis=1))
        return of_hidden, of_kernel, barrier(ops.concatenate(of_biases, axis=0))

    parts = zip(kernels, biases, strict=True)
    return [hidden, *(ops.matmul(hidden, part) + each for part, each in parts)], gradient


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(BertLayer):
    """Scaled dot-product attention in N heads, to the real tokens, or those among them so far.

    Source: Vaswani et al. 2017, section 3.2; google-research/bert ``modeling.py``,
    ``attention_layer``. One matrix product makes queries, keys and values: its kernel (H, 3 * H)
    has a published checkpoint's three side by side, in that order, as has its bias. Within
    each, column n * D + d belongs to head n.
    """

    def __init__(
        self, config: BertConfig, seed_generator: MaskSeeds | None = None, **kwargs: Any
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
        real_tokens: Any,
        rows: TokenRows,
        attend: Attend | None = None,
        plan: Plan | None = None,
        training: bool | None = False,
    ) -> tuple[Any, Any]:
        """(R, H) states, (B, S) mask -> (R, H) before dropout, and the states for the residual."""
        if plan is not None and plan.places_first:
            hidden, contexts = self._attend_places_first(plan, hidden, real_tokens, rows)
            return self.attention_output(contexts), hidden
        projected = self.query_key_value(hidden)  # (R, 3 * H)
        heads, causal = self.config.num_attention_heads, self.config.is_decoder
        if training and attend is not None:
            contexts = attend(projected, real_tokens, rows, heads, self.dropout, causal)
            return self.attention_output(contexts), hidden
        seed = Seed(self.dropout.seed_generator) if plan is not None else None

        def at_once(projected: Any) -> Any:
            return attend_at_once(
                *(projected, real_tokens, rows, heads),
                lambda weights: self.dropout(weights, training=training, seed=seed),
                causal,
            )

        contexts = at_once(projected) if plan is None else plan.again(at_once, projected)
        return self.attention_output(contexts), hidden

    def _attend_places_first(
        self, plan: Plan, hidden: Any, real_tokens: Any, rows: TokenRows
    ) -> tuple[Any, Any]:
        """(R, H) in the order of S * B -> the same for the residual, and contexts (R, H).

        Heads lie as (S, B * N, D), which a product of matrices reads as it is. One product for
        queries, keys and values would have to be copied in parts.
        """
        (batch, sequence), dense = rows.sizes, self.query_key_value
        variables = [ops.cast(each, hidden.dtype) for each in (dense.kernel, dense.bias)]
        project = custom_gradient(lambda *given: _project_by_parts(plan.barrier, *given))
        hidden, *parts = project(hidden, *variables)
        # (S * B, H) -> (S, B, N, D) -> (B, N, S, D)
        shape = (sequence, batch, self.config.num_attention_heads, -1)
        query, key, value = (
            ops.transpose(ops.reshape(part, shape), (1, 2, 0, 3)) for part in parts
        )
        scores = ops.matmul(query, ops.swapaxes(key, 2, 3)) * _score_scale(query)
        weights = _softmax(scores, real_tokens, self.config.is_decoder)
        contexts = ops.matmul(self.dropout(weights, training=True), value)
        return hidden, ops.reshape(ops.transpose(contexts, (2, 0, 1, 3)), ops.shape(hidden))

    def probabilities(self, hidden: Any, real_tokens: Any) -> Any:
        """(B, S, H) states and the (B, S) mask -> (B, N, S, S): the weights before dropout."""
        query, key, _ = split_heads(self.query_key_value(hidden), self.config.num_attention_heads)
        return attention_weights(query, key, real_tokens, self.config.is_decoder)


@keras.saving.register_keras_serializable(package="bert_tf")
class TransformerBlock(BertLayer):
    """Post-normalised Transformer block; its switches are those of ``BertEncoder``.

    Source: Vaswani et al. 2017, section 3.1; google-research/bert ``transformer_model``.
    """

    def __init__(
        self, config: BertConfig, seed_generator: MaskSeeds | None = None, **kwargs: Any
    ) -> None:
        super().__init__(config, **kwargs)
        policy = self.dtype_policy
        rate = config.hidden_dropout_prob
        self.trains_without_padding = False
        self.infers_without_padding = False
        self.recomputes = False
        self.training_attention: Attend | None = None
        self.take_rows: Callable[[Any, Any], Any] = take_rows
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

    def call(self, hidden: Any, real_tokens: Any, training: bool | None = False) -> Any:
        """(B, S, H) -> (B, S, H); 0 at padding where it is left out."""
        if training and self.recomputes:
            return self._recomputed(hidden, real_tokens)
        return self._transform(hidden, real_tokens, training)

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
                outputs = self._transform(hidden, real_tokens, True)
            new_states[:] = [scope.get_current_value(state) for state in states]
            return outputs

        seeds = [ops.convert_to_tensor(state.value) for state in states]
        outputs = owned_by_graph(keras.remat(compute))(hidden, real_tokens, *seeds)
        for state, value in zip(states, new_states, strict=True):
            state.assign(value)
        return outputs

    def _transform(self, hidden: Any, real_tokens: Any, training: bool | None) -> Any:
        leaves_out = self.trains_without_padding if training else self.infers_without_padding
        # The plan multiplies by these two's kernels, which a quantized layer has as integers.
        planned_layers = (self.attention.query_key_value, self.feed_forward_output)
        is_quantized = any(layer.quantization_mode for layer in planned_layers)
        plan = plan_for(hidden) if training and not is_quantized else None
        places_first = plan is not None and plan.places_first
        rows = TokenRows(real_tokens, leaves_out, self.take_rows, places_first)
        # Matrices from here on, (R, ...): a product of matrices is quicker than of batches.
        matrix = rows.from_batch(hidden)
        attend = self.training_attention
        attended, matrix = self.attention(
            matrix, real_tokens, rows=rows, attend=attend, plan=plan, training=training
        )
        attended = self.attention_dropout(attended, training=training)
        attended = add_residual(attended, matrix, training)
        attended = self.attention_layer_norm(attended, training=training)
        # Told again: recomputed, they are called outside of the block's own call.
        output = self.intermediate(attended, training=training)
        output = self._feed_forward_output(plan, output, training)
        output = self.output_dropout(output, training=training)
        output = add_residual(output, attended, training)
        output = self.output_layer_norm(output, training=training)
        return rows.to_batch(output)

    def _feed_forward_output(self, plan: Plan | None, inner: Any, training: bool | None) -> Any:
        """(R, F) before the activation -> (R, H); under a plan the activation is not kept."""
        dense = self.feed_forward_output
        if plan is None:
            return dense(self.activation(inner, bool(training)), training=training)

        def output(inner: Any, kernel: Any, bias: Any) -> Any:
            products = ops.matmul(self.activation(inner, True), kernel)
            return custom_gradient(add_bias)(products, bias)

        variables = [ops.cast(each, inner.dtype) for each in (dense.kernel, dense.bias)]
        return plan.again(output, inner, *variables)

    def compute_output_shape(
        self, hidden_shape: tuple[int | None, ...], real_tokens_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        """(B, S, H)."""
        return hidden_shape
