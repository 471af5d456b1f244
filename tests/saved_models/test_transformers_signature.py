"""``serving_default`` with the names of transformers' SavedModels, against the models called."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import (
    BertClassifier,
    BertEncoder,
    BertFeatureTagger,
    BertMultipleChoice,
    BertPretrainer,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)
from bert_tf.tasks.signatures import classes_with, model_signatures

from .conftest import SMALL, make, serve

IDS = np.array([[2, 6, 7, 3], [2, 8, 3, 0]], "int32")
MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0]], "int32")
TYPES = np.array([[0, 0, 1, 1], [0, 0, 0, 0]], "int32")
# By the outputs' names here, what they are called in a model's own.
LOGITS = {"logits": None}
CASES = [
    (BertClassifier, {"num_classes": 3}, LOGITS),
    (BertRegressor, {}, LOGITS),
    (BertTokenClassifier, {"num_classes": 3}, LOGITS),
    (BertMultipleChoice, {}, LOGITS),
    (BertSpanPredictor, {}, {"start_logits": "start_logits", "end_logits": "end_logits"}),
    (BertEncoder, {}, {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}),
    (BertEncoder, {"pooler": False}, {"last_hidden_state": "sequence_output"}),
    (BertPretrainer, {"nsp": False}, {"logits": "masked_lm_logits"}),
    (BertPretrainer, {"mlm": False}, {"logits": "next_sentence_logits"}),
    (
        BertPretrainer,
        {},
        {
            "prediction_logits": "masked_lm_logits",
            "seq_relationship_logits": "next_sentence_logits",
        },
    ),
]


@pytest.mark.parametrize(("model_class", "arguments", "names"), CASES)
def test_outputs_are_the_models_by_their_names(model_class, arguments, names):
    model = make(model_class, **arguments)
    signatures = model_signatures(serve(model, transformers_signature=True))
    ordinary = model_signatures(serve(model))
    assert set(signatures) == {*ordinary, "strings", "int64_serving"}
    assert signatures["strings"].inputs == ordinary["serving_default"].inputs
    signature = signatures["serving_default"]
    rows = [IDS, MASK, TYPES]
    if model_class is BertMultipleChoice:
        rows = [np.stack([row, row[::-1]]) for row in rows]
    given = dict(zip(("input_ids", "attention_mask", "token_type_ids"), rows, strict=True))
    found = signature.function(**{name: tf.constant(row) for name, row in given.items()})
    features = dict(zip(("input_word_ids", "input_mask", "input_type_ids"), rows, strict=True))
    if getattr(model, "mlm", False):
        features["masked_lm_positions"] = np.array([range(4)] * 2, "int32")
    outputs = model(features)
    assert set(found) == set(names)
    for name, own in names.items():
        expected = np.asarray(outputs if own is None else outputs[own])
        if model_class is BertRegressor:
            expected = expected[:, None]
        np.testing.assert_allclose(found[name].numpy(), expected, rtol=0, atol=3e-5)
    wide = signatures["int64_serving"]
    again = wide.function(**{name: tf.constant(row, tf.int64) for name, row in given.items()})
    for name, values in found.items():
        np.testing.assert_allclose(again[name].numpy(), values.numpy(), rtol=0, atol=3e-5)
    assert {spec.dtype for spec in wide.inputs.values()} == {tf.int64}
    # What it asks itself before it serves.
    for request in (*signature.samples, *wide.samples):
        assert request.keys() == signature.inputs.keys() == wide.inputs.keys() == given.keys()


def test_a_distilbert_has_no_types():
    model = make(BertClassifier, dataclasses.replace(SMALL, type_vocab_size=0), num_classes=2)
    signature = model_signatures(serve(model, transformers_signature=True))["serving_default"]
    assert list(signature.inputs) == ["input_ids", "attention_mask"]
    found = signature.function(input_ids=tf.constant(IDS), attention_mask=tf.constant(MASK))
    rows = {"input_word_ids": IDS, "input_mask": MASK, "input_type_ids": TYPES}
    np.testing.assert_allclose(found["logits"].numpy(), model(rows).numpy(), rtol=0, atol=3e-5)
    assert BertFeatureTagger not in classes_with("transformers_signature")
