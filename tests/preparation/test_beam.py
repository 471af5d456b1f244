"""Beam's process: steps in order, errors in a sentence, and nothing that outlives it."""

import functools
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import time
from unittest import mock

import pytest

from bert_tf.preparation import beam
from tests.conftest import WORKERS, needs_beam
from tests.preparation import beam_work


def run(steps, flags=()):
    with beam.started(flags) as process:
        process.run(steps, lambda: None)


@needs_beam
@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], WORKERS], ids=["one process", "workers"])
def test_a_step_begins_when_the_one_before_has_ended(tmp_path, flags):
    first, second = ([f"{name}-{number}" for number in range(5)] for name in ("a", "c"))

    def step(name, num_units, after):
        return beam.Step(name, num_units, functools.partial(beam_work.write, tmp_path, name, after))

    run([step("a", 5, []), step("b", 0, []), step("c", 5, first), step("d", 1, second)], flags)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(
        [*first, *second, "d-0"], ""
    )


@needs_beam
@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], WORKERS], ids=["one process", "workers"])
def test_a_units_error_is_its_sentence(flags):
    with pytest.raises(ValueError) as error:
        run([beam.Step("fails", 2, beam_work.fail)], flags)
    assert str(error.value) == "a/b.txt: expected text, got none: give another file."


@needs_beam
@pytest.mark.slow
def test_a_killed_process_or_worker_is_an_error():
    with pytest.raises(ValueError, match="Apache Beam's process ended with status -9; its last"):
        run([beam.Step("dies", 2, beam_work.die)])
    with pytest.raises(ValueError, match="Apache Beam lost a worker: "):
        run([beam.Step("dies", 2, beam_work.die)], WORKERS)


@needs_beam
def test_flags_that_beam_does_not_have_are_refused():
    with pytest.raises(ValueError) as error:
        run([], ["--min_charcters=5", "--direct_num_workers=1"])
    assert str(error.value) == (
        "--min_charcters=5: neither a flag of this command (see --help) nor of Apache Beam."
    )
    with pytest.raises(ValueError, match="Apache Beam does not take its flags: argument --dir"):
        run([], ["--direct_num_workers=two"])


def test_without_beam_the_sentence_says_how_to_install_it():
    with mock.patch.object(importlib.util, "find_spec", return_value=None):
        with pytest.raises(
            ImportError, match="runs on Apache Beam, which is not installed: run pip"
        ):
            run([])


@pytest.mark.parametrize(
    ("flags", "local"),
    [
        ([], True),
        (["--runner=DirectRunner", "--project=a"], True),
        (["--runner=directrunner"], True),
        (["--runner=Direct"], True),
        (["--runner=DataflowRunner"], False),
        (["--runner=DirectRunner", "--runner=FlinkRunner"], False),
    ],
)
def test_the_direct_runner_is_local(flags, local):
    assert beam.is_local(flags) == local


def _is_running(number):
    try:
        state = pathlib.Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@needs_beam
@pytest.mark.slow
def test_nothing_outlives_whoever_started_it(tmp_path):
    code = (
        "import functools, sys\n"
        "from tests.preparation import beam_work, test_beam\n"
        "from bert_tf.preparation import beam\n"
        "work = functools.partial(beam_work.sleep, sys.argv[1])\n"
        "test_beam.run([beam.Step('sleeps', 2, work)], test_beam.WORKERS)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    until = time.monotonic() + 60
    while len(os.listdir(tmp_path)) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    workers = [int(name) for name in os.listdir(tmp_path)]
    assert len(workers) == 2 and all(map(_is_running, workers))
    process.send_signal(signal.SIGKILL)
    process.wait()
    while any(map(_is_running, workers)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(_is_running, workers))
