"""Embeddings, hidden states and endpoints equal direct calls of the encoder and NumPy."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.answering.embeddings import embed, encode_tokens, endpoints
from bert_tf.modeling import BertEncoder, BertPretrainer
from bert_tf.tasks.signatures import model_signatures

from .conftest import CONFIG, INPUTS, SMALL, ask, assert_same, copied, features_of, make, serve

CLS, SEP = 2, 3
THE, A, CAT, DOG, SAT = range(5, 10)
OPEN, CLOSE, MASK_WORD = 17, 18, 19

TEXTS = ["The cat sat", "", "[MASK]", "the cat " * 20]
ROWS = [
    [CLS, THE, CAT, SAT, SEP],
    [CLS, SEP],
    # Three words, because text never yields the id of a special token.
    [CLS, OPEN, MASK_WORD, CLOSE, SEP],
    [CLS, *[THE, CAT] * 4, SEP],
]


@pytest.fixture(scope="module")
def encoder():
    return make(BertEncoder, CONFIG)


@pytest.fixture(scope="module")
def expected(encoder):
    """Encoder outputs of each row by itself, without padding."""
    return [
        tf.nest.map_structure(lambda value: value[0].numpy(), encoder(features_of(row)))
        for row in ROWS
    ]


def test_embeddings_equal_separate_rows(encoder, expected):
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


def test_normalized_embeddings_have_length_1(encoder):
    unnormalized = ask(embed, serve(encoder), text=TEXTS[:2])
    normalized = ask(embed, serve(encoder, normalize=True), text=TEXTS[:2])
    for key in ("mean_output", "cls_output"):
        lengths = np.sqrt(np.sum(unnormalized[key] ** 2, -1, keepdims=True))
        assert abs(lengths - 1).min() > 0.1, "the embedding already has length 1"
        unnormalized[key] = unnormalized[key] / lengths
    # The pooled output is not normalized.
    assert_same(normalized, unnormalized)


def test_causal_model_uses_the_last_token():
    keras.utils.set_random_seed(5)
    model = BertPretrainer(dataclasses.replace(SMALL, is_decoder=True), nsp=False)
    assert list(model_signatures(serve(model))) == ["serving_default", "tokens"]
    outputs = ask(embed, serve(model, 10), text=TEXTS)
    # The untrained pooler is not exported.
    assert set(outputs) == {"mean_output", "last_output", "truncated"}
    separate = [model.encoder(features_of(row)) for row in ROWS]
    last = [states["sequence_output"][0, -1] for states in separate]
    np.testing.assert_allclose(outputs["last_output"], last, atol=1e-5)
    ids = np.array([[*ROWS[0], 0, 0]], np.int32)
    mask = np.array([[1] * 5 + [0] * 2], np.int32)
    inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": 0 * ids}
    outputs = encode_tokens(serve(model), **inputs)
    np.testing.assert_allclose(outputs["default"], last[:1], atol=1e-5)


def test_bfloat16_model_has_float32_outputs():
    encoder = make(BertEncoder, dtype="mixed_bfloat16")
    outputs = ask(embed, serve(encoder), text=["The cat sat"])
    states = encoder(features_of(ROWS[0]))["sequence_output"]
    assert states.dtype == tf.bfloat16
    assert {value.dtype.name for value in outputs.values()} == {"float32", "bool"}
    # The mean is not rounded to bfloat16.
    mean = tf.cast(states, tf.float32).numpy()[0].mean(0)
    np.testing.assert_allclose(outputs["mean_output"][0], mean, atol=1e-6)
    assert abs(mean - tf.cast(tf.cast(mean, tf.bfloat16), tf.float32).numpy()).max() > 1e-4
    outputs = ask(encode_tokens, serve(encoder), **INPUTS)
    assert {value.dtype.name for value in outputs.values()} == {"float32"}


# === Ids ===


def hub_outputs(encoder):
    """Returns the flat encoder outputs for ``INPUTS`` by TensorFlow Hub's names."""
    states = encoder(INPUTS)
    first, sequence = states["encoder_outputs"]
    default = states.get("pooled_output", sequence[:, 0])
    pooled = {"pooled_output": default} if "pooled_output" in states else {}
    blocks = {"encoder_outputs_0": first, "encoder_outputs_1": sequence}
    assert abs(first - sequence).numpy().max() > 0.1
    return {"default": default, **pooled, "sequence_output": sequence, **blocks}


@pytest.mark.parametrize("pooler", [True, False])
def test_encoder_outputs_have_tensorflow_hub_names(pooler):
    encoder = make(BertEncoder, CONFIG, pooler=pooler)
    assert_same(ask(encode_tokens, serve(encoder), **INPUTS), hub_outputs(encoder))


# === TensorFlow Hub's endpoints ===


def test_endpoint_nests_the_outputs_of_the_signature():
    encoder = make(BertEncoder, CONFIG, pooler=False)
    outputs = endpoints(serve(encoder))["encoder"](INPUTS)
    blocks = enumerate(outputs.pop("encoder_outputs"))
    flat = {**outputs, **{f"encoder_outputs_{number}": block for number, block in blocks}}
    assert_same(flat, hub_outputs(encoder), atol=5e-6)


def test_endpoints_read_variables_with_bfloat16_arithmetic():
    """Signatures may read a copy, but training one endpoint affects the other."""
    served = copied(make(BertEncoder), precision="bfloat16")
    found = endpoints(served)
    before = found["encoder"](INPUTS)["default"]
    np.testing.assert_allclose(before, make(BertEncoder)(INPUTS)["pooled_output"], atol=0.1)
    trained = found["encoder_training"].get_concrete_function().trainable_variables
    # Embedding tables, normalization, the block's weights and the pooler: 3 + 2 + 12 + 2.
    assert before.dtype == tf.float32 and len(trained) == 19
    bias = served.weights["bert_encoder/pooler/dense/bias"]
    bias.assign_add(tf.ones_like(bias))
    assert np.abs(found["encoder"](INPUTS)["default"] - before).max() > 0.1
