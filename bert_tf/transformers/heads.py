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


def sum_losses(loss: Callable[[Any, Any], Any], labels: Any, logits: Any) -> Any:
    """A loss of labels and logits; of a dict of labels the sum over them and their logits."""
    if not isinstance(labels, Mapping):
        return loss(labels, logits)
    return sum(loss(*pair) for pair in zip(labels.values(), logits, strict=True))


def cross_entropy(labels: Any, logits: Any, end: Any = None) -> Any:
    """(B,), (B, K) -> (B,): the cross-entropy; its mean is over labels below ``end`` but -100."""
    labels = ops.reshape(_to_class_ids(labels), (-1,))
    is_left_out = labels == -100 if end is None else (labels == -100) | (labels >= end)
    labels = ops.where(is_left_out, 0, labels)
    each = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    counts = ops.cast(~is_left_out, "float32")
    return each * ops.cast(counts / ops.maximum(ops.mean(counts), 1e-9), each.dtype)


def _to_class_ids(labels: Any) -> Any:
    """Labels as int32; floats, which Keras makes of all, only where they are whole.

    A cast would make class 0 of 0.5, which is to be none: an error on a CPU, NaN on a GPU.
    """
    labels = ops.convert_to_tensor(labels)
    if keras.backend.is_float_dtype(labels.dtype):
        labels = ops.where(labels == ops.floor(labels), labels, 2.0**30)
    return ops.cast(labels, "int32")


def classification_loss(labels: Any, logits: Any, problem_type: str | None = None) -> Any:
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
    return cross_entropy(labels, logits)


def span_loss(labels: Any, logits: Any) -> Any:
    """(B,) and (B, S) -> (B,): half the loss of a span's end, which counts inside the row."""
    return cross_entropy(labels, logits, end=ops.shape(logits)[-1]) / 2.0


def next_sentence_loss(labels: Any, logits: Any) -> Any:
    """(B,) and (B, 2) -> (B,): the loss of "the second text follows", 0 where the label is -100."""
    each = cross_entropy(ops.where(labels == -100, 0, labels), logits)
    return each * ops.cast(ops.reshape(labels, (-1,)) != -100, each.dtype)


def _masked_mean(labels: Any, logits: Any, counts: Any) -> Any:
    """The mean cross-entropy where ``counts``, as (1,); 0 where nothing does."""
    labels, counts = ops.reshape(_to_class_ids(labels), (-1,)), ops.reshape(counts, (-1,))
    sums = weighted_sums(logits, ops.maximum(labels, 0), counts)
    nan = nan_if_out_of_range((ops.where(counts, labels, 0), logits.shape[-1]))
    return ops.sum(nan) + ops.reshape(sums.loss / ops.maximum(sums.weight, 1.0), (1,))


def token_loss(labels: Any, logits: Any) -> Any:
    """(B, S) and (B, S, C) -> (1,): the mean over the tokens whose label is not negative."""
    return _masked_mean(labels, logits, labels >= 0)


def masked_lm_loss(labels: Any, logits: Any) -> Any:
    """(B, S) and (B, S, V) -> (1,): the mean where the label is not -100; so of (B,) and (B, 2)."""
    return _masked_mean(labels, logits, labels != -100)


def causal_lm_loss(labels: Any, logits: Any) -> Any:
    """(B, S) and (B, S, V) -> (1,): each token's logits against the next token's label."""
    return masked_lm_loss(labels[:, 1:], logits[:, :-1])


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

    def get_loss(self, config: PretrainedConfig) -> Any:
        """The loss of labels and logits; that of classes is the config's."""
        if self.loss is classification_loss:
            return functools.partial(classification_loss, problem_type=config.problem_type)
        return self.loss

    def get_arguments(self, config: PretrainedConfig) -> dict[str, Any]:
        """Arguments of a native model besides its sizes."""
        arguments = dict(self.arguments)
        if self.has_classes:
            arguments["num_classes"] = config.num_labels
        if "pooler" in arguments and config.model_type == "distilbert":
            arguments["pooler"] = False  # it has one in front of a classifier alone
        if "dropout" in self.native.argument_checks:
            arguments["dropout"] = head_dropout(config.to_dict(), self.native)
        return arguments


def compute_logits(model: Any, states: Any, training: bool | None) -> list[Any]:
    """A model's logits, in the order of ``label_logits``, from its main layer's output."""
    native, hidden = model.native, states.last_hidden_state
    if isinstance(native, TaskModel):
        reads_pooled = native.head_input_key == features.POOLED_OUTPUT
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
_MLM_ONLY = {"mlm": True, "nsp": False, "pooler": False}
_NSP_ONLY = {"mlm": False, "nsp": True}
_PRETRAINING_LABELS = {
    "labels": "prediction_logits",
    "next_sentence_label": "seq_relationship_logits",
}
_NSP_LABELS = {"next_sentence_label": "logits"}
_SPAN_LABELS = {"start_positions": "start_logits", "end_positions": "end_logits"}
# By what follows a family's name in a class': "TFBert" + "ForTokenClassification".
HEADS: Mapping[str, Head] = {
    "Model": Head(BertEncoder, _STATES, None, {}, {"pooler": True}),
    "ForPreTraining": Head(
        BertPretrainer, "TFBertForPreTrainingOutput", masked_lm_loss, _PRETRAINING_LABELS
    ),
    "ForMaskedLM": Head(BertPretrainer, "TFMaskedLMOutput", masked_lm_loss, arguments=_MLM_ONLY),
    "LMHeadModel": Head(
        BertPretrainer, "TFCausalLMOutputWithCrossAttentions", causal_lm_loss, arguments=_MLM_ONLY
    ),
    "ForNextSentencePrediction": Head(
        BertPretrainer, "TFNextSentencePredictorOutput", next_sentence_loss, _NSP_LABELS, _NSP_ONLY
    ),
    "ForSequenceClassification": Head(
        BertClassifier, "TFSequenceClassifierOutput", classification_loss
    ),
    "ForMultipleChoice": Head(BertMultipleChoice, "TFMultipleChoiceModelOutput", cross_entropy),
    "ForTokenClassification": Head(BertTokenClassifier, "TFTokenClassifierOutput", token_loss),
    "ForQuestionAnswering": Head(
        BertSpanPredictor, "TFQuestionAnsweringModelOutput", span_loss, _SPAN_LABELS
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


def _loss_mixin(name: str, loss: Callable[[Any, Any], Any]) -> Any:
    def hf_compute_loss(self: Any, labels: Any, logits: Any) -> Any:
        return sum_losses(loss, labels, logits)

    body = {"__doc__": "A base with ``hf_compute_loss``.", "__module__": __name__}
    return type(name, (), {**body, "hf_compute_loss": hf_compute_loss})


TFMaskedLanguageModelingLoss = _loss_mixin("TFMaskedLanguageModelingLoss", masked_lm_loss)
TFMultipleChoiceLoss = _loss_mixin("TFMultipleChoiceLoss", cross_entropy)
TFQuestionAnsweringLoss = _loss_mixin("TFQuestionAnsweringLoss", span_loss)
TFSequenceClassificationLoss = _loss_mixin("TFSequenceClassificationLoss", classification_loss)
TFTokenClassificationLoss = _loss_mixin("TFTokenClassificationLoss", token_loss)
