"""Serving of arbitrary SavedModels."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.serving import model as served


class Lookup(tf.Module):
    """Looks up words in a file of the SavedModel; returns line numbers times a variable."""

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


def test_files_and_variables_of_a_saved_model_are_loaded(tmp_path, monkeypatch):
    function_names, import_graph = [], tf.compat.v1.train.import_meta_graph

    def import_recorded(read):
        function_names.extend(
            function.signature.name for function in read.graph_def.library.function
        )
        return import_graph(read)

    monkeypatch.setattr(tf.compat.v1.train, "import_meta_graph", import_recorded)
    (tmp_path / "words.txt").write_text("a\ncat\n")
    module = Lookup(str(tmp_path / "words.txt"))
    tf.saved_model.save(module, str(tmp_path / "1"), signatures={"serving_default": module.number})
    (tmp_path / "words.txt").unlink()
    model = served.load(str(tmp_path / "1"))
    assert [*model.signatures] == ["serving_default"]
    answer = model.run("serving_default", {"words": np.array([b"cat", b"dog"], object)})
    assert answer["number"].tolist() == [10, -10]
    assert any("number" in name for name in function_names)
    assert not any("for_training" in name for name in function_names)  # not called by any signature


def test_saved_model_without_signatures_raises_error(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "1"))
    with pytest.raises(ValueError, match="/1 has no signatures. Use the"):
        served.load(str(tmp_path / "1"))


def test_requested_outputs_that_do_not_exist_are_omitted(half_model):
    """The batcher requests ``counts`` with padded outputs, but not every SavedModel has it."""
    inputs = {"text": np.array([b"a"], object), "ids": np.array([[1, 2]], np.int32)}
    answer = half_model.run("two", inputs, frozenset({"sum", "counts"}))
    assert {name: value.tolist() for name, value in answer.items()} == {"sum": [3]}
