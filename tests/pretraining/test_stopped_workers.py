"""A signal to one of two workers stops both, at each point of a run."""

import subprocess
import sys

import pytest

from bert_tf.training import saved_states
from tests.training.test_two_workers import free_addresses

from .commands import arguments, assert_bit_equal, weights

pytestmark = pytest.mark.slow  # processes of two workers
STEPS = 8

# Arguments: MODULE:NAME of a function before which SIGTERM is sent; whether the signal interrupts,
# as it does outside of the training; and the command's arguments.
PROGRAM = """
import importlib, os, runpy, signal, subprocess, sys, time
place, interrupts, *sys.argv[1:] = sys.argv[1:]
module, _, names = place.partition(":")
if module:
    owner = importlib.import_module(module)
    *outer, name = names.split(".")
    for each in outer:
        owner = getattr(owner, each)
    real = getattr(owner, name)

    def stopped(*args, **kwargs):
        is_default = signal.getsignal(signal.SIGTERM) is signal.default_int_handler
        if interrupts == "later":  # TensorFlow has Python's lock and the signal's handler by then
            subprocess.Popen(f"sleep 2; kill -TERM {os.getpid()}", shell=True)
        elif interrupts == "never":
            time.sleep(4)
        elif is_default == (interrupts == "yes"):
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*args, **kwargs)

    setattr(owner, name, stopped)
runpy.run_module("bert_tf.pretrain", run_name="__main__", alter_sys=True)
"""
NOWHERE = ("", "")


def _run(inputs, model_dir, places, **changes):
    """Runs two workers; returns the output, errors and status of each."""
    addresses = ",".join(free_addresses(2))
    flags = {"num_train_steps": STEPS, "export": False, "worker_hosts": addresses, **changes}
    commands = [arguments(inputs, model_dir, task_index=task, **flags) for task in range(2)]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *place, *worker],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for place, worker in zip(places, commands, strict=True)
    ]
    said = [worker.communicate(timeout=400) for worker in workers]
    return [(*both, worker.returncode) for both, worker in zip(said, workers, strict=True)]


def _at(task, place, interrupts="yes", other=NOWHERE):
    """Returns the points of two workers, one of which receives the signal."""
    return ((place, interrupts), other) if task == 0 else (other, (place, interrupts))


JOINING = "tensorflow:distribute.MultiWorkerMirroredStrategy"
EVALUATION = "bert_tf.pretraining.training:PretrainingTrainer.evaluate"
MOMENTS = {
    # While it waits for the other worker, which is late.
    "joining": (_at(0, JOINING, "later", other=(JOINING, "never")), None),
    # Soon after it has connected, while TensorFlow is asked whether it received a signal.
    "joined": (_at(1, JOINING, "later", other=(JOINING, "never")), None),
    "reading": (_at(1, "bert_tf.pretraining.run:read_inputs"), None),
    "restoring": (_at(0, "bert_tf.pretraining.training:PretrainingTrainer.restore"), None),
    "compiling": (_at(1, "bert_tf.training.loop:TrainingLoop._make_steps", "no"), 1),
    "evaluating while training": (_at(1, EVALUATION, "no"), 4),
    "evaluating at the end": (_at(1, EVALUATION), STEPS),
    "exporting": (_at(0, "bert_tf.pretraining.run:export_model"), STEPS),
}


@pytest.fixture(scope="module")
def whole(inputs, tmp_path_factory):
    """An uninterrupted run of two workers."""
    model_dir = tmp_path_factory.mktemp("whole") / "run"
    for out, error, status in _run(inputs, model_dir, (NOWHERE, NOWHERE)):
        assert status == 0, out + error
    return model_dir


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_at_one_worker_stops_both(inputs, request, tmp_path, moment):
    places, step = MOMENTS[moment]
    model_dir = tmp_path / "run"
    for out, error, status in _run(inputs, model_dir, places, export=moment == "exporting"):
        assert status == 130 and "Traceback" not in error, out + error
    newest = saved_states.find_latest(str(model_dir / "checkpoints"))
    assert (newest and newest.step) == step
    if moment == "compiling":  # the other cases resume in the same way
        for out, error, status in _run(inputs, model_dir, (NOWHERE, NOWHERE)):
            assert status == 0, out + error
        whole = request.getfixturevalue("whole")
        assert_bit_equal(weights(model_dir, STEPS), weights(whole, STEPS))
