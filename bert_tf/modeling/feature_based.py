"""The feature-based models: a frozen encoder, whose layers' states are mixed and read.

Source: Devlin et al. 2019, section 5.3, "Feature-based Approach with BERT", and table 7.
"""

import itertools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

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

# By variant, as table 7 has them in its order: the blocks that are read, and how many are needed.
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
    """Checks a variant's name and, where their number is given, that the blocks are enough."""
    if variant not in _VARIANT_BLOCKS:
        raise ValueError(f"variant is {variant!r}, expected one of {', '.join(VARIANTS)}.")
    _, minimum = _VARIANT_BLOCKS[variant]
    if num_blocks is not None and num_blocks < minimum:
        raise ValueError(
            f"The variant {variant} reads {minimum} blocks, and the encoder has {num_blocks}: "
            "choose another."
        )


def read_states(variant: str, outputs: Mapping[str, Any]) -> list[Any]:
    """Picks the hidden states of an encoder's outputs that a variant reads, the lowest first."""
    blocks = outputs[features.ENCODER_OUTPUTS]
    check_variant(variant, len(blocks))
    if variant == "embeddings":
        return [outputs[features.EMBEDDING_OUTPUT]]
    places, _ = _VARIANT_BLOCKS[variant]
    return list(blocks[places])


