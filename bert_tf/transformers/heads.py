"""The heads: a row of ``HEADS`` for each, from which the classes are made, and their losses.

``-100`` is a label that counts nothing. Letters: B batch, S sequence, C classes, K choices,
V vocabulary.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from bert_tf import features
from bert_tf.checkpoints.hugging_face_config import REGRESSION, SEVERAL_CLASSES, head_dropout
from bert_tf.modeling import (
    BertClassifier,
    BertEncoder,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTokenClassifier,
)
from bert_tf.modeling.base import BertModel
from bert_tf.modeling.encoder import nan_if_out_of_range
from bert_tf.modeling.task_models import TaskModel
from bert_tf.training.losses import weighted_sums

from .configuration import PretrainedConfig

# === Losses of labels among the inputs, with transformers' reductions ===


def summed(loss: Callable[[Any, Any], Any], labels: Any, logits: Any) -> Any:
    """A loss of labels and logits; of a dict of labels the sum over them and their logits."""
    if not isinstance(labels, Mapping):
        return loss(labels, logits)
    return sum(loss(*pair) for pair in zip(labels.values(), logits, strict=True))


def of_choices(labels: Any, logits: Any, end: Any = None) -> Any:
    """(B,), (B, K) -> (B,): the cross-entropy; its mean is over labels below ``end`` but -100."""
    labels = ops.reshape(_as_ids(labels), (-1,))
    is_left_out = labels == -100 if end is None else (labels == -100) | (labels >= end)
    labels = ops.where(is_left_out, 0, labels)
    each = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    counts = ops.cast(~is_left_out, "float32")
    return each * ops.cast(counts / ops.maximum(ops.mean(counts), 1e-9), each.dtype)


def _as_ids(labels: Any) -> Any:
    """Labels as int32; floats, which Keras makes of all, only where they are whole.

    A cast would make class 0 of 0.5, which is to be none: an error on a CPU, NaN on a GPU.
    """
    labels = ops.convert_to_tensor(labels)
    if keras.backend.is_float_dtype(labels.dtype):
        labels = ops.where(labels == ops.floor(labels), labels, 2.0**30)
    return ops.cast(labels, "int32")


def of_classes(labels: Any, logits: Any, problem_type: str | None = None) -> Any:
    """(B,) ids of classes and (B, C) -> (B,): the cross-entropy, or of one class the squared error.

    Of several numbers and of several classes, as ``problem_type`` names them, labels are (B, C):
    the mean squared error, and the mean binary cross-entropy.
    """
    labels, count = ops.convert_to_tensor(labels), logits.shape[-1]
    is_several = problem_type == SEVERAL_CLASSES
    takes_numbers = is_several or count == 1 or problem_type == REGRESSION
    if getattr(labels.shape, "rank", 0) is None:  # as a generator's without a shape
        labels = ops.reshape(labels, (-1, count) if takes_numbers else (-1,))
    if takes_numbers and (count == 1 or labels.shape[1:] == logits.shape[1:]):
        numbers = ops.cast(ops.reshape(labels, (-1, count)), logits.dtype)
        if is_several:
            return keras.losses.binary_crossentropy(numbers, logits, from_logits=True)
        return ops.mean(ops.square(logits - numbers), axis=-1)
    if takes_numbers or (len(labels.shape) > 1 and labels.shape[-1] != 1):
        expected = f"(B, {count}) numbers" if takes_numbers else "(B,) ids of classes"
        raise ValueError(
            f"labels have the shape {tuple(labels.shape)}, and the model's own loss takes "
            f"{expected} where config.problem_type is {problem_type!r}: set another "
            f"({REGRESSION!r}, {SEVERAL_CLASSES!r}), or give compile() a loss, such as "
            "CategoricalCrossentropy(from_logits=True) of rows of 0 and 1."
        )
    return of_choices(labels, logits)


def of_ends(labels: Any, logits: Any) -> Any:
    """(B,) and (B, S) -> (B,): half the loss of a span's end, which counts inside the row."""
    return of_choices(labels, logits, end=ops.shape(logits)[-1]) / 2.0


def of_following(labels: Any, logits: Any) -> Any:
    """(B,) and (B, 2) -> (B,): the loss of "the second text follows", 0 where the label is -100."""
    each = of_choices(ops.where(labels == -100, 0, labels), logits)
    return each * ops.cast(ops.reshape(labels, (-1,)) != -100, each.dtype)


def _mean_of_counted(labels: Any, logits: Any, counts: Any) -> Any:
    """The mean cross-entropy where ``counts``, as (1,); 0 where nothing does."""
    labels, counts = ops.reshape(_as_ids(labels), (-1,)), ops.reshape(counts, (-1,))
    sums = weighted_sums(logits, ops.maximum(labels, 0), counts)
    nan = nan_if_out_of_range((ops.where(counts, labels, 0), logits.shape[-1]))
    return ops.sum(nan) + ops.reshape(sums.loss / ops.maximum(sums.weight, 1.0), (1,))


def of_tokens(labels: Any, logits: Any) -> Any:
    """(B, S) and (B, S, C) -> (1,): the mean over the tokens whose label is not negative."""
    return _mean_of_counted(labels, logits, labels >= 0)


def of_words(labels: Any, logits: Any) -> Any:
    """(B, S) and (B, S, V) -> (1,): the mean where the label is not -100; so of (B,) and (B, 2)."""
    return _mean_of_counted(labels, logits, labels != -100)


def of_next_words(labels: Any, logits: Any) -> Any:
    """(B, S) and (B, S, V) -> (1,): each token's logits against the next token's label."""
    return of_words(labels[:, 1:], logits[:, :-1])


# === The table ===

