"""Checkpoints survive failures of processes and disks, also if written in the background."""

import json
import os
import pathlib
import re
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.io.messages import reason
from bert_tf.training import saved_states
from bert_tf.training.saved_states import BackgroundSaving


class Killed(BaseException):
    """Ends the process; `except Exception` does not catch it."""


def _variables(value):
    return {
        "model/kernel": keras.Variable(np.full((3, 2), value, np.float32), name="kernel"),
        "optimizer/iteration": keras.Variable(value, dtype="int64", name="iteration"),
    }


def _values(variables):
    return [float(np.max(v.numpy())) for v in variables.values()]


def _save(directory, step, keep=3):
    return saved_states.save(str(directory), step, _variables(step), {"pool": step}, keep=keep)


def _restored_step(directory):
    """Restores the newest intact checkpoint, checks its variables and returns its step."""
    variables = _variables(0)
    restored = saved_states.restore_latest(str(directory), variables)
    if restored is None:
        return None
    assert _values(variables) == [restored.step, restored.step]
    assert restored.extra == {"pool": restored.step}
    return restored.step


def test_save_is_synced_to_disk(tmp_path, monkeypatch):
    """All files and the directories that contain their names are synced."""
    forced, fsync = set(), os.fsync

    def record(descriptor):
        forced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    folder = pathlib.Path(saved_states.save(str(tmp_path), 1, _variables(1), {}))
    assert forced == {path.stat().st_ino for path in (tmp_path, folder, *folder.iterdir())}


def test_save_restores_exact_values(tmp_path):
    values = np.array([0.1, -0.0, np.inf, np.nan, 1e-45], np.float32)
    path = saved_states.save(
        str(tmp_path), 12, {"model/a b:0": keras.Variable(values)}, {"cursor": [1, 2, 3]}
    )
    fresh = {"model/a b:0": keras.Variable(np.zeros(5, np.float32))}
    restored = saved_states.restore_latest(str(tmp_path), fresh)
    assert restored == (12, {"cursor": [1, 2, 3]}, path, [])
    assert path == str(tmp_path / "step-00000012")
    assert fresh["model/a b:0"].numpy().tobytes() == values.tobytes()


def test_latest_checkpoints_are_kept(tmp_path):
    for step in (10, 20, 30, 100_000_000):
        _save(tmp_path, step, keep=2)
    assert sorted(os.listdir(tmp_path)) == ["step-00000030", "step-100000000"]
    assert _restored_step(tmp_path) == 100_000_000


def _truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def _flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)


def _pipe(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        ("variables.data-00000-of-00001", _truncate, r"has 31 bytes instead of 32\."),
        ("variables.data-00000-of-00001", _flip_a_bit, "the contents of "
            "variables.data-00000-of-00001 differ from "
         "the saved contents"),
        ("variables.index", pathlib.Path.unlink, "variables.index is missing or cannot be read"),
        ("manifest.json", _truncate, None),
        ("manifest.json", lambda path: path.write_text("{}"), "its manifest.json is damaged"),
        ("manifest.json", lambda path: path.write_text("[1"), "its manifest.json is damaged"),
        ("manifest.json", lambda path: path.write_text("[" * 100_000),
         "its manifest.json is damaged"),
        ("manifest.json", _pipe, "its manifest.json is damaged: .*got a pipe or a device"),
        ("manifest.json", pathlib.Path.unlink, "it is incomplete"),
    ],
)  # fmt: skip
def test_damaged_newest_checkpoint_is_skipped(tmp_path, name, damage, reason):
    _save(tmp_path, 1)
    damage(pathlib.Path(_save(tmp_path, 2)) / name)
    variables = _variables(0)
    restored = saved_states.restore_latest(str(tmp_path), variables)
    if reason is None:  # the newline after the JSON text, so nothing is lost
        assert restored.step == 2
        return
    assert (restored.step, _values(variables)) == (1, [1, 1])
    (warning,) = restored.warnings
    assert warning.startswith(f"Skipped the checkpoint {tmp_path}/step-00000002: ")
    assert re.search(reason, warning)
    # Training resumes from step 1 and saves step 2 again.
    _save(tmp_path, 2)
    assert _restored_step(tmp_path) == 2


