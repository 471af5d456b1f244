"""Frozen encoders: LayerMixture, BertFeatures, BertFeatureTagger."""

import dataclasses

import keras
import numpy as np
import pytest

from bert_tf import features
from bert_tf.modeling import (
    BertEncoder,
    BertFeatures,
    BertFeatureTagger,
    LayerMixture,
    seed_variables,
)
from bert_tf.modeling.base import model_inputs
from bert_tf.modeling.feature_based import check_variant, read_states
from tests.modeling.conftest import TINY, encoder_batch, made, randomize
from tests.modeling.numpy_bert import bilstm


def make_outputs(blocks=6, seed=0):
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(1 + blocks, 2, 3, 4)).astype("float32")
    return {"embedding_output": states[0], "encoder_outputs": list(states[1:])}, states


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum()


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("embeddings", lambda states: states[0]),
        ("second_to_last", lambda states: states[5]),
        ("last", lambda states: states[6]),
        ("concat_last_four", lambda states: np.concatenate(list(states[3:]), axis=-1)),
        ("weighted_sum_last_four", lambda states: states[3:].mean(axis=0)),
        ("weighted_sum_all", lambda states: states[1:].mean(axis=0)),
    ],
)
def test_each_variant_equals_numpy(variant, expected):
    outputs, states = make_outputs()
    np.testing.assert_allclose(LayerMixture(variant)(outputs), expected(states), atol=1e-6)
    picked = read_states(variant, outputs)
    np.testing.assert_allclose(LayerMixture(variant)(picked), expected(states), atol=1e-6)


@pytest.mark.parametrize(("variant", "first"), [("weighted_sum_last_four", 3),
                                                ("weighted_sum_all", 1)])  # fmt: skip
def test_sums_with_random_weights(variant, first):
    outputs, states = make_outputs()
    mixture = LayerMixture(variant)
    mixture(outputs)
    logits = np.random.default_rng(1).normal(size=7 - first)
    mixture.logits.assign(logits)
    mixture.scale.assign(1.5)
    expected = 1.5 * np.einsum("l,lbsh->bsh", softmax(logits), states[first:])
    np.testing.assert_allclose(mixture(outputs), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("variant", "blocks"),
    [("second_to_last", 1), ("concat_last_four", 3), ("weighted_sum_last_four", 3)],
)
def test_too_few_blocks_are_rejected(variant, blocks):
    message = rf"variant='{variant}': expected an encoder with at least \d blocks, got {blocks}"
    with pytest.raises(ValueError, match=message):
        LayerMixture(variant)(make_outputs(blocks)[0])
    check_variant(variant, blocks + 1)
    with pytest.raises(ValueError, match="expected an encoder with at least 4 blocks, got 2"):
        BertFeatures(BertEncoder(TINY))


def test_features_equal_encoder_also_in_training():
    encoder = made(BertEncoder)
    expected = sum(encoder(encoder_batch())["encoder_outputs"]) / 2
    layer = BertFeatures(encoder, "weighted_sum_all")
    for training in (False, True):
        got = layer(encoder_batch(), training=training)
        np.testing.assert_allclose(got, expected, atol=1e-6)


def test_features_stay_frozen_are_saved_and_mask_padding(tmp_path):
    inputs = model_inputs(features.ENCODER_FEATURES)
    layer = BertFeatures(randomize(BertEncoder(TINY)), "weighted_sum_all", name="states")
    means = keras.layers.GlobalAveragePooling1D()(layer(inputs))  # over the tokens
    model = keras.Model(inputs, keras.layers.Dense(3)(means))
    model.trainable = False
    assert not model.trainable_weights
    model.trainable = True
    assert layer.trainable and not layer.encoder.trainable_weights
    # Two of the sum, two of the dense layer.
    assert len(model.trainable_weights) == 2 + 2
    layer.mixture.logits.assign([0.3, -0.7])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    batch = encoder_batch()
    np.testing.assert_array_equal(loaded(batch), model(batch))
    layer = loaded.get_layer("states")
    assert isinstance(layer, BertFeatures) and not layer.encoder.trainable_weights
    assert [v.path for v in layer.weights][-3:] == [
        "bert_encoder/pooler/dense/bias",
        "states/mixture/logits",
        "states/mixture/scale",
    ]
    cut = {key: value[1:, :4] for key, value in batch.items()}
    batch["input_word_ids"][1, 4:] = [1, 2]
    np.testing.assert_allclose(model(batch)[1:], model(cut), atol=1e-5)


