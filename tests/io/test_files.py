"""Atomic writes of files and directories, and removal of temporary and written files."""

import os
import re
import signal
import subprocess
import sys

import pytest
import tensorflow as tf

from bert_tf.checkpoints.tensor_files import open_hdf5, open_safetensors
from bert_tf.io import files
from bert_tf.io.files import (
    atomic_directory,
    atomic_path,
    atomic_write,
    read_json,
    read_json_object,
    remove_written,
    total_size,
    write_json,
)
from bert_tf.pipelines.vocabulary import load_vocabulary

EXISTS = "/1 already exists and is not overwritten. Use another path"


def contents(folder):
    """Returns the relative paths in a folder with their contents."""
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else None
        for path in folder.rglob("*")
    }


def write(folder, name, text):
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)


def test_interrupted_write_keeps_previous_content(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt), atomic_write(str(path)) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
    with atomic_write(str(path)) as file:
        file.write(b"after")
    assert path.read_bytes() == b"after"
    with atomic_write(str(path)):
        pass  # writes an empty file
    assert path.read_bytes() == b""
    assert list(tmp_path.iterdir()) == [path]


def test_total_size_of_file_and_directory(tmp_path):
    (tmp_path / "below" / "empty").mkdir(parents=True)
    (tmp_path / "a").write_bytes(b"123")
    (tmp_path / "below" / "b").write_bytes(b"4567")
    assert total_size(str(tmp_path / "a")) == 3
    assert total_size(str(tmp_path)) == 7


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}" + b" " * (32 << 20), r"a\.json: expected a JSON file of at most 33,554,432 bytes\."),
        (None, r"a\.json cannot be read: .*No such file or directory"),
    ],
)
def test_unreadable_json_raises_error(tmp_path, content, message):
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_json_object(str(tmp_path / "a.json"))


# === Directories ===


@pytest.mark.parametrize("target", ["folder", "file", "missing"])
def test_links_are_not_overwritten_or_followed(tmp_path, target):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept")
    (tmp_path / "1").symlink_to(tmp_path / target)
    with pytest.raises(ValueError, match=EXISTS), atomic_directory(str(tmp_path / "1")):
        pass
    with pytest.raises(ValueError, match="/1: expected a file, got a link"):
        write_json(str(tmp_path / "1"), "new")
    (tmp_path / "1").unlink()
    assert contents(tmp_path) == {"folder": None, "file": "kept"}


def test_second_concurrent_writer_of_directory_fails(tmp_path):
    with pytest.raises(ValueError, match=EXISTS), atomic_directory(str(tmp_path / "1")) as loser:
        with atomic_directory(str(tmp_path / "1")) as winner:
            assert winner != loser
            for folder in (winner, loser):
                write(folder, "who", folder)
    assert contents(tmp_path) == {"1": None, "1/who": winner}


def test_directory_created_before_the_rename_is_kept(tmp_path, monkeypatch):
    rename = tf.io.gfile.rename

    def create_target_and_rename(source, target, overwrite=False):
        os.mkdir(target)
        write(target, "kept", "kept")
        rename(source, target, overwrite)

    monkeypatch.setattr(tf.io.gfile, "rename", create_target_and_rename)
    with pytest.raises(ValueError, match=EXISTS), atomic_directory(str(tmp_path / "1")) as folder:
        write(folder, "a.txt", "a")
    assert contents(tmp_path) == {"1": None, "1/kept": "kept"}


@pytest.mark.parametrize("error", [OSError("No space left on device"), KeyboardInterrupt()])
def test_failed_block_leaves_no_files(tmp_path, error):
    path = str(tmp_path / "models" / "1")
    with pytest.raises(type(error)), atomic_directory(path) as folder:
        write(folder, "a.txt", "a")
        assert not os.path.exists(path)
        raise error
    assert contents(tmp_path) == {"models": None}


def test_file_system_without_links_and_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "local_path", lambda path: None)
    path = str(tmp_path / "1")
    with atomic_directory(path) as folder:
        write_json(f"{folder}/a.json", 1)
    write_json(f"{path}/a.json", 2)
    assert read_json(f"{path}/a.json") == 2
    with pytest.raises(ValueError, match="/1: expected a file, got a directory"):
        write_json(path, 1)
    with pytest.raises(ValueError, match=EXISTS), atomic_directory(path):
        pass
    assert remove_written(path, re.compile("b")) == ["a.json"]
    assert remove_written(path, re.compile("a.json")) == []
    assert not list(tmp_path.iterdir())


# === Leftovers of killed processes ===

