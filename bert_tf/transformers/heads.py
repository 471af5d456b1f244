"""Table of the heads, from which the classes are made.

Letters: B batch, S sequence, K choices, C classes.
"""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from keras import ops

from bert_tf import features
from bert_tf.modeling import (
    BertClassifier,
    BertEncoder,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTokenClassifier,
)
from bert_tf.modeling.base import BertModel
from bert_tf.modeling.task_models import TaskModel

from . import losses

#: By the attribute's name in this library's models, in their order: the layer's name here.
LAYERS: Mapping[str, str] = MappingProxyType(
    {
        **{"masked_lm": "mlm", "next_sentence": "nsp", "dropout": "dropout"},
        **dict.fromkeys(("classifier", "choice", "token_classifier"), "classifier"),
        "span": "qa_outputs",
    }
)
_LABELS = MappingProxyType({"labels": "logits"})


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


def logits_of(model: Any, states: Any, training: bool | None) -> list[Any]:
    """A model's logits, in the order of ``label_logits``, from its main layer's output."""
    native, hidden = model.native, states.last_hidden_state
    if isinstance(native, TaskModel):
        read = states.pooler_output if native.reads == features.POOLED_OUTPUT else hidden
        logits = getattr(model, LAYERS[native.head])(model.dropout(read, training=training))
        return ops.unstack(logits, axis=-1) if native.head == "span" else [logits]
    found = []
    if native.masked_lm is not None:
        batch, sequence = ops.shape(hidden)[:2]
        places = ops.broadcast_to(ops.arange(sequence, dtype="int32")[None], (batch, sequence))
        found.append(model.mlm(hidden, places, training=training))
    if getattr(native, "next_sentence", None) is not None:
        found.append(model.nsp(states.pooler_output))
    return found


_WORDS = MappingProxyType({"mlm": True, "nsp": False, "pooler": False})
_FOLLOWING = MappingProxyType({"mlm": False, "nsp": True})
_BOTH = {"labels": "prediction_logits", "next_sentence_label": "seq_relationship_logits"}
_ENDS = {"start_positions": "start_logits", "end_positions": "end_logits"}
# By what follows a family's name in a class': "TFBert" + "ForTokenClassification".
HEADS: Mapping[str, Head] = MappingProxyType(
    {
        "Model": Head(
            BertEncoder,
            "TFBaseModelOutputWithPoolingAndCrossAttentions",
            label_logits=MappingProxyType({}),
            arguments=MappingProxyType({"pooler": True}),
        ),
        "ForPreTraining": Head(
            BertPretrainer, "TFBertForPreTrainingOutput", losses.of_words, MappingProxyType(_BOTH)
        ),
        "ForMaskedLM": Head(BertPretrainer, "TFMaskedLMOutput", losses.of_words, arguments=_WORDS),
        "LMHeadModel": Head(
            BertPretrainer,
            "TFCausalLMOutputWithCrossAttentions",
            losses.of_next_words,
            arguments=_WORDS,
        ),
        "ForNextSentencePrediction": Head(
            BertPretrainer,
            "TFNextSentencePredictorOutput",
            losses.of_following,
            MappingProxyType({"next_sentence_label": "logits"}),
            _FOLLOWING,
        ),
        "ForSequenceClassification": Head(
            BertClassifier, "TFSequenceClassifierOutput", losses.of_classes
        ),
        "ForMultipleChoice": Head(
            BertMultipleChoice, "TFMultipleChoiceModelOutput", losses.of_choices
        ),
        "ForTokenClassification": Head(
            BertTokenClassifier, "TFTokenClassifierOutput", losses.of_tokens
        ),
        "ForQuestionAnswering": Head(
            BertSpanPredictor,
            "TFQuestionAnsweringModelOutput",
            losses.of_ends,
            MappingProxyType(_ENDS),
        ),
    }
)