# Row 0 has words with several pieces and tokens without a word; row 1 is padded from 4 on.
WORD_INDEX = np.array([[-1, 0, -1, 1, 2, -1], [-1, 0, 1, -1, -1, -1]], "int32")


def batch():
    return {**encoder_batch(), features.WORD_INDEX: WORD_INDEX}


def new_tagger(variant="last", **arguments):
    arguments = {"num_classes": 3, "lstm_units": 2, **arguments}
    return made(BertFeatureTagger, variant=variant, **arguments)


def by_plain_loop(model, states):
    """Computes logits (W, C) from mixed states (W, X)."""
    weights = {v.path.split("/", 1)[1]: v.numpy().astype("float64") for v in model.weights}
    for layer in range(2):
        states = bilstm(states, weights, f"bilstm_{layer}")
    return states @ weights["tags/kernel"] + weights["tags/bias"]


def test_tagger_equals_plain_loop():
    model = new_tagger("weighted_sum_all")
    logits, scale = (
        next(v.numpy() for v in model.weights if v.path.endswith(f"mixture/{name}"))
        for name in ("logits", "scale")
    )
    states = model.encoder(encoder_batch())["encoder_outputs"]
    mixed = scale * np.einsum("l,lbsh->bsh", softmax(logits), states)
    got = model(batch()).numpy()
    assert got.shape == (2, 6, 3) and got.dtype == np.float32
    for row, is_word in enumerate(WORD_INDEX >= 0):
        np.testing.assert_allclose(
            got[row, is_word], by_plain_loop(model, mixed[row, is_word]), atol=1e-5
        )


def test_dropout_in_training_and_distinct_directions():
    model = BertFeatureTagger(TINY, 3, "last", lstm_units=4, dropout=0.5)
    once, again = (model(batch(), training=True).numpy() for _ in range(2))
    assert np.abs(once - again).max() > 1e-4
    np.testing.assert_array_equal(model(batch()), model(batch()))
    kernels = [v.numpy() for v in model.weights if v.path.endswith("lstm_cell/kernel")]
    assert not np.array_equal(kernels[0], kernels[1])
    # The seeds of the cells are unused, and are not state of the model.
    assert [v.path for v in seed_variables(model)] == ["dropout_seed/seed_generator_state"]


def test_only_the_encoder_has_no_dropout():
    config = dataclasses.replace(TINY, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    tagger = BertFeatureTagger(config, 3, "last", lstm_units=4, dropout=0.0)
    once, again = (tagger(batch(), training=True).numpy() for _ in range(2))
    np.testing.assert_array_equal(once, again)
    # Keras 3.16 passes ``training=False`` of one layer to all later ones.
    inputs = model_inputs(features.ENCODER_FEATURES)
    states = BertFeatures(BertEncoder(config, pooler=False), "last")(inputs)
    model = keras.Model(inputs, [states, keras.layers.Dropout(0.5)(states)])
    once, again = (model(encoder_batch(), training=True) for _ in range(2))
    np.testing.assert_array_equal(once[0], again[0])
    assert np.abs(once[1] - again[1]).max() > 1e-4


def test_mixed_precision():
    model = new_tagger("weighted_sum_all", dtype="mixed_bfloat16")
    logits = model(batch())
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    states = model.reader.input["word_states"].dtype
    assert keras.backend.standardize_dtype(states) == "bfloat16"
    np.testing.assert_allclose(logits, new_tagger("weighted_sum_all")(batch()), atol=0.3)
    assert {str(weight.dtype) for weight in model.weights} == {"float32"}
    layer = BertFeatures(model.encoder, "last", dtype="mixed_bfloat16")
    again = BertFeatures.from_config(layer.get_config())
    assert again.encoder.dtype_policy == again.dtype_policy == layer.dtype_policy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 0}, "num_classes=0: expected 1 or more"),
        ({"lstm_units": 0}, "lstm_units=0: expected 1 or more"),
        (
            {"variant": "first"},
            "variant='first': expected one of embeddings, second_to_last, last, "
            "weighted_sum_last_four, concat_last_four, weighted_sum_all",
        ),
        ({"variant": "concat_last_four"}, "expected an encoder with at least 4 blocks, got 2"),
        ({"dropout": 1.0}, r"dropout=1\.0: expected at least 0 and less than 1"),
    ],
)
def test_invalid_values_are_rejected(arguments, message):
    with pytest.raises(ValueError, match=message):
        new_tagger(**{"variant": "last", **arguments})
