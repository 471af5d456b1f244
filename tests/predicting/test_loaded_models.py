"""What ``bert_tf.load`` gives, asked in Python, answers as ``predict`` and an export do."""

import json

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import api
from bert_tf.tasks.task_file import TaskFile

from .prediction_models import CLASSES, LABELS, TEXTS, write_model

LENGTH = 8  # neither the default's 128 nor the positions' number
LONG = [*TEXTS, " ".join(TEXTS), " ".join(TEXTS[::-1])]


def write(folder, class_name, kind, columns, **options):
    arguments = CLASSES if class_name == "BertClassifier" else {}
    task = TaskFile(kind, "own", LENGTH, {**columns, "id_column": None}, options)
    write_model(folder, class_name, arguments, task, labels=LABELS[: len(arguments) * 3])


HEAD_TAIL = {"long_text": "head_tail"}


@pytest.mark.parametrize(
    ("class_name", "kind", "options", "exports"),
    [
        ("BertClassifier", "classification", {}, False),
        ("BertClassifier", "classification", HEAD_TAIL, True),
        ("BertRegressor", "regression", HEAD_TAIL, False),
        pytest.param("BertRegressor", "regression", HEAD_TAIL, True, marks=pytest.mark.slow),
    ],
)
def test_texts(tmp_path, class_name, kind, options, exports):
    columns = {"text_columns": ["text"], "label_column": "label"}
    write(tmp_path / "run", class_name, kind, columns, **options)
    model = bert_tf.load(tmp_path / "run")
    assert model.preprocessor.max_seq_length == LENGTH
    outputs = model(model.preprocessor(LONG), training=False)
    records = api.predict(tmp_path / "run", LONG)
    answers = None
    if exports:
        exported = api.export(tmp_path / "run", tmp_path / "exported" / "1", verbose=False)
        served = tf.saved_model.load(exported.path).signatures["serving_default"]
        answers = served(text=tf.constant(LONG))
    if kind == "regression":
        np.testing.assert_allclose([r["prediction"] for r in records], outputs, atol=1e-5)
        if answers:
            np.testing.assert_allclose(answers["value"], outputs, atol=1e-5)
        return
    shares = tf.nn.softmax(outputs).numpy()
    found = [[record["probabilities"][label] for label in LABELS] for record in records]
    np.testing.assert_allclose(found, shares, atol=1e-5)
    if answers:
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


def test_a_length_that_is_none_is_not_taken(tmp_path):
    columns = {"text_columns": ["text"], "label_column": "label"}
    write(tmp_path, "BertClassifier", "classification", columns)
    path = tmp_path / "task.json"
    task = json.loads(path.read_text())
    for length in ("8", 8.0, True, None):
        path.write_text(json.dumps({**task, "max_seq_length": length}))
        model = bert_tf.load(tmp_path)
        assert model.preprocessor.max_seq_length == model.config.max_position_embeddings


TAGS = ("O", "B-LOC", "I-LOC")
OWN_KINDS = {
    "multilabel": ("BertClassifier", {"text_columns": ["text"], "label_column": "label"}, {}),
    "tagging": (
        "BertTokenClassifier",
        {"words_column": "words", "tags_column": "tags"},
        {"document_context": False},
    ),
    "multiple_choice": (
        "BertMultipleChoice",
        {"context_column": "context", "choice_columns": ["choices"], "label_column": "label"},
        {},
    ),
    "squad": (
        "BertSpanPredictor",
        {},
        {"doc_stride": 4, "max_query_length": 3, "n_best_size": 5, "max_answer_length": 4,
         "with_null": False},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_other_kinds(tmp_path, kind):
    class_name, columns, options = OWN_KINDS[kind]
    own = {**columns, "id_column": None} if columns else {}
    task = TaskFile(kind, "own", 16, own, options)
    several = class_name in ("BertClassifier", "BertTokenClassifier")
    labels = TAGS if kind == "tagging" else LABELS[: 3 * several]
    write_model(
        tmp_path, class_name, CLASSES if several else {}, task, labels=labels,
        multi_label=kind == "multilabel",
    )  # fmt: skip
    model = bert_tf.load(tmp_path)
    assert model.preprocessor.max_seq_length == 16

    def outputs(*texts):
        return model(model.preprocessor(texts if len(texts) > 1 else texts[0]), training=False)

    if kind == "multilabel":
        found = [list(row["probabilities"].values()) for row in api.predict(tmp_path, LONG)]
        np.testing.assert_allclose(found, tf.sigmoid(outputs(LONG)), atol=1e-5)
    elif kind == "tagging":
        (record,) = api.predict(tmp_path, [{"words": TEXTS[1].split()}])
        best = outputs([TEXTS[1]])[0, 1 : 1 + len(record["words"])].numpy().argmax(-1)
        assert list(record["tags"]) == [TAGS[at] for at in best]
    elif kind == "multiple_choice":
        (record,) = api.predict(tmp_path, [(TEXTS[1], TEXTS[:3])])
        rows = model.preprocessor((3 * [TEXTS[1]], TEXTS[:3]))
        logits = model({key: value[None] for key, value in rows.items()}, training=False)
        shares = tf.nn.softmax(logits)[0]
        np.testing.assert_allclose(list(record["probabilities"].values()), shares, atol=1e-5)
    else:
        (record,) = api.predict(tmp_path, [("the film", TEXTS[1])])
        logits = outputs(["the film"], [TEXTS[1]])
        begins, ends = (logits[key][0].numpy() for key in ("start_logits", "end_logits"))
        words = TEXTS[1].split()
        best = max(
            (
                (begins[4 + a] + ends[4 + b], a, b)
                for a in range(5)
                for b in range(a, min(a + 4, 5))
            ),
        )
        assert record["prediction"] == " ".join(words[best[1] : best[2] + 1])
