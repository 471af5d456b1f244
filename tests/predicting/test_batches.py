"""``bert_tf.BatchPredictor``: columns of answers, invalid rows and threads."""

import pickle
import threading

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BatchPredictor
from bert_tf.saved_models import replay
from tests.processes import run_python
from tests.saved_models.head_exports import exported

TEXTS = ["the cat sat", "", "a dog on the mat .", "the mat"]
SECOND = ["a dog", "the dog sat", None, "\ud800"]


@pytest.fixture
def choices(tmp_path):
    """Returns a predictor whose export counts and joins the choices."""

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.string, "choices")])
    def count(choices):
        counts = tf.math.count_nonzero(choices != "", 1, dtype=tf.int32)
        return {"count": counts, "joined": tf.strings.reduce_join(choices, 1, separator="|")}

    tf.saved_model.save(tf.Module(), str(tmp_path / "1"), {"serving_default": count})
    return BatchPredictor(str(tmp_path / "1"))


def test_answers_equal_the_export_and_invalid_rows_have_errors(tmp_path_factory):
    export = exported("classifier", tmp_path_factory)
    predictor = pickle.loads(pickle.dumps(BatchPredictor(export)))
    answers = predictor({"text": np.array(TEXTS, object), "text_pair": SECOND, "id": range(4)})
    request = {"text": tf.constant(TEXTS[:2]), "text_pair": tf.constant(SECOND[:2])}
    expected = tf.saved_model.load(export).signatures["serving_default"](**request)
    assert answers.keys() == expected.keys() | {"error"}
    assert answers["label"].tolist() == [
        *(label.decode() for label in expected["label"].numpy()),
        *(None, None),
    ]
    assert answers["labels"].shape == answers["probabilities"].shape == (4, 3)
    np.testing.assert_array_equal(answers["probabilities"][:2], expected["probabilities"])
    assert np.isnan(answers["probabilities"][2:]).all() and np.isnan(answers["score"][2:]).all()
    assert answers["error"].tolist() == [
        *("", ""),
        "expected a string in column 'text_pair', got None.",
        "expected valid Unicode in column 'text_pair', got an unpaired surrogate at character 0.",
    ]
    # Data engines pass empty batches and batches without a valid row.
    label_predictor = BatchPredictor(export, outputs=["label"])
    assert [*label_predictor({"text": [], "text_pair": []})] == ["label", "error"]
    invalid_rows = {"text": [" ", float("nan"), b"\xff"], "text_pair": ["", "a", "a"]}
    assert label_predictor(invalid_rows)["error"].tolist() == [
        "expected non-empty text in column 'text', got ' '.",
        "expected a string in column 'text', got None.",
        "expected UTF-8 text, got b'\\xff'.",
    ]


def test_lists_of_strings_are_padded(choices):
    answers = choices({"choices": [["a", "b"], np.array(["c"], object), None, ["d", 7]]})
    assert answers["count"].tolist() == [2, 1, 0, 0]
    assert answers["joined"].tolist() == ["a|b", "c|", None, None]
    assert answers["error"].tolist() == [
        *("", ""),
        "expected a list of strings in column 'choices', got None.",
        "expected a string in column 'choices', got 7.",
    ]


def test_threads_load_the_export_once(choices, monkeypatch):
    loads, load = [], replay.load
    monkeypatch.setattr(replay, "load", lambda path: loads.append(path) or load(path))
    barrier = threading.Barrier(4)

    def call():
        barrier.wait()
        choices({"choices": [["a"]]})

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == [choices.export]


@pytest.mark.parametrize(
    ("arguments", "columns", "message"),
    [
        ({}, {"text": ["a"]}, "expected choices among the columns, got text"),
        ({"signature": "x"}, {},
         "signature x: expected x among the signatures, got serving_default"),
        ({"outputs": ["count", "label"]}, {},
         "expected label among the outputs, got count, joined"),
    ],
)  # fmt: skip
def test_unknown_columns_and_outputs_raise_errors(choices, arguments, columns, message):
    with pytest.raises(ValueError, match=message):
        BatchPredictor(choices.export, **arguments)(columns)


def test_local_paths_become_absolute_and_urls_are_kept():
    assert BatchPredictor("gs://bucket/1").export == "gs://bucket/1"
    assert BatchPredictor("1").export.startswith("/")


def test_constructor_does_not_import_tensorflow():
    code = """import sys, bert_tf
before = {name.split(".")[0] for name in sys.modules}
bert_tf.BatchPredictor("exports/1", threads=1)
now = {name.split(".")[0] for name in sys.modules}
print(sorted(now - before - sys.stdlib_module_names - {"__mp_main__"}))"""
    process = run_python(code)
    assert (process.stdout, process.stderr) == ("['absl', 'isal', 'numpy']\n", "")
