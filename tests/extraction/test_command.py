"""``python -m bert_tf.extract_features``: flags, files, errors."""

import gzip
import json
import re

import pytest

from bert_tf.extraction.run import run
from bert_tf.extraction.settings import resolve
from tests.anew import run_anew


@pytest.mark.slow
def test_from_files_to_files(model_dir, tmp_path):
    (tmp_path / "1.gz").write_bytes(gzip.compress(b"a cat\n" * 3))
    (tmp_path / "2.txt").write_bytes(b"cat ||| sat")
    given = [f"--input={tmp_path}/*.gz,{tmp_path}/2.txt", f"--output={tmp_path}/output"]
    done = run_anew("extract_features", f"--model={model_dir}", "--layers=-1,0", *given)
    assert (done.returncode, done.stderr) == (0, "")
    *_, last = done.stdout.splitlines()
    assert last == f"{tmp_path}/output: 4 lines, 17 tokens, 1 file."
    *_, line = (tmp_path / "output" / "part-000000.jsonl").read_text().splitlines()
    pair = json.loads(line)
    assert pair["linex_index"] == 3
    tokens = [feature["token"] for feature in pair["features"]]
    assert tokens == ["[CLS]", "cat", "[SEP]", "sat", "[SEP]"]
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
