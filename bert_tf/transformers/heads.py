"""Model heads, which are listed in ``HEADS``, and their losses.

Losses ignore the label -100. Letters: B batch, S sequence, C classes, K choices, V vocabulary.
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
from bert_tf.training.cross_entropy import weighted_sums

from .configuration import PretrainedConfig

# === Losses, with the reductions of transformers ===


def sum_losses(loss: Callable[[Any, Any], Any], labels: Any, logits: Any) -> Any:
    """Computes a loss or, for a dict of labels, the sum of the losses of each pair with logits."""
    if not isinstance(labels, Mapping):
        return loss(labels, logits)
    return sum(loss(*pair) for pair in zip(labels.values(), logits, strict=True))


def cross_entropy(labels: Any, logits: Any, end: Any = None) -> Any:
    """Computes the cross-entropy (B,) of labels (B,) and logits (B, K).

    The mean of the result is the mean loss of the labels that are below ``end`` and not -100.
    """
    labels = ops.reshape(_to_class_ids(labels), (-1,))
    is_ignored = labels == -100 if end is None else (labels == -100) | (labels >= end)
    labels = ops.where(is_ignored, 0, labels)
    losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    counts = ops.cast(~is_ignored, "float32")
    return losses * ops.cast(counts / ops.maximum(ops.mean(counts), 1e-9), losses.dtype)


def _to_class_ids(labels: Any) -> Any:
    """Converts labels, which Keras passes as floats, to int32.

    A label such as 0.5 becomes an invalid id rather than class 0. An invalid id raises an error on
    a CPU and results in NaN on a GPU.
    """
    labels = ops.convert_to_tensor(labels)
    if keras.backend.is_float_dtype(labels.dtype):
        labels = ops.where(labels == ops.floor(labels), labels, 2.0**30)
    return ops.cast(labels, "int32")


def class_loss(labels: Any, logits: Any, problem_type: str | None = None) -> Any:
    """Computes the loss (B,) of labels and logits (B, C) for a problem type.

    By default, labels are class ids (B,) and the loss is the cross-entropy; with one class, it is
    the squared error. For regression and multi-label classification, labels have shape (B, C), and
    the loss is the mean squared error or the mean binary cross-entropy.
    """
    labels, count = ops.convert_to_tensor(labels), logits.shape[-1]
    is_multi_label = problem_type == SEVERAL_CLASSES
    takes_floats = is_multi_label or count == 1 or problem_type == REGRESSION
    if getattr(labels.shape, "rank", 0) is None:  # from a generator without shapes
        labels = ops.reshape(labels, (-1, count) if takes_floats else (-1,))
    if takes_floats and (count == 1 or labels.shape[1:] == logits.shape[1:]):
        floats = ops.cast(ops.reshape(labels, (-1, count)), logits.dtype)
        if is_multi_label:
            return keras.losses.binary_crossentropy(floats, logits, from_logits=True)
        return ops.mean(ops.square(logits - floats), axis=-1)
    if takes_floats or (len(labels.shape) > 1 and labels.shape[-1] != 1):
        expected = f"(B, {count})" if takes_floats else "(B,), class ids"
        raise ValueError(
            f"labels: expected shape {expected}, for config.problem_type={problem_type!r}, got "
            f"{tuple(labels.shape)}. Set problem_type to {REGRESSION!r} or {SEVERAL_CLASSES!r}, or "
            "pass a loss to compile()."
        )
    return cross_entropy(labels, logits)


def span_loss(labels: Any, logits: Any) -> Any:
    """Computes half the loss (B,) of starts or ends (B,), ignoring positions outside the row."""
    return cross_entropy(labels, logits, end=ops.shape(logits)[-1]) / 2.0


def next_sentence_loss(labels: Any, logits: Any) -> Any:
    """Computes the next-sentence loss (B,), which is 0 for the label -100."""
    losses = cross_entropy(ops.where(labels == -100, 0, labels), logits)
    return losses * ops.cast(ops.reshape(labels, (-1,)) != -100, losses.dtype)


def _masked_mean(labels: Any, logits: Any, counts: Any) -> Any:
    """Computes the mean cross-entropy (1,) of labels with true ``counts``; 0 if there are none."""
    labels, counts = ops.reshape(_to_class_ids(labels), (-1,)), ops.reshape(counts, (-1,))
    sums = weighted_sums(logits, ops.maximum(labels, 0), counts)
    nan = nan_if_out_of_range((ops.where(counts, labels, 0), logits.shape[-1]))
    return ops.sum(nan) + ops.reshape(sums.loss / ops.maximum(sums.weight, 1.0), (1,))


def token_loss(labels: Any, logits: Any) -> Any:
    """Computes the mean loss (1,) over the tokens whose label is not negative."""
    return _masked_mean(labels, logits, labels >= 0)


def mlm_loss(labels: Any, logits: Any) -> Any:
    """Computes the mean loss (1,) over the tokens whose label is not -100."""
    return _masked_mean(labels, logits, labels != -100)


def clm_loss(labels: Any, logits: Any) -> Any:
    """Computes the mean loss (1,) of predicting each next token."""
    return mlm_loss(labels[:, 1:], logits[:, :-1])


# === The table of heads ===

#: Attributes of this library's models, and the corresponding names in transformers.
LAYERS: Mapping[str, str] = {
    **{"masked_lm": "mlm", "next_sentence": "nsp", "dropout": "dropout"},
    **dict.fromkeys(("classifier", "choice", "token_classifier"), "classifier"),
    "span": "qa_outputs",
}
_LABELS = {"labels": "logits"}


@dataclasses.dataclass(frozen=True)
class Head:
    """Head of a model: the bert_tf class with the same weights, the output class and the loss."""

    native: type[BertModel]
    output: str
    # Function of labels and logits. The losses of all pairs in ``label_logits`` are summed.
    loss: Callable[[Any, Any], Any] | None = None
    label_logits: Mapping[str, str] = dataclasses.field(default_factory=lambda: _LABELS)
    # Arguments of the constructor in addition to the config.
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def has_classes(self) -> bool:
        """Whether the constructor takes the number of classes."""
        return "num_classes" in self.native.argument_checks

    def get_loss(self, config: PretrainedConfig) -> Any:
        """Returns the loss function for a config."""
        if self.loss is class_loss:
            return functools.partial(class_loss, problem_type=config.problem_type)
        return self.loss

    def get_arguments(self, config: PretrainedConfig) -> dict[str, Any]:
        """Returns the constructor's arguments for a config."""
        arguments = dict(self.arguments)
        if self.has_classes:
            arguments["num_classes"] = config.num_labels
        if "pooler" in arguments and config.model_type == "distilbert":
            arguments["pooler"] = False  # only DistilBERT's classifiers have a pooler
        if "dropout" in self.native.argument_checks:
            arguments["dropout"] = head_dropout(config.to_dict(), self.native)
        return arguments