def _manifest(change):
    def damage(path):
        manifest = json.loads(path.read_text())
        change(manifest, manifest["files"])
        path.write_text(json.dumps(manifest))

    return damage


ZERO = {"bytes": 0, "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m, files: files.update({"/dev/zero": ZERO}), "/dev/zero is missing or cannot be "
         "read"),
        (lambda m, files: files.update({"../step-00000001/variables.index": ZERO}),
         "is missing or cannot be read"),
        (lambda m, files: files.update({"pipe": ZERO}), "pipe is missing or cannot be read"),
        (lambda m, files: files.update({"zero": ZERO}), "zero is missing or cannot be read"),
        (lambda m, files: files.clear(), r"expected variables\.index among its files, got {}"),
        (lambda m, files: m.update(files=[]),
         r"expected variables\.index among its files, got \[\]"),
        (lambda m, files: files.pop("variables.data-00000-of-00001"),
         "does not list variables.data-00000-of-00001"),
        (lambda m, files: files.update({"variables.index": {}}), "expected bytes and sha256 of "
         r"variables.index, got \{\}"),
        (lambda m, files: files["variables.index"].update(bytes=True),
         r"expected bytes and sha256 of variables.index, got \{'bytes': True, 'sha256': '.*'\}"),
        (lambda m, files: files["variables.index"].update(sha256=None),
         r"expected bytes and sha256 of variables.index, got \{'bytes': \d+, 'sha256': None\}"),
        (lambda m, files: m.update(step="2"), "expected a step and an object, got '2' and "
         r"\{'pool': 2\}"),
        (lambda m, files: m.update(step=-1), "expected a step and an object, got -1 and "
         r"\{'pool': 2\}"),
        (lambda m, files: m.update(extra=[]), r"expected a step and an object, got 2 and \[\]"),
    ],
)  # fmt: skip
def test_untrusted_manifest_is_rejected(tmp_path, change, reason):
    _save(tmp_path, 1)
    path = pathlib.Path(_save(tmp_path, 2))
    os.mkfifo(path / "pipe")
    (path / "zero").symlink_to("/dev/zero")
    _manifest(change)(path / "manifest.json")
    found = saved_states.find_latest(str(tmp_path))
    assert found.step == 1
    assert re.search(reason, found.warnings[0])


def test_links_to_files_are_read(tmp_path):
    path = pathlib.Path(_save(tmp_path, 1))
    path.rename(tmp_path / "blobs")
    path.mkdir()
    for blob in (tmp_path / "blobs").iterdir():
        (path / blob.name).symlink_to(blob)
    assert _restored_step(tmp_path) == 1


def test_no_intact_checkpoint_raises_error(tmp_path):
    _truncate(pathlib.Path(_save(tmp_path, 1)) / "variables.index")
    message = "No checkpoint in .* is intact. Restore one from a copy, or delete all to start again"
    with pytest.raises(ValueError, match=message):
        saved_states.restore_latest(str(tmp_path), _variables(0))


def test_intact_step_is_not_rewritten(tmp_path):
    path = pathlib.Path(_save(tmp_path, 4))
    before = (path / "manifest.json").stat().st_mtime_ns
    _save(tmp_path, 4)
    assert (path / "manifest.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("write", ["SaveV2", "fingerprint", "_force_to_disk", "rename"])
def test_kill_during_save_restores_previous_checkpoint(tmp_path, monkeypatch, write):
    owner = {"SaveV2": tf.raw_ops, "rename": tf.io.gfile}.get(write, saved_states)
    _save(tmp_path, 1)
    original = getattr(owner, write)
    for calls_before in range(20):
        remaining = [calls_before]

        def stage(*args, remaining=remaining, **kwargs):
            if not remaining[0]:
                raise Killed
            remaining[0] -= 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, write, stage)
        killed = False
        try:
            _save(tmp_path, 2)
        except Killed:
            killed = True
        monkeypatch.setattr(owner, write, original)
        # The new checkpoint counts exactly from when its manifest exists.
        finished = (tmp_path / "step-00000002" / "manifest.json").exists()
        assert _restored_step(tmp_path) == (2 if finished else 1)
        if not killed:
            assert finished
            assert calls_before > 0
            return
        if finished:
            tf.io.gfile.rmtree(str(tmp_path / "step-00000002"))
    pytest.fail("the stage was never passed")


