"""Two and four logical CPU devices under MirroredStrategy equal one device at the same global
batch.

TensorFlow can split the CPU only before its first computation, so the trainings run in a separate
process: ``python -m tests.training.test_two_replicas RESULTS.npz CHECKPOINTS RUN...``.
"""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute import mirrored_run, mirrored_strategy

from bert_tf import features
from bert_tf.pretraining.objective import PretrainingLoop
from bert_tf.training import attention, distribution, optimizers, saved_states, schedules
from tests.processes import split_cpu
from tests.training.conftest import batches_dataset, bert, random_batch, small_model

STEPS = 4
MANY_STEPS = 20
CLIP_NORM = 0.5


def make_loop(strategy, build, *, dropout_seed=1, sgd=False, **options) -> PretrainingLoop:
    keras.utils.clear_session()
    with strategy.scope():
        model = build()
        if sgd:
            optimizer = keras.optimizers.SGD(1e-2)
            optimizer.build(model.trainable_variables)
        else:
            optimizer = optimizers.create_optimizer(
                "adam", schedules.WarmupLinearDecay(1e-4, 1, 100), model.trainable_variables
            )
    return PretrainingLoop(
        model, optimizer, strategy, seed=dropout_seed, clip_norm=CLIP_NORM, **options
    )


def _train(loop, name):
    steps = MANY_STEPS if name.startswith("long") else STEPS
    dataset = batches_dataset(steps, first=MANY_STEPS if name.startswith("after") else 0)
    return loop.make(loop.distribute(dataset), steps)


def _record(results, name, loop, outcome):
    for variable_name, variable in loop.state().items():
        results[f"{name}:{variable_name}"] = variable.numpy()
    numbers = [outcome.gradient_norm, outcome.learning_rate, *outcome.losses, *outcome.sums]
    results[f"{name}:outcome"] = np.array(numbers)
    results[f"{name}:cursor"] = np.array(outcome.cursors)


def _replica_losses(strategy, steps):
    """Returns (steps, 2): each replica's loss sum on *equal* examples, so only its mask can change
    it.
    """
    loop = make_loop(strategy, lambda: small_model(dropout=0.5))
    batch = {
        key: tf.constant(value) for key, value in random_batch(0).items() if key != features.CURSOR
    }
    one = tf.constant(1.0)

    @tf.function
    def run(step):
        def replica():
            context = tf.distribute.get_replica_context()
            replica_id = tf.convert_to_tensor(context.replica_id_in_sync_group)
            return loop.replica_step.sum_gradients(batch, step, replica_id, [one, one])[1][0]

        return strategy.experimental_local_results(strategy.run(replica))

    return np.array([[float(x) for x in run(tf.constant(step, tf.int64))] for step in steps])


def recomputed_bert() -> keras.Model:
    """Returns the same model with recomputed blocks in the backward pass."""
    model = bert()
    model.encoder.recomputes_blocks = True
    return model


RUNS = {
    # Unlike Adam, plain gradient descent is sensitive to gradients of twice the size.
    "sgd/one": (1, small_model, {"sgd": True}),
    "sgd/two": (2, small_model, {"sgd": True, "gradient_accumulation_steps": 2}),
    "bert/one": (1, bert, {}),
    "bert/two": (2, bert, {}),
    "remat/two": (2, recomputed_bert, {"gradient_accumulation_steps": 2}),
    "groups/two": (2, bert, {"gradient_accumulation_steps": 2}),
    "gpus/two": (2, bert, {"device_type": "GPU", "jit_compile": True}),
    "long/one": (1, bert, {}),
    "long/four": (4, bert, {"gradient_accumulation_steps": 2}),
    # Runs on fewer replicas resume from the checkpoint of four.
    "after/one": (1, bert, {}),
    "after/two": (2, bert, {}),
}


def _restore(results, name, loop, directory):
    """Restores a checkpoint and records every copy."""
    saved_states.restore_latest(directory, loop.state())
    for variable_name, variable in loop.state().items():
        values = loop.strategy.experimental_local_results(variable.value)
        results[f"{name}/restored:{variable_name}"] = np.stack([v.numpy() for v in values])


