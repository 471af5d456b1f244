"""Every kind of task is trained as Keras' own ``fit`` trains it, on the same batches."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.checkpoint import ModelSpec
from bert_tf.checkpoints.weights import build_model
from bert_tf.finetuning.settings import flag_defaults
from tests import two_devices
from tests.two_devices import BATCH_SIZE, CASES, MORE_CASES

from .small_tasks import CONFIG, TOKENIZER

KINDS = CASES | MORE_CASES


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classification", "tagging", "choices", "questions"])
def test_a_training_is_keras_fit(name, tmp_path):
    found, outputs = two_devices.train(name, tf.distribute.get_strategy(), tmp_path)
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    task = KINDS[name](tmp_path)
    model = build_model(CONFIG, ModelSpec(task.model_class, dict(task.model_arguments)))
    before = {weight.path: weight.numpy() for weight in model.trainable_variables}
    examples = task.training_examples(TOKENIZER, 32)
    optimizer = keras.optimizers.SGD(two_devices.SGD_RATE)
    model.compile(optimizer, jit_compile=False, **task.compile_arguments)
    batches = examples.training_batches(
        BATCH_SIZE, epochs=2, seed=flag_defaults()["seed"], length_multiple=1
    )
    model.fit(
        batches, epochs=2, steps_per_epoch=examples.num_batches(BATCH_SIZE), shuffle=False,
        verbose=0,
    )  # fmt: skip
    for weight in model.weights:
        np.testing.assert_allclose(
            found[f"model/{weight.path}"], weight, rtol=0, atol=1e-5, err_msg=weight.path
        )
    moved = [path for path, value in before.items() if (found[f"model/{path}"] != value).any()]
    assert {path for path in before if "pooler" not in path} <= {*moved} and moved
    assert len(outputs["predictions"]) == two_devices.NUM_EXAMPLES