def test_kill_during_deletion_restores_newest_checkpoint(tmp_path, monkeypatch):
    _save(tmp_path, 1)
    _save(tmp_path, 2)

    def killed(path, written):
        if os.path.exists(path):
            raise Killed

    monkeypatch.setattr(saved_states, "remove_written", killed)
    with pytest.raises(Killed):
        _save(tmp_path, 3, keep=1)
    assert _restored_step(tmp_path) == 3
    monkeypatch.undo()
    (tmp_path / "step-00000003" / "notes.txt").write_text("mine")
    _save(tmp_path, 4, keep=1)
    assert sorted(os.listdir(tmp_path)) == ["step-00000003", "step-00000004"]
    assert os.listdir(tmp_path / "step-00000003") == ["notes.txt"]
    saved_states.delete_all(str(tmp_path))
    assert os.listdir(tmp_path) == ["step-00000003"]


def test_unusable_directory_and_keep_zero_raise_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        OSError,
        match="Cannot save the checkpoint of step 3 in .*/file is not a directory",
    ):
        _save(tmp_path / "file", 3)
    with pytest.raises(ValueError, match="keep=0: expected at least 1"):
        _save(tmp_path, 1, keep=0)


def test_full_disk_raises_one_error_and_keeps_checkpoints(tmp_path, full_disk):
    _save(tmp_path, 1)
    large = {"model/kernel": keras.Variable(np.ones(1_000_000, np.float32))}
    with pytest.raises(OSError) as caught, full_disk(100_000):
        saved_states.save(str(tmp_path), 2, large, {})
    message = reason(caught.value)
    assert message.startswith(f"Cannot save the checkpoint of step 2 in {tmp_path}: ")
    assert message.endswith(
        ". Free disk space or fix the error, then rerun; earlier checkpoints are intact."
    )
    # It contains no names of TensorFlow's graph, and ends with the advice.
    assert "[Op:" not in message and "{{" not in message
    assert os.listdir(tmp_path) == ["step-00000001"]


def test_mismatch_raises_error_and_assigns_nothing(tmp_path):
    path = _save(tmp_path, 1)
    variables = {
        "model/kernel": keras.Variable(np.zeros((2, 2), np.float32)),
        "model/bias": keras.Variable(np.zeros(2, np.float32)),
    }
    with pytest.raises(ValueError) as caught:
        saved_states.restore_latest(str(tmp_path), variables)
    assert str(caught.value) == (
        f"The checkpoint {path} belongs to a different model or optimizer: model/bias is missing; "
        "optimizer/iteration is unexpected; "
        "model/kernel: expected float32 (2, 2), got float32 (3, 2)."
    )
    assert not variables["model/kernel"].numpy().any()
    variables = {f"model/{i}": keras.Variable(0.0) for i in range(9)}
    with pytest.raises(ValueError, match="model/4 is missing, and 6 more"):
        saved_states.restore_latest(str(tmp_path), variables)


@pytest.fixture
def blocked(monkeypatch):
    """Blocks writing until it is set."""
    event, write = threading.Event(), saved_states.write

    def wait_and_write(*arguments):
        assert event.wait(60)
        write(*arguments)

    monkeypatch.setattr(saved_states, "write", wait_and_write)
    yield event
    event.set()


