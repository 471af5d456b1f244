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


def read_settings(directory, **settings):
    """Returns the requested and saved settings of a run, with a seed of 1 unless specified."""
    return {"model_dir": directory.path, "seed": 1, **settings}


def test_settings_are_saved_and_may_be_repeated(directory):
    settings = read_settings(directory, phases=("128", 1.0), tpu=None)
    directory.check_settings(settings)
    directory.check_settings(settings)
    saved = {"format_version": 5, **settings, "phases": ["128", 1.0]}
    assert directory.saved_flags() == saved


def test_failed_start_leaves_no_files(tmp_path):
    directory = RunDirectory(str(tmp_path / "a" / "b" / "run"))

    def start(*written):
        directory.create()
        with pytest.raises(ValueError), directory.locked():
            directory.check_settings(read_settings(directory))
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
    start()  # keeps the files of the previous start
    assert contents(tmp_path).keys() == before.keys() and len(os.listdir(directory.path)) == 3


def save(path, finished=True):
    """Writes a checkpoint, or the files of a process that was killed while saving one."""
    saved_states.write(path, 4, {"model/weight": tf.constant([1.0])}, {})
    if not finished:
        os.remove(os.path.join(path, "manifest.json"))


@pytest.fixture
def started_run(directory):
    """A directory whose run has a checkpoint."""
    save(os.path.join(directory.checkpoints, "step-00000004"))
    return directory


def test_changed_settings_raise_error(started_run):
    saved = read_settings(started_run, learning_rate=0.1, keep=3, gone=0.5)
    started_run.check_settings(saved)
    started_run.check_settings({**saved, "keep": 9}, {FREELY: {"keep"}})
    for changes, message in (
        ({"seed": 2, "learning_rate": 0.2},
         r"--learning_rate=0.2 \(was 0.1\), --seed=2 \(was 1\)"),
        ({"keep": 4}, r"--keep=4 \(was 3\)"),
        ({"new": 3}, r"--new=3 \(was not set\)"),
    ):  # fmt: skip
        message = (
            rf"contains a run with different settings: {message}\. Rerun with the original flags "
            r"to resume it, or use another --model_dir\.$"
        )
        with pytest.raises(ValueError, match=message):
            started_run.check_settings({**saved, **changes})
    del saved["gone"]
    with pytest.raises(ValueError, match=r"different settings: --gone is not set \(was 0.5\)"):
        started_run.check_settings(saved)
    assert read_json(started_run.flags)["seed"] == 1


@pytest.mark.parametrize("saves", [False, True])
def test_start_without_progress_is_discarded(directory, saves):
    """This includes a process that was killed in its first save."""
    directory.check_settings(read_settings(directory))
    directory.check_inputs({"--vocab_file": "abc"})
    for path in (*directory.described, directory.description):
        write_json(path, {})
    if saves:
        save(os.path.join(directory.checkpoints, "step-00000004"), finished=False)
    directory.check_location({})
    directory.check_settings(read_settings(directory))
    assert os.path.exists(directory.vocabulary)
    directory.check_settings(read_settings(directory, seed=2))
    assert read_json(directory.flags)["seed"] == 2
    for path in (*directory.described, directory.description, directory.inputs):
        assert not os.path.exists(path)


@pytest.mark.parametrize("found", [None, 4, 6, "5"])
def test_run_of_other_version_raises_error(started_run, found):
    """The version is checked first, even if the run has no checkpoint."""
    write_json(started_run.flags, {"format_version": found, **read_settings(started_run)})
    shown = re.escape(repr(found) if isinstance(found, str) else str(found))
    message = rf"flags\.json: expected format version 5, got {shown}\."
    path = pathlib.Path(started_run.path)
    before = contents(path)
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            started_run.check_settings(read_settings(started_run))
        assert contents(path) == before
        shutil.rmtree(started_run.checkpoints, ignore_errors=True)
        before = contents(path)


