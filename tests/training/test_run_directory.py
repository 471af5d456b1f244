import errno
import fcntl
import os
import pathlib
import re
import shutil
import socket

import pytest
import tensorflow as tf

from bert_tf.choices import FREELY, PATH
from bert_tf.io.files import atomic_path, read_json, write_json
from bert_tf.training import saved_states
from bert_tf.training.run_directory import RunDirectory


@pytest.fixture
def directory(tmp_path):
    made = RunDirectory(str(tmp_path / "run"))
    made.create()
    return made


def settings_of(directory, **settings):
    """What is asked for and kept of a run, its seed 1 if nothing else is said."""
    return {"model_dir": directory.path, "seed": 1, **settings}


def test_settings_are_kept_and_may_be_repeated(directory):
    settings = settings_of(directory, phases=("128", 1.0), tpu=None)
    directory.check_settings(settings)
    directory.check_settings(settings)
    kept = {"format_version": 5, **settings, "phases": ["128", 1.0]}
    assert directory.saved_flags() == kept


def test_a_start_that_fails_at_once_leaves_nothing(tmp_path):
    directory = RunDirectory(str(tmp_path / "a" / "b" / "run"))

    def start(*written):
        directory.create()
        with pytest.raises(ValueError), directory.locked():
            directory.check_settings(settings_of(directory))
            for name in written:
                (tmp_path / "a" / "b" / "run" / name).write_text("")
            raise ValueError

    start()
    assert os.listdir(tmp_path) == []
    (tmp_path / "a").mkdir()
    start()
    assert os.listdir(tmp_path / "a") == []
    start("vocab.txt")
    before = contents(tmp_path)
    start()  # the start before was one
    assert contents(tmp_path).keys() == before.keys() and len(os.listdir(directory.path)) == 3


def save(path, finished=True):
    """A checkpoint; or what a process leaves that was killed as it saved one."""
    saved_states.write(path, 4, {"model/weight": tf.constant([1.0])}, {})
    if not finished:
        os.remove(os.path.join(path, "manifest.json"))


@pytest.fixture
def under_way(directory):
    """A directory whose run has a checkpoint."""
    save(os.path.join(directory.checkpoints, "step-00000004"))
    return directory


def test_changed_settings_are_refused_by_name(under_way):
    kept = settings_of(under_way, learning_rate=0.1, keep=3, gone=0.5)
    under_way.check_settings(kept)
    under_way.check_settings({**kept, "keep": 9}, {FREELY: {"keep"}})
    for changes, sentence in (
        ({"seed": 2, "learning_rate": 0.2},
         r"--learning_rate=0.2 \(was 0.1\), --seed=2 \(was 1\)"),
        ({"keep": 4}, r"--keep=4 \(was 3\)"),
        ({"new": 3}, r"--new=3 \(was None\)"),
    ):  # fmt: skip
        sentence = (
            rf"contains a run with different settings: {sentence}\. Rerun with the original flags "
            r"to resume it, or use another --model_dir\.$"
        )
        with pytest.raises(ValueError, match=sentence):
            under_way.check_settings({**kept, **changes})
    del kept["gone"]
    with pytest.raises(ValueError, match=r"different settings: --gone=None \(was 0.5\)"):
        under_way.check_settings(kept)
    assert read_json(under_way.flags)["seed"] == 1


@pytest.mark.parametrize("saves", [False, True])
def test_a_start_that_came_to_nothing_is_forgotten(directory, saves):
    """Also one that was killed in its first save."""
    directory.check_settings(settings_of(directory))
    directory.check_inputs({"--vocab_file": "abc"})
    for path in (*directory.described, directory.description):
        write_json(path, {})
    if saves:
        save(os.path.join(directory.checkpoints, "step-00000004"), finished=False)
    directory.check_location({})
    directory.check_settings(settings_of(directory))
    assert os.path.exists(directory.vocabulary)
    directory.check_settings(settings_of(directory, seed=2))
    assert read_json(directory.flags)["seed"] == 2
    for path in (*directory.described, directory.description, directory.inputs):
        assert not os.path.exists(path)


@pytest.mark.parametrize("found", [None, 4, 6, "5"])
def test_a_run_of_another_version_is_refused(under_way, found):
    """Before anything else of it is read; and one that has only begun as well."""
    write_json(under_way.flags, {"format_version": found, **settings_of(under_way)})
    shown = re.escape(repr(found) if isinstance(found, str) else str(found))
    sentence = rf"flags\.json: expected format version 5, got {shown}\."
    path = pathlib.Path(under_way.path)
    before = contents(path)
    for _ in range(2):
        with pytest.raises(ValueError, match=sentence):
            under_way.check_settings(settings_of(under_way))
        assert contents(path) == before
        shutil.rmtree(under_way.checkpoints, ignore_errors=True)
        before = contents(path)