def test_background_save_excludes_later_steps(tmp_path, blocked):
    state = {name: keras.Variable(np.arange(5.0), name=name) for name in ("weight", "moment")}
    step = tf.function(lambda: [variable.assign_add(np.ones(5)) for variable in state.values()])
    with BackgroundSaving() as saving:
        saving.save(str(tmp_path), 1, state, {"row": 3}, keep=1)
        step()
        assert saved_states.find_latest(str(tmp_path)) is None  # the write finished in the meantime
        blocked.set()
    restored = saved_states.restore_latest(str(tmp_path), state)
    assert (restored.step, restored.extra) == (1, {"row": 3})
    for name, variable in state.items():
        np.testing.assert_array_equal(variable.numpy(), np.arange(5.0), err_msg=name)


def test_save_waits_for_previous_save(tmp_path, blocked):
    weight = {"weight": keras.Variable([1.0])}
    saving = BackgroundSaving()
    saving.save(str(tmp_path), 1, weight, {}, keep=2)
    threading.Timer(0.2, blocked.set).start()
    saving.save(str(tmp_path), 2, weight, {}, keep=2)
    assert saved_states.has_finished(str(tmp_path))
    saving.wait()
    assert saved_states.find_latest(str(tmp_path)).step == 2


def test_saves_of_one_step_do_not_wait_for_each_other(tmp_path, blocked):
    weight = {"weight": keras.Variable([1.0])}
    with BackgroundSaving() as saving:
        for name in ("best", "states"):
            saving.save(str(tmp_path / name), 1, weight, {}, keep=1)
        assert not (tmp_path / "states").exists()
        blocked.set()
    for name in ("best", "states"):
        assert saved_states.find_latest(str(tmp_path / name)).step == 1


def test_state_is_not_saved_if_its_best_weights_are_not(tmp_path):
    """Otherwise, a resumed run would expect weights that do not exist."""
    weight, best = {"weight": keras.Variable([1.0])}, tmp_path / "best"
    best.mkdir()
    (best / "step-00000001").symlink_to(tmp_path)
    saving = BackgroundSaving()
    saving.save(str(best), 1, weight, {}, keep=1)
    saving.save(str(tmp_path / "states"), 1, weight, {}, keep=1)
    with pytest.raises(OSError, match="best"):
        saving.wait()
    saving.save(str(tmp_path / "later"), 2, weight, {}, keep=1)
    saving.wait()
    assert not (tmp_path / "states").exists()


@pytest.mark.parametrize("surfaces", ["at the next save", "at the end", "on request"])
def test_failed_save_is_reported_once_and_keeps_checkpoints(tmp_path, surfaces, monkeypatch):
    """A link in place of a checkpoint is not followed."""
    weight, others = {"weight": keras.Variable([1.0])}, tmp_path / "others"
    saved_states.save(str(tmp_path), 1, weight, {})
    others.mkdir()
    (tmp_path / "step-00000002").symlink_to(others)
    message = (
        "Cannot save the checkpoint of step 2 in .*step-00000002 is a symbolic link. Free disk "
        "space or fix the error, then rerun"
    )
    saving = BackgroundSaving()
    saving.save(str(tmp_path), 2, weight, {}, keep=3)
    with pytest.raises(OSError, match=message):
        if surfaces == "at the next save":
            saving.save(str(tmp_path), 3, weight, {}, keep=3)
        elif surfaces == "on request":
            saving.wait()
        else:
            with saving:
                pass
    saving.wait()
    assert os.listdir(others) == []
    assert saved_states.find_latest(str(tmp_path)).step == 1


def test_keyboard_interrupt_does_not_wait_for_save(tmp_path, blocked):
    with pytest.raises(KeyboardInterrupt), BackgroundSaving() as saving:
        saving.save(str(tmp_path), 1, {"weight": keras.Variable([1.0])}, {}, keep=1)
        raise KeyboardInterrupt
    assert not saved_states.has_finished(str(tmp_path))
    blocked.set()
    saving.wait()