def test_paths_may_change_if_contents_are_equal(started_run, monkeypatch):
    monkeypatch.chdir(started_run.path)
    may_change = {PATH: {"input", "init_checkpoint", "eval_input"}}
    before = read_settings(
        started_run, input=["a", "b"], init_checkpoint="c", seed=1, eval_input=None, other="d"
    )
    started_run.check_settings(before, may_change)

    def moved(**changes):
        return started_run.check_settings({**before, **changes}, may_change)

    # The same files.
    assert moved(input=[f"{started_run.path}/a", "./b"], init_checkpoint="x/../c") == []
    # Nothing to compare.
    for changes in ({"input": ["a", "e"]}, {"init_checkpoint": "e"}, {"other": "./d"}):
        with pytest.raises(ValueError, match=f"different settings: --{next(iter(changes))}="):
            moved(**changes)
    started_run.check_inputs({"--input": "abc"})
    assert moved(input=["e"]) == ["input"]
    for changes in ({"eval_input": "e"}, {"input": []}):
        with pytest.raises(ValueError, match=f"different settings: --{next(iter(changes))}="):
            moved(**changes)
    started_run.check_inputs({"--init_checkpoint": "def"})
    assert moved(input=["e"], init_checkpoint="e") == ["init_checkpoint", "input"]
    message = r"The data of --init_checkpoint differ from the data that the run in .* started with"
    with pytest.raises(ValueError, match=message):
        started_run.check_inputs({"--input": "abc", "--init_checkpoint": "e"})
    assert read_json(started_run.inputs) == {"--input": "abc", "--init_checkpoint": "def"}


def test_changed_inputs_raise_error(started_run):
    started_run.check_inputs({"--input": "abc", "--vocab_file": "d"})
    started_run.check_inputs({"--input": "abc", "--vocab_file": "d"})
    message = r"The data of --vocab_file differ from the data that the run in .* started with"
    with pytest.raises(ValueError, match=message):
        started_run.check_inputs({"--input": "abc", "--vocab_file": "e"})
    started_run.check_inputs({"held_out": "f"})
    with pytest.raises(ValueError, match=message.replace("vocab_file", "input")):
        started_run.check_inputs({"--input": "g", "held_out": "h"})
    message = r"The data of held_out differ from the data that the run in .* started with"
    with pytest.raises(ValueError, match=message):
        started_run.check_inputs({"held_out": "h"})


def test_worker_compares_settings_of_chief_without_writing(directory):
    other = RunDirectory(directory.path, is_chief=False)
    with pytest.raises(
        ValueError,
        match="does not contain the chief's run. Use a directory that all workers share",
    ):
        other.check_settings(read_settings(directory))
    directory.check_settings(read_settings(directory))
    directory.check_inputs({"--input": "a"})
    with other.locked():
        assert other.check_settings(read_settings(directory)) == []
        with pytest.raises(ValueError, match=r"different settings: --seed=2 \(was 1\)"):
            other.check_settings(read_settings(directory, seed=2))
        with pytest.raises(ValueError, match="The data of --input differ"):
            other.check_inputs({"--input": "b"})
    assert sorted(os.listdir(directory.path)) == ["flags.json", "inputs.json"]


def test_changes_are_recorded_and_finished_run_resumes(started_run):
    started_run.check_settings(read_settings(started_run))
    write_json(started_run.results, {})
    assert started_run.newest_step() == 4
    started_run.record_changes(4, {"seed": 2})
    started_run.record_changes(4, {"seed": 3})
    assert not started_run.is_finished() and started_run.saved_flags()["seed"] == 3
    assert started_run.saved_flags()["changes"] == [
        {"step": 4, "flag": "seed", "from": before, "to": before + 1} for before in (1, 2)
    ]
    shutil.rmtree(started_run.checkpoints)
    message = (
        "has no checkpoint to resume with changed settings. Restore one from a copy, or use "
        "another --model_dir"
    )
    with pytest.raises(ValueError, match=message):
        started_run.newest_step()