KILLED = """
import os, signal, sys
from bert_tf.io import files
base = sys.argv[1]
with files.atomic_directory(base + "/1") as folder, files.atomic_path(base + "/a") as a:
    for name in (os.path.join(folder, "half"), a):
        with open(name, "w") as file:
            file.write("half")
    print("ready", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.slow
def test_temporary_files_of_killed_but_not_of_running_processes_are_removed(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    temporary = contents(tmp_path)
    assert len(temporary) == 3
    for number in range(2):
        with atomic_directory(str(tmp_path / "1")), pytest.raises(OSError):
            with atomic_path(str(tmp_path / "a")):
                raise OSError
        (tmp_path / "1").rmdir()
        assert contents(tmp_path) == ({} if number else temporary)
        process.kill()
        assert process.wait() == -signal.SIGKILL


def test_foreign_files_are_not_removed_as_leftovers(tmp_path):
    (tmp_path / "kept").mkdir()
    write(tmp_path / "kept", "file", "kept")
    with atomic_path(str(tmp_path / "a")) as temporary:
        token = temporary.rsplit(".", 2)[1]
    other = ("0" if token[0] != "0" else "1") + token[1:]
    for name in ("a.tmp", "a.partial", f"a.{'0' * 32}.tmp", f"a.{other}.tmp", f"b.{token}.tmp"):
        write(tmp_path, name, "kept")
    os.symlink(tmp_path / "kept", temporary)
    before = contents(tmp_path)
    write_json(str(tmp_path / "a"), 1)
    with atomic_directory(str(tmp_path / "b")):
        pass
    assert contents(tmp_path) == before | {"a": "1\n", "b": None}


def test_links_are_removed_but_not_followed(tmp_path):
    (tmp_path / "kept").mkdir()
    write(tmp_path / "kept", "file", "kept")
    (tmp_path / "gone" / "folder").mkdir(parents=True)
    for name in ("gone/link", "gone/folder/link", "link"):
        (tmp_path / name).symlink_to(tmp_path / "kept")
    files.remove(str(tmp_path / "gone"))
    files.remove(str(tmp_path / "link") + "/")
    files.remove(str(tmp_path / "missing"))
    assert contents(tmp_path) == {"kept": None, "kept/file": "kept"}


def test_remove_written_keeps_other_files(tmp_path):
    (tmp_path / "1" / "a").mkdir(parents=True)
    for name in ("ours", "mine", "a/ours", "a/mine"):
        write(tmp_path / "1", name, name)
    (tmp_path / "link").symlink_to(tmp_path / "1")
    written = re.compile("(a/)?ours")
    assert remove_written(str(tmp_path / "link"), written) == ["link"]
    assert remove_written(str(tmp_path / "1" / "ours"), written) == ["ours"]
    assert remove_written(str(tmp_path / "1"), written) == ["a/mine", "mine"]
    (tmp_path / "link").unlink()
    assert contents(tmp_path) == {"1": None, "1/a": None, "1/a/mine": "a/mine", "1/mine": "mine"}
    assert remove_written(str(tmp_path / "1"), re.compile(".*mine")) == []
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(("target", "kind"), [(".", "a directory"), ("pipe", "a device or a pipe")])
def test_only_regular_files_are_overwritten(tmp_path, target, kind):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=f": expected a file, got {kind}"):
        write_json(str(tmp_path / target), 1)
    with pytest.raises(ValueError, match="/pipe/: expected a file, got a directory"):
        write_json(str(tmp_path / "pipe") + "/", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize(
    ("read", "written", "is_inside"),
    [
        ("wiki", "wiki/out", True),
        (".", "out", True),
        ("wiki/*", "wiki/out", True),
        ("link", "wiki/out", True),
        ("wiki/*.txt", "wiki/out", False),
        ("wiki", "wiki2/out", False),
        ("gs://bucket/wiki", "wiki/out", False),
    ],
)
def test_output_inside_input_raises_error(tmp_path, monkeypatch, read, written, is_inside):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wiki").mkdir()
    (tmp_path / "link").symlink_to("wiki")
    if is_inside:
        with pytest.raises(
            ValueError,
            match="^--output=.* is in .*, so the output would be read as input",
        ):
            files.check_outside("--output", written, ["other", read])
    else:
        files.check_outside("--output", written, ["other", read])


def test_new_file_does_not_overwrite_existing_file(tmp_path):
    path = tmp_path / "a"
    with (
        pytest.raises(ValueError, match="a already exists and is not overwritten"),
        atomic_path(str(path), is_new=True) as temporary,
    ):
        write(tmp_path, os.path.basename(temporary), "mine")
        path.write_text("theirs")
    assert contents(tmp_path) == {"a": "theirs"}


def test_pipes_and_devices_raise_error(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link"):
        path = str(tmp_path / name)
        for read in (read_json, load_vocabulary, open_safetensors, open_hdf5):
            with pytest.raises(
                ValueError, match=f"{name}: expected a file, got a pipe or a device"
            ):
                read(path)
