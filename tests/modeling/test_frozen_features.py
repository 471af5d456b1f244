import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.modeling import BertClassifier, BertEncoder, BertFeatures
from bert_tf.modeling.base import model_inputs
from tests.modeling.conftest import TINY, encoder_batch, randomise


def tagger(states):
    """A BiLSTM on frozen features, as in the paper's section 5.3."""
    inputs = model_inputs(features.ENCODER_FEATURES)
    read = keras.layers.Bidirectional(keras.layers.LSTM(4, return_sequences=True), name="read")
    return keras.Model(inputs, keras.layers.Dense(3, name="tags")(read(states(inputs))))


@pytest.mark.parametrize("variant", ["embeddings", "second_to_last", "weighted_sum_all"])
def test_equals_the_encoder_in_training_too(variant):
    encoder = randomise(BertEncoder(TINY))
    outputs = encoder(encoder_batch())
    states = [outputs["embedding_output"], *outputs["encoder_outputs"]]
    expected = {
        "embeddings": states[0],
        "second_to_last": states[1],
        "weighted_sum_all": (states[1] + states[2]) / 2,
    }[variant]
    layer = BertFeatures(encoder, variant)
    for training in (False, True):
        got = layer(encoder_batch(), training=training)
        np.testing.assert_allclose(got, expected, atol=1e-6)


def test_no_gradient_reaches_the_encoder():
    layer = BertFeatures(randomise(BertEncoder(TINY)), "weighted_sum_all")
    with tf.GradientTape() as tape:
        for variable in layer.encoder.weights:
            tape.watch(variable.value)
        loss = tf.reduce_sum(layer(encoder_batch()) ** 2)
    gradients = tape.gradient(loss, [variable.value for variable in layer.weights])
    learned = {v.path for v, g in zip(layer.weights, gradients, strict=True) if g is not None}
    assert learned == {v.path for v in layer.mixture.weights} and len(learned) == 2


def test_a_model_on_top_learns_and_the_encoder_does_not():
    encoder = randomise(BertEncoder(TINY))
    before = encoder.get_weights()
    model = tagger(BertFeatures(encoder, "weighted_sum_all", name="states"))
    # Decay would move what has no gradient, were it among the trainable variables.
    model.compile(
        optimizer=keras.optimizers.AdamW(0.01, weight_decay=0.5),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=True,
    )
    mixture, tags = model.get_layer("states").mixture, model.get_layer("tags")
    logits, kernel = mixture.logits.numpy(), tags.kernel.numpy()
    model.fit(encoder_batch(), np.ones((2, 6), "int32"), verbose=0)
    for now, then in zip(encoder.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert np.abs(mixture.logits.numpy() - logits).max() > 1e-4
    assert np.abs(tags.kernel.numpy() - kernel).max() > 1e-3


def test_stays_frozen_when_the_model_is_made_trainable():
    model = tagger(BertFeatures(BertEncoder(TINY), "weighted_sum_all", name="states"))
    model.trainable = False
    assert not model.trainable_weights
    model.trainable = True
    layer = model.get_layer("states")
    assert layer.trainable and not layer.encoder.trainable_weights
    # The sum's two, the LSTM's three in both directions, the dense layer's two.
    assert len(model.trainable_weights) == 2 + 6 + 2


def test_a_recurrent_layer_passes_over_padding():
    model = tagger(BertFeatures(randomise(BertEncoder(TINY)), "last"))
    batch = encoder_batch()
    cut = {key: value[1:, :4] for key, value in batch.items()}
    batch["input_word_ids"][1, 4:] = [1, 2]
    np.testing.assert_allclose(model(batch)[1:, :4], model(cut), atol=1e-5)


def test_saved_and_loaded(tmp_path):
    model = tagger(BertFeatures(randomise(BertEncoder(TINY)), "weighted_sum_all", name="states"))
    model.get_layer("states").mixture.logits.assign([0.3, -0.7])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    np.testing.assert_array_equal(loaded(encoder_batch()), model(encoder_batch()))
    layer = loaded.get_layer("states")
    assert isinstance(layer, BertFeatures) and not layer.encoder.trainable_weights
    assert [v.path for v in layer.weights][-3:] == [
        "bert_encoder/pooler/dense/bias",
        "states/mixture/logits",
        "states/mixture/scale",
    ]


def test_of_a_checkpoint_with_a_head(tmp_path):
    classifier = randomise(BertClassifier(TINY, num_classes=3))
    classifier.save(tmp_path / "classifier.keras")
    layer = BertFeatures.from_checkpoint(str(tmp_path / "classifier.keras"), "last", name="states")
    expected = classifier.encoder(encoder_batch())["sequence_output"]
    np.testing.assert_allclose(layer(encoder_batch()), expected, atol=1e-6)
    assert layer.name == "states" and layer.encoder.pooler is None


def test_in_mixed_precision():
    layer = BertFeatures(BertEncoder(TINY, dtype="mixed_bfloat16"), "last", dtype="mixed_bfloat16")
    assert keras.backend.standardize_dtype(layer(encoder_batch()).dtype) == "bfloat16"
    again = BertFeatures.from_config(layer.get_config())
    assert again.encoder.dtype_policy == again.dtype_policy == layer.dtype_policy


def test_too_few_blocks():
    with pytest.raises(ValueError, match="concat_last_four reads 4 blocks, and the encoder has 2"):
        BertFeatures(BertEncoder(TINY))