def test_paths_may_differ_where_their_contents_are_compared(under_way, monkeypatch):
    monkeypatch.chdir(under_way.path)
    may_change = {PATH: {"input", "init_checkpoint", "eval_input"}}
    before = settings_of(
        under_way, input=["a", "b"], init_checkpoint="c", seed=1, eval_input=None, other="d"
    )
    under_way.check_settings(before, may_change)

    def moved(**changes):
        return under_way.check_settings({**before, **changes}, may_change)

    # The same files.
    assert moved(input=[f"{under_way.path}/a", "./b"], init_checkpoint="x/../c") == []
    # Nothing to compare them with.
    for changes in ({"input": ["a", "e"]}, {"init_checkpoint": "e"}, {"other": "./d"}):
        with pytest.raises(ValueError, match=f"different settings: --{next(iter(changes))}="):
            moved(**changes)
    under_way.check_inputs({"--input": "abc"})
    assert moved(input=["e"]) == ["input"]
    for changes in ({"eval_input": "e"}, {"input": []}):
        with pytest.raises(ValueError, match=f"different settings: --{next(iter(changes))}="):
            moved(**changes)
    under_way.check_inputs({"--init_checkpoint": "def"})
    assert moved(input=["e"], init_checkpoint="e") == ["init_checkpoint", "input"]
    sentence = r"The data of --init_checkpoint differ from those the run in .* started with"
    with pytest.raises(ValueError, match=sentence):
        under_way.check_inputs({"--input": "abc", "--init_checkpoint": "e"})
    assert read_json(under_way.inputs) == {"--input": "abc", "--init_checkpoint": "def"}


def test_changed_inputs_are_refused(under_way):
    under_way.check_inputs({"--input": "abc", "--vocab_file": "d"})
    under_way.check_inputs({"--input": "abc", "--vocab_file": "d"})
    sentence = r"The data of --vocab_file differ from those the run in .* started with"
    with pytest.raises(ValueError, match=sentence):
        under_way.check_inputs({"--input": "abc", "--vocab_file": "e"})
    under_way.check_inputs({"held_out": "f"})
    with pytest.raises(ValueError, match=sentence.replace("vocab_file", "input")):
        under_way.check_inputs({"--input": "g", "held_out": "h"})
    sentence = r"The data of held_out differ from those the run in .* started with"
    with pytest.raises(ValueError, match=sentence):
        under_way.check_inputs({"held_out": "h"})


def test_another_worker_compares_what_the_chief_kept_and_writes_nothing(directory):
    other = RunDirectory(directory.path, is_chief=False)
    with pytest.raises(
        ValueError,
        match="does not contain the run of the chief. Use a directory that all workers share",
    ):
        other.check_settings(settings_of(directory))
    directory.check_settings(settings_of(directory))
    directory.check_inputs({"--input": "a"})
    with other.locked():
        assert other.check_settings(settings_of(directory)) == []
        with pytest.raises(ValueError, match=r"different settings: --seed=2 \(was 1\)"):
            other.check_settings(settings_of(directory, seed=2))
        with pytest.raises(ValueError, match="The data of --input differ"):
            other.check_inputs({"--input": "b"})
    assert sorted(os.listdir(directory.path)) == ["flags.json", "inputs.json"]


def test_other_values_are_kept_with_the_step_and_a_finished_run_goes_on(under_way):
    under_way.check_settings(settings_of(under_way))
    write_json(under_way.results, {})
    assert under_way.newest_step() == 4
    under_way.record_changes(4, {"seed": 2})
    under_way.record_changes(4, {"seed": 3})
    assert not under_way.is_finished() and under_way.saved_flags()["seed"] == 3
    assert under_way.saved_flags()["changes"] == [
        {"step": 4, "flag": "seed", "from": before, "to": before + 1} for before in (1, 2)
    ]
    shutil.rmtree(under_way.checkpoints)
    sentence = (
        "has no checkpoint to resume with changed settings. Restore one from a copy, or use "
        "another --model_dir"
    )
    with pytest.raises(ValueError, match=sentence):
        under_way.newest_step()


def test_a_run_knows_how_its_masks_are_drawn(under_way, capsys):
    under_way.check_settings(settings_of(under_way))
    for masks, step in (("keys", 0), ("a hash", 0), ("a hash", 4)):
        under_way.record_dropout_masks(masks, step)
        assert under_way.saved_flags()["masks"] == masks
    assert "changes" not in under_way.saved_flags() and not capsys.readouterr().out
    under_way.record_dropout_masks("keys", 4)
    change = {"step": 4, "flag": "masks", "from": "a hash", "to": "keys"}
    assert under_way.saved_flags()["changes"] == [change]
    assert (
        "From step 4, dropout masks are drawn by keys instead of a hash, because the device or "
        "--jit_compile changed"
    ) in capsys.readouterr().out
    under_way.check_settings(settings_of(under_way))  # which no masks differ in


