"""Feature-based models: other layers use a mixture of a frozen encoder's hidden states.

Source: Devlin et al. 2019, section 5.3, "Feature-based Approach with BERT", and table 7.
"""

import itertools
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import keras
from keras import ops

from bert_tf import features
from bert_tf.choices import UNLEARNED_VARIANTS
from bert_tf.config import BertConfig

from .base import BertModel, Shapes, dense_shapes, is_count, is_rate, model_inputs, optional
from .encoder import BertEncoder
from .keras_hooks import remove_seed_generators
from .layers import Dropout, new_logits
from .task_models import check_num_classes

# The blocks that each variant uses and the minimum number of blocks, in table 7's order.
_VARIANT_BLOCKS = {
    "embeddings": (slice(0), 0),
    "second_to_last": (slice(-2, -1), 2),
    "last": (slice(-1, None), 1),
    "weighted_sum_last_four": (slice(-4, None), 4),
    "concat_last_four": (slice(-4, None), 4),
    "weighted_sum_all": (slice(None), 1),
}
VARIANTS = tuple(_VARIANT_BLOCKS)


def check_variant(variant: str, num_blocks: int | None = None) -> None:
    """Checks the name of a variant and the number of blocks."""
    if variant not in _VARIANT_BLOCKS:
        raise ValueError(f"variant={variant!r}: expected one of {', '.join(VARIANTS)}.")
    _, minimum = _VARIANT_BLOCKS[variant]
    if num_blocks is not None and num_blocks < minimum:
        raise ValueError(
            f"variant={variant!r}: expected an encoder with at least {minimum} blocks, got "
            f"{num_blocks}. Use another variant."
        )


def read_states(variant: str, outputs: Mapping[str, Any]) -> list[Any]:
    """Returns the hidden states that a variant uses, from the lowest block up."""
    blocks = outputs[features.ENCODER_OUTPUTS]
    check_variant(variant, len(blocks))
    if variant == "embeddings":
        return [outputs[features.EMBEDDING_OUTPUT]]
    blocks_to_read, _ = _VARIANT_BLOCKS[variant]
    return list(blocks[blocks_to_read])


