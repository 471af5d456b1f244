"""Training an export in a process without bert_tf."""

import subprocess
import sys

import pytest

from .head_exports import exported

_TRAINS = """
import sys

import keras
import numpy as np
import tensorflow as tf
import tensorflow_text

EXAMPLES = {
    "input_word_ids": tf.constant([[2, 5, 7, 3], [2, 6, 8, 3]] * 8),
    "input_mask": tf.ones([16, 4], tf.int32),
    "input_type_ids": tf.zeros([16, 4], tf.int32),
}
inputs = {key: keras.Input((None,), dtype="int32", name=key) for key in EXAMPLES}
labels = tf.constant([0, 1] * 8)
keras.utils.set_random_seed(1)
layer = keras.layers.TFSMLayer(
    sys.argv[1], call_endpoint="encoder", call_training_endpoint="encoder_training"
)
model = keras.Model(inputs, keras.layers.Dense(2)(layer(inputs)["default"]))
model.compile(
    keras.optimizers.AdamW(3e-3, weight_decay=0.01),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
model.optimizer.build(model.trainable_variables)
# Evaluated without dropout, whose masks nothing seeds.
first, before = model.evaluate(EXAMPLES, labels, verbose=0), layer.get_weights()
model.fit(EXAMPLES, labels, epochs=25, batch_size=16, verbose=0)
noisy = [np.array(layer(EXAMPLES, training=True)["default"]) for _ in range(2)]
assert np.abs(noisy[0] - noisy[1]).max() > 1e-3, "dropout is off"
assert np.array_equal(layer(EXAMPLES)["default"], layer(EXAMPLES)["default"]), "dropout is on"
last = model.evaluate(EXAMPLES, labels, verbose=0)
assert last < 0.5 * first, (first, last)
trained = layer.trainable_weights
assert len(trained) == 31 and all(
    np.abs(v.numpy() - old).max() > 1e-4 for v, old in zip(trained, before)
)
assert not [name for name in sys.modules if name.split(".")[0] == "bert_tf"]
print(f"loss {first:.3f} -> {last:.3f}")
"""


@pytest.mark.slow
def test_export_trains_with_adamw_without_bert_tf(tmp_path_factory, tmp_path):
    script = tmp_path / "trains.py"
    script.write_text(_TRAINS)
    command = [sys.executable, str(script), exported("classifier", tmp_path_factory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0 and done.stdout.startswith("loss "), done.stderr[-2000:]
