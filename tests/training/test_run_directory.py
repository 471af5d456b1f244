import multiprocessing
import os

import pytest

from bert_tf.files import read_json, write_json
from bert_tf.training.run_directory import RunDirectory


@pytest.fixture
def directory(tmp_path):
    made = RunDirectory(str(tmp_path / "run"))
    made.create()
    return made


def test_settings_are_kept_and_may_be_repeated(directory):
    settings = {"seed": 1, "phases": ("128", 1.0), "tpu": None}
    directory.check_settings(settings)
    directory.check_settings(settings)
    assert read_json(directory.flags) == {"seed": 1, "phases": ["128", 1.0], "tpu": None}


@pytest.fixture
def under_way(directory):
    """A directory whose run has a checkpoint."""
    os.makedirs(os.path.join(directory.checkpoints, "step-00000004"))
    return directory


def test_changed_settings_are_refused_by_name(under_way):
    under_way.check_settings({"seed": 1, "learning_rate": 0.1, "keep": 3})
    with pytest.raises(
        ValueError,
        match=r"other settings: --learning_rate=0.2 \(was 0.1\), --seed=2 \(was 1\)\. Start again",
    ):
        under_way.check_settings({"seed": 2, "learning_rate": 0.2, "keep": 3})
    assert read_json(under_way.flags)["seed"] == 1


def test_settings_that_may_differ(under_way):
    under_way.check_settings({"seed": 1, "keep": 3}, frozenset({"keep"}))
    under_way.check_settings({"seed": 1, "keep": 9}, frozenset({"keep"}))
    with pytest.raises(ValueError, match=r"--keep=9 \(was 3\)"):
        under_way.check_settings({"seed": 1, "keep": 9})


def test_a_start_that_came_to_nothing_is_forgotten(directory):
    directory.check_settings({"seed": 1})
    directory.check_inputs({"--vocab_file": "abc"})
    for path in (directory.vocabulary, directory.config):
        write_json(path, {})
    directory.check_settings({"seed": 1})
    assert os.path.exists(directory.vocabulary)
    directory.check_settings({"seed": 2})
    assert read_json(directory.flags) == {"seed": 2}
    for path in (directory.vocabulary, directory.config, directory.inputs):
        assert not os.path.exists(path)


def test_changed_inputs_are_refused(under_way):
    under_way.check_inputs({"--input": "abc", "--vocab_file": "d"})
    under_way.check_inputs({"--input": "abc", "--vocab_file": "d"})
    with pytest.raises(
        ValueError, match="What --vocab_file read is not what the run in .* was started with"
    ):
        under_way.check_inputs({"--input": "abc", "--vocab_file": "e"})


def test_results_alone_are_progress_too(directory):
    assert not directory.has_progress()
    write_json(directory.results, {})
    assert directory.has_progress()


def _hold(path, ready, done):
    with RunDirectory(path).locked():
        ready.set()
        done.wait(30)


def test_one_run_at_a_time_and_a_killed_one_lets_go(directory):
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(directory.path, ready, done))
    process.start()
    assert ready.wait(60)
    with pytest.raises(ValueError, match=f"in use by a run of process {process.pid}: wait for it"):
        with directory.locked():
            pass
    process.kill()
    process.join()
    with directory.locked():
        assert os.path.exists(os.path.join(directory.path, ".lock"))


def test_a_path_that_cannot_be_a_directory(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="file is a file: name a directory"):
        RunDirectory(str(tmp_path / "file")).create()
    with pytest.raises(ValueError, match="cannot be made"):
        RunDirectory(str(tmp_path / "file" / "below")).create()
