"""Ids in, outputs out, against the models themselves."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import (
    BertClassifier,
    BertEncoder,
    BertMultipleChoice,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)
from bert_tf.saved_models.tokens import call_on_tokens, encode_tokens

from .conftest import ask, assert_same, make, serve

INPUTS = {
    "input_word_ids": tf.constant([[2, 7, 3, 8, 3], [2, 9, 3, 0, 0]]),
    "input_mask": tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
    "input_type_ids": tf.constant([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]),
}


@pytest.mark.parametrize("pooler", [True, False])
def test_the_encoders_outputs_by_the_hubs_names(pooler):
    encoder = make(BertEncoder, pooler=pooler)
    outputs = ask(encode_tokens, serve(encoder), **INPUTS)
    states = encoder(INPUTS)
    sequence = states["sequence_output"].numpy()
    pooled = {"pooled_output": states["pooled_output"].numpy()} if pooler else {}
    blocks = states["encoder_outputs"]
    expected = {
        "default": pooled.get("pooled_output", sequence[:, 0]),
        **pooled,
        "sequence_output": sequence,
        "encoder_outputs_0": blocks[0].numpy(),
        "encoder_outputs_1": sequence,
    }
    assert_same(outputs, expected)
    assert abs(blocks[0].numpy() - sequence).max() > 0.1


@pytest.mark.parametrize(
    "model_class, arguments, name",
    [
        (BertClassifier, {"num_classes": 3}, "logits"),
        (BertRegressor, {}, "value"),
        (BertTokenClassifier, {"num_classes": 3}, "logits"),
    ],
)
def test_a_tasks_output(model_class, arguments, name):
    model = make(model_class, **arguments)
    outputs = ask(lambda served, **ids: call_on_tokens(served, name, **ids), serve(model), **INPUTS)
    assert_same(outputs, {name: model(INPUTS).numpy()})


def test_the_span_predictors_outputs():
    model = make(BertSpanPredictor)
    outputs = ask(lambda served, **ids: call_on_tokens(served, "", **ids), serve(model), **INPUTS)
    expected = {key: value.numpy() for key, value in model(INPUTS).items()}
    assert set(expected) == {"start_logits", "end_logits"}
    assert_same(outputs, expected)


def test_rows_of_choices():
    model = make(BertMultipleChoice)
    inputs = {key: tf.stack([ids, ids[::-1]], 1) for key, ids in INPUTS.items()}
    outputs = ask(
        lambda served, **ids: call_on_tokens(served, "logits", **ids), serve(model), **inputs
    )
    first, second = outputs["logits"]
    np.testing.assert_allclose(first, second[::-1], atol=1e-6)
    assert abs(first[0] - first[1]) > 1e-3
    assert_same(outputs, {"logits": model(inputs).numpy()})


def test_float32_of_a_model_in_bfloat16():
    encoder = make(BertEncoder, dtype="mixed_bfloat16")
    assert encoder(INPUTS)["pooled_output"].dtype == tf.bfloat16
    outputs = ask(encode_tokens, serve(encoder), **INPUTS)
    assert {value.dtype.name for value in outputs.values()} == {"float32"}
