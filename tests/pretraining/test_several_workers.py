"""The command on two workers in separate processes: stopped, killed and invalid runs."""

import pathlib
import time

import pytest

from bert_tf.training import saved_states
from tests.training.test_two_workers import free_addresses, start_python

from .commands import arguments, assert_bit_equal, weights

pytestmark = pytest.mark.slow  # starts processes of two workers
STEPS = {"killed": 160, "stopped": 8}

# Arguments: MODULE:NAME of a function before which SIGTERM is sent; whether the signal interrupts,
# as it does outside of the training; and the command's arguments.
PROGRAM = """
import importlib, os, runpy, signal, subprocess, sys, time
point, interrupts, *sys.argv[1:] = sys.argv[1:]
module, _, names = point.partition(":")
if module:
    owner = importlib.import_module(module)
    *outer, name = names.split(".")
    for each in outer:
        owner = getattr(owner, each)
    real = getattr(owner, name)

    def stopped(*args, **kwargs):
        from bert_tf.cli import command

        is_default = signal.getsignal(signal.SIGTERM) is command.interrupt
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
NO_SIGNAL = ("", "")


def _start(inputs, model_dir, points=(NO_SIGNAL, NO_SIGNAL), **changes):
    """Starts two workers; tuples in ``changes`` have one value per worker."""
    addresses = ",".join(free_addresses(2))
    flags = {"num_train_steps": STEPS["killed"], "save_checkpoints_steps": 40}
    flags |= {"export": False, "worker_hosts": addresses, **changes}
    return [
        start_python(
            *("-c", PROGRAM, *point),
            *arguments(
                inputs,
                model_dir,
                task_index=task,
                **{k: v[task] if isinstance(v, tuple) else v for k, v in flags.items()},
            ),
        )
        for task, point in enumerate(points)
    ]


def _end(workers):
    """Returns the output, errors and status of each worker."""
    outputs = [worker.communicate(timeout=400) for worker in workers]
    return [(*both, worker.returncode) for both, worker in zip(outputs, workers, strict=True)]


def _assert_ended(workers, status=0):
    for out, error, ended in _end(workers):
        assert ended == status and "Traceback" not in error, out + error


def _when_saved(model_dir, step):
    """Waits for the checkpoint of a step."""
    manifest = pathlib.Path(model_dir, f"checkpoints/step-{step:08d}/manifest.json")
    for _ in range(12_000):  # four minutes, in case of high load
        if manifest.exists():
            return
        time.sleep(0.02)
    raise AssertionError(f"no {manifest}")


@pytest.fixture(scope="module")
def uninterrupted(inputs, tmp_path_factory):
    """Returns the weights of an uninterrupted run of two workers."""

    def run(kind):
        model_dir, steps = tmp_path_factory.mktemp(kind) / "run", STEPS[kind]
        _assert_ended(_start(inputs, model_dir, num_train_steps=steps))
        return weights(model_dir, steps)

    return run


@pytest.mark.end_to_end
def test_stopped_and_killed_workers_resume_exactly(inputs, uninterrupted, tmp_path):
    """A signal to one worker stops all at the same step; if one is killed, the other ends."""
    model_dir = tmp_path / "run"
    workers = _start(inputs, model_dir)
    _when_saved(model_dir, 40)
    workers[1].terminate()
    _assert_ended(workers, 130)
    workers = _start(inputs, model_dir)
    _when_saved(model_dir, 80)
    workers[1].kill()
    (_, error, status), _ = _end(workers)
    assert status == 1 and "Traceback" not in error
    assert error.splitlines()[-1].startswith("Error: One of the other workers (2 in"), error
    _assert_ended(_start(inputs, model_dir))
    assert_bit_equal(weights(model_dir, STEPS["killed"]), uninterrupted("killed"))


@pytest.mark.exhaustive
def test_workers_with_different_flags_raise_error(inputs, tmp_path):
    ended = _end(_start(inputs, tmp_path / "run", learning_rate=(0.1, 0.2)))
    message = "Error: --learning_rate: the workers have different values. Run the same command on "
    for _, error, status in ended:
        assert status == 1 and message in error, ended
    assert not (tmp_path / "run").exists()


# === A signal to one of two workers stops both, at each point of a run ===


def _at(task, point, interrupts="yes", other=NO_SIGNAL):
    """Returns the signal points of two workers, one of which receives the signal."""
    return ((point, interrupts), other) if task == 0 else (other, (point, interrupts))


JOINING = "tensorflow:distribute.MultiWorkerMirroredStrategy"
EVALUATION = "bert_tf.pretraining.training:PretrainingTrainer.evaluate"
MOMENTS = {
    # While worker 0 waits for the late worker 1.
    "joining": (_at(0, JOINING, "later", other=(JOINING, "never")), None),
    # Soon after it has connected, while TensorFlow checks for a signal.
    "joined": (_at(1, JOINING, "later", other=(JOINING, "never")), None),
    "reading": (_at(1, "bert_tf.pretraining.run:read_inputs"), None),
    "restoring": (_at(0, "bert_tf.pretraining.training:PretrainingTrainer.restore"), None),
    "compiling": (_at(1, "bert_tf.training.loop:TrainingLoop._make_steps", "no"), 1),
    "evaluating while training": (_at(1, EVALUATION, "no"), 4),
    "evaluating at the end": (_at(1, EVALUATION), STEPS["stopped"]),
    "exporting": (_at(0, "bert_tf.pretraining.run:export_model"), STEPS["stopped"]),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_signal_to_one_worker_stops_both(inputs, uninterrupted, tmp_path, moment):
    points, step = MOMENTS[moment]
    model_dir = tmp_path / "run"
    flags = {"num_train_steps": STEPS["stopped"], "save_checkpoints_steps": 4}
    _assert_ended(_start(inputs, model_dir, points, export=moment == "exporting", **flags), 130)
    newest = saved_states.find_latest(str(model_dir / "checkpoints"))
    assert (newest and newest.step) == step
    if moment == "compiling":  # the other cases resume in the same way
        _assert_ended(_start(inputs, model_dir, **flags))
        assert_bit_equal(weights(model_dir, STEPS["stopped"]), uninterrupted("stopped"))
