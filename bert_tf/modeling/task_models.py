"""The models that are fine-tuned: the encoder, dropout and one dense layer for the task."""

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import keras
from keras import ops
from keras.activations import linear

from bert_tf import features
from bert_tf.choices import HEAD_POOLINGS
from bert_tf.config import BertConfig

from . import keras_hooks
from .base import (
    BertModel,
    Shapes,
    dense_shapes,
    is_count,
    is_flag,
    is_rate,
    model_inputs,
    optional,
)
from .encoder import BertEncoder
from .layers import Dropout, Pooling, new_logits
from .transformer import MASKED_SCORE

LOGITS_MESSAGE = (
    "gives logits, and the loss expects probabilities: give it from_logits=True, as in "
    "keras.losses.SparseCategoricalCrossentropy(from_logits=True)"
)


class TaskModel(BertModel):
    """An encoder whose pooled or sequence output goes through dropout and a dense layer.

    Source: Devlin et al. 2019, section 4; google-research/bert ``run_classifier.py``.

    The dense layer is drawn as every kernel of BERT's is, computes in float32 at least, and is
    named for the task: its variables are ``MODEL/HEAD/kernel`` and ``MODEL/HEAD/bias``, the
    encoder's ``bert_encoder/...``. Its dropout takes its seeds from the encoder's generator, so
    that the model has one.

    Attributes of the class, besides ``BertModel``'s:
        head: the dense layer's name, and the name of the attribute that holds it.
        units: the width of the dense layer; ``None``: the argument ``num_classes``.
        reads: ``POOLED_OUTPUT`` or ``SEQUENCE_OUTPUT``.
        contract: the inputs' features.
    """

    head: ClassVar[str]
    units: ClassVar[int | None] = None
    reads: ClassVar[str] = features.POOLED_OUTPUT
    contract: ClassVar[Mapping[str, features.Feature]] = features.ENCODER_FEATURES

    def __init__(
        self,
        config: BertConfig,
        *,
        num_classes: int | None = None,
        pooler: bool | None = None,
        dropout: float | None = None,
        pooling: str = "cls",
        name: str,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        units = check_num_classes(num_classes) if self.units is None else self.units
        if not is_pooling(pooling):
            raise ValueError(f"pooling is {pooling!r}, expected one of {', '.join(HEAD_POOLINGS)}.")
        # === Layers ===
        has_pooler = self.has_pooler({"pooler": pooler, "pooling": pooling})
        encoder = BertEncoder(config, pooler=has_pooler, dtype=dtype)
        policy = encoder.dtype_policy
        rate = config.hidden_dropout_prob if dropout is None else dropout
        head_dropout = Dropout(rate, encoder.seed_generator, name="dropout", dtype=policy)
        dense = new_logits(config, units, self.head, policy)

        # === Functional model ===
        inputs = model_inputs(self.contract)
        rows = self.to_rows(inputs)
        states = encoder(rows)
        reader = None
        with keras.name_scope(name):
            head_input = states.get(self.reads)
            if pooling != "cls":
                reader = Pooling(pooling, name="pooling", dtype=policy)
                head_input = reader(states[features.SEQUENCE_OUTPUT], rows[features.INPUT_MASK])
            logits = dense(head_dropout(head_input))
        outputs = self.to_outputs(logits, inputs)
        super().__init__(config, policy, inputs, outputs, name, **kwargs)

        self.encoder = encoder
        self.dropout = head_dropout
        self.pooling = pooling
        self._reader = reader
        if num_classes is not None:
            self.num_classes = num_classes
        setattr(self, self.head, dense)

    def compile(
        self, optimizer: Any = "rmsprop", loss: Any = None, *more: Any, **others: Any
    ) -> None:
        """Keras' own, but that a loss is refused that would take the logits for probabilities."""
        if expects_probabilities(loss) and getattr(self, self.head).activation is linear:
            raise ValueError(f"{type(self).__name__} {LOGITS_MESSAGE}.")
        super().compile(optimizer, loss, *more, **others)

    compile_from_config = keras_hooks.compile_from_config

    @classmethod
    def head_shapes(cls, config: BertConfig, arguments: Mapping[str, Any]) -> Shapes:
        """The shapes of the dense layer that gives the logits."""
        units = arguments["num_classes"] if cls.units is None else cls.units
        return dense_shapes(cls.head, config.hidden_size, units)

    @classmethod
    def has_pooler(cls, arguments: Mapping[str, Any]) -> bool:
        """True with a pooler; by default there is none where another pooling takes its place."""
        if arguments.get("pooling", "cls") != "cls" and arguments.get("pooler") is None:
            return False
        return super().has_pooler(arguments)

    @property
    def reader(self) -> Any:
        """Pooling layer of the head, called on the encoder's last states and the mask."""
        return self._reader or self.encoder.pooler

    @staticmethod
    def to_rows(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The encoder's inputs, made of the model's."""
        return inputs

    @staticmethod
    def to_outputs(logits: Any, inputs: Mapping[str, Any]) -> Any:
        """The model's outputs, made of the dense layer's."""
        return logits

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        values = {
            "num_classes": getattr(self, "num_classes", None),
            "dropout": self.dropout.rate,
            "pooler": self.encoder.pooler is not None,
            "pooling": self.pooling,
        }
        return {**super().get_config(), **{key: values[key] for key in self.argument_checks}}


def expects_probabilities(loss: Any) -> bool:
    """True if a loss, or one of several, is a cross-entropy that is not told of logits."""
    if isinstance(loss, Mapping | list | tuple):
        return any(map(expects_probabilities, loss.values() if isinstance(loss, Mapping) else loss))
    function = keras.losses.get(loss) if isinstance(loss, str) else loss
    if isinstance(function, keras.losses.Loss):
        return function.get_config().get("from_logits") is False
    # Of a function of Keras the default counts.
    is_of_keras = getattr(function, "__module__", "").startswith("keras.") and callable(function)
    return is_of_keras and "from_logits" in inspect.signature(function).parameters


def is_pooling(value: Any) -> bool:
    """True if a value says what a head reads."""
    return value in HEAD_POOLINGS


def check_num_classes(num_classes: int | None) -> int:
    """The number of classes; raises a ``ValueError`` where there is none."""
    if num_classes is None or num_classes < 1:
        raise ValueError(f"num_classes is {num_classes}: expected 1 or more.")
    return num_classes


@keras.saving.register_keras_serializable(package="bert_tf")
class BertClassifier(TaskModel):
    """Logits of classes for a text or a pair of texts, from the pooled output.

    Source: Devlin et al. 2019, section 4.1 and figure 4 (a, b); google-research/bert
    ``run_classifier.py``, ``create_model``.

    Inputs: the encoder's. Output: (B, C) float32 logits, for a softmax, or for a sigmoid each
    where a text may have several classes.

    Args:
        config: sizes, rates and activation.
        num_classes: C.
        dropout: the rate on the pooled output; by default the config's ``hidden_dropout_prob``.
        name: the model's name; its encoder is always called ``bert_encoder``.
        dtype: a Keras dtype policy, ``"mixed_bfloat16"`` for example; the global one by default.
        pooling: what the dense layer reads: ``"cls"``, the pooler on [CLS] as in the paper; or over
            the last states of all real tokens, [CLS] and [SEP] among them, ``"mean"`` or ``"max"``,
            what models of sentence-transformers were trained for.

    Attributes:
        encoder: the ``BertEncoder``.
        classifier: the dense layer, kernel (H, C).

    Raises:
        ValueError: ``num_classes`` is less than 1, the rate is outside [0, 1), or the pooling is
            unknown.

    >>> model = BertClassifier(BertConfig.from_preset("bert-tiny", vocab_size=100), num_classes=3)
    >>> ids = keras.ops.ones((2, 5), "int32")
    >>> inputs = {"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}
    >>> tuple(model(inputs).shape)
    (2, 3)
    >>> model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    >>> history = model.fit(inputs, keras.ops.array([0, 2]), verbose=0)
    """

    head = "classifier"
    argument_checks = MappingProxyType(
        {"num_classes": is_count, "dropout": optional(is_rate), "pooling": is_pooling}
    )
    hugging_face = "BertForSequenceClassification"
    hub_task = "text-classification"

    def __init__(
        self,
        config: BertConfig,
        num_classes: int,
        dropout: float | None = None,
        name: str = "bert_classifier",
        dtype: Any = None,
        pooling: str = "cls",
        **kwargs: Any,
    ) -> None:
        own: dict[str, Any] = {"num_classes": num_classes, "dropout": dropout, "pooling": pooling}
        super().__init__(config, **own, name=name, dtype=dtype, **kwargs)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertRegressor(TaskModel):
    """A number for a text or a pair of texts, from the pooled output, as for STS-B.

    Source: Devlin et al. 2019 report STS-B in section 4.1 and do not say how they trained it, and
    google-research/bert has no regression; this is ``BertClassifier`` with one output.

    Inputs: the encoder's. Output: (B,) float32, not bounded. ``fit`` learns numbers near 0: give it
    others less their mean, divided by their standard deviation, as ``bert_tf.finetune`` does.

    Arguments are those of ``BertClassifier`` without ``num_classes``; the dense layer, kernel
    (H, 1), is ``regressor``.

    >>> model = BertRegressor(BertConfig.from_preset("bert-tiny", vocab_size=100))
    >>> ids = keras.ops.ones((2, 5), "int32")
    >>> tuple(model({"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}).shape)
    (2,)
    """

    head = "regressor"
    units = 1
    argument_checks = MappingProxyType({"dropout": optional(is_rate), "pooling": is_pooling})
    hugging_face = "BertForSequenceClassification"
    hub_task = "text-classification"

    def __init__(
        self,
        config: BertConfig,
        dropout: float | None = None,
        name: str = "bert_regressor",
        dtype: Any = None,
        pooling: str = "cls",
        **kwargs: Any,
    ) -> None:
        super().__init__(config, dropout=dropout, pooling=pooling, name=name, dtype=dtype, **kwargs)

    @staticmethod
    def to_outputs(logits: Any, inputs: Mapping[str, Any]) -> Any:
        """(B, 1) -> (B,)."""
        return logits[:, 0]


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTokenClassifier(TaskModel):
    """Logits of classes for each token, as for named entities.

    Source: Devlin et al. 2019, section 5.3 and figure 4 (d).

    Inputs: the encoder's. Output: (B, S, C) float32 logits, also at padding, [CLS], [SEP] and the
    pieces after a word's first, where the weights of the loss are to be 0.

    Arguments are those of ``BertClassifier``, with ``pooler`` in place of ``pooling``: whether the
    encoder has a pooler, which the model does not use. The dense layer, kernel (H, C), is
    ``token_classifier``.

    >>> config = BertConfig.from_preset("bert-tiny", vocab_size=100)
    >>> model = BertTokenClassifier(config, num_classes=9)
    >>> ids = keras.ops.ones((2, 5), "int32")
    >>> tuple(model({"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}).shape)
    (2, 5, 9)
    """

    head = "token_classifier"
    reads = features.SEQUENCE_OUTPUT
    argument_checks = MappingProxyType(
        {"num_classes": is_count, "dropout": optional(is_rate), "pooler": optional(is_flag)}
    )
    pooler_by_default = False
    hugging_face = "BertForTokenClassification"
    hub_task = "token-classification"

    def __init__(
        self,
        config: BertConfig,
        num_classes: int,
        dropout: float | None = None,
        pooler: bool = False,
        name: str = "bert_token_classifier",
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        own: dict[str, Any] = {"num_classes": num_classes, "dropout": dropout, "pooler": pooler}
        super().__init__(config, **own, name=name, dtype=dtype, **kwargs)


class IgnorePaddingInTraining(keras.layers.Layer):
    """Makes the logits of padding so low in training that a softmax ignores them."""

    def call(self, logits: Any, real_tokens: Any, training: bool | None = False) -> Any:
        """(B, S) logits and (B, S) int32, 1 = real and 0 = padding -> (B, S)."""
        return ops.where(real_tokens > 0, logits, MASKED_SCORE) if training else logits


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSpanPredictor(TaskModel):
    """Logits, for each token, that the answer begins and that it ends there, as for SQuAD.

    Source: Devlin et al. 2019, sections 4.2 and 4.3, figure 4 (c); google-research/bert
    ``run_squad.py``, ``create_model``, which drops nothing out in front of the dense layer.

    Inputs: the encoder's. Outputs, float32: ``start_logits`` (B, S) and ``end_logits`` (B, S), for
    a softmax over S; column 0 and 1 of one dense layer. Padding has logits too, but in training,
    where they count nothing in the softmax: a batch's loss does not depend on its padding.

    Arguments are those of ``BertTokenClassifier`` without ``num_classes`` and ``dropout``; the
    dense layer, kernel (H, 2), is ``span``.

    >>> model = BertSpanPredictor(BertConfig.from_preset("bert-tiny", vocab_size=100))
    >>> ids = keras.ops.ones((2, 5), "int32")
    >>> outputs = model({"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids})
    >>> {key: tuple(value.shape) for key, value in sorted(outputs.items())}
    {'end_logits': (2, 5), 'start_logits': (2, 5)}
    """

    head = "span"
    units = 2
    reads = features.SEQUENCE_OUTPUT
    argument_checks = MappingProxyType({"pooler": optional(is_flag)})
    pooler_by_default = False
    hugging_face = "BertForQuestionAnswering"
    hub_task = "question-answering"

    def __init__(
        self,
        config: BertConfig,
        pooler: bool = False,
        name: str = "bert_span_predictor",
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, pooler=pooler, dropout=0.0, name=name, dtype=dtype, **kwargs)

    @staticmethod
    def to_outputs(logits: Any, inputs: Mapping[str, Any]) -> Any:
        """(B, S, 2) -> (B, S) each."""
        mask = inputs[features.INPUT_MASK]
        return {
            key: IgnorePaddingInTraining(name=key, autocast=False)(logits[:, :, column], mask)
            for column, key in enumerate((features.START_LOGITS, features.END_LOGITS))
        }


class FlattenChoices(keras.layers.Layer):
    """(B, K, S) -> (B * K, S): every choice a row of its own."""

    def call(self, ids: Any) -> Any:
        """(B, K, S) -> (B * K, S)."""
        return ops.reshape(ids, (-1, ops.shape(ids)[-1]))


class GroupChoices(keras.layers.Layer):
    """(B * K, 1) -> (B, K): the scores of one example side by side."""

    def call(self, scores: Any, ids: Any) -> Any:
        """Reshapes scores as the leading dimensions of ids (B, K, S) are."""
        return ops.reshape(scores, ops.shape(ids)[:2])


@keras.saving.register_keras_serializable(package="bert_tf")
class BertMultipleChoice(TaskModel):
    """A logit for each choice: the pooled output of (question, choice) through one dense layer.

    Source: Devlin et al. 2019, section 4.4 (SWAG): the score of a choice is the product of its
    [CLS] representation with one vector, and a softmax goes over the choices.

    Inputs: ``features.CHOICE_FEATURES``, each (B, K, S) int32. Output: (B, K) float32 logits. K is
    anything, and need not be the same for every batch.

    Arguments are those of ``BertClassifier`` without ``num_classes``; the dense layer, kernel
    (H, 1), is ``choice``.

    >>> model = BertMultipleChoice(BertConfig.from_preset("bert-tiny", vocab_size=100))
    >>> ids = ops.ones((2, 4, 5), "int32")
    >>> tuple(model({"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}).shape)
    (2, 4)
    """

    head = "choice"
    units = 1
    contract = features.CHOICE_FEATURES
    argument_checks = MappingProxyType({"dropout": optional(is_rate), "pooling": is_pooling})
    hugging_face = "BertForMultipleChoice"
    hub_task = "multiple-choice"

    def __init__(
        self,
        config: BertConfig,
        dropout: float | None = None,
        name: str = "bert_multiple_choice",
        dtype: Any = None,
        pooling: str = "cls",
        **kwargs: Any,
    ) -> None:
        super().__init__(config, dropout=dropout, pooling=pooling, name=name, dtype=dtype, **kwargs)

    @staticmethod
    def to_rows(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """(B, K, S) -> (B * K, S)."""
        return {key: FlattenChoices(name=f"flat_{key}")(ids) for key, ids in inputs.items()}

    @staticmethod
    def to_outputs(logits: Any, inputs: Mapping[str, Any]) -> Any:
        """(B * K, 1) -> (B, K)."""
        return GroupChoices(name="grouped", dtype=logits.dtype)(
            logits, inputs[features.INPUT_WORD_IDS]
        )
