"""The signature that SavedModels of transformers' TFBert classes had: ids in, tensors out.

What asked such a model over REST or gRPC goes on: names, shapes and dtypes are theirs.

Letters: B batch, S sequence, K choices, C classes, V vocabulary, H hidden.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf import features
from bert_tf.modeling import BertMultipleChoice, BertPretrainer, BertRegressor

from . import samples
from .served import Outputs, Served

_NAMES = {
    features.INPUT_WORD_IDS: "input_ids",
    features.INPUT_MASK: "attention_mask",
    features.INPUT_TYPE_IDS: "token_type_ids",
}
_STATES = {features.SEQUENCE_OUTPUT: "last_hidden_state", features.POOLED_OUTPUT: "pooler_output"}
SUMMARY = "Takes the ids of a BERT tokenizer, and returns what transformers' TFBert classes did."


def inputs(served: Served) -> dict[str, tf.TensorSpec]:
    """(B, S) int32 each, of choices (B, K, S); a DistilBERT has no ``token_type_ids``."""
    shape = [None] * (3 if isinstance(served.model, BertMultipleChoice) else 2)
    names = [*_NAMES.values()][: 2 if served.model.config.is_distilbert else 3]
    return {name: tf.TensorSpec(shape, tf.int32) for name in names}


def answer(served: Served, **given: tf.Tensor) -> Outputs:
    """Runs the model on ids, (B, S) or (B, K, S): float32 outputs by transformers' names."""
    ids = given["input_ids"]
    rows = {key: given.get(name, tf.zeros_like(ids)) for key, name in _NAMES.items()}
    model = served.model
    if isinstance(model, BertPretrainer) and model.mlm:
        places = tf.broadcast_to(tf.range(tf.shape(ids)[1]), tf.shape(ids))
        rows[features.MASKED_LM_POSITIONS] = places
    outputs = served.call(rows)
    if isinstance(model, BertPretrainer):
        both = ("prediction_logits", "seq_relationship_logits")
        names = dict(
            zip((features.MASKED_LM_LOGITS, features.NEXT_SENTENCE_LOGITS), both, strict=True)
        )
        found = {names[key] if len(outputs) > 1 else "logits": v for key, v in outputs.items()}
    elif isinstance(outputs, Mapping):
        known = {**_STATES, **dict.fromkeys((features.START_LOGITS, features.END_LOGITS))}
        found = {known[key] or key: outputs[key] for key in known if key in outputs}
    else:
        found = {"logits": outputs[:, None] if isinstance(model, BertRegressor) else outputs}
    return {name: tf.cast(value, tf.float32) for name, value in found.items()}


def requests(served: Served) -> samples.Requests:
    """Requests of ids, by their names."""
    choices = isinstance(served.model, BertMultipleChoice)
    contract = features.CHOICE_FEATURES if choices else features.ENCODER_FEATURES
    names = inputs(served)

    def by_their_names(request: Mapping[str, Any]) -> dict[str, Any]:
        return {_NAMES[key]: rows for key, rows in request.items() if _NAMES[key] in names}

    return tuple(map(by_their_names, samples.requests_of_ids(served, contract)))
