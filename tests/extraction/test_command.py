"""What ``python -m bert_tf.extract_features`` refuses before it writes anything."""

import re

import pytest

from bert_tf.extraction.run import run
from bert_tf.extraction.settings import resolve


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
