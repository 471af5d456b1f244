"""``BertEncoder``: token ids to hidden states."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import keras
from keras import ops
from keras.random import SeedGenerator

from bert_tf import features
from bert_tf.choices import DENSE_ACTIVATIONS
from bert_tf.config import BertConfig
from bert_tf.graph_gradients import custom_gradient
from bert_tf.io import runtime

from .base import BertModel, Shapes, dense_shapes, is_count, is_flag, model_inputs, optional
from .keras_hooks import isolated_call_context
from .layers import INDEX_DTYPE, BertLayer, Dropout, LayerNorm, new_initializer, pool
from .transformer import ComputePlan, TransformerBlock


def embedding_lookup(table: Any, ids: Any) -> Any:
    """(V, H) and (...) int32 -> (..., H), whose gradient is dense: a row's tokens are summed.

    TensorFlow's own is a list with each token for itself, of which Keras' Adam squares the parts in
    place of their sum, and its clips take the wrong norm. JAX's own is dense.
    """
    ids = ops.cast(ids, INDEX_DTYPE)
    # Keras counts ids below 0 from the end: these stay below 0, and no row has them.
    places = ops.where(ids < 0, ids - table.shape[0], ids)
    if keras.backend.backend() != "tensorflow":
        return ops.take(table, places, axis=0)

    def rows(table: Any) -> tuple[Any, Callable[..., Any]]:
        def gradient(upstream: Any) -> Any:
            flat = ops.reshape(upstream, (-1, table.shape[-1]))
            # Behind the maximum: TensorFlow moves a reshape before a cast, to the int32 ids.
            numbers = ops.reshape(ops.maximum(ids, -1), (-1,))
            return ops.segment_sum(flat, numbers, num_segments=table.shape[0])

        return ops.take(table, places, axis=0), gradient

    # A cast makes a tensor of the variable: a variable's gradient would be asked for by itself.
    return custom_gradient(rows)(ops.cast(table, table.dtype))


def nan_if_out_of_range(*looked_up: tuple[Any, Any]) -> Any:
    """Ids (...) and their tables' rows -> (..., 1) float32: NaN where one has no row, else 0.

    Only on a CPU does ``embedding_lookup`` raise an error for an invalid id. A GPU looks up zeros
    and XLA the nearest row, so these values are added to the results.
    """
    bounds = [(ops.cast(ids, INDEX_DTYPE), rows) for ids, rows in looked_up]
    are_rows = [check for ids, rows in bounds for check in (ids >= 0, ids < rows)]
    is_row = functools.reduce(ops.logical_and, are_rows)
    return ops.expand_dims(ops.where(is_row, 0.0, float("nan")), -1)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbeddings(BertLayer):
    """The sum of three learned embeddings, then layer normalisation and dropout.

    Source: Devlin et al. 2019, section 3 and figure 2; google-research/bert ``modeling.py``,
    ``embedding_lookup`` and ``embedding_postprocessor``.
    """

    def __init__(
        self, config: BertConfig, seed_generator: SeedGenerator | None = None, **kwargs: Any
    ) -> None:
        super().__init__(config, **kwargs)
        self.layer_norm = LayerNorm(
            config.layer_norm_eps, name="layer_norm", dtype=self.dtype_policy
        )
        self.dropout = Dropout(
            config.hidden_dropout_prob, seed_generator, name="dropout", dtype=self.dtype_policy
        )

    def build(self, *input_shapes: Any) -> None:
        """Makes the three tables; of a DistilBERT's token types there is none."""
        config = self.config
        for name, rows in (
            ("word_embeddings", config.vocab_size),
            ("position_embeddings", config.max_position_embeddings),
            ("token_type_embeddings", config.type_vocab_size),
        ):
            # Rows are looked up and added in float32; only the sum is rounded.
            shape, start = (rows, config.hidden_size), new_initializer(config)
            add = functools.partial(self.add_weight, initializer=start, autocast=False)
            setattr(self, name, add(name=name, shape=shape) if rows else None)
        self.layer_norm.build((None, None, config.hidden_size))

    def call(
        self, word_ids: Any, type_ids: Any, positions: Any = None, training: bool | None = False
    ) -> Any:
        """(B, S) int32 ids, or vectors (B, S, H), types and positions -> (B, S, H)."""
        looked_up: list[tuple[Any, int]] = []

        def rows(table: Any, ids: Any) -> Any:
            looked_up.append((ids, table.shape[0]))
            return embedding_lookup(table, ids)

        if len(word_ids.shape) == 2:
            words = rows(self.word_embeddings, word_ids)
        else:
            words = ops.cast(word_ids, self.word_embeddings.dtype)
        if positions is None:
            places = self.position_embeddings[: ops.shape(words)[1]]
        else:
            places = rows(self.position_embeddings, positions)
        # (B, S, H) + (S, H) + (B, S, H)
        summed = words + places
        if self.token_type_embeddings is not None:
            if self.config.type_vocab_size == 1:  # both texts of a pair are of the one type
                type_ids = ops.zeros_like(type_ids)
            summed = summed + rows(self.token_type_embeddings, type_ids)
        if looked_up:
            summed = summed + ops.cast(nan_if_out_of_range(*looked_up), summed.dtype)
        return self.dropout(self.layer_norm(summed, training=training), training=training)

    def compute_output_shape(
        self, word_ids_shape: tuple[int | None, ...], type_ids_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        """(B, S, H)."""
        return (*word_ids_shape[:2], self.config.hidden_size)


@keras.saving.register_keras_serializable(package="bert_tf")
class Pooler(BertLayer):
    """A tanh layer on the hidden state of the token that sees all others; a DistilBERT has a ReLU.

    That is the first token, [CLS], as in google-research/bert's ``BertModel``; from left to right
    it is the last real one, [SEP], as in Radford et al. 2018 (OpenAI GPT), section 3.2.
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.dense = self.new_dense(config.hidden_size, "dense")

    def build(self, *input_shapes: Any) -> None:
        """Makes the kernel (H, H)."""
        self.dense.build((None, self.config.hidden_size))

    def call(self, hidden: Any, real_tokens: Any) -> Any:
        """(B, S, H) states and the (B, S) mask -> (B, H)."""
        activation = ops.relu if self.config.is_distilbert else ops.tanh
        return activation(self.dense(pool(hidden, real_tokens, self.config.summary_token)))

    def compute_output_shape(
        self, hidden_shape: tuple[int | None, ...], real_tokens_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        """(B, H)."""
        return (hidden_shape[0], hidden_shape[-1])


def build_outputs(states: list[Any], mask: Any, pooler: Pooler | None) -> dict[str, Any]:
    """Outputs of an encoder, from the input of its first block and the output of each."""
    outputs = {
        features.SEQUENCE_OUTPUT: states[-1],
        features.ENCODER_OUTPUTS: states[1:],
        features.EMBEDDING_OUTPUT: states[0],
    }
    if pooler is not None:
        outputs[features.POOLED_OUTPUT] = pooler(states[-1], mask)
    return outputs


def _run(
    blocks: Sequence[TransformerBlock], embedded: Any, mask: Any, **switches: bool | None
) -> list[Any]:
    """The input of the first block, and the output of each."""
    return list(
        itertools.accumulate(
            blocks, lambda hidden, block: block(hidden, mask, **switches), initial=embedded
        )
    )


def _plan_property(name: str) -> Any:
    """An attribute of the encoder that its blocks share."""
    return property(
        lambda encoder: getattr(encoder.plan, name),
        lambda encoder, value: setattr(encoder.plan, name, value),
    )


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEncoder(BertModel):
    """BERT without a head: a dict of ``ENCODER_FEATURES`` in, a dict of hidden states out.

    Source: Devlin et al. 2019, section 3; google-research/bert ``modeling.py``, ``BertModel``.

    Inputs, each (B, S) int32: ``input_word_ids``; ``input_mask``, 1 = real and 0 = padding;
    ``input_type_ids``. S is anything up to ``config.max_position_embeddings``. What the padded
    ids are has no influence on the outputs of real tokens.

    Outputs, in the compute dtype: ``sequence_output`` (B, S, H), the last block's;
    ``pooled_output`` (B, H), a tanh layer on the first token's, or from left to right on the last
    real one's (``config.summary_token``), where there is a pooler;
    ``encoder_outputs``, a list of every block's (B, S, H), whose last is ``sequence_output``;
    ``embedding_output`` (B, S, H), what enters the first block.

    Variables are named by their place, below the model's own name:
    ``bert_encoder/layer_0/attention/query_key_value/kernel``.

    Args:
        config: sizes, rates and activation.
        pooler: whether there is a pooler; nothing but next-sentence prediction trains it before
            fine-tuning.
        dense_size: the units of ``sentence_dense``; ``None``: there is no such layer.
        dense_activation: its activation, of ``choices.DENSE_ACTIVATIONS``.
        name: the model's name, and the first part of its variables' paths.
        dtype: a Keras dtype policy, ``"mixed_bfloat16"`` for example; the global one by default.

    Attributes:
        embeddings: the layer below the blocks.
        blocks: the Transformer blocks, the lowest first.
        pooler: the layer that makes ``pooled_output``, or ``None``.
        sentence_dense: a float32 layer that the vectors of texts go through last, no part of the
            outputs; ``None`` without a ``dense_size``.
        trains_without_padding: whether training computes real tokens only, wherever a token is
            computed by itself (attention still has B * S): the same outputs at real tokens and the
            same gradients in less time, and zeros at padding. False at first. Set it before
            ``compile``, for texts of different lengths and a step that XLA does not compile
            (no ``jit_compile=True``, no TPU): how many tokens are real is known too late for XLA.
        infers_without_padding: the same at inference, False at first.
        training_attention: how training computes attention; ``None``, at first: all texts at once.
            ``training.attention.attend_in_groups`` needs less time and memory on a CPU where texts
            are long, and not under XLA either.
        recomputes_blocks: whether training keeps only the inputs of each block and computes the
            rest again for the backward pass (Chen et al. 2016), on TensorFlow alone: the same
            gradients in much less memory and about a third more time. False at first.
        only_infers: whether calls in training, too, are as in inference, without dropout, as those
            of an encoder whose states are features (``BertFeatures``). False at first.

    Raises:
        ValueError: called without a feature, or with a sequence longer than the positions.

    >>> encoder = BertEncoder(BertConfig.from_preset("bert-tiny", vocab_size=100))
    >>> ids = keras.ops.ones((2, 5), "int32")
    >>> outputs = encoder({"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids})
    >>> tuple(outputs["sequence_output"].shape), tuple(outputs["pooled_output"].shape)
    ((2, 5, 128), (2, 128))
    """

    argument_checks = MappingProxyType(
        {
            "pooler": optional(is_flag),
            "dense_size": optional(is_count),
            "dense_activation": lambda value: value in DENSE_ACTIVATIONS,
        }
    )
    hugging_face = "BertModel"
    hub_task = "feature-extraction"
    only_infers = False

    def __init__(
        self,
        config: BertConfig,
        pooler: bool = True,
        dense_size: int | None = None,
        dense_activation: str = DENSE_ACTIVATIONS[0],
        name: str = "bert_encoder",
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        runtime.check_fork()
        # === Layers ===
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        seed_generator = SeedGenerator(name="dropout_seed")
        plan = ComputePlan()
        # Layers are built inside the scope, so that paths do not depend on what calls the model.
        with keras.name_scope(name):
            embeddings = BertEmbeddings(config, seed_generator, name="embeddings", dtype=policy)
            new_block = functools.partial(TransformerBlock, config, seed_generator, plan)
            blocks = [
                new_block(name=f"layer_{index}", dtype=policy)
                for index in range(config.num_hidden_layers)
            ]
            pooler_layer = Pooler(config, name="pooler", dtype=policy) if pooler else None
            dense = None
            if dense_size is not None:
                dense = keras.layers.Dense(
                    dense_size,
                    dense_activation,
                    kernel_initializer=new_initializer(config),
                    name="sentence_dense",
                    dtype="float32",
                )
                dense.build((None, config.hidden_size))

            # === Functional model ===
            inputs = model_inputs(features.ENCODER_FEATURES)
            embedding_output = embeddings(
                inputs[features.INPUT_WORD_IDS], inputs[features.INPUT_TYPE_IDS]
            )
            mask = inputs[features.INPUT_MASK]
            outputs = build_outputs(_run(blocks, embedding_output, mask), mask, pooler_layer)
        super().__init__(config, policy, inputs, outputs, name, **kwargs)

        self.plan = plan
        self.embeddings = embeddings
        self.blocks = blocks
        self.pooler = pooler_layer
        if dense is not None:
            self.sentence_dense = dense

    @classmethod
    def head_shapes(cls, config: BertConfig, arguments: Mapping[str, Any]) -> Shapes:
        """Shapes of the layer of sentence embeddings, where there is one."""
        size = arguments.get("dense_size")
        return {} if size is None else dense_shapes("sentence_dense", config.hidden_size, size)

    def from_embedded(
        self, embedded: Any, mask: Any, attentions: bool = False, training: bool | None = False
    ) -> dict[str, Any]:
        """The outputs of (B, S, H), what ``embeddings`` made of ids or vectors, and the mask.

        With ``attentions`` they have a list of every block's attention probabilities (B, N, S, S),
        before dropout, from a token to each.

        >>> encoder = BertEncoder(BertConfig.from_preset("bert-tiny", vocab_size=100))
        >>> vectors, types = ops.ones((2, 5, 128)), ops.zeros((2, 5), "int32")
        >>> embedded = encoder.embeddings(vectors, types, positions=types + 7)
        >>> outputs = encoder.from_embedded(embedded, 1 - types, attentions=True)
        >>> tuple(outputs["pooled_output"].shape), tuple(outputs["attentions"][1].shape)
        ((2, 128), (2, 2, 5, 5))
        """
        states = _run(self.blocks, embedded, mask, training=training)
        outputs = build_outputs(states, mask, self.pooler)
        if attentions:
            outputs[features.ATTENTIONS] = [
                block.attention.probabilities(hidden, mask)
                for block, hidden in zip(self.blocks, states[:-1], strict=True)
            ]
        return outputs

    def __call__(self, inputs: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Runs the model on a batch, which may hold further features."""
        if not self.only_infers:
            return super().__call__(inputs, *args, **kwargs)
        with isolated_call_context(self):
            return super().__call__(inputs, training=False)

    @property
    def encoder(self) -> Self:
        """The model itself."""
        return self

    def __dir__(self) -> list[str]:
        """All but the encoder: Keras saves every layer that it finds here."""
        return [name for name in super().__dir__() if name != "encoder"]

    @property
    def seed_generator(self) -> SeedGenerator:
        """Seeds of every dropout of the model, and of a model that is built on it."""
        return self.embeddings.dropout.seed_generator

    trains_without_padding = _plan_property("trains_without_padding")
    infers_without_padding = _plan_property("infers_without_padding")
    training_attention = _plan_property("training_attention")
    recomputes_blocks = _plan_property("recomputes_blocks")

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        config = {**super().get_config(), "pooler": self.pooler is not None}
        if (dense := self.sentence_dense) is not None:
            activation = keras.activations.serialize(dense.activation)
            config |= {"dense_size": dense.units, "dense_activation": activation}
        return config
