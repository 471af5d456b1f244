"""What each model has on its encoder: a table, of which the classes are made.

Letters: B batch, S sequence, K choices, C classes.
"""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from keras import ops

from bert_tf.modeling import (
    BertClassifier,
    BertEncoder,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTokenClassifier,
)
from bert_tf.modeling.base import BertModel

from . import losses

Logits = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Head:
    """A row of the table.

    Attributes:
        native: this library's class of the same weights.
        arguments: of its constructor, besides the config, that are always the same.
        has_classes: whether its constructor takes the config's number of classes.
        output: the class of what a call gives.
        layers: its layers, by the attribute's name here: the attribute's name there.
        logits: of a model, the main layer's output and ``training``.
        label_logits: the names of labels, and of the logits that go with them.
        loss: of labels and logits.
        pools: whether it reads the pooled output.
    """

    native: type[BertModel]
    output: str
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    has_classes: bool = False
    layers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    logits: Callable[[Any, Any, Any], Logits] | None = None
    label_logits: Mapping[str, str] = dataclasses.field(default_factory=dict)
    loss: Callable[[Logits, Logits], Any] | None = None
    pools: bool = False


def _classes(model: Any, states: Any, training: Any) -> Logits:
    pooled = model.dropout(states.pooler_output, training=training)
    return {"logits": model.classifier(pooled)}


def _tokens(model: Any, states: Any, training: Any) -> Logits:
    hidden = model.dropout(states.last_hidden_state, training=training)
    return {"logits": model.classifier(hidden)}


def _spans(model: Any, states: Any, training: Any) -> Logits:
    hidden = model.dropout(states.last_hidden_state, training=training)
    both = model.qa_outputs(hidden)  # (B, S, 2)
    return {"start_logits": both[:, :, 0], "end_logits": both[:, :, 1]}


def _words(model: Any, states: Any, training: Any) -> Logits:
    hidden = states.last_hidden_state
    batch, sequence = ops.shape(hidden)[:2]
    places = ops.broadcast_to(ops.arange(sequence, dtype="int32")[None], (batch, sequence))
    return {"logits": model.mlm(hidden, places, training=training)}


def _following(model: Any, states: Any, training: Any) -> Logits:
    return {"logits": model.nsp(states.pooler_output)}


def _pretraining(model: Any, states: Any, training: Any) -> Logits:
    words = _words(model, states, training)["logits"]
    following = _following(model, states, training)["logits"]
    return {"prediction_logits": words, "seq_relationship_logits": following}


_LABELS = MappingProxyType({"labels": "logits"})
_WORDS = MappingProxyType({"mlm": True, "nsp": False, "pooler": False})
_DENSE = MappingProxyType({"dropout": "dropout"})
# By what follows a family's name in a class': "TFBert" + "ForTokenClassification".
HEADS: Mapping[str, Head] = MappingProxyType(
    {
        "Model": Head(
            native=BertEncoder,
            output="TFBaseModelOutputWithPoolingAndCrossAttentions",
            arguments=MappingProxyType({"pooler": True}),
            pools=True,
        ),
        "ForPreTraining": Head(
            native=BertPretrainer,
            output="TFBertForPreTrainingOutput",
            layers=MappingProxyType({"masked_lm": "mlm", "next_sentence": "nsp"}),
            logits=_pretraining,
            label_logits=MappingProxyType(
                {"labels": "prediction_logits", "next_sentence_label": "seq_relationship_logits"}
            ),
            loss=losses.of_pretraining,
            pools=True,
        ),
        "ForMaskedLM": Head(
            native=BertPretrainer,
            output="TFMaskedLMOutput",
            arguments=_WORDS,
            layers=MappingProxyType({"masked_lm": "mlm"}),
            logits=_words,
            label_logits=_LABELS,
            loss=losses.of_masked_words,
        ),
        "LMHeadModel": Head(
            native=BertPretrainer,
            output="TFCausalLMOutputWithCrossAttentions",
            arguments=_WORDS,
            layers=MappingProxyType({"masked_lm": "mlm"}),
            logits=_words,
            label_logits=_LABELS,
            loss=losses.of_next_words,
        ),
        "ForNextSentencePrediction": Head(
            native=BertPretrainer,
            output="TFNextSentencePredictorOutput",
            arguments=MappingProxyType({"mlm": False, "nsp": True}),
            layers=MappingProxyType({"next_sentence": "nsp"}),
            logits=_following,
            label_logits=_LABELS,
            loss=losses.of_following,
            pools=True,
        ),
        "ForSequenceClassification": Head(
            native=BertClassifier,
            output="TFSequenceClassifierOutput",
            has_classes=True,
            layers=MappingProxyType({**_DENSE, "classifier": "classifier"}),
            logits=_classes,
            label_logits=_LABELS,
            loss=losses.of_classes,
            pools=True,
        ),
        "ForMultipleChoice": Head(
            native=BertMultipleChoice,
            output="TFMultipleChoiceModelOutput",
            layers=MappingProxyType({**_DENSE, "choice": "classifier"}),
            logits=_classes,
            label_logits=_LABELS,
            loss=losses.of_choices,
            pools=True,
        ),
        "ForTokenClassification": Head(
            native=BertTokenClassifier,
            output="TFTokenClassifierOutput",
            has_classes=True,
            layers=MappingProxyType({**_DENSE, "token_classifier": "classifier"}),
            logits=_tokens,
            label_logits=_LABELS,
            loss=losses.of_tokens,
        ),
        "ForQuestionAnswering": Head(
            native=BertSpanPredictor,
            output="TFQuestionAnsweringModelOutput",
            layers=MappingProxyType({**_DENSE, "span": "qa_outputs"}),
            logits=_spans,
            label_logits=MappingProxyType(
                {"start_positions": "start_logits", "end_positions": "end_logits"}
            ),
            loss=losses.of_spans,
        ),
    }
)
