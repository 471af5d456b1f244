"""ELMo's way: the states of two frozen encoders, one of each direction, side by side."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import features
from bert_tf.modeling import BertEncoder
from bert_tf.modeling.base import model_inputs
from bert_tf.modeling.feature_based import BertFeatures, BertFeatureTagger
from tests.modeling.conftest import TINY, encoder_batch, made, weights_by_path
from tests.modeling.numpy_bert import encode
from tests.modeling.test_feature_based import WORD_INDEX, by_plain_loop

LTR = dataclasses.replace(TINY, is_decoder=True)
RTL = dataclasses.replace(LTR, right_to_left=True)


@pytest.fixture
def encoders():
    return [made(BertEncoder, config, seed, pooler=False) for seed, config in enumerate((LTR, RTL))]


def by_plain_loops(encoders, row):
    """(1 + blocks, S, 2H) of a row: what enters the blocks and what each gives, side by side."""
    ids = [encoder_batch()[key][row] for key in features.ENCODER_FEATURES]
    one, other = (encode(weights_by_path(e), e.config, *ids)[0] for e in encoders)
    return np.concatenate([one, other], axis=-1)


PICKED = {
    "embeddings": lambda states: states[0],
    "second_to_last": lambda states: states[1],
    "last": lambda states: states[2],
    "weighted_sum_all": lambda states: (states[1] + states[2]) / 2,
}


@pytest.mark.parametrize("variant", PICKED)
def test_features_equal_plain_loops_over_both(encoders, variant):
    layer = BertFeatures(encoders[0], variant, encoders[1])
    for training in (False, True):
        states = np.array(layer(encoder_batch(), training=training))
        assert states.shape == (2, 6, 16)
        for row, length in enumerate((6, 4)):  # the second row is padded from 4 on
            expected = PICKED[variant](by_plain_loops(encoders, row))
            np.testing.assert_allclose(states[row, :length], expected[:length], atol=1e-4)


def test_neither_encoder_learns(encoders):
    layer = BertFeatures(encoders[0], "weighted_sum_all", encoders[1])
    layer.trainable = False
    layer.trainable = True
    layer(encoder_batch())
    assert [v.path.split("/")[-1] for v in layer.trainable_weights] == ["logits", "scale"]
    with tf.GradientTape() as tape:
        for variable in layer.weights:
            tape.watch(variable.value)
        loss = tf.reduce_sum(layer(encoder_batch(), training=True) ** 2)
    gradients = tape.gradient(loss, [variable.value for variable in layer.weights])
    assert sum(gradient is not None for gradient in gradients) == 2


def test_of_checkpoints_saved_and_loaded(tmp_path):
    configs = [dataclasses.replace(config, num_hidden_layers=1) for config in (LTR, RTL)]
    encoders = [made(BertEncoder, config) for config in configs]  # with poolers
    for name, encoder in zip(("ltr", "rtl"), encoders, strict=True):
        bert_tf.save(encoder, tmp_path / name)
    layer = BertFeatures.from_checkpoint(
        str(tmp_path / "ltr"), "last", backward=str(tmp_path / "rtl"), name="states"
    )
    expected = np.array(BertFeatures(encoders[0], "last", encoders[1])(encoder_batch()))
    np.testing.assert_array_equal(layer(encoder_batch()), expected)
    assert layer.encoder.pooler is None and layer.name == "states"
    inputs = model_inputs(features.ENCODER_FEATURES)
    model = keras.Model(inputs, keras.layers.Dense(3)(layer(inputs)))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    np.testing.assert_array_equal(loaded(encoder_batch()), model(encoder_batch()))
    np.testing.assert_array_equal(loaded.get_layer("states")(encoder_batch()), expected)


@pytest.mark.parametrize(
    ("forward", "backward", "sentence"),
    [
        (TINY, RTL, "The forward encoder sees both sides, expected ltr: --objective=ltr trains "),
        (RTL, RTL, "The forward encoder sees rtl, expected ltr"),
        (LTR, LTR, "The backward encoder sees ltr, expected rtl: --objective=rtl trains one"),
        (
            LTR,
            dataclasses.replace(RTL, hidden_size=16),
            "The backward encoder has hidden_size 16, and the forward one 8: expected encoders of "
            "the same sizes",
        ),
    ],
)
def test_what_does_not_go_side_by_side(forward, backward, sentence):
    with pytest.raises(ValueError, match=sentence):
        BertFeatures(made(BertEncoder, forward), "last", made(BertEncoder, backward))


# === The tagger ===


def new_tagger(variant):
    arguments = {"num_classes": 3, "variant": variant, "lstm_units": 4, "backward": True}
    return made(BertFeatureTagger, LTR, **arguments)


def batch():
    return {**encoder_batch(), features.WORD_INDEX: WORD_INDEX}


def test_the_tagger_equals_plain_loops():
    model = new_tagger("second_to_last")
    assert (model.encoder.config, model.backward.config) == (LTR, RTL)
    found = np.array(model(batch()))
    weights = weights_by_path(model)
    for row, is_word in enumerate(WORD_INDEX >= 0):
        ids = [batch()[key][row] for key in features.ENCODER_FEATURES]
        one = encode(weights, LTR, *ids)[0]
        other = encode(weights, RTL, *ids, prefix="bert_feature_tagger/backward/")[0]
        states = PICKED["second_to_last"](np.concatenate([one, other], axis=-1))
        expected = by_plain_loop(model, states[is_word])
        np.testing.assert_allclose(found[row, is_word], expected, atol=1e-4)


def test_the_tagger_is_saved_and_loaded_and_learns_its_reader_alone(tmp_path):
    model = new_tagger("weighted_sum_all")
    model.trainable = True
    assert {v.path.split("/")[1].split("_")[0] for v in model.trainable_weights} == {
        *("mixture", "bilstm", "tags"),
    }
    bert_tf.save(model, tmp_path / "saved")
    loaded = bert_tf.load(tmp_path / "saved")
    assert [v.path for v in loaded.weights] == [v.path for v in model.weights]
    np.testing.assert_array_equal(loaded(batch()), model(batch()))
    again = BertFeatureTagger.from_config(model.get_config())
    assert again.backward.config == RTL
    with pytest.raises(ValueError, match="The forward encoder sees both sides, expected ltr"):
        BertFeatureTagger(TINY, 3, "last", backward=True)
