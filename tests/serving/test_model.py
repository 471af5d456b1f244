"""A SavedModel of whatever origin is served."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.serving import model as served


class Lookup(tf.Module):
    """Numbers of words, the lines of a file that the SavedModel holds, times a variable."""

    def __init__(self, file):
        super().__init__()
        line, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        lines = tf.lookup.TextFileInitializer(
            tf.saved_model.Asset(file), tf.string, line, tf.int64, number
        )
        self.numbers = tf.lookup.StaticHashTable(lines, -1)
        self.factor = tf.Variable(10, dtype=tf.int64)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def number(self, words):
        return {"number": self.numbers.lookup(words) * self.factor}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def for_training(self, x):
        return x + 1


def test_files_and_variables_of_any_saved_model_are_read(tmp_path, monkeypatch):
    kept, import_graph = [], tf.compat.v1.train.import_meta_graph

    def recorded(read):
        kept.extend(function.signature.name for function in read.graph_def.library.function)
        return import_graph(read)

    monkeypatch.setattr(tf.compat.v1.train, "import_meta_graph", recorded)
    (tmp_path / "words.txt").write_text("a\ncat\n")
    module = Lookup(str(tmp_path / "words.txt"))
    tf.saved_model.save(module, str(tmp_path / "1"), signatures={"serving_default": module.number})
    (tmp_path / "words.txt").unlink()
    model = served.load(str(tmp_path / "1"))
    assert [*model.signatures] == ["serving_default"]
    answer = model.run("serving_default", {"words": np.array([b"cat", b"dog"], object)})
    assert answer["number"].tolist() == [10, -10]
    assert any("number" in name for name in kept)
    assert not any("for_training" in name for name in kept)  # which no signature calls


def test_without_signatures_nothing_is_loaded(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "1"))
    with pytest.raises(ValueError, match="/1 has no signatures. Use the"):
        served.load(str(tmp_path / "1"))


def test_outputs_that_are_wanted_and_not_there_are_left_out(half_model):
    """The batcher wants ``counts`` beside what is padded, which not every SavedModel has."""
    inputs = {"text": np.array([b"a"], object), "ids": np.array([[1, 2]], np.int32)}
    answer = half_model.run("two", inputs, frozenset({"sum", "counts"}))
    assert {name: value.tolist() for name, value in answer.items()} == {"sum": [3]}