def frozen_states(variant: str, encoder: BertEncoder, inputs: Mapping[str, Any]) -> list[Any]:
    """States of a frozen encoder that a variant reads, the lowest block first."""
    return [ops.stop_gradient(state) for state in read_states(variant, encoder(inputs))]


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerMixture(keras.layers.Layer):
    """One vector a token out of the hidden states of all of an encoder's layers.

    Source: Devlin et al. 2019, section 5.3 and table 7, whose six rows are the variants:

    * ``embeddings``: what enters the first block.
    * ``second_to_last``, ``last``: a block's states.
    * ``weighted_sum_last_four``, ``weighted_sum_all``: a sum over blocks, with learned weights.
    * ``concat_last_four``: the states of four blocks side by side, the lowest first.

    The paper does not say how the sums are weighted. Here they are as Peters et al. 2018 (ELMo),
    equation 1, which the paper compares with: a learned scale times the softmax of a learned number
    for each block. It begins with the mean.

    Sums alone have weights: ``logits`` (blocks,) float32, whose softmax weights the blocks, the
    lowest first; and ``scale``, a float32 scalar. A ``ValueError`` says that there is no such
    variant, or, when the layer is built, that the encoder has fewer blocks than it reads.

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
        """Makes the weights of a sum."""
        summed = len(self._states(shapes))
        if self.variant in UNLEARNED_VARIANTS:
            return
        # In float32 whatever the policy: a step is smaller than bfloat16 can tell from none.
        self.logits = self.add_weight(
            name="logits", shape=(summed,), initializer="zeros", dtype="float32", autocast=False
        )
        self.scale = self.add_weight(
            name="scale", shape=(), initializer="ones", dtype="float32", autocast=False
        )

    def call(self, outputs: Any) -> Any:
        """Mixes an encoder's outputs, or the states (B, S, H) that ``read_states`` picks of them.

        The result is (B, S, H) in the compute dtype, (B, S, 4H) of ``concat_last_four``.
        """
        states = [ops.cast(state, self.compute_dtype) for state in self._states(outputs)]
        if self.variant in UNLEARNED_VARIANTS:
            return ops.concatenate(states, axis=-1) if len(states) > 1 else states[0]
        weights = ops.cast(self.scale * ops.softmax(self.logits), self.compute_dtype)
        # One block after the other: stacked, they would take the memory of all of them again.
        mixed = weights[0] * states[0]
        for index, state in enumerate(states[1:], start=1):
            mixed = mixed + weights[index] * state
        return mixed

    def _states(self, outputs: Any) -> Any:
        return read_states(self.variant, outputs) if isinstance(outputs, Mapping) else outputs

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {**super().get_config(), "variant": self.variant}


class FrozenEncoder:
    """Mixin that keeps an encoder frozen when all layers are made trainable."""

    encoder: Any = None

    @property
    def trainable(self) -> bool:
        """True if the layers on the encoder are trained; the encoder never is."""
        return bool(keras.layers.Layer.trainable.fget(self))

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.layers.Layer.trainable.fset(self, value)
        if self.encoder is not None:  # none yet, as a functional model is made
            self.encoder.trainable = False


@keras.saving.register_keras_serializable(package="bert_tf")
class BertFeatures(FrozenEncoder, keras.layers.Layer):
    """A pre-trained encoder that gives a vector for each token, and does not learn.

    Source: Devlin et al. 2019, section 5.3, "Feature-based Approach with BERT".

    No gradient goes into the encoder, its dropout never acts, and it stays frozen when the model
    around it is made trainable. What a variant learns itself, the weights of a sum, it does learn.
    The encoder is saved with the layer. The layer hands on Keras' masks: a recurrent layer behind
    it skips padding.

    Inputs: a dict of ``ENCODER_FEATURES``, each (B, S) int32. Output: (B, S, H) in the compute
    dtype, (B, S, 4H) of ``concat_last_four``. What padding gets has no meaning.

    Args:
        encoder: a ``BertEncoder``, which is frozen from now on, here and wherever else it is used.
        variant: how its layers are mixed; see ``LayerMixture``, which ``mixture`` is.
        **kwargs: ``name``, ``dtype`` and ``trainable``, as for every Keras layer.

    Raises:
        ValueError: there is no such variant, or the encoder has fewer blocks than it reads.

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
        self.supports_masking = True  # Keras asks compute_mask of no other layer
        self.encoder = encoder
        encoder.trainable, encoder.only_infers = False, True
        self.mixture = LayerMixture(variant, name="mixture", dtype=self.dtype_policy)

    @classmethod
    def from_checkpoint(
        cls, path: str, variant: str = "concat_last_four", dtype: Any = None, **kwargs: Any
    ) -> Self:
        """Makes the layer from a checkpoint of any format, at a ``path`` that ``load`` takes.

        ``dtype`` is a Keras dtype policy, the encoder's too; the global one by default. Errors are
        those of ``bert_tf.load`` and of the constructor.
        """
        encoder = BertEncoder.from_checkpoint(path, pooler=False, dtype=dtype)
        return cls(encoder, variant, dtype=dtype, **kwargs)

    def build(self, shapes: Mapping[str, Any]) -> None:
        """Makes the weights of a sum; the encoder has its own."""
        size = (*shapes[features.INPUT_WORD_IDS], self.encoder.config.hidden_size)
        self.mixture.build(
            {
                features.EMBEDDING_OUTPUT: size,
                features.ENCODER_OUTPUTS: [size] * self.encoder.config.num_hidden_layers,
            }
        )

    def call(self, inputs: Mapping[str, Any]) -> Any:
        """Gives the tokens' vectors, in training as elsewhere."""
        return self.mixture(frozen_states(self.mixture.variant, self.encoder, inputs))

    def compute_mask(self, inputs: Mapping[str, Any], previous_mask: Any = None) -> Any:
        """(B, S) bool: True = real."""
        return ops.cast(inputs[features.INPUT_MASK], "bool")

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {
            **super().get_config(),
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "variant": self.mixture.variant,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The layer that ``get_config`` describes, with new weights."""
        encoder = keras.saving.deserialize_keras_object(config["encoder"])
        return cls(**{**config, "encoder": encoder})


_LSTM_LAYERS = 2
_VARIANT = "concat_last_four"
_LSTM_UNITS = 768


@keras.saving.register_keras_serializable(package="bert_tf")
class BertFeatureTagger(FrozenEncoder, BertModel):
    """Logits of classes for each word, by a two-layer BiLSTM that reads a frozen encoder's states.

    Source: Devlin et al. 2019, section 5.3. A word's vector is that of its first piece, mixed of
    the encoder's layers as ``LayerMixture`` says. The BiLSTM reads the words of a row, not their
    further pieces and nothing that is not tagged. The paper's is "768-dimensional"; here that is
    the width of each direction, so that a layer gives 1,536. It names no dropout; here there is one
    in front of each layer.

    What the encoder gives never changes, so it can be kept: called with ``word_states`` instead of
    tokens, the model does the rest.

    Inputs: a dict of ``TAGGING_FEATURES``, each (B, S) int32. Output: (B, S, C) float32 logits;
    where ``word_index`` is -1 they have no meaning, and the weights of the loss are to be 0.

    Or: ``word_states`` (B, W, L, H), for each word what ``read_states`` picks, and ``word_index``
    (B, W) int32, -1 at padding, which comes last. Output: (B, W, C).

    Args:
        config: sizes, rates and activation.
        num_classes: C.
        variant: how the encoder's layers are mixed.
        lstm_units: U, the width of each direction of each layer of the BiLSTM.
        dropout: the rate in front of each of its layers and of the dense layer; by default the
            config's ``hidden_dropout_prob``.
        name: the model's name; its encoder is always called ``bert_encoder``.
        dtype: a Keras dtype policy, ``"mixed_bfloat16"`` for example; the global one by default.

    Attributes:
        encoder: the ``BertEncoder``, which has no pooler and does not learn.
        reader: the model of all that learns, on ``word_states``.

    Raises:
        ValueError: a number is out of its range, there is no such variant, or the encoder has too
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

    argument_checks = MappingProxyType(
        {
            "num_classes": is_count,
            "variant": lambda value: value in VARIANTS,
            "lstm_units": is_count,
            "dropout": optional(is_rate),
        }
    )
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
            raise ValueError(f"lstm_units is {lstm_units}: expected 1 or more.")
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
        # Back to where the words are.
        place = ops.argsort(order, axis=1)
        outputs = ops.take_along_axis(logits, place[:, :, None], axis=1)
        super().__init__(config, policy, inputs, outputs, name, **kwargs)

        self.encoder = encoder
        encoder.trainable = False
        self.reader = reader
        self.num_classes = num_classes
        self.variant = variant
        self.lstm_units = lstm_units
        self.dropout_rate = rate

    @classmethod
    def head_shapes(cls, config: BertConfig, arguments: Mapping[str, Any]) -> Shapes:
        """Shapes of all weights that learn."""
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
        """Runs the model on tokens, or on what its encoder gave, among further features or not."""
        if features.WORD_STATES not in inputs:
            return super().__call__(inputs, *args, **kwargs)
        return self.reader({key: inputs[key] for key in self.reader.input}, *args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "variant": self.variant,
            "lstm_units": self.lstm_units,
            "dropout": self.dropout_rate,
        }


def _word_order(word_index: Any, limit: int) -> Any:
    """The positions of a row's words in their order, then all others; a row has up to ``limit``."""
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
    """Words' ``states``, stacked to (B, W, L, H), to logits (B, W, C)."""
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
        # Nothing is dropped inside: the cells' own seeds would be state that nothing reads.
        for direction in (bilstm.forward_layer, bilstm.backward_layer):
            remove_seed_generators(direction.cell)
        hidden = bilstm(dropout(hidden), mask=is_word)
    logits = new_logits(config, num_classes, "tags", policy)(dropout(hidden))
    inputs = {features.WORD_STATES: word_states, features.WORD_INDEX: word_index}
    return keras.Model(inputs, logits, name="reader")