def frozen_states(variant: str, encoder: BertEncoder, inputs: Mapping[str, Any]) -> list[Any]:
    """Computes those hidden states of a frozen encoder that a variant uses."""
    return [ops.stop_gradient(state) for state in read_states(variant, encoder(inputs))]


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerMixture(keras.layers.Layer):
    """Mixes the hidden states of an encoder's layers into one vector per token.

    Source: Devlin et al. 2019, section 5.3 and table 7, which has six variants:

    * ``embeddings``: the input of the first block.
    * ``second_to_last``, ``last``: the states of one block.
    * ``weighted_sum_last_four``, ``weighted_sum_all``: a sum over blocks, with learned weights.
    * ``concat_last_four``: the concatenated states of four blocks, the lowest first.

    The paper does not define the weights of the sums. This layer follows equation 1 of Peters et
    al. 2018 (ELMo), which the paper compares with: a learned ``scale`` (float32 scalar) times the
    softmax of learned ``logits`` (float32, one per block). Initially, the weighted sum equals the
    mean.

    Args:
        variant: Name of one of the six variants.
        **kwargs: ``name``, ``dtype`` and ``trainable``, as for every Keras layer.

    Raises:
        ValueError: If the variant is unknown, or the encoder has too few blocks for it.

    >>> states = [ops.full((1, 2, 3), float(block)) for block in range(4)]
    >>> outputs = {"embedding_output": states[0], "encoder_outputs": states}
    >>> ops.convert_to_numpy(LayerMixture("weighted_sum_all")(outputs))[0, 0]
    array([1.5, 1.5, 1.5], dtype=float32)
    >>> tuple(LayerMixture("concat_last_four")(outputs).shape)
    (1, 2, 12)
    """

    def __init__(self, variant: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_variant(variant)
        self.variant = variant

    def build(self, shapes: Any) -> None:
        """Creates the weights if the variant is a weighted sum."""
        summed = len(self._states(shapes))
        if self.variant in UNLEARNED_VARIANTS:
            return
        # The weights are float32, because bfloat16 would round a training step to zero.
        self.logits = self.add_weight(
            name="logits", shape=(summed,), initializer="zeros", dtype="float32", autocast=False
        )
        self.scale = self.add_weight(
            name="scale", shape=(), initializer="ones", dtype="float32", autocast=False
        )

    def call(self, outputs: Any) -> Any:
        """Mixes hidden states.

        Args:
            outputs: Outputs of an encoder, or the states (B, S, H) that ``read_states`` returns.

        Returns:
            A tensor in the compute dtype, of shape (B, S, H), or (B, S, 4H) for
            ``concat_last_four``.
        """
        states = [ops.cast(state, self.compute_dtype) for state in self._states(outputs)]
        if self.variant in UNLEARNED_VARIANTS:
            return ops.concatenate(states, axis=-1) if len(states) > 1 else states[0]
        weights = ops.cast(self.scale * ops.softmax(self.logits), self.compute_dtype)
        # Blocks are added one at a time, because stacking them would copy all of them.
        mixed = weights[0] * states[0]
        for index, state in enumerate(states[1:], start=1):
            mixed = mixed + weights[index] * state
        return mixed

    def _states(self, outputs: Any) -> Any:
        return read_states(self.variant, outputs) if isinstance(outputs, Mapping) else outputs

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments for serialization."""
        return {**super().get_config(), "variant": self.variant}


class FrozenEncoder:
    """Mixin that keeps the encoder frozen when the model is made trainable."""

    encoder: Any = None

    @property
    def trainable(self) -> bool:
        """Whether the layers outside the encoder are trained."""
        return bool(keras.layers.Layer.trainable.fget(self))

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.layers.Layer.trainable.fset(self, value)
        if self.encoder is not None:  # Keras sets ``trainable`` before the encoder exists
            self.encoder.trainable = False


@keras.saving.register_keras_serializable(package="bert_tf")
class BertFeatures(FrozenEncoder, keras.layers.Layer):
    """Frozen pre-trained encoder that computes a vector for each token.

    Source: Devlin et al. 2019, section 5.3, "Feature-based Approach with BERT".

    The encoder gets no gradients and never uses dropout. The encoder stays frozen when the
    surrounding model is made trainable; only the mixture weights of a weighted sum are trained. The
    encoder is saved with the layer. The layer creates a Keras mask, so that subsequent recurrent
    layers skip padding.

    Inputs: a dict of ``ENCODER_FEATURES``, each (B, S) int32.

    Output: (B, S, H) in the compute dtype, or (B, S, 4H) for ``concat_last_four``. Vectors at
    padding are undefined.

    Args:
        encoder: ``BertEncoder``, which is also frozen in other models that use it.
        variant: Mixture of the encoder's layers; see ``LayerMixture``.
        **kwargs: ``name``, ``dtype`` and ``trainable``, as for every Keras layer.

    Raises:
        ValueError: If the variant is unknown, or the encoder has too few blocks for it.

    >>> from bert_tf.config import BertConfig
    >>> from bert_tf.modeling.base import model_inputs
    >>> config = BertConfig.from_preset("bert-tiny", vocab_size=100)
    >>> states = BertFeatures(BertEncoder(config), "last")
    >>> inputs = model_inputs(features.ENCODER_FEATURES)
    >>> read = keras.layers.Bidirectional(keras.layers.LSTM(8, return_sequences=True))
    >>> model = keras.Model(inputs, keras.layers.Dense(5)(read(states(inputs))))
    >>> len(states.weights), len(states.trainable_weights)
    (31, 0)
    """

    def __init__(
        self, encoder: BertEncoder, variant: str = "concat_last_four", **kwargs: Any
    ) -> None:
        check_variant(variant, encoder.config.num_hidden_layers)
        super().__init__(**kwargs)
        self.supports_masking = True  # otherwise Keras does not call compute_mask
        self.encoder = encoder
        encoder.trainable, encoder.only_infers = False, True
        self.mixture = LayerMixture(variant, name="mixture", dtype=self.dtype_policy)

    @classmethod
    def from_checkpoint(
        cls, path: str, variant: str = "concat_last_four", dtype: Any = None, **kwargs: Any
    ) -> Self:
        """Creates the layer from a checkpoint of any format.

        Args:
            path: Checkpoint, as in ``bert_tf.load``.
            variant: Mixture of the encoder's layers; see ``LayerMixture``.
            dtype: Keras dtype policy of the layer and its encoder; by default the global policy.
            **kwargs: ``name`` and ``trainable``.

        Raises:
            ValueError: If the checkpoint cannot be loaded (see ``bert_tf.load``), the variant is
                unknown, or the encoder has too few blocks for it.
        """
        encoder = BertEncoder.from_checkpoint(path, pooler=False, dtype=dtype)
        return cls(encoder, variant, dtype=dtype, **kwargs)

    def build(self, shapes: Mapping[str, Any]) -> None:
        """Creates the mixture's weights; the encoder is already built."""
        size = (*shapes[features.INPUT_WORD_IDS], self.encoder.config.hidden_size)
        self.mixture.build(
            {
                features.EMBEDDING_OUTPUT: size,
                features.ENCODER_OUTPUTS: [size] * self.encoder.config.num_hidden_layers,
            }
        )

    def call(self, inputs: Mapping[str, Any]) -> Any:
        """Computes the vectors of the tokens, without dropout."""
        return self.mixture(frozen_states(self.mixture.variant, self.encoder, inputs))

    def compute_mask(self, inputs: Mapping[str, Any], previous_mask: Any = None) -> Any:
        """Returns the mask (B, S), True for tokens and False for padding."""
        return ops.cast(inputs[features.INPUT_MASK], "bool")

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments for serialization."""
        return {
            **super().get_config(),
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "variant": self.mixture.variant,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates the layer from the result of ``get_config``, with new weights."""
        encoder = keras.saving.deserialize_keras_object(config["encoder"])
        return cls(**{**config, "encoder": encoder})


_LSTM_LAYERS = 2
_VARIANT = "concat_last_four"
_LSTM_UNITS = 768


@keras.saving.register_keras_serializable(package="bert_tf")
class BertFeatureTagger(FrozenEncoder, BertModel):
    """Token classifier with a two-layer BiLSTM on the states of a frozen encoder.

    Source: Devlin et al. 2019, section 5.3. A word is represented by its first piece, whose vector
    is mixed from the encoder's layers by ``LayerMixture``. The BiLSTM reads only the first pieces
    of words. The paper uses a "768-dimensional BiLSTM"; this class uses 768 units per direction.
    The paper does not mention dropout; this class applies dropout before each layer.

    The encoder's states are constant, so they can be cached: pass ``word_states`` to skip the
    encoder.

    Inputs: a dict of ``TAGGING_FEATURES``, each (B, S) int32. Output: float32 logits of shape
    (B, S, C). Logits are undefined where ``word_index`` is -1; set the loss weight to 0 there.

    Alternative inputs: ``word_states``, (B, W, L, H), contains the states that ``read_states``
    returns for each word; and ``word_index``, (B, W) int32, is -1 at padding, which must be last.
    Output: float32 logits of shape (B, W, C).

    Args:
        config: ``BertConfig`` with sizes, dropout rates and activation.
        num_classes: Number of classes C.
        variant: Mixture of the encoder's layers; see ``LayerMixture``.
        lstm_units: Number of units per direction and BiLSTM layer.
        dropout: Dropout rate before each BiLSTM layer and the dense layer; by default
            ``config.hidden_dropout_prob``.
        name: Name of the model. Its encoder is always named ``bert_encoder``.
        dtype: Keras dtype policy, such as ``"mixed_bfloat16"``; by default the global policy.

    Attributes:
        encoder: Frozen ``BertEncoder`` without a pooler.
        reader: Model of all trained layers, with ``word_states`` as input.

    Raises:
        ValueError: If an argument is out of range, the variant is unknown, or the encoder has too
            few blocks for it.

    >>> config = BertConfig.from_preset("bert-tiny", vocab_size=100)
    >>> model = BertFeatureTagger(config, num_classes=9, variant="last", lstm_units=8)
    >>> ids = ops.ones((2, 5), "int32")
    >>> batch = {"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}
    >>> tuple(model({**batch, "word_index": ops.stack([ops.arange(-1, 4)] * 2)}).shape)
    (2, 5, 9)
    >>> len(model.weights), len(model.trainable_weights)
    (43, 14)
    """

    argument_checks: ClassVar = {
        "num_classes": is_count,
        "variant": lambda value: value in VARIANTS,
        "lstm_units": is_count,
        "dropout": optional(is_rate),
    }
    pooler_by_default = False
    has_portable_format = False
    hub_task = "token-classification"

    def __init__(
        self,
        config: BertConfig,
        num_classes: int,
        variant: str = _VARIANT,
        lstm_units: int = _LSTM_UNITS,
        dropout: float | None = None,
        name: str = "bert_feature_tagger",
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        check_num_classes(num_classes)
        check_variant(variant, config.num_hidden_layers)
        if lstm_units < 1:
            raise ValueError(f"lstm_units={lstm_units}: expected 1 or more.")
        # === Layers ===
        encoder = BertEncoder(config, pooler=False, dtype=dtype)
        encoder.only_infers = True
        policy = encoder.dtype_policy
        rate = config.hidden_dropout_prob if dropout is None else dropout

        # === Functional model ===
        inputs = model_inputs(features.TAGGING_FEATURES)
        word_index = inputs[features.WORD_INDEX]
        order = _word_order(word_index, config.max_position_embeddings)
        states = [
            ops.take_along_axis(state, order[:, :, None], axis=1)
            for state in frozen_states(variant, encoder, inputs)
        ]
        with keras.name_scope(name):
            reader = _build_reader(encoder, variant, states, lstm_units, num_classes, rate)
        logits = reader(
            {
                features.WORD_STATES: ops.stack(states, axis=2),
                features.WORD_INDEX: ops.take_along_axis(word_index, order, axis=1),
            }
        )
        # Move the logits back to the positions of their words.
        inverse = ops.argsort(order, axis=1)
        outputs = ops.take_along_axis(logits, inverse[:, :, None], axis=1)
        arguments = {
            "num_classes": num_classes,
            "variant": variant,
            "lstm_units": lstm_units,
            "dropout": rate,
        }
        super().__init__(config, policy, inputs, outputs, name, arguments=arguments, **kwargs)

        self.encoder = encoder
        encoder.trainable = False
        self.reader = reader
        self.num_classes = num_classes
        self.variant = variant

    @classmethod
    def head_shapes(cls, config: BertConfig, arguments: Mapping[str, Any]) -> Shapes:
        """Returns the shapes of the weights outside the encoder."""
        variant = arguments.get("variant", _VARIANT)
        units = arguments.get("lstm_units", _LSTM_UNITS)
        blocks = [None] * config.num_hidden_layers
        outputs = {features.EMBEDDING_OUTPUT: None, features.ENCODER_OUTPUTS: blocks}
        states = len(read_states(variant, outputs))
        shapes: Shapes = {}
        width = config.hidden_size
        if variant not in UNLEARNED_VARIANTS:
            shapes = {"mixture/logits": (states,), "mixture/scale": ()}
        else:
            width *= states
        for layer, direction in itertools.product(range(_LSTM_LAYERS), ("forward", "backward")):
            cell = f"bilstm_{layer}/{direction}_lstm/lstm_cell"
            shapes |= dense_shapes(cell, 2 * units if layer else width, 4 * units)
            shapes[f"{cell}/recurrent_kernel"] = (units, 4 * units)
        return shapes | dense_shapes("tags", 2 * units, arguments["num_classes"])

    def __call__(self, inputs: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Runs the model on tokens or on ``word_states``; additional features are ignored."""
        if features.WORD_STATES not in inputs:
            return super().__call__(inputs, *args, **kwargs)
        return self.reader({key: inputs[key] for key in self.reader.input}, *args, **kwargs)


def _word_order(word_index: Any, limit: int) -> Any:
    """Returns indices that move each sequence's words to the front; S is at most ``limit``."""
    position = ops.cumsum(ops.ones_like(word_index), axis=1)
    return ops.argsort(ops.where(word_index >= 0, position, position + limit), axis=1)


def _build_reader(
    encoder: BertEncoder,
    variant: str,
    states: list[Any],
    lstm_units: int,
    num_classes: int,
    rate: float,
) -> keras.Model:
    """Builds the model that computes logits (B, W, C) from the states (B, W, L, H) of words."""
    config, policy = encoder.config, encoder.dtype_policy
    dropout = Dropout(rate, encoder.seed_generator, name="dropout", dtype=policy)
    shape = (None, len(states), states[0].shape[-1])
    word_states = keras.Input(shape, dtype=policy.compute_dtype, name=features.WORD_STATES)
    word_index = keras.Input((None,), dtype="int32", name=features.WORD_INDEX)
    is_word = word_index >= 0
    mixture = LayerMixture(variant, name="mixture", dtype=policy)
    hidden = mixture([word_states[:, :, state] for state in range(len(states))])
    for layer in range(_LSTM_LAYERS):
        # (B, W, X) -> (B, W, 2 * U)
        lstm = keras.layers.LSTM(lstm_units, return_sequences=True, name="lstm", dtype=policy)
        bilstm = keras.layers.Bidirectional(lstm, name=f"bilstm_{layer}", dtype=policy)
        # The cells use no dropout, so their seeds would add unused state to the model.
        for direction in (bilstm.forward_layer, bilstm.backward_layer):
            remove_seed_generators(direction.cell)
        hidden = bilstm(dropout(hidden), mask=is_word)
    logits = new_logits(config, num_classes, "tags", policy)(dropout(hidden))
    inputs = {features.WORD_STATES: word_states, features.WORD_INDEX: word_index}
    return keras.Model(inputs, logits, name="reader")