def compute_logits(model: Any, states: Any, training: bool | None) -> list[Any]:
    """Computes the logits from the outputs of the main layer, in the order of ``label_logits``."""
    native, hidden = model.native, states.last_hidden_state
    if isinstance(native, TaskModel):
        reads_pooled = native.head_input_key == features.POOLED_OUTPUT
        head_input = states.pooler_output if reads_pooled else hidden
        logits = getattr(model, LAYERS[native.head])(model.dropout(head_input, training=training))
        return ops.unstack(logits, axis=-1) if native.head == "span" else [logits]
    logits = []
    if native.masked_lm is not None:
        batch, sequence = ops.shape(hidden)[:2]
        positions = ops.broadcast_to(ops.arange(sequence, dtype="int32")[None], (batch, sequence))
        logits.append(model.mlm(hidden, positions, training=training))
    if getattr(native, "next_sentence", None) is not None:
        logits.append(model.nsp(states.pooler_output))
    return logits


_STATES = "TFBaseModelOutputWithPoolingAndCrossAttentions"
_MLM_ONLY = {"mlm": True, "nsp": False, "pooler": False}
_NSP_ONLY = {"mlm": False, "nsp": True}
_BOTH_LABELS = {"labels": "prediction_logits", "next_sentence_label": "seq_relationship_logits"}
_NSP_LABELS = {"next_sentence_label": "logits"}
_SPAN_LABELS = {"start_positions": "start_logits", "end_positions": "end_logits"}
# Heads by the suffix of the class names: "TFBert" + "ForTokenClassification".
HEADS: Mapping[str, Head] = {
    "Model": Head(BertEncoder, _STATES, None, {}, {"pooler": True}),
    "ForPreTraining": Head(BertPretrainer, "TFBertForPreTrainingOutput", mlm_loss, _BOTH_LABELS),
    "ForMaskedLM": Head(BertPretrainer, "TFMaskedLMOutput", mlm_loss, arguments=_MLM_ONLY),
    "LMHeadModel": Head(
        BertPretrainer, "TFCausalLMOutputWithCrossAttentions", clm_loss, arguments=_MLM_ONLY
    ),
    "ForNextSentencePrediction": Head(
        BertPretrainer, "TFNextSentencePredictorOutput", next_sentence_loss, _NSP_LABELS, _NSP_ONLY
    ),
    "ForSequenceClassification": Head(BertClassifier, "TFSequenceClassifierOutput", class_loss),
    "ForMultipleChoice": Head(BertMultipleChoice, "TFMultipleChoiceModelOutput", cross_entropy),
    "ForTokenClassification": Head(BertTokenClassifier, "TFTokenClassifierOutput", token_loss),
    "ForQuestionAnswering": Head(
        BertSpanPredictor, "TFQuestionAnsweringModelOutput", span_loss, _SPAN_LABELS
    ),
}


# === For custom models ===


def keras_serializable(cls: Any) -> Any:
    """Registers a class for Keras' serialization."""
    return keras.saving.register_keras_serializable(package="bert_tf.transformers")(cls)


def get_initializer(initializer_range: float = 0.02) -> keras.initializers.Initializer:
    """Returns a truncated normal initializer with this standard deviation."""
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


def shape_list(tensor: Any) -> list[Any]:
    """Returns a tensor's dimensions as integers, or as tensors if they are dynamic in a graph."""
    return list(ops.shape(tensor))


def _loss_mixin(name: str, loss: Callable[[Any, Any], Any]) -> Any:
    def hf_compute_loss(self: Any, labels: Any, logits: Any) -> Any:
        return sum_losses(loss, labels, logits)

    body = {"__doc__": "Mixin that adds ``hf_compute_loss``.", "__module__": __name__}
    return type(name, (), {**body, "hf_compute_loss": hf_compute_loss})


TFMaskedLanguageModelingLoss = _loss_mixin("TFMaskedLanguageModelingLoss", mlm_loss)
TFMultipleChoiceLoss = _loss_mixin("TFMultipleChoiceLoss", cross_entropy)
TFQuestionAnsweringLoss = _loss_mixin("TFQuestionAnsweringLoss", span_loss)
TFSequenceClassificationLoss = _loss_mixin("TFSequenceClassificationLoss", class_loss)
TFTokenClassificationLoss = _loss_mixin("TFTokenClassificationLoss", token_loss)
