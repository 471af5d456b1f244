#!/usr/bin/env bash
# A layer of a subclassed Keras model that was frozen by layer.trainable = False is trainable again in a copy by
# copy.deepcopy or pickle and after model.save and keras.models.load_model (Keras 3.15.1). The weights are equal, the
# copy is compiled, and fit changes the weights that were frozen. If the model was compiled after freezing, the
# optimizer has more variables than were saved, and Keras skips its state with a warning; of the frozen layer nothing
# is reported. The generator of Dropout restarts from its seed. In a functional model the layer stays frozen.
#
# Guessed: a copy has the same trainable weights, optimizer state and generators.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet tensorflow==2.21.0 keras==3.15.1
TF_CPP_MIN_LOG_LEVEL=3 venv/bin/python - <<'PY' 2>errors || { cat errors; exit 1; }
import copy
import pickle
import warnings

import keras
import numpy as np


@keras.saving.register_keras_serializable("finding")
class Network(keras.Model):
    def __init__(self, **options):
        super().__init__(**options)
        self.body = keras.layers.Dense(4)
        self.drop = keras.layers.Dropout(0.5, seed=3)
        self.head = keras.layers.Dense(1)

    def call(self, inputs, training=None):
        return self.head(self.drop(self.body(inputs), training=training))


def stored(model):
    model.save("model.keras")
    return keras.models.load_model("model.keras")


def trained(model, layer):
    layer.trainable = False
    model.compile("adam", "mse")
    model.fit(inputs, np.zeros((8, 1)), epochs=2, verbose=0)
    return model


inputs = np.ones((8, 4), "float32")
copies = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "save": stored,
}
network = Network()
trained(network, network.body)
print("keras", keras.__version__, "trainable weights:", len(network.trainable_variables))
for name, copied_by in copies.items():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        other = copied_by(network)
    messages = [str(warning.message) for warning in caught]
    before = other.body.kernel.numpy()
    steps = int(other.optimizer.iterations.numpy())
    draws = [int(model.drop.seed_generator.state.numpy()[1]) for model in (network, other)]
    equal = np.array_equal(before, network.body.kernel.numpy())
    other.fit(inputs, np.ones((8, 1)), verbose=0)
    changed = not np.array_equal(before, other.body.kernel.numpy())
    count = len(other.trainable_variables)
    print(name, "trainable:", count, "steps:", steps, "draws:", draws, "changed by fit:", changed)
    assert equal and other.compiled and (count, steps, changed) == (4, 0, True), name
    assert draws == [2, 0], name
    assert any("Skipping variable loading for optimizer" in text for text in messages), name
    assert not any("trainable" in text for text in messages), name

start = keras.Input((4,))
body = keras.layers.Dense(4)
functional = trained(keras.Model(start, keras.layers.Dense(1)(body(start))), body)
for name, copied_by in copies.items():
    assert len(copied_by(functional).trainable_variables) == 2, name
PY
