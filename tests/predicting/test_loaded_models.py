"""What ``bert_tf.load`` gives, asked in Python, answers as ``predict`` and an export do."""

import json

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import api
from bert_tf.finetuning.task_file import TaskFile

from .prediction_models import CLASSES, LABELS, TEXTS, write_model

LENGTH = 8  # neither the default's 128 nor the positions' number
LONG = [*TEXTS, " ".join(TEXTS), " ".join(TEXTS[::-1])]


def write(folder, class_name, kind, columns, **options):
    arguments = CLASSES if class_name == "BertClassifier" else {}
    task = TaskFile(kind, "own", LENGTH, {**columns, "id_column": None}, options)
    write_model(folder, class_name, arguments, task, labels=LABELS[: len(arguments) * 3])


@pytest.mark.parametrize(
    ("class_name", "kind", "options"),
    [
        ("BertClassifier", "classification", {}),
        ("BertClassifier", "classification", {"long_text": "head_tail"}),
        ("BertRegressor", "regression", {"long_text": "head_tail"}),
    ],
)
def test_texts(tmp_path, class_name, kind, options):
    columns = {"text_columns": ["text"], "label_column": "label"}
    write(tmp_path / "run", class_name, kind, columns, **options)
    model = bert_tf.load(tmp_path / "run")
    assert model.preprocessor.max_seq_length == LENGTH
    outputs = model(model.preprocessor(LONG), training=False)
    records = api.predict(tmp_path / "run", LONG)
    exported = api.export(tmp_path / "run", tmp_path / "exported" / "1", verbose=False)
    served = tf.saved_model.load(exported.path).signatures["serving_default"]
    answers = served(text=tf.constant(LONG))
    if kind == "regression":
        np.testing.assert_allclose([r["prediction"] for r in records], outputs, atol=1e-5)
        np.testing.assert_allclose(answers["value"], outputs, atol=1e-5)
        return
    shares = tf.nn.softmax(outputs).numpy()
    found = [[record["probabilities"][label] for label in LABELS] for record in records]
    np.testing.assert_allclose(found, shares, atol=1e-5)
    np.testing.assert_allclose(np.sort(answers["probabilities"]), np.sort(shares), atol=1e-5)


def test_pairs(tmp_path):
    columns = {"text_columns": ["one", "other"], "label_column": "label"}
    write(tmp_path, "BertClassifier", "classification", columns)
    model = bert_tf.load(tmp_path)
    pairs = list(zip(LONG, LONG[::-1], strict=True))
    rows = model.preprocessor(([one for one, _ in pairs], [other for _, other in pairs]))
    shares = tf.nn.softmax(model(rows, training=False)).numpy()
    records = api.predict(tmp_path, pairs)
    found = [[record["probabilities"][label] for label in LABELS] for record in records]
    np.testing.assert_allclose(found, shares, atol=1e-5)


def test_another_model_of_its_weights_has_the_usual_length(tmp_path):
    columns = {"text_columns": ["text"], "label_column": "label"}
    write(tmp_path, "BertClassifier", "classification", columns)
    encoder = bert_tf.BertEncoder.from_checkpoint(str(tmp_path))
    assert encoder.preprocessor.max_seq_length == encoder.config.max_position_embeddings
    assert bert_tf.load(tmp_path, max_seq_length=9).preprocessor.max_seq_length == 9


@pytest.mark.parametrize("length", ["8", 8.0, True, None])
def test_a_length_that_is_none_is_not_taken(tmp_path, length):
    columns = {"text_columns": ["text"], "label_column": "label"}
    write(tmp_path, "BertClassifier", "classification", columns)
    path = tmp_path / "task.json"
    path.write_text(
        path.read_text().replace('"max_seq_length": 8', f'"max_seq_length": {json.dumps(length)}')
    )
    model = bert_tf.load(tmp_path)
    assert model.preprocessor.max_seq_length == model.config.max_position_embeddings
