"""``BertEncoder``, which computes hidden states from token ids."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

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
from .layers import INDEX_DTYPE, BertLayer, new_initializer
from .pooling import pool
from .transformer import ComputePlan, TransformerBlock


def embedding_lookup(table: Any, ids: Any) -> Any:
    """Looks up the rows of a table (V, H) for int32 ids (...), with a dense gradient.

    TensorFlow's gradient is a list with one slice per token. Keras' Adam would square each slice
    instead of their sum, and gradient clipping would compute a wrong norm. JAX's gradient is dense.
    """
    ids = ops.cast(ids, INDEX_DTYPE)
    # Keras counts negative indices from the end. Subtracting the size keeps them invalid.
    indices = ops.where(ids < 0, ids - table.shape[0], ids)
    if keras.backend.backend() != "tensorflow":
        return ops.take(table, indices, axis=0)

    def take_rows(table: Any) -> tuple[Any, Callable[..., Any]]:
        def gradient(upstream: Any) -> Any:
            flat = ops.reshape(upstream, (-1, table.shape[-1]))
            # The reshape follows the maximum; otherwise TensorFlow would apply it to the int32 ids.
            segments = ops.reshape(ops.maximum(ids, -1), (-1,))
            return ops.segment_sum(flat, segments, num_segments=table.shape[0])

        return ops.take(table, indices, axis=0), gradient

    # The cast converts the variable to a tensor, so that its gradient is a dense tensor.
    return custom_gradient(take_rows)(ops.cast(table, table.dtype))


def nan_if_out_of_range(*looked_up: tuple[Any, Any]) -> Any:
    """Returns NaN at positions where an id is outside its table, and 0 at all others.

    An invalid id raises an error only on a CPU. A GPU looks up zeros, and XLA looks up the nearest
    row. Adding the returned values to the embeddings makes these errors visible.

    Args:
        *looked_up: Pairs of int32 ids (...) and the number of rows of their table.

    Returns:
        A float32 tensor of shape (..., 1).
    """
    bounds = [(ops.cast(ids, INDEX_DTYPE), rows) for ids, rows in looked_up]
    checks = [check for ids, rows in bounds for check in (ids >= 0, ids < rows)]
    is_row = functools.reduce(ops.logical_and, checks)
    return ops.expand_dims(ops.where(is_row, 0.0, float("nan")), -1)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbeddings(BertLayer):
    """Sum of three learned embeddings, followed by layer normalization and dropout.

    Source: Devlin et al. 2019, section 3 and figure 2; google-research/bert ``modeling.py``,
    ``embedding_lookup`` and ``embedding_postprocessor``.
    """

    def __init__(
        self, config: BertConfig, seed_generator: SeedGenerator | None = None, **kwargs: Any
    ) -> None:
        super().__init__(config, **kwargs)
        self.layer_norm = self.new_norm("layer_norm")
        self.dropout = self.new_dropout(config.hidden_dropout_prob, seed_generator, "dropout")

    def build(self, *input_shapes: Any) -> None:
        """Creates the embedding tables; DistilBERT has no table for token types."""
        config = self.config
        for name, rows in (
            ("word_embeddings", config.vocab_size),
            ("position_embeddings", config.max_position_embeddings),
            ("token_type_embeddings", config.type_vocab_size),
        ):
            # Embeddings are looked up and added in float32; only the sum is rounded.
            shape, start = (rows, config.hidden_size), new_initializer(config)
            add = functools.partial(self.add_weight, initializer=start, autocast=False)
            setattr(self, name, add(name=name, shape=shape) if rows else None)
        self.layer_norm.build((None, None, config.hidden_size))

    def call(
        self, word_ids: Any, type_ids: Any, positions: Any = None, training: bool | None = False
    ) -> Any:
        """Computes embeddings (B, S, H) from int32 ids (B, S) or from vectors (B, S, H)."""
        looked_up: list[tuple[Any, int]] = []

        def rows(table: Any, ids: Any) -> Any:
            looked_up.append((ids, table.shape[0]))
            return embedding_lookup(table, ids)

        if len(word_ids.shape) == 2:
            words = rows(self.word_embeddings, word_ids)
        else:
            words = ops.cast(word_ids, self.word_embeddings.dtype)
        if positions is None:
            position_vectors = self.position_embeddings[: ops.shape(words)[1]]
        else:
            position_vectors = rows(self.position_embeddings, positions)
        # (B, S, H) + (S, H) + (B, S, H)
        summed = words + position_vectors
        if self.token_type_embeddings is not None:
            if self.config.type_vocab_size == 1:  # both texts of a pair have the same type
                type_ids = ops.zeros_like(type_ids)
            summed = summed + rows(self.token_type_embeddings, type_ids)
        if looked_up:
            summed = summed + ops.cast(nan_if_out_of_range(*looked_up), summed.dtype)
        return self.dropout(self.layer_norm(summed, training=training), training=training)

    def compute_output_shape(
        self, word_ids_shape: tuple[int | None, ...], type_ids_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        """Returns (B, S, H)."""
        return (*word_ids_shape[:2], self.config.hidden_size)


@keras.saving.register_keras_serializable(package="bert_tf")
class Pooler(BertLayer):
    """Dense layer on the hidden state of the token that attends to all others.

    This is the first token, [CLS], as in google-research/bert's ``BertModel``. In a causal model,
    it is the last token, [SEP], as in Radford et al. 2018 (OpenAI GPT), section 3.2. The
    activation is tanh, or ReLU in DistilBERT.
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.dense = self.new_dense(config.hidden_size, "dense")

    def build(self, *input_shapes: Any) -> None:
        """Creates the kernel (H, H)."""
        self.dense.build((None, self.config.hidden_size))

    def call(self, hidden: Any, real_tokens: Any) -> Any:
        """Computes (B, H) from hidden states (B, S, H) and the mask (B, S)."""
        activation = ops.relu if self.config.is_distilbert else ops.tanh
        return activation(self.dense(pool(hidden, real_tokens, self.config.summary_token)))

    def compute_output_shape(
        self, hidden_shape: tuple[int | None, ...], real_tokens_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        """Returns (B, H)."""
        return (hidden_shape[0], hidden_shape[-1])


def build_outputs(states: list[Any], mask: Any, pooler: Pooler | None) -> dict[str, Any]:
    """Builds an encoder's outputs from the embeddings and the output of each block."""
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
    """Returns the embeddings and the output of each block."""
    states = [embedded]
    for block in blocks:
        states.append(block(states[-1], mask, **switches))
    return states


def _plan_property(name: str) -> Any:
    """Returns a property of the encoder that is stored in the blocks' ``ComputePlan``."""
    return property(
        lambda encoder: getattr(encoder.plan, name),
        lambda encoder, value: setattr(encoder.plan, name, value),
    )


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEncoder(BertModel):
    """Transformer encoder without a head.

    Source: Devlin et al. 2019, section 3; google-research/bert ``modeling.py``, ``BertModel``.

    Inputs, a dict of int32 tensors of shape (B, S):

    * ``input_word_ids``: Token ids. S is at most ``config.max_position_embeddings``.
    * ``input_mask``: 1 for tokens and 0 for padding.
    * ``input_type_ids``: 0 for the first text, 1 for the second.

    Outputs, a dict of tensors in the compute dtype:

    * ``sequence_output`` (B, S, H): Output of the last block.
    * ``pooled_output`` (B, H): Output of the pooler, if there is one. The pooler is a tanh layer on
      the first token or, in a causal model, on the last token (``config.summary_token``).
    * ``encoder_outputs``: List of the outputs (B, S, H) of all blocks.
    * ``embedding_output`` (B, S, H): Input of the first block.

    Variable paths start with the model's name:
    ``bert_encoder/layer_0/attention/query_key_value/kernel``.

    Args:
        config: ``BertConfig`` with sizes, dropout rates and activation.
        pooler: Whether to add a pooler, which is pre-trained only by next-sentence prediction.
        dense_size: Number of units of ``sentence_dense``; ``None`` for no such layer.
        dense_activation: Activation of ``sentence_dense``, one of ``choices.DENSE_ACTIVATIONS``.
        name: Name of the model, and first part of the variable paths.
        dtype: Keras dtype policy, such as ``"mixed_bfloat16"``; by default the global policy.

    Attributes:
        embeddings: Embedding layer.
        blocks: Transformer blocks, the lowest first.
        pooler: Layer that computes ``pooled_output``, or ``None``.
        sentence_dense: Float32 layer that ``sentence_embedding`` applies, or ``None``. It does not
            change the outputs.
        trains_without_padding: Whether training skips padding in all layers except attention.
            This is faster and sets outputs at padding to 0. XLA (``jit_compile=True``, TPU) does
            not support this option. Set the option before ``compile``. Defaults to False.
        infers_without_padding: Whether inference skips padding. Defaults to False.
        training_attention: Function that computes attention in training; ``None``, the default,
            attends to the full batch. ``training.attention.attend_in_groups`` needs less time and
            memory for long texts on a CPU. XLA supports only ``None``.
        recomputes_blocks: Whether training stores only the input of each block and recomputes the
            rest in the backward pass (Chen et al. 2016). This needs much less memory but about a
            third more time, and requires the TensorFlow backend. Defaults to False.
        only_infers: Whether training calls also run without dropout, as in ``BertFeatures``.
            Defaults to False.

    Raises:
        ValueError: If a batch lacks an input, or a sequence is longer than
            ``config.max_position_embeddings``.

    >>> encoder = BertEncoder(BertConfig.from_preset("bert-tiny", vocab_size=100))
    >>> ids = keras.ops.ones((2, 5), "int32")
    >>> outputs = encoder({"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids})
    >>> tuple(outputs["sequence_output"].shape), tuple(outputs["pooled_output"].shape)
    ((2, 5, 128), (2, 128))
    """

    argument_checks: ClassVar = {
        "pooler": optional(is_flag),
        "dense_size": optional(is_count),
        "dense_activation": lambda value: value in DENSE_ACTIVATIONS,
    }
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
        # Layers are built inside the scope, so that variable paths do not depend on the caller.
        with keras.name_scope(name):
            embeddings = BertEmbeddings(config, seed_generator, name="embeddings", dtype=policy)
            new_block = functools.partial(TransformerBlock, config, seed_generator, plan)
            blocks = [
                new_block(name=f"layer_{index}", dtype=policy)
                for index in range(config.num_hidden_layers)
            ]
            pooler_layer = Pooler(config, name="pooler", dtype=policy) if pooler else None
            arguments: dict[str, Any] = {"pooler": bool(pooler)}
            dense = None
            if dense_size is not None:
                arguments |= {"dense_size": dense_size, "dense_activation": dense_activation}
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
        super().__init__(config, policy, inputs, outputs, name, arguments=arguments, **kwargs)

        self.plan = plan
        self.embeddings = embeddings
        self.blocks = blocks
        self.pooler = pooler_layer
        if dense is not None:
            self.sentence_dense = dense

    @classmethod
    def head_shapes(cls, config: BertConfig, arguments: Mapping[str, Any]) -> Shapes:
        """Returns the shapes of the weights of ``sentence_dense``, if this layer exists."""
        size = arguments.get("dense_size")
        return {} if size is None else dense_shapes("sentence_dense", config.hidden_size, size)

    def from_embedded(
        self, embedded: Any, mask: Any, attentions: bool = False, training: bool | None = False
    ) -> dict[str, Any]:
        """Computes the outputs from embeddings.

        Args:
            embedded: Output of ``embeddings``, of shape (B, S, H).
            mask: Mask of shape (B, S), 1 for tokens and 0 for padding.
            attentions: Whether to add ``attentions``, a list of every block's attention weights
                (B, N, S, S) before dropout.
            training: Whether dropout is active.

        Returns:
            The outputs of a call, and ``attentions`` if requested.

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
        """Runs the model on a batch; additional features are ignored."""
        if not self.only_infers:
            return super().__call__(inputs, *args, **kwargs)
        with isolated_call_context(self):
            return super().__call__(inputs, training=False)

    @property
    def encoder(self) -> Self:
        """The model itself."""
        return self

    def __dir__(self) -> list[str]:
        """Hides ``encoder``, because Keras saves every layer that it finds here."""
        return [name for name in super().__dir__() if name != "encoder"]

    @property
    def seed_generator(self) -> SeedGenerator:
        """Seed generator of all dropout layers, including those of a surrounding model."""
        return self.embeddings.dropout.seed_generator

    trains_without_padding = _plan_property("trains_without_padding")
    infers_without_padding = _plan_property("infers_without_padding")
    training_attention = _plan_property("training_attention")
    recomputes_blocks = _plan_property("recomputes_blocks")
