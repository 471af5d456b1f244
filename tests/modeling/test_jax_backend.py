"""The same encoder, with the same weights, under Keras' JAX backend and without TensorFlow."""

import os
import subprocess
import sys

import numpy as np
import pytest

from bert_tf.config import BertConfig
from bert_tf.modeling import BertMultipleChoice, BertPretrainer
from tests.modeling.conftest import make_batch

PROGRAM = """
import sys
import numpy as np
import keras
from bert_tf.config import BertConfig
from bert_tf.modeling import BertMultipleChoice, BertPretrainer, seed_variables

assert keras.backend.backend() == "jax"
with np.load(sys.argv[1]) as file:
    saved = dict(file)
batch = {key[6:]: value for key, value in saved.items() if key.startswith("batch/")}
model = BertPretrainer(BertConfig.from_json(sys.argv[2]))
chooser = BertMultipleChoice(BertConfig.from_json(sys.argv[2]))
for variable in [*model.weights, *chooser.weights]:
    variable.assign(saved["weight/" + variable.path])
outputs = {**model(batch), **model.encoder(batch)}
outputs["choices"] = chooser({key: value[None] for key, value in batch.items()})
embedded = model.encoder.embeddings(*(batch["input_" + key] for key in ("word_ids", "type_ids")))
found = model.encoder.from_embedded(embedded, batch["input_mask"], attentions=True)
outputs["attention"] = found["attentions"][-1]
del outputs["encoder_outputs"]

# A gradient through dropout, the written gradients and the shared table, as JAX trains.
import jax

seeds = [v.value for v in model.non_trainable_variables]
assert len(seeds) == len(seed_variables(model)) == 1


@jax.jit
def loss(weights):
    results, states = model.stateless_call(weights, seeds, batch, training=True)
    return sum((value**2).sum() for value in results.values())


gradients = jax.grad(loss)([v.value for v in model.trainable_variables])
assert all(bool((abs(g) > 0).any()) and bool(np.isfinite(g).all()) for g in gradients)
loaded = sorted(name for name in sys.modules if name.split(".")[0] == "tensorflow")
assert not loaded, loaded[:5]
np.savez(sys.argv[3], **{key: np.asarray(value) for key, value in outputs.items()})
"""


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parity
def test_equals_tensorflow(tmp_path):
    pytest.importorskip("jax")
    config = BertConfig.from_preset("bert-mini", vocab_size=200)
    model = BertPretrainer(config)
    for variable in model.weights:
        if variable.path.endswith(("bias", "beta")):
            variable.assign(np.random.default_rng(0).normal(size=variable.shape) * 0.1)
    chooser = BertMultipleChoice(config)
    chooser.encoder.set_weights(model.encoder.get_weights())
    batch = make_batch(sequence=32, predictions=5, vocab_size=200)
    saved, config_file, results = (tmp_path / n for n in ("in.npz", "config.json", "out.npz"))
    config_file.write_text(config.to_json())
    np.savez(
        saved,
        **{"weight/" + v.path: v.numpy() for v in [*model.weights, *chooser.weights]},
        **{"batch/" + key: value for key, value in batch.items()},
    )
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(saved), str(config_file), str(results)],
        env={**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    choices = chooser({key: value[None] for key, value in batch.items()})
    expected = {**model(batch), **model.encoder(batch), "choices": choices}
    embedded = expected["embedding_output"]
    found = model.encoder.from_embedded(embedded, batch["input_mask"], attentions=True)
    expected["attention"] = found["attentions"][-1]
    with np.load(results) as outputs:
        assert len(outputs.files) == 7
        for key in outputs.files:
            np.testing.assert_allclose(outputs[key], expected[key], atol=1e-5, err_msg=key)
