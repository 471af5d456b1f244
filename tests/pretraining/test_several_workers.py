"""The command on two workers, in separate processes on this machine."""

import pathlib
import subprocess
import time

import pytest

from tests.training.test_two_workers import free_addresses

from .commands import assert_bit_equal, command, weights

pytestmark = pytest.mark.slow  # processes of two workers
STEPS = 160


def _start(inputs, model_dirs, **changes):
    """Starts a worker per model directory; tuples in ``changes`` have one value per worker."""
    addresses = ",".join(free_addresses(2))
    flags = {"num_train_steps": STEPS, "save_checkpoints_steps": 40}
    flags |= {"export": False, "worker_hosts": addresses, **changes}
    return [
        subprocess.Popen(
            command(
                inputs,
                model_dir,
                task_index=task,
                **{k: v[task] if isinstance(v, tuple) else v for k, v in flags.items()},
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for task, model_dir in enumerate(model_dirs)
    ]


def _end(workers):
    """Returns the output, errors and status of each worker."""
    said = [worker.communicate(timeout=400) for worker in workers]
    return [(*both, worker.returncode) for both, worker in zip(said, workers, strict=True)]


def _when_saved(model_dir, step):
    """Waits for the checkpoint of a step."""
    manifest = pathlib.Path(model_dir, f"checkpoints/step-{step:08d}/manifest.json")
    for _ in range(12_000):  # four minutes, for a busy machine
        if manifest.exists():
            return
        time.sleep(0.02)
    raise AssertionError(f"no {manifest}")


@pytest.fixture(scope="module")
def whole(inputs, tmp_path_factory):
    """An uninterrupted run of two workers."""
    model_dir = tmp_path_factory.mktemp("whole") / "run"
    for out, error, status in _end(_start(inputs, (model_dir, model_dir))):
        assert status == 0, out + error
    return model_dir


@pytest.mark.end_to_end
def test_workers_stop_together_and_are_killed_and_end_as_if_nothing_had_been(
    inputs, whole, tmp_path
):
    """A signal to one worker stops all at the same step; if one is killed, the other ends."""
    model_dir = tmp_path / "run"
    workers = _start(inputs, [model_dir] * 2)
    _when_saved(model_dir, 40)
    workers[1].terminate()
    for out, error, status in _end(workers):
        assert status == 130, out + error
    workers = _start(inputs, [model_dir] * 2)
    _when_saved(model_dir, 80)
    workers[1].kill()
    (_, error, status), _ = _end(workers)
    assert status == 1 and "Traceback" not in error
    assert error.splitlines()[-1].startswith("Error: Another of the 2 workers ended"), error
    for out, error, status in _end(_start(inputs, [model_dir] * 2)):
        assert status == 0, out + error
    assert_bit_equal(weights(model_dir, STEPS), weights(whole, STEPS))


@pytest.mark.exhaustive
def test_workers_of_other_flags_are_refused(inputs, tmp_path):
    ended = _end(_start(inputs, [tmp_path / "run"] * 2, learning_rate=(0.1, 0.2)))
    for _, error, status in ended:
        assert status == 1 and "Error: The workers differ in the flags" in error, ended
    assert not (tmp_path / "run").exists()
