"""Two logical CPU devices under MirroredStrategy equal one at the same global batch."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.training import checkpoints, optimizers
from bert_tf.training.loop import PretrainingLoop

from .conftest import small_model


@pytest.fixture(scope="module")
def checkpoint_directory(tmp_path_factory):
    return str(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="module")
def results(tmp_path_factory, checkpoint_directory):
    path = str(tmp_path_factory.mktemp("two") / "results.npz")
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    command = [sys.executable, "-m", "tests.training.two_replicas", path, checkpoint_directory]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(path) as file:
        return dict(file)


def _state(results, name):
    return {
        key.split(":", 1)[1]: value for key, value in results.items() if key.startswith(name + ":")
    }


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("small/one", "small/two"),
        ("small/one", "small/two+xla+micro"),
        # Adam hardly sees a gradient of twice the size, plain descent does.
        ("sgd/one", "sgd/two"),
        ("bert/one", "bert/two"),
    ],
)
def test_two_replicas_equal_one(results, one, two):
    assert results["replicas"] == 2
    ours, theirs = _state(results, one), _state(results, two)
    assert ours.keys() == theirs.keys()
    norm = ours["outcome"][6]
    assert norm > 0.5, "clipping has to act"
    for name, value in ours.items():
        if name == "outcome":
            np.testing.assert_allclose(value, theirs[name], rtol=1e-5)
        else:
            np.testing.assert_allclose(theirs[name], value, rtol=0, atol=1e-6, err_msg=name)


def test_the_cursor_is_the_last_replicas_last_row(results):
    assert results["small/two:cursor"].tolist() == [0, 3, 7]


def test_evaluation_does_not_depend_on_the_replicas(results):
    np.testing.assert_allclose(results["evaluation/two"], results["evaluation/one"], rtol=1e-4)


def test_replicas_draw_different_masks_and_a_step_the_same_ones(results):
    step_0, step_1, step_0_again = results["replica_losses"]
    assert step_0[0] != step_0[1]
    assert set(step_0).isdisjoint(step_1)
    assert step_0.tolist() == step_0_again.tolist()


def test_two_replicas_restore_into_two(results):
    np.testing.assert_array_equal(results["evaluation/restored"], results["evaluation/two"])


def test_two_replicas_restore_into_one(results, checkpoint_directory, fresh_names):
    model = small_model(seed=9)
    optimizer = optimizers.create_optimizer("adam", 1e-3, model.trainable_variables)
    loop = PretrainingLoop(model, optimizer, tf.distribute.get_strategy(), seed=0)
    state = loop.state()
    checkpoints.restore_latest(checkpoint_directory, state)
    for name, value in _state(results, "small/two").items():
        if name in state:
            np.testing.assert_array_equal(state[name].numpy(), value)
    assert loop.step == 4


def test_keras_reduces_gradients_through_the_hook_that_the_loop_replaces():
    """The hook is private: this fails if another Keras renames it or no longer calls it."""
    calls = []
    optimizer = keras.optimizers.SGD(0.1)
    variable = keras.Variable([1.0])
    optimizer.build([variable])

    def record(grads_and_vars):
        calls.append(list(grads_and_vars))
        return calls[-1]

    assert callable(optimizer._all_reduce_sum_gradients)
    optimizer._all_reduce_sum_gradients = record
    optimizer.apply([tf.constant([1.0])])
    assert len(calls) == 1
    np.testing.assert_allclose(variable.numpy(), [0.9])
