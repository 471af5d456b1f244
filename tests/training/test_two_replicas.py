"""Two and four logical CPU devices under MirroredStrategy equal one at the same global batch."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pretraining.objective import PretrainingLoop
from bert_tf.training import optimizers, saved_states
from bert_tf.training.schedules import WarmupLinearDecay

from . import two_replicas


def _run(folder, *names):
    """The results of ``two_replicas``, and the folder of its checkpoint."""
    path, checkpoint_directory = str(folder / "results.npz"), str(folder / "checkpoints")
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    command = [sys.executable, "-m", "tests.training.two_replicas", path, checkpoint_directory]
    done = subprocess.run([*command, *names], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(path) as file:
        return dict(file), checkpoint_directory


pytestmark = pytest.mark.slow  # processes of two replicas


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    of_four, _ = _run(folder, "long/one", "long/four")
    runs = ("sgd/one", "sgd/two", "bert/one", "bert/two", "remat/two", "groups/two")
    of_two, checkpoint_directory = _run(folder, *runs, "after/one", "after/two")
    return {**of_four, **of_two}, checkpoint_directory


@pytest.fixture
def results(run):
    return run[0]


def _state(results, name):
    return {
        key.split(":", 1)[1]: value for key, value in results.items() if key.startswith(name + ":")
    }


def _assert_equal_runs(results, one, two):
    ours, theirs = _state(results, one), _state(results, two)
    assert ours.keys() == theirs.keys()
    assert ours["outcome"][0] > 0.5, "the norm has to be above the clipping"
    for name, value in ours.items():
        if name == "outcome":
            np.testing.assert_allclose(theirs[name], value, rtol=1e-5)
        else:
            np.testing.assert_allclose(theirs[name], value, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("one", "two"), [("sgd", "sgd"), ("bert", "bert"), ("bert", "remat"), ("bert", "groups")]
)
def test_two_replicas_equal_one(results, one, two):
    assert results["replicas/2"] == 2
    _assert_equal_runs(results, f"{one}/one", f"{two}/two")


def test_four_replicas_equal_one_over_twenty_steps(results):
    assert results["replicas/4"] == 4
    _assert_equal_runs(results, "long/one", "long/four")


@pytest.mark.parametrize(("name", "replicas"), [("after/one", 1), ("after/two", 2)])
def test_four_replicas_are_gone_on_with_on_fewer(results, name, replicas):
    saved, restored = _state(results, "long/four"), _state(results, f"{name}/restored")
    for variable_name, copies in restored.items():
        assert len(copies) == replicas
        for copy in copies:
            np.testing.assert_array_equal(copy, saved[variable_name])
    assert _state(results, name)["optimizer/adam/iteration"] == 24
    _assert_equal_runs(results, "after/none", name)


def test_the_cursor_is_the_last_replicas_last_row(results):
    assert results["bert/two:cursor"].tolist() == [[0, 3, 7]]


def test_evaluation_does_not_depend_on_the_replicas(results):
    np.testing.assert_allclose(
        results["sgd/two/evaluation"], results["sgd/one/evaluation"], rtol=1e-4
    )


def test_replicas_draw_different_masks_and_a_step_the_same_ones(results):
    step_0, step_1, step_0_again = results["replica_losses"]
    assert step_0[0] != step_0[1]
    assert set(step_0).isdisjoint(step_1)
    assert step_0.tolist() == step_0_again.tolist()


def test_two_replicas_restore_into_two(results):
    saved, restored = _state(results, "bert/two"), _state(results, "bert/two/restored")
    for name, copies in restored.items():
        for copy in copies:
            np.testing.assert_array_equal(copy, saved[name])
    assert restored["optimizer/adam/iteration"].tolist() == [4, 4]


def test_two_replicas_restore_into_one(run, fresh_names):
    results, checkpoint_directory = run
    model = two_replicas.bert()
    schedule = WarmupLinearDecay(1e-4, 1, 10)
    optimizer = optimizers.create_optimizer("adam", schedule, model.trainable_variables)
    loop = PretrainingLoop(model, optimizer, tf.distribute.get_strategy(), seed=0)
    saved_states.restore_latest(f"{checkpoint_directory}/bert/two", loop.state())
    saved = _state(results, "bert/two")
    for name, variable in loop.state().items():
        np.testing.assert_array_equal(variable.numpy(), saved[name])
    assert loop.step == 4
