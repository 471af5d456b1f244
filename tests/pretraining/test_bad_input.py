"""Bad input to the pretrain command: one sentence, and nothing lost."""

import json
import os
import re
import shutil
import time

import pytest

from bert_tf.pretraining.data import check_hosts_can_read
from bert_tf.pretraining.run import run
from bert_tf.training import distribution

from .commands import TINY, arguments, error_of, parse, pretrain, refusal_of, write_corpus


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, content, message",
    [
        ("empty.txt", b"", r"empty.txt.* empty|no document"),
        ("bytes.txt", b"A good line.\nA bad \xff one.\n\nMore.\n", r"bytes.txt.*\b19\b"),
        ("one.txt", b"One sentence.\nAnother one.\nA third.\n", "leaves 1 document .*--pairs=fals"),
    ],
)
def test_bad_corpora(inputs, tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    assert re.search(message, error_of(inputs, tmp_path, input=path))


@pytest.mark.slow
def test_bad_files_and_flags_leave_the_directory_free_for_the_right_ones(inputs, tmp_path):
    assert "nothing*.txt" in refusal_of(inputs, tmp_path, input=tmp_path / "nothing*.txt")
    vocabulary = {"vocab_file": tmp_path / "vocab.txt", "vocab_size": None}
    vocabulary["vocab_file"].write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nword\n")
    assert re.search(r"vocab.txt.*\[MASK\]", refusal_of(inputs, tmp_path, **vocabulary))
    vocabulary["vocab_file"].write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\nword\n")
    assert re.search("lines 6 and 7|line 6.*line 7", refusal_of(inputs, tmp_path, **vocabulary))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**TINY, "num_attention_heads": 3}))
    assert "hidden_size 16 is not a multiple of num_attention_heads 3" in refusal_of(
        inputs, tmp_path, bert_config=config
    )
    done = pretrain(inputs, tmp_path / "run", num_train_steps=2)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_files_that_moved_are_the_same_and_others_are_not(finished, inputs, tmp_path, capsys):
    moved = shutil.copytree(inputs, tmp_path / "moved")
    run(parse(*arguments(moved, finished[0]))[0])
    assert "holds this run, finished." in capsys.readouterr().out
    write_corpus(moved / "corpus.txt", seed=1)
    with pytest.raises(ValueError, match="What --input read is not what the run in .* was started"):
        run(parse(*arguments(moved, finished[0]))[0])


@pytest.mark.slow
def test_a_run_writes_over_nothing(finished, inputs, tmp_path):
    there = shutil.copytree(finished[0], tmp_path / "run")
    for name in ("flags.json", "results.json"):
        (there / name).unlink()
    before = {path: path.stat().st_mtime_ns for path in there.rglob("*")}
    assert "run holds bert_config.json, best, checkpoints and 6 more, and no run" in refusal_of(
        inputs, tmp_path, vocab_file=there / "vocab.txt", vocab_size=None
    )
    assert {path: path.stat().st_mtime_ns for path in there.rglob("*")} == before


@pytest.mark.slow
def test_no_tpu_is_told_in_time(inputs, tmp_path):
    began = time.monotonic()
    assert "No TPU was found at 'grpc://127.0.0.1:9'" in refusal_of(
        inputs, tmp_path, tpu="grpc://127.0.0.1:9"
    )
    assert time.monotonic() - began < 20


def test_the_hosts_of_a_tpu_slice_read_records_alone():
    one = distribution.choose_strategy("one_device")
    slice = one._replace(device_type="TPU", hosts=4)
    check_hosts_can_read(slice, "tfrecord")
    check_hosts_can_read(slice._replace(hosts=1), None)
    with pytest.raises(ValueError, match="TPU has 4 hosts, .* give them with --input_format=tfrec"):
        check_hosts_can_read(slice, "google")


def test_a_refused_start_leaves_nothing(inputs, tmp_path):
    before = os.listdir(tmp_path)
    assert "/none" in refusal_of(inputs, tmp_path, input=tmp_path / "none")
    assert os.listdir(tmp_path) == before


def test_a_wrong_cluster_is_refused_before_anything_is_written(inputs, tmp_path, monkeypatch):
    assert "needs two workers or more" in refusal_of(inputs, tmp_path, strategy="multi_worker")
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}}')
    assert "TF_CONFIG: expected a task such as" in refusal_of(inputs, tmp_path)
    assert not (tmp_path / "run").exists()
