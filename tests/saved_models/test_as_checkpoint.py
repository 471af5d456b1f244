"""An export as a start: read as a checkpoint, and trained further where this library is not."""

import os
import subprocess
import sys

import numpy as np
import pytest

import bert_tf

from .conftest import VOCAB
from .head_exports import HEADS, exported, make_head


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(HEADS))
def test_an_export_is_the_model_that_was_exported(name, tmp_path_factory):
    expected = make_head(name)
    # The directory of versions stands for the newest.
    loaded = bert_tf.load(os.path.dirname(exported(name, tmp_path_factory)))
    assert type(loaded) is type(expected)
    assert [weight.path for weight in loaded.weights] == [w.path for w in expected.weights]
    for found, weight in zip(loaded.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(found, weight, err_msg=weight.path)
    for what in ("labels", "multi_label", "thresholds", "config"):
        assert getattr(loaded, what) == getattr(expected, what)
    assert loaded.preprocessor.tokenizer.vocab == VOCAB


_TRAINS = """
import sys

import keras
import numpy as np
import tensorflow as tf
import tensorflow_text

PATH, FROM_TEXT, AS_LAYER = sys.argv[1], sys.argv[2] == "texts", sys.argv[3] == "layer"
NAME = "text_encoder" if FROM_TEXT else "encoder"
TEXTS = tf.constant(["the cat sat", "a dog"] * 8)
IDS = {
    "input_word_ids": tf.constant([[2, 5, 7, 3], [2, 6, 8, 3]] * 8),
    "input_mask": tf.ones([16, 4], tf.int32),
    "input_type_ids": tf.zeros([16, 4], tf.int32),
}
LABELS = tf.constant([0, 1] * 8)
given = TEXTS if FROM_TEXT else IDS
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = keras.optimizers.AdamW(3e-3, weight_decay=0.01)
keras.utils.set_random_seed(1)
head = keras.layers.Dense(2)


def loss():
    # Without dropout, whose masks nothing seeds.
    return float(loss_of(LABELS, head(call(given)["default"])))


if AS_LAYER:
    layer = keras.layers.TFSMLayer(
        PATH, call_endpoint=NAME, call_training_endpoint=NAME + "_training"
    )
    text = keras.Input((), dtype="string")
    ids = {key: keras.Input((None,), dtype="int32", name=key) for key in IDS}
    inputs = text if FROM_TEXT else ids
    model = keras.Model(inputs, head(layer(inputs)["default"]))
    call, trained = layer, layer.trainable_weights
    model.compile(optimizer, loss_of)
    model.optimizer.build(model.trainable_variables)
    first, before = loss(), [v.numpy() for v in trained]
    model.fit(given, LABELS, epochs=25, batch_size=16, verbose=0)
else:
    loaded = tf.saved_model.load(PATH)

    def call(inputs, training=False):
        return getattr(loaded, NAME + "_training" * training)(inputs)

    head.build((None, call(given)["default"].shape[-1]))
    function = getattr(loaded, NAME + "_training").concrete_functions[0]
    trained = function.trainable_variables
    variables = [*trained, *head.trainable_variables]
    optimizer.build(variables)
    first, before = loss(), [v.numpy() for v in trained]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            trained_on = loss_of(LABELS, head(call(given, training=True)["default"]))
        optimizer.apply(tape.gradient(trained_on, variables), variables)

    for _ in range(25):
        step()
noisy = [np.array(call(given, training=True)["default"]) for _ in range(2)]
assert np.abs(noisy[0] - noisy[1]).max() > 1e-3, "dropout is off"
assert np.array_equal(call(given)["default"], call(given)["default"]), "dropout is on"
last = loss()
assert last < 0.5 * first, (first, last)
assert len(trained) == 31 and all(
    np.abs(v.numpy() - old).max() > 1e-4 for v, old in zip(trained, before)
)
assert not [name for name in sys.modules if name.split(".")[0] == "bert_tf"]
print(f"loss {first:.3f} -> {last:.3f}")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "how"),
    [pytest.param("texts", "function", marks=pytest.mark.exhaustive), ("ids", "layer")],
)
def test_an_export_trains_under_adamw_without_this_library(given, how, tmp_path_factory, tmp_path):
    script = tmp_path / "trains.py"
    script.write_text(_TRAINS)
    command = [sys.executable, str(script), exported("classifier", tmp_path_factory), given, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0 and done.stdout.startswith("loss "), done.stderr[-2000:]
