"""Inputs that are pipes are read once, within a bound, and nothing of them is left."""

import os
import pathlib
import threading

import pytest
from absl import flags

from bert_tf.cli import pipes


def parsed(*arguments):
    values = flags.FlagValues()
    flags.DEFINE_list("input", [], "", values)
    flags.DEFINE_string("train_file", None, "", values)
    flags.DEFINE_string("output", None, "", values)
    values(["command", *arguments])
    return values


def write(path, content):
    os.mkfifo(path)
    thread = threading.Thread(target=path.write_bytes, args=[content], daemon=True)
    thread.start()
    return thread


def test_a_pipe_is_a_file_meanwhile(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    threads = [write(tmp_path / "b.csv", b"text\nso\n"), write(tmp_path / "c", b"c")]
    os.mkfifo(tmp_path / "out")
    values = parsed(
        f"--input={tmp_path}/a.txt,{tmp_path}/b.csv",
        f"--train_file={tmp_path}/c",
        f"--output={tmp_path}/out",
    )
    with pipes.spooled_pipes(values):
        kept, spooled = values["input"].value
        assert kept == f"{tmp_path}/a.txt" and values["output"].value == f"{tmp_path}/out"
        for _ in range(2):
            assert pathlib.Path(spooled).read_bytes() == b"text\nso\n"
        assert spooled.endswith(".csv") and os.path.getsize(values["train_file"].value) == 1
    assert not os.path.exists(os.path.dirname(spooled))
    for thread in threads:
        thread.join()


def test_a_pipe_has_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(pipes, "MOST_BYTES", 10)
    thread = write(tmp_path / "endless", b"x" * 11)
    values = parsed(f"--train_file={tmp_path}/endless")
    with pytest.raises(ValueError, match=rf"^--train_file={tmp_path}/endless gave more than 0 GiB"):
        with pipes.spooled_pipes(values):
            raise AssertionError("it was read")
    thread.join()


def test_without_pipes_nothing_changes(tmp_path):
    values = parsed("--input=gs://bucket/a,b", "--train_file=c")
    with pipes.spooled_pipes(values):
        assert (values["input"].value, values["train_file"].value) == (["gs://bucket/a", "b"], "c")
