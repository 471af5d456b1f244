"""``python -m bert_tf.extract_features``: flags, files, errors, Ctrl-C, memory."""

import gzip
import json
import re
import signal
import subprocess
import sys
import time

import pytest

from bert_tf.extraction.run import run
from bert_tf.extraction.settings import resolve
from tests.extraction.conftest import write_many


def command(**flags):
    given = [f"--{name}={value}" for name, value in flags.items()]
    return [sys.executable, "-m", "bert_tf.extract_features", *given]


@pytest.mark.slow
def test_from_files_to_files(model_dir, tmp_path):
    (tmp_path / "1.gz").write_bytes(gzip.compress(b"a cat\n" * 3))
    (tmp_path / "2.txt").write_bytes(b"cat ||| sat")
    flags = {
        "model": model_dir,
        "input": f"{tmp_path}/*.gz,{tmp_path}/2.txt",
        "output": tmp_path / "output",
        "layers": "-1,0",
    }
    done = subprocess.run(command(**flags), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    *_, last = done.stdout.splitlines()
    assert last == f"{tmp_path}/output: 4 lines, 17 tokens, 1 file."
    *_, pair = (
        json.loads(line)
        for path in sorted((tmp_path / "output").glob("part-*"))
        for line in path.read_text().splitlines()
    )
    assert pair["linex_index"] == 3
    assert [feature["token"] for feature in pair["features"]] == [
        "[CLS]", "cat", "[SEP]", "sat", "[SEP]",
    ]  # fmt: skip
    assert [layer["index"] for layer in pair["features"][0]["layers"]] == [-1, 0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": "none"}, "There is no checkpoint at none: "),
        ({"input": ["*.none"]}, "No file matches '*.none'"),
        ({"input": ["empty.txt"]}, "The input empty.txt is empty"),
        ({"max_seq_length": 99}, "max_seq_length is 99, and "),
        ({"max_seq_length": 4}, "max_seq_length is 4: expected"),
        ({"layers": ["4"]}, "--layers has 4, and "),
        ({"layers": ["-1", "-5"]}, "--layers has -5, and "),
    ],
)
def test_bad_input(model_dir, tmp_path, monkeypatch, changes, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").touch()
    (tmp_path / "text.txt").write_text("cat\n")
    given = {"input": ["text.txt"], "model": model_dir, "output": "output", **changes}
    with pytest.raises(ValueError, match=re.escape(sentence)):
        run(resolve(**given))
    assert not (tmp_path / "output").exists()


@pytest.mark.slow
def test_ctrl_c(model_dir, tmp_path):
    flags = {
        "model": model_dir,
        "input": write_many(tmp_path / "text.txt", count=5000),
        "output": tmp_path / "output",
    }
    process = subprocess.Popen(
        command(**flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "output" / "part-000002.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert err == "\nInterrupted.\n"
    said = re.search(r"output has ([\d,]+) lines; the same command goes on\.\n$", out)
    names = {path.name for path in (tmp_path / "output").iterdir()}
    lines = int(said[1].replace(",", ""))
    told = {"manifest.json", *(f"part-{n:06d}.jsonl" for n in range(lines // 1000))}
    # A file may be whole that the manifest does not name yet; it is written again.
    assert told <= names <= {*told, f"part-{lines // 1000:06d}.jsonl"}
