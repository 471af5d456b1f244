"""Keras loads saved models in a new process if the modules of their classes are imported."""

import textwrap

import numpy as np
import pytest

from bert_tf.modeling import BertClassifier
from bert_tf.training.optimizers import create_optimizer, weight_decay_exclusions
from bert_tf.training.schedules import WarmupLinearDecay
from tests.checkpoints.small_checkpoints import SMALL
from tests.processes import run_python


@pytest.mark.slow
def test_model_is_loaded_in_a_new_process(tmp_path):
    path = str(tmp_path / "m.keras")
    model = BertClassifier(SMALL, num_classes=3)
    model.save(path)
    ids = np.arange(10, dtype="int32").reshape(2, 5)
    inputs = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids % 3}
    done = run_python(
        textwrap.dedent(f"""
        import keras, bert_tf.modeling
        import numpy as np
        model = keras.saving.load_model({path!r}, safe_mode=True)
        ids = np.arange(10, dtype="int32").reshape(2, 5)
        inputs = {{"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids % 3}}
        np.save({path!r} + ".npy", np.array(model(inputs)))
    """)
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(path + ".npy"), np.array(model(inputs)), atol=1e-6)


@pytest.mark.slow
def test_optimizer_is_restored_in_a_new_process(tmp_path):
    """The learning rate schedule and the variables without weight decay are restored."""
    path = str(tmp_path / "m.keras")
    model = BertClassifier(SMALL, num_classes=2)
    rate = WarmupLinearDecay(1e-3, 1, 9)
    model.compile(create_optimizer("adamw", rate, model.trainable_variables), "mse")
    model.save(path)
    done = run_python(
        textwrap.dedent(f"""
        import keras, bert_tf.modeling, bert_tf.training.optimizers, bert_tf.training.schedules
        model = keras.saving.load_model({path!r})
        print(*model.optimizer.get_config()["undecayed"], model.optimizer.learning_rate)
    """)
    )
    undecayed = [v.path for v in weight_decay_exclusions(model.trainable_variables)]
    assert done.stdout.split()[: len(undecayed)] == undecayed != [], done.stderr
