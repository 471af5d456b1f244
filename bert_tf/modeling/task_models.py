"""Models for fine-tuning: the encoder, dropout and a dense layer for the task."""

import inspect
from collections.abc import Mapping
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
from .layers import Dropout, new_logits
from .pooling import Pooling
from .transformer import MASKED_SCORE

LOGITS_MESSAGE = (
    "outputs logits, but the loss expects probabilities. Pass from_logits=True to the loss"
)


class TaskModel(BertModel):
    """Base class of encoders with dropout and a dense layer on their outputs.

    Source: Devlin et al. 2019, section 4; google-research/bert ``run_classifier.py``.

    The dense layer has BERT's initializer and computes in float32 or float64. The variable paths
    are ``MODEL/HEAD/kernel`` and ``MODEL/HEAD/bias``. All dropout layers share the encoder's seed
    generator.

    Class attributes, in addition to those of ``BertModel``:
        head: Name of the dense layer and of the attribute that contains it.
        units: Number of units of the dense layer; ``None`` for ``num_classes``.
        head_input_key: ``POOLED_OUTPUT`` or ``SEQUENCE_OUTPUT``.
        contract: Features of the inputs.
    """

    head: ClassVar[str]
    units: ClassVar[int | None] = None
    head_input_key: ClassVar[str] = features.POOLED_OUTPUT
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
            raise ValueError(f"pooling={pooling!r}: expected one of {', '.join(HEAD_POOLINGS)}.")
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
            head_input = states.get(self.head_input_key)
            if pooling != "cls":
                reader = Pooling(pooling, name="pooling", dtype=policy)
                head_input = reader(states[features.SEQUENCE_OUTPUT], rows[features.INPUT_MASK])
            logits = dense(head_dropout(head_input))
        outputs = self.to_outputs(logits, inputs)
        values = {
            "num_classes": num_classes,
            "dropout": rate,
            "pooler": has_pooler,
            "pooling": pooling,
        }
        arguments = {key: values[key] for key in self.argument_checks}
        super().__init__(config, policy, inputs, outputs, name, arguments=arguments, **kwargs)

        self.encoder = encoder
        self.dropout = head_dropout
        self.pooling = pooling
        self._reader = reader
        if num_classes is not None:
            self.num_classes = num_classes
        setattr(self, self.head, dense)

    def compile(
        self, optimizer: Any = "rmsprop", loss: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        """Compiles as Keras does, but rejects a loss that expects probabilities."""
        if expects_probabilities(loss) and getattr(self, self.head).activation is linear:
            raise ValueError(f"{type(self).__name__} {LOGITS_MESSAGE}.")
        super().compile(optimizer, loss, *args, **kwargs)

    compile_from_config = keras_hooks.compile_from_config

    @classmethod
    def head_shapes(cls, config: BertConfig, arguments: Mapping[str, Any]) -> Shapes:
        """Returns the shapes of the dense layer's weights."""
        units = arguments["num_classes"] if cls.units is None else cls.units
        return dense_shapes(cls.head, config.hidden_size, units)

    @classmethod
    def has_pooler(cls, arguments: Mapping[str, Any]) -> bool:
        """Returns whether the encoder has a pooler; by default only for ``pooling="cls"``."""
        if arguments.get("pooling", "cls") != "cls" and arguments.get("pooler") is None:
            return False
        return super().has_pooler(arguments)

    @property
    def reader(self) -> Any:
        """Layer of the head that pools the last hidden states with the mask."""
        return self._reader or self.encoder.pooler

    @staticmethod
    def to_rows(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Converts the model's inputs to the encoder's."""
        return inputs

    @staticmethod
    def to_outputs(logits: Any, inputs: Mapping[str, Any]) -> Any:
        """Converts the dense layer's outputs to the model's."""
        return logits


def expects_probabilities(loss: Any) -> bool:
    """Returns whether a loss, or any of several, is a cross-entropy without ``from_logits``."""
    if isinstance(loss, Mapping | list | tuple):
        return any(map(expects_probabilities, loss.values() if isinstance(loss, Mapping) else loss))
    function = keras.losses.get(loss) if isinstance(loss, str) else loss
    if isinstance(function, keras.losses.Loss):
        return function.get_config().get("from_logits") is False
    # The default of Keras' functions is ``from_logits=False``.
    is_keras = getattr(function, "__module__", "").startswith("keras.") and callable(function)
    return is_keras and "from_logits" in inspect.signature(function).parameters


def is_pooling(value: Any) -> bool:
    """Returns whether a value is valid as a head's ``pooling``."""
    return value in HEAD_POOLINGS


def check_num_classes(num_classes: int | None) -> int:
    """Checks and returns the number of classes."""
    if num_classes is None or num_classes < 1:
        raise ValueError(f"num_classes={num_classes}: expected 1 or more.")
    return num_classes


@keras.saving.register_keras_serializable(package="bert_tf")
class BertClassifier(TaskModel):
    """Classifier of texts or text pairs, with a dense layer on the pooled output.

    Source: Devlin et al. 2019, section 4.1 and figure 4 (a, b); google-research/bert
    ``run_classifier.py``, ``create_model``.

    Inputs: those of ``BertEncoder``.

    Output: float32 logits of shape (B, C). Apply a softmax, or a sigmoid if a text can have several
    classes.

    Args:
        config: ``BertConfig`` with sizes, dropout rates and activation.
        num_classes: Number of classes C.
        dropout: Dropout rate of the pooled output; by default ``config.hidden_dropout_prob``.
        name: Name of the model. Its encoder is always named ``bert_encoder``.
        dtype: Keras dtype policy, such as ``"mixed_bfloat16"``; by default the global policy.
        pooling: Input of the dense layer: ``"cls"`` for the pooler on [CLS], as in the paper;
            ``"mean"`` or ``"max"`` for the mean or maximum of the last states of all tokens,
            including [CLS] and [SEP], as in sentence-transformers.

    Attributes:
        encoder: The ``BertEncoder``.
        classifier: Dense layer with a kernel of shape (H, C).

    Raises:
        ValueError: If ``num_classes`` is less than 1, ``dropout`` is not in [0, 1), or ``pooling``
            is unknown.

    >>> model = BertClassifier(BertConfig.from_preset("bert-tiny", vocab_size=100), num_classes=3)
    >>> ids = keras.ops.ones((2, 5), "int32")
    >>> inputs = {"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}
    >>> tuple(model(inputs).shape)
    (2, 3)
    >>> model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    >>> history = model.fit(inputs, keras.ops.array([0, 2]), verbose=0)
    """

    head = "classifier"
    argument_checks: ClassVar = {
        "num_classes": is_count,
        "dropout": optional(is_rate),
        "pooling": is_pooling,
    }
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
        values: dict[str, Any] = {"num_classes": num_classes, "dropout": dropout}
        super().__init__(config, **values, pooling=pooling, name=name, dtype=dtype, **kwargs)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertRegressor(TaskModel):
    """Regressor of texts or text pairs, for data such as STS-B.

    The model is a ``BertClassifier`` with one output. Source: Devlin et al. 2019, section 4.1,
    which does not describe the training for STS-B.

    Inputs: those of ``BertEncoder``.

    Output: unbounded float32 values of shape (B,). Standardize the labels before ``fit``, as
    ``bert_tf.finetune`` does: subtract the mean and divide by the standard deviation.

    The arguments are those of ``BertClassifier`` without ``num_classes``. The dense layer is
    ``regressor``, with a kernel of shape (H, 1).

    >>> model = BertRegressor(BertConfig.from_preset("bert-tiny", vocab_size=100))
    >>> ids = keras.ops.ones((2, 5), "int32")
    >>> tuple(model({"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}).shape)
    (2,)
    """

    head = "regressor"
    units = 1
    argument_checks: ClassVar = {"dropout": optional(is_rate), "pooling": is_pooling}
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
        """Reshapes (B, 1) to (B,)."""
        return logits[:, 0]


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTokenClassifier(TaskModel):
    """Classifier of tokens, for tasks such as named-entity recognition.

    Source: Devlin et al. 2019, section 5.3 and figure 4 (d).

    Inputs: those of ``BertEncoder``.

    Output: float32 logits of shape (B, S, C). Set the loss weight to 0 at padding, [CLS], [SEP] and
    all pieces of a word except the first.

    The arguments are those of ``BertClassifier``, except that ``pooling`` is replaced by
    ``pooler``, which adds an unused pooler to the encoder. The dense layer is ``token_classifier``,
    with a kernel of shape (H, C).

    >>> config = BertConfig.from_preset("bert-tiny", vocab_size=100)
    >>> model = BertTokenClassifier(config, num_classes=9)
    >>> ids = keras.ops.ones((2, 5), "int32")
    >>> tuple(model({"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}).shape)
    (2, 5, 9)
    """

    head = "token_classifier"
    head_input_key = features.SEQUENCE_OUTPUT
    argument_checks: ClassVar = {
        "num_classes": is_count,
        "dropout": optional(is_rate),
        "pooler": optional(is_flag),
    }
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
        values: dict[str, Any] = {"num_classes": num_classes, "dropout": dropout}
        super().__init__(config, **values, pooler=pooler, name=name, dtype=dtype, **kwargs)


class IgnorePaddingInTraining(keras.layers.Layer):
    """Replaces the logits at padding in training, so that a softmax ignores them."""

    def call(self, logits: Any, real_tokens: Any, training: bool | None = False) -> Any:
        """Computes logits (B, S) from logits (B, S) and the mask (B, S)."""
        return ops.where(real_tokens > 0, logits, MASKED_SCORE) if training else logits


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSpanPredictor(TaskModel):
    """Predictor of answer spans, for tasks such as SQuAD.

    Source: Devlin et al. 2019, sections 4.2 and 4.3, figure 4 (c); google-research/bert
    ``run_squad.py``, ``create_model``, which has no dropout before the dense layer.

    Inputs: those of ``BertEncoder``.

    Outputs: float32 ``start_logits`` and ``end_logits`` of shape (B, S). Apply a softmax over S. In
    training, the logits at padding are so low that the loss does not depend on them.

    The arguments are those of ``BertTokenClassifier`` without ``num_classes`` and ``dropout``. The
    dense layer is ``span``, with a kernel of shape (H, 2).

    >>> model = BertSpanPredictor(BertConfig.from_preset("bert-tiny", vocab_size=100))
    >>> ids = keras.ops.ones((2, 5), "int32")
    >>> outputs = model({"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids})
    >>> {key: tuple(value.shape) for key, value in sorted(outputs.items())}
    {'end_logits': (2, 5), 'start_logits': (2, 5)}
    """

    head = "span"
    units = 2
    head_input_key = features.SEQUENCE_OUTPUT
    argument_checks: ClassVar = {"pooler": optional(is_flag)}
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
        """Splits (B, S, 2) into start and end logits (B, S)."""
        mask = inputs[features.INPUT_MASK]
        return {
            key: IgnorePaddingInTraining(name=key, autocast=False)(logits[:, :, column], mask)
            for column, key in enumerate((features.START_LOGITS, features.END_LOGITS))
        }


class FlattenChoices(keras.layers.Layer):
    """Reshapes choices to sequences."""

    def call(self, ids: Any) -> Any:
        """Reshapes (B, K, S) to (B * K, S)."""
        return ops.reshape(ids, (-1, ops.shape(ids)[-1]))


class GroupChoices(keras.layers.Layer):
    """Groups the scores of sequences by example."""

    def call(self, scores: Any, ids: Any) -> Any:
        """Reshapes scores (B * K, 1) to (B, K), the leading dimensions of ids (B, K, S)."""
        return ops.reshape(scores, ops.shape(ids)[:2])


@keras.saving.register_keras_serializable(package="bert_tf")
class BertMultipleChoice(TaskModel):
    """Multiple-choice model, which scores each pair of a question and a choice.

    Source: Devlin et al. 2019, section 4.4 (SWAG). A choice's score is the dot product of its [CLS]
    representation and a vector. Apply a softmax over the choices.

    Inputs: a dict of ``features.CHOICE_FEATURES``, each (B, K, S) int32. K can differ between
    batches.

    Output: float32 logits of shape (B, K).

    The arguments are those of ``BertClassifier`` without ``num_classes``. The dense layer is
    ``choice``, with a kernel of shape (H, 1).

    >>> model = BertMultipleChoice(BertConfig.from_preset("bert-tiny", vocab_size=100))
    >>> ids = ops.ones((2, 4, 5), "int32")
    >>> tuple(model({"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}).shape)
    (2, 4)
    """

    head = "choice"
    units = 1
    contract = features.CHOICE_FEATURES
    argument_checks: ClassVar = {"dropout": optional(is_rate), "pooling": is_pooling}
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
        """Reshapes (B, K, S) to (B * K, S)."""
        return {key: FlattenChoices(name=f"flat_{key}")(ids) for key, ids in inputs.items()}

    @staticmethod
    def to_outputs(logits: Any, inputs: Mapping[str, Any]) -> Any:
        """Reshapes (B * K, 1) to (B, K)."""
        return GroupChoices(name="grouped", dtype=logits.dtype)(
            logits, inputs[features.INPUT_WORD_IDS]
        )