#: By the attribute's name in this library's models, in their order: the layer's name here.
LAYERS: Mapping[str, str] = {
    **{"masked_lm": "mlm", "next_sentence": "nsp", "dropout": "dropout"},
    **dict.fromkeys(("classifier", "choice", "token_classifier"), "classifier"),
    "span": "qa_outputs",
}
_LABELS = {"labels": "logits"}


@dataclasses.dataclass(frozen=True)
class Head:
    """A row of the table: this library's class of the same weights, and its outputs' class."""

    native: type[BertModel]
    output: str
    # Of the labels and the logits of each pair in label_logits; the pairs' losses are summed.
    loss: Callable[[Any, Any], Any] | None = None
    label_logits: Mapping[str, str] = dataclasses.field(default_factory=lambda: _LABELS)
    # Of the constructor, besides the config.
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def has_classes(self) -> bool:
        """True if the constructor takes the config's number of classes."""
        return "num_classes" in self.native.argument_checks

    def loss_of(self, config: PretrainedConfig) -> Any:
        """The loss of labels and logits; that of classes is the config's."""
        if self.loss is of_classes:
            return functools.partial(of_classes, problem_type=config.problem_type)
        return self.loss

    def arguments_for(self, config: PretrainedConfig) -> dict[str, Any]:
        """Arguments of a native model besides its sizes."""
        arguments = dict(self.arguments)
        if self.has_classes:
            arguments["num_classes"] = config.num_labels
        if "pooler" in arguments and config.model_type == "distilbert":
            arguments["pooler"] = False  # it has one in front of a classifier alone
        if "dropout" in self.native.argument_checks:
            arguments["dropout"] = head_dropout(config.to_dict(), self.native)
        return arguments


def logits_of(model: Any, states: Any, training: bool | None) -> list[Any]:
    """A model's logits, in the order of ``label_logits``, from its main layer's output."""
    native, hidden = model.native, states.last_hidden_state
    if isinstance(native, TaskModel):
        reads_pooled = native.reads == features.POOLED_OUTPUT
        head_input = states.pooler_output if reads_pooled else hidden
        logits = getattr(model, LAYERS[native.head])(model.dropout(head_input, training=training))
        return ops.unstack(logits, axis=-1) if native.head == "span" else [logits]
    logits_of_heads = []
    if native.masked_lm is not None:
        batch, sequence = ops.shape(hidden)[:2]
        positions = ops.broadcast_to(ops.arange(sequence, dtype="int32")[None], (batch, sequence))
        logits_of_heads.append(model.mlm(hidden, positions, training=training))
    if getattr(native, "next_sentence", None) is not None:
        logits_of_heads.append(model.nsp(states.pooler_output))
    return logits_of_heads


_STATES = "TFBaseModelOutputWithPoolingAndCrossAttentions"
_WORDS = {"mlm": True, "nsp": False, "pooler": False}
_FOLLOWING = {"mlm": False, "nsp": True}
_BOTH = {"labels": "prediction_logits", "next_sentence_label": "seq_relationship_logits"}
_NEXT = {"next_sentence_label": "logits"}
_ENDS = {"start_positions": "start_logits", "end_positions": "end_logits"}
# By what follows a family's name in a class': "TFBert" + "ForTokenClassification".
HEADS: Mapping[str, Head] = {
    "Model": Head(BertEncoder, _STATES, None, {}, {"pooler": True}),
    "ForPreTraining": Head(BertPretrainer, "TFBertForPreTrainingOutput", of_words, _BOTH),
    "ForMaskedLM": Head(BertPretrainer, "TFMaskedLMOutput", of_words, arguments=_WORDS),
    "LMHeadModel": Head(
        BertPretrainer, "TFCausalLMOutputWithCrossAttentions", of_next_words, arguments=_WORDS
    ),
    "ForNextSentencePrediction": Head(
        BertPretrainer, "TFNextSentencePredictorOutput", of_following, _NEXT, _FOLLOWING
    ),
    "ForSequenceClassification": Head(BertClassifier, "TFSequenceClassifierOutput", of_classes),
    "ForMultipleChoice": Head(BertMultipleChoice, "TFMultipleChoiceModelOutput", of_choices),
    "ForTokenClassification": Head(BertTokenClassifier, "TFTokenClassifierOutput", of_tokens),
    "ForQuestionAnswering": Head(
        BertSpanPredictor, "TFQuestionAnsweringModelOutput", of_ends, _ENDS
    ),
}


# === For models of one's own ===


def keras_serializable(kind: Any) -> Any:
    """Makes a class known to Keras' files."""
    return keras.saving.register_keras_serializable(package="bert_tf.transformers")(kind)


def get_initializer(initializer_range: float = 0.02) -> keras.initializers.Initializer:
    """A truncated normal of this deviation."""
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


def shape_list(tensor: Any) -> list[Any]:
    """A tensor's sizes: numbers, and in a graph tensors where they are open."""
    return list(ops.shape(tensor))


def _base(name: str, loss: Callable[[Any, Any], Any]) -> Any:
    def hf_compute_loss(self: Any, labels: Any, logits: Any) -> Any:
        return summed(loss, labels, logits)

    body = {"__doc__": "A base with ``hf_compute_loss``.", "__module__": __name__}
    return type(name, (), {**body, "hf_compute_loss": hf_compute_loss})


TFMaskedLanguageModelingLoss = _base("TFMaskedLanguageModelingLoss", of_words)
TFMultipleChoiceLoss = _base("TFMultipleChoiceLoss", of_choices)
TFQuestionAnsweringLoss = _base("TFQuestionAnsweringLoss", of_ends)
TFSequenceClassificationLoss = _base("TFSequenceClassificationLoss", of_classes)
TFTokenClassificationLoss = _base("TFTokenClassificationLoss", of_tokens)
