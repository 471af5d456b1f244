"""Embeddings against the encoder called on rows made by hand, and NumPy."""

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
from bert_tf.saved_models.embeddings import call_on_tokens, embed, encode_tokens

from .conftest import ask, assert_same, features_of, make, serve

CLS, SEP = 2, 3
THE, A, CAT, DOG, SAT = range(5, 10)
OPEN, CLOSE, MASK_WORD = 17, 18, 19

TEXTS = ["The cat sat", "", "[MASK]", "the cat " * 20]
ROWS = [
    [CLS, THE, CAT, SAT, SEP],
    [CLS, SEP],
    # Three words: no id of a special token comes from text.
    [CLS, OPEN, MASK_WORD, CLOSE, SEP],
    [CLS, *[THE, CAT] * 4, SEP],
]


@pytest.fixture(scope="module")
def encoder():
    return make(BertEncoder)


@pytest.fixture(scope="module")
def expected(encoder):
    """The encoder's outputs of each row alone and without padding."""
    return [
        tf.nest.map_structure(lambda value: value[0].numpy(), encoder(features_of(row)))
        for row in ROWS
    ]


def test_embeddings(encoder, expected):
    outputs = ask(embed, serve(encoder, 10), text=TEXTS)
    last = [row["sequence_output"] for row in expected]
    assert_same(
        outputs,
        {
            "mean_output": np.array([states.mean(0) for states in last]),
            "cls_output": np.array([states[0] for states in last]),
            "pooled_output": np.array([row["pooled_output"] for row in expected]),
            "truncated": np.array([False, False, False, True]),
        },
        atol=1e-5,
    )


def test_chosen_layers_in_their_order(encoder, expected):
    outputs = ask(embed, serve(encoder, 10, layers=(-1, 0, 1, -2)), text=TEXTS)
    for row, states in enumerate(expected):
        low, high = states["encoder_outputs"]
        means = [block.mean(0) for block in (high, low, high, low)]
        np.testing.assert_allclose(outputs["layer_mean_outputs"][row], means, atol=1e-5)
        firsts = [block[0] for block in (high, low, high, low)]
        np.testing.assert_allclose(outputs["layer_cls_outputs"][row], firsts, atol=1e-5)
    assert abs(outputs["layer_mean_outputs"][:, 0] - outputs["layer_mean_outputs"][:, 1]).min() > 0


def test_normalized(encoder):
    plain = ask(embed, serve(encoder, layers=(0,)), text=TEXTS)
    scaled = ask(embed, serve(encoder, layers=(0,), normalize=True), text=TEXTS)
    for key in ("mean_output", "cls_output", "layer_mean_outputs", "layer_cls_outputs"):
        lengths = np.sqrt(np.sum(plain[key] ** 2, -1, keepdims=True))
        assert abs(lengths - 1).min() > 0.1, "it would be of length 1 anyway"
        plain[key] = plain[key] / lengths
    # The pooled output is what it was trained to be.
    assert_same(scaled, plain)


def test_without_a_pooler():
    outputs = ask(embed, serve(make(BertEncoder, pooler=False)), text=["a cat"])
    assert set(outputs) == {"mean_output", "cls_output", "truncated"}


def test_float32_of_a_model_in_bfloat16():
    encoder = make(BertEncoder, dtype="mixed_bfloat16")
    outputs = ask(embed, serve(encoder, layers=(0,)), text=["The cat sat"])
    states = encoder(features_of(ROWS[0]))["sequence_output"]
    assert states.dtype == tf.bfloat16
    assert {value.dtype.name for value in outputs.values()} == {"float32", "bool"}
    # The mean is not rounded to bfloat16.
    mean = tf.cast(states, tf.float32).numpy()[0].mean(0)
    np.testing.assert_allclose(outputs["mean_output"][0], mean, atol=1e-6)
    assert abs(mean - tf.cast(tf.cast(mean, tf.bfloat16), tf.float32).numpy()).max() > 1e-4


def test_rows_do_not_depend_on_their_batch(encoder):
    texts = ["the dog sat on the mat .", "", b"\xff cat"]
    served = serve(encoder, 8, layers=(0,))
    together = ask(embed, served, text=texts)
    for size in range(3):
        assert_same(
            ask(embed, served, text=texts[:size]),
            {key: value[:size] for key, value in together.items()},
            atol=1e-5,  # a matrix product rounds by where in the matrix a row is
        )


@pytest.mark.parametrize("layer", [2, -3])
def test_refuses_a_layer_that_is_not_there(encoder, layer):
    message = f"layers has {layer}: expected 0, the lowest block, to 1, the last, or -1, the last, "
    with pytest.raises(ValueError, match=message + "to -2"):
        embed(serve(encoder, layers=(0, layer)), tf.constant(["a"]))


# === Ids ===

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


def test_states_are_float32_of_a_model_in_bfloat16():
    encoder = make(BertEncoder, dtype="mixed_bfloat16")
    assert encoder(INPUTS)["pooled_output"].dtype == tf.bfloat16
    outputs = ask(encode_tokens, serve(encoder), **INPUTS)
    assert {value.dtype.name for value in outputs.values()} == {"float32"}
