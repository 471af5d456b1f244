"""The command on two workers, in processes of their own, on this machine."""

import contextlib
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

import pytest

from tests.training.test_two_workers import free_addresses

from .commands import assert_bit_equal, command, weights

pytestmark = pytest.mark.slow  # processes of two workers
STEPS = 160
KILLS = 50


def _start(inputs, model_dirs, folders=(None, None), **changes):
    """Starts a worker for each model directory; of a change that is a tuple, each has its own."""
    addresses = ",".join(free_addresses(2))
    # A busy machine takes its time to import TensorFlow.
    flags = {"num_train_steps": STEPS, "save_checkpoints_steps": 40, "connect_seconds": 60}
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
            cwd=folders[task],
        )
        for task, model_dir in enumerate(model_dirs)
    ]


def _end(workers):
    """What each worker printed, its errors and its status."""
    said = [worker.communicate(timeout=200) for worker in workers]
    return [(*both, worker.returncode) for both, worker in zip(said, workers, strict=True)]


def _when_saved(model_dir, step):
    """Waits for the checkpoint of a step."""
    manifest = pathlib.Path(model_dir, f"checkpoints/step-{step:08d}/manifest.json")
    for _ in range(3000):
        if manifest.exists():
            return
        time.sleep(0.02)
    raise AssertionError(f"no {manifest}")


@pytest.fixture(scope="module")
def whole(inputs, tmp_path_factory):
    """A run of two workers that nothing interrupted."""
    model_dir = tmp_path_factory.mktemp("whole") / "run"
    for out, error, status in _end(_start(inputs, (model_dir, model_dir))):
        assert status == 0, out + error
    return model_dir


@pytest.mark.parametrize(
    "signals",
    [
        [signal.SIGKILL],
        pytest.param([signal.SIGTERM, signal.SIGKILL], marks=pytest.mark.exhaustive),
    ],
)
def test_workers_that_end_are_started_again_and_end_as_if_nothing_had_been(
    inputs, whole, tmp_path, signals
):
    model_dir = tmp_path / "run"
    for number, sent in enumerate(signals):
        workers = _start(inputs, (model_dir, model_dir))
        _when_saved(model_dir, 40 * (number + 1))
        workers[1].send_signal(sent)
        (told, error, status), (_, _, other) = _end(workers)
        assert ("Going on from the checkpoint at step" in told) == bool(number)
        assert "Traceback" not in error
        if sent == signal.SIGTERM:
            assert (status, other) == (130, 130), error
            assert "The same command goes on from there." in told
        else:
            assert status == 1
            assert error.splitlines()[-1].startswith("Error: Another of the 2 workers ended"), error
    for out, error, status in _end(_start(inputs, (model_dir, model_dir))):
        assert status == 0, out + error
    assert_bit_equal(weights(model_dir, STEPS), weights(whole, STEPS))


def test_workers_stop_in_time_by_the_chiefs_clock(inputs, whole, tmp_path):
    model_dirs = (tmp_path / "run", tmp_path / "run")
    for out, error, status in _end(_start(inputs, model_dirs, stop_after_minutes=0.001)):
        assert status == 75, out + error
        said = r"Stopped by --stop_after_minutes=0.001 at step \d+. The same command goes"
        assert re.match(said, error.splitlines()[-1]), error
    for out, error, status in _end(_start(inputs, model_dirs)):
        assert status == 0, out + error
    assert_bit_equal(weights(model_dirs[0], STEPS), weights(whole, STEPS))


@pytest.mark.exhaustive
def test_any_worker_killed_at_random_moments(inputs, whole, tmp_path):
    """Runs are killed and started again until so many have been: each ends as the whole one."""
    draws, kills, runs = random.Random(0), 0, 0
    began = time.monotonic()
    assert [status for *_, status in _end(_start(inputs, [tmp_path / "timed"] * 2))] == [0, 0]
    life = time.monotonic() - began
    while kills < KILLS:
        model_dir, runs = tmp_path / f"run-{runs}", runs + 1
        is_whole = False
        while not is_whole:
            workers = _start(inputs, (model_dir, model_dir))
            moment, victim = draws.uniform(0, life), draws.choice(workers)
            sent = draws.choice([signal.SIGKILL, signal.SIGTERM])
            with contextlib.suppress(subprocess.TimeoutExpired):
                victim.wait(moment if kills < KILLS else None)
            if victim.poll() is None:
                victim.send_signal(sent)
                kills += 1
                print(f"Kill {kills}: worker {workers.index(victim)} by {sent.name}, "
                      f"{moment:.1f} s after the start of run {runs}.", flush=True)  # fmt: skip
            ended = _end(workers)
            assert "Traceback" not in str(ended), ended
            is_whole = [status for *_, status in ended] == [0, 0]
        assert_bit_equal(weights(model_dir, STEPS), weights(whole, STEPS))
    print(f"{kills} kills in {runs} runs, each of {life:.1f} s if nothing comes between.")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"seed": (1, 2), "learning_rate": (0.1, 0.2)},
            "the flags differ (--learning_rate, --seed)",
        ),
        pytest.param(
            *({"input": "corpus.txt"}, "What --input read is not what the run in"),
            marks=pytest.mark.exhaustive,
        ),
        pytest.param({}, "is not where the chief keeps the run", marks=pytest.mark.exhaustive),
    ],
)
def test_a_worker_that_is_not_like_the_chief(inputs, tmp_path, changes, sentence):
    model_dirs = (tmp_path / "run", tmp_path / ("run" if changes else "other"))
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:  # the same name, on a disk of each worker's own
        folder.mkdir()
        shutil.copy(inputs / "corpus.txt", folder)
    with (folders[1] / "corpus.txt").open("a") as file:
        file.write("\nAnother document.\n\nAnd another one.\n")
    ended = _end(_start(inputs, model_dirs, folders, **changes))
    assert [status for _, _, status in ended] == [1, 1], ended
    errors = [error.splitlines() for _, error, _ in ended]
    assert [len(lines) for lines in errors] == [1, 1], errors
    assert sentence in errors[1][0]