def test_one_run_at_a_time_and_one_that_ended_lets_go(directory):
    lock = os.path.join(directory.path, ".lock")
    with open(lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        print("1234567 on n1", file=held, flush=True)
        held_by = (
            "in use by process 1234567 on n1. Wait for it to finish, or use another --model_dir"
        )
        with pytest.raises(ValueError, match=held_by):
            with directory.locked():
                pass
    with directory.locked(), open(lock, encoding="utf-8") as file:
        assert file.read() == f"{os.getpid()} on {socket.gethostname()}"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL])
def test_a_file_system_without_locks(directory, monkeypatch, number):
    def no_lock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_lock)
    with directory.locked():
        with open(os.path.join(directory.path, ".lock"), encoding="utf-8") as file:
            assert file.read() == f"{os.getpid()} on {socket.gethostname()}"
        with pytest.raises(KeyError), atomic_path(directory.flags) as temporary:
            write_json(directory.flags, {})  # what nobody holds may be another's, and stays
            assert os.path.exists(temporary)
            raise KeyError
    assert sorted(os.listdir(directory.path)) == [".lock", "flags.json"]


def test_a_full_disk_is_told_with_the_file(directory, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left on device: '.*/run/.lock'"):
        with directory.locked():
            pass


def test_a_path_that_cannot_be_a_directory(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="file is a file. Use an empty or new directory"):
        RunDirectory(str(tmp_path / "file")).create()
    with pytest.raises(ValueError, match="Cannot create --model_dir="):
        RunDirectory(str(tmp_path / "file" / "below")).create()


# === What is not a run's ===


def contents(path):
    """What is below a path, and when it was changed."""
    found = [path, *sorted(path.rglob("*"))]
    return {str(p): (p.stat().st_mtime_ns, p.is_file() and p.read_bytes()) for p in found}


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"vocab.txt": "[PAD]", "bert_config.json": "{}"}, "bert_config.json, vocab.txt"),
        ({"a": "", "b": "", "c": "", "d": "", "e": ""}, "a, b, c and 2 more"),
        ({"flags.json": "{"}, "an invalid flags.json"),
        ({"flags.json": '["seed"]'}, "an invalid flags.json"),
        ({"flags.json": '{"seed": 1}', "results.json": "[]"}, "an invalid flags.json"),
        ({"checkpoints/step-00000000/manifest.json": "{}"}, "checkpoints"),
    ],
)
def test_a_directory_of_something_else_is_refused_and_left_as_it_is(tmp_path, files, named):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    before = contents(tmp_path)
    with pytest.raises(ValueError) as refused:
        RunDirectory(str(tmp_path)).check_location({})
    assert str(refused.value) == (
        f"--model_dir={tmp_path} contains files that bert_tf did not write: {named}. Use an empty "
        "or new directory."
    )
    assert contents(tmp_path) == before


def test_what_a_start_leaves_that_was_killed_at_once_is_no_hindrance(directory):
    with directory.locked(), pytest.raises(OSError), atomic_path(directory.flags):
        assert len(os.listdir(directory.path)) == 2
        directory.check_location({})
        raise OSError


@pytest.mark.parametrize("path", ["run", "run/vocab.txt", "run/../run/*.txt", "link/vocab.txt"])
def test_a_run_reads_nothing_from_where_it_writes(directory, tmp_path, path):
    directory.check_settings(settings_of(directory))
    (tmp_path / "link").symlink_to(directory.path)
    inputs = {"--vocab_file": None, "--input": [str(tmp_path / "runs"), str(tmp_path / path)]}
    with pytest.raises(
        ValueError, match="--input=.* is in --model_dir=.*/run. Use another --model_dir"
    ):
        directory.check_location(inputs)
    # A run of before that has got somewhere is not stopped by it.
    save(os.path.join(directory.checkpoints, "step-00000004"))
    directory.check_location(inputs)


def test_the_lock_follows_no_link(directory, tmp_path):
    (tmp_path / "mine").write_text("mine")
    os.symlink(tmp_path / "mine", os.path.join(directory.path, ".lock"))
    with pytest.raises(
        OSError,
        match="/run, whose run is not finished: .*Make it writable, or use another --model_dir",
    ):
        with directory.locked():
            pass
    assert (tmp_path / "mine").read_text() == "mine"