def test_run_records_dropout_mask_generator(started_run, capsys):
    started_run.check_settings(read_settings(started_run))
    for masks, step in (("keys", 0), ("a hash", 0), ("a hash", 4)):
        started_run.record_dropout_masks(masks, step)
        assert started_run.saved_flags()["masks"] == masks
    assert "changes" not in started_run.saved_flags() and not capsys.readouterr().out
    started_run.record_dropout_masks("keys", 4)
    change = {"step": 4, "flag": "masks", "from": "a hash", "to": "keys"}
    assert started_run.saved_flags()["changes"] == [change]
    assert (
        "From step 4, dropout masks are drawn by keys instead of a hash, because the device or "
        "--jit_compile changed"
    ) in capsys.readouterr().out
    started_run.check_settings(read_settings(started_run))  # masks are not compared


def test_directory_is_locked_until_run_ends(directory):
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
def test_file_system_without_locks(directory, monkeypatch, number):
    def no_lock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_lock)
    with directory.locked():
        with open(os.path.join(directory.path, ".lock"), encoding="utf-8") as file:
            assert file.read() == f"{os.getpid()} on {socket.gethostname()}"
        with pytest.raises(KeyError), atomic_path(directory.flags) as temporary:
            write_json(directory.flags, {})  # without locks it may be in use, so it stays
            assert os.path.exists(temporary)
            raise KeyError
    assert sorted(os.listdir(directory.path)) == [".lock", "flags.json"]


def test_full_disk_error_contains_path(directory, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left on device: '.*/run/.lock'"):
        with directory.locked():
            pass


def test_path_that_cannot_be_directory_raises_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="file is a file. Use an empty or new directory"):
        RunDirectory(str(tmp_path / "file")).create()
    with pytest.raises(ValueError, match="Cannot create --model_dir="):
        RunDirectory(str(tmp_path / "file" / "below")).create()


# === Foreign files ===


def contents(path):
    """Returns the tree below a path, with modification times."""
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
def test_foreign_directory_raises_error_and_is_unchanged(tmp_path, files, named):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    before = contents(tmp_path)
    with pytest.raises(ValueError) as raised:
        RunDirectory(str(tmp_path)).check_location({})
    assert str(raised.value) == (
        f"--model_dir={tmp_path} contains files that bert_tf did not write: {named}. Use an empty "
        "or new directory."
    )
    assert contents(tmp_path) == before


def test_files_of_killed_start_are_accepted(directory):
    with directory.locked(), pytest.raises(OSError), atomic_path(directory.flags):
        assert len(os.listdir(directory.path)) == 2
        directory.check_location({})
        raise OSError


@pytest.mark.parametrize("path", ["run", "run/vocab.txt", "run/../run/*.txt", "link/vocab.txt"])
def test_inputs_inside_model_dir_raise_error(directory, tmp_path, path):
    directory.check_settings(read_settings(directory))
    (tmp_path / "link").symlink_to(directory.path)
    inputs = {"--vocab_file": None, "--input": [str(tmp_path / "runs"), str(tmp_path / path)]}
    with pytest.raises(
        ValueError, match="--input=.* is in --model_dir=.*/run. Use another --model_dir"
    ):
        directory.check_location(inputs)
    # An earlier run that has progress is not affected.
    save(os.path.join(directory.checkpoints, "step-00000004"))
    directory.check_location(inputs)


def test_lock_does_not_follow_links(directory, tmp_path):
    (tmp_path / "mine").write_text("mine")
    os.symlink(tmp_path / "mine", os.path.join(directory.path, ".lock"))
    with pytest.raises(
        OSError,
        match="/run, whose run is not finished: .*Make the directory writable, or use another",
    ):
        with directory.locked():
            pass
    assert (tmp_path / "mine").read_text() == "mine"
