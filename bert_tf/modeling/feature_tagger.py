"""``BertFeatureTagger``: a class for each word, by a BiLSTM on a frozen encoder's states."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import keras
from keras import ops

from bert_tf import features
from bert_tf.config import BertConfig

from .base import BertModel, Shapes, dense_shapes, is_count, is_rate_or_none, model_inputs
from .dropout import Dropout
from .encoder import BertEncoder
from .frozen_features import FrozenEncoder
from .heads import new_logits
from .keras_hooks import drop_seeds
from .layer_mixing import UNLEARNED_VARIANTS, VARIANTS, LayerMixture, check_variant, read_states
from .task_models import check_num_classes

_LSTM_LAYERS = 2
_VARIANT = "concat_last_four"
_LSTM_UNITS = 768


@keras.saving.register_keras_serializable(package="bert_tf")
class BertFeatureTagger(FrozenEncoder, BertModel):
    """Logits of classes for each word, by a two-layer BiLSTM that reads a frozen encoder's states.

    Source: Devlin et al. 2019, section 5.3, "Feature-based Approach with BERT". A word's vector is
    that of its first piece, mixed of the encoder's layers as ``LayerMixture`` says. The BiLSTM
    reads the words of a row, not their further pieces and nothing that is not tagged. The paper's
    is "768-dimensional"; here that is the width of each direction, so that a layer gives 1,536.
    It names no dropout; here there is one in front of each layer.

    What the encoder gives never changes, so it can be kept: called with ``word_states`` instead of
    tokens, the model does the rest.

    Inputs: a dict of ``TAGGING_FEATURES``, each (B, S) int32. Output: (B, S, C) float32 logits;
    where ``word_index`` is -1 they have no meaning, and the weights of the loss are to be 0.

    Or: ``word_states`` (B, W, L, H), for each word what ``read_states`` picks, and ``word_index``
    (B, W) int32, -1 at padding, which comes last. Output: (B, W, C).

    Args:
        config: sizes, rates and activation.
        num_classes: C.
        variant: one of ``layer_mixing.VARIANTS``.
        lstm_units: U, the width of each direction of each layer of the BiLSTM.
        dropout: the rate in front of each of its layers and of the dense layer; by default the
            config's ``hidden_dropout_prob``.
        name: the model's name; its encoder is always called ``bert_encoder``.
        dtype: a Keras dtype policy, ``"mixed_bfloat16"`` for example; the global one by default.

    Attributes:
        encoder: the ``BertEncoder``, which has no pooler and does not learn.
        reader: the model of all that learns, on ``word_states``.
        variant: as given.

    Raises:
        ValueError: ``num_classes`` or ``lstm_units`` is less than 1, the rate is outside [0, 1),
            there is no such variant, or the encoder has too few blocks for it.

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
            "dropout": is_rate_or_none,
        }
    )
    pooler_by_default = False
    known_elsewhere = False

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
        policy = encoder.dtype_policy
        rate = config.hidden_dropout_prob if dropout is None else dropout

        # === Functional model ===
        inputs = model_inputs(features.TAGGING_FEATURES)
        word_index = inputs[features.WORD_INDEX]
        order = _words_first(word_index, config.max_position_embeddings)
        states = [
            ops.take_along_axis(ops.stop_gradient(state), order[:, :, None], axis=1)
            for state in read_states(variant, encoder(inputs, training=False))
        ]
        with keras.name_scope(name):
            reader = _new_reader(encoder, variant, len(states), lstm_units, num_classes, rate)
        logits = reader(
            {
                features.WORD_STATES: ops.stack(states, axis=2),
                features.WORD_INDEX: ops.take_along_axis(word_index, order, axis=1),
            }
        )
        # Back to where the words stand.
        place = ops.argsort(order, axis=1)
        outputs = ops.take_along_axis(logits, place[:, :, None], axis=1)
        super().__init__(inputs=inputs, outputs=outputs, name=name, **kwargs)

        # === Config ===
        self.set_config(config, policy)
        self.encoder = encoder
        self.encoder.trainable = False
        self.reader = reader
        self.num_classes = num_classes
        self.variant = variant
        self.lstm_units = lstm_units
        self.dropout_rate = rate

    @classmethod
    def head_shapes(cls, config: BertConfig, arguments: Mapping[str, Any]) -> Shapes:
        """Those of all that learns."""
        variant = arguments.get("variant", _VARIANT)
        lstm_units = arguments.get("lstm_units", _LSTM_UNITS)
        blocks = [None] * config.num_hidden_layers
        outputs = {features.EMBEDDING_OUTPUT: None, features.ENCODER_OUTPUTS: blocks}
        states = len(read_states(variant, outputs))
        shapes: Shapes = {}
        width = config.hidden_size
        if variant not in UNLEARNED_VARIANTS:
            shapes = {"mixture/logits": (states,), "mixture/scale": ()}
        else:
            width *= states
        for layer in range(_LSTM_LAYERS):
            for direction in ("forward", "backward"):
                cell = f"bilstm_{layer}/{direction}_lstm/lstm_cell"
                shapes |= dense_shapes(cell, width, 4 * lstm_units)
                shapes[f"{cell}/recurrent_kernel"] = (lstm_units, 4 * lstm_units)
            width = 2 * lstm_units
        return shapes | dense_shapes("tags", width, arguments["num_classes"])

    def __call__(self, inputs: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Runs the model on tokens, or on what its encoder gave; either may hold further features.

        Raises:
            ValueError: as ``BertModel``.
        """
        if features.WORD_STATES not in inputs:
            return super().__call__(inputs, *args, **kwargs)
        given = {key: inputs[key] for key in self.reader.input}
        return self.reader(given, *args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "variant": self.variant,
            "lstm_units": self.lstm_units,
            "dropout": self.dropout_rate,
        }


def _words_first(word_index: Any, limit: int) -> Any:
    """The positions of a row's words in their order, then all others; a row has up to ``limit``."""
    position = ops.cumsum(ops.ones_like(word_index), axis=1)
    return ops.argsort(ops.where(word_index >= 0, position, position + limit), axis=1)


def _new_reader(
    encoder: BertEncoder,
    variant: str,
    num_states: int,
    lstm_units: int,
    num_classes: int,
    rate: float,
) -> keras.Model:
    """Words' states (B, W, L, H) to logits (B, W, C)."""
    config, policy = encoder.config, encoder.dtype_policy
    dropout = Dropout(rate, encoder.seed_generator, name="dropout", dtype=policy)
    shape = (None, num_states, config.hidden_size)
    word_states = keras.Input(shape, dtype=policy.compute_dtype, name=features.WORD_STATES)
    word_index = keras.Input((None,), dtype="int32", name=features.WORD_INDEX)
    is_word = word_index >= 0
    mixture = LayerMixture(variant, name="mixture", dtype=policy)
    hidden = mixture([word_states[:, :, state] for state in range(num_states)])
    for layer in range(_LSTM_LAYERS):
        lstm = keras.layers.LSTM(lstm_units, return_sequences=True, name="lstm", dtype=policy)
        bilstm = keras.layers.Bidirectional(lstm, name=f"bilstm_{layer}", dtype=policy)
        hidden = bilstm(dropout(hidden), mask=is_word)
        # Nothing is dropped inside: the cells' own seeds would be state that nothing reads.
        for direction in (bilstm.forward_layer, bilstm.backward_layer):
            drop_seeds(direction.cell)
    logits = new_logits(config, num_classes, "tags", policy)(dropout(hidden))
    inputs = {features.WORD_STATES: word_states, features.WORD_INDEX: word_index}
    return keras.Model(inputs, logits, name="reader")