def main(results_path: str, checkpoint_directory: str, *names: str) -> None:
    """Runs the named trainings, and one of each other comparison of two replicas."""
    # A process has one group of replicas that reduce together.
    replicas = max(RUNS[name][0] for name in names)
    split_cpu(replicas)
    mirrored = distribution.choose_strategy("mirrored").strategy
    strategies = {1: tf.distribute.get_strategy(), replicas: mirrored}
    results = {f"replicas/{replicas}": np.array(mirrored.num_replicas_in_sync)}
    for name in names:
        count, build, options = RUNS[name]
        # Ungrouped attention, or one text at a time.
        attention._MAX_SCORES = 1 if name.startswith("groups") else 1 << 22
        loop = make_loop(strategies[count], build, **options)
        if name.startswith("gpus"):  # only GPUs run functions compiled by XLA differently
            mirrored_run._is_gpu_device = mirrored_strategy._is_gpu_device = lambda device: True
        if name.startswith("after"):
            _restore(results, name, loop, f"{checkpoint_directory}/long/four")
        _record(results, name, loop, _train(loop, name))
        if name.startswith("sgd"):
            results[f"{name}/evaluation"] = np.array(loop.evaluate(batches_dataset(2, first=50)))
        if name == "long/four":
            saved_states.save(f"{checkpoint_directory}/{name}", loop.step, loop.state(), {})
        if name == "long/one":
            _record(results, "after/none", loop, _train(loop, "after"))
    if replicas == 2:
        results["replica_losses"] = _replica_losses(mirrored, [0, 1, 0])
    np.savez(results_path, **results)


def _run(folder, *names):
    """Returns the results of ``main``."""
    path, checkpoint_directory = str(folder / "results.npz"), str(folder / "checkpoints")
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    command = [sys.executable, "-m", "tests.training.test_two_replicas", path, checkpoint_directory]
    done = subprocess.run([*command, *names], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(path) as file:
        return dict(file)


pytestmark = pytest.mark.slow  # starts processes of two replicas


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    on_four = _run(folder, "long/one", "long/four")
    runs = ("sgd/one", "sgd/two", "bert/one", "bert/two", "remat/two", "groups/two")
    return {**on_four, **_run(folder, *runs, "after/one", "after/two"), **_run(folder, "gpus/two")}


def _state(results, name):
    return {
        key.split(":", 1)[1]: value for key, value in results.items() if key.startswith(name + ":")
    }


def _assert_equal_runs(results, one, two):
    ours, theirs = _state(results, one), _state(results, two)
    assert ours.keys() == theirs.keys()
    assert ours["outcome"][0] > 0.5, "the norm must exceed the clipping threshold"
    for name, value in ours.items():
        if name == "outcome":
            np.testing.assert_allclose(theirs[name], value, rtol=1e-5)
        else:
            np.testing.assert_allclose(theirs[name], value, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("one", "two"),
    [("sgd", "sgd"), ("bert", "bert"), ("bert", "remat"), ("bert", "groups"), ("bert", "gpus")],
)
def test_two_replicas_equal_one(results, one, two):
    assert results["replicas/2"] == 2
    _assert_equal_runs(results, f"{one}/one", f"{two}/two")


def test_four_replicas_equal_one_over_twenty_steps(results):
    assert results["replicas/4"] == 4
    _assert_equal_runs(results, "long/one", "long/four")


@pytest.mark.parametrize(("name", "replicas"), [("after/one", 1), ("after/two", 2)])
def test_run_of_four_replicas_resumes_on_fewer(results, name, replicas):
    saved, restored = _state(results, "long/four"), _state(results, f"{name}/restored")
    for variable_name, copies in restored.items():
        assert len(copies) == replicas
        for copy in copies:
            np.testing.assert_array_equal(copy, saved[variable_name])
    assert _state(results, name)["optimizer/adam/iteration"] == 24
    _assert_equal_runs(results, "after/none", name)


def test_evaluation_is_independent_of_replicas(results):
    np.testing.assert_allclose(
        results["sgd/two/evaluation"], results["sgd/one/evaluation"], rtol=1e-4
    )


def test_masks_differ_between_replicas_and_repeat_per_step(results):
    step_0, step_1, step_0_again = results["replica_losses"]
    assert step_0[0] != step_0[1]
    assert set(step_0).isdisjoint(step_1)
    assert step_0.tolist() == step_0_again.tolist()


if __name__ == "__main__":
    main(*sys.argv[1:])
