"""Predictions of all task types equal the outputs of the loaded model, one example at a time."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import api, export
from bert_tf.answering.served import untraced
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.saved_models.replay import as_text
from bert_tf.tasks.registry import KINDS
from bert_tf.tasks.signatures import model_signatures
from bert_tf.tasks.task_file import TaskFile

from .prediction_models import (
    CLASSES,
    LABELS,
    TEXTS,
    approx,
    loaded,
    predict,
    read_lines,
    write_model,
)

LENGTH = 8  # differs from the default and from max_position_embeddings
LONG = [*TEXTS, " ".join(TEXTS), " ".join(TEXTS[::-1])]
TAGS = ("O", "B-X", "I-X")


def probabilities(model, outputs, record):
    """Checks the most likely class; returns its probabilities and the expected ones."""
    expected_values = tf.nn.softmax(outputs).numpy()
    assert record["prediction"] == model.labels[expected_values.argmax()]
    return [record["probabilities"][label] for label in model.labels], expected_values


def several(model, outputs, record):
    expected_values = tf.sigmoid(outputs).numpy()
    assert record["prediction"] == [
        model.labels[index] for index in np.flatnonzero(expected_values >= 0.5)
    ]
    return [record["probabilities"][label] for label in model.labels], expected_values


def number(model, outputs, record):
    return record["prediction"], outputs


def tags(model, outputs, record):
    expected_values = tf.nn.softmax(outputs)[1 : 1 + len(record["words"])].numpy()
    assert [*record["tags"]] == [model.labels[index] for index in expected_values.argmax(-1)]
    return record["scores"], expected_values.max(-1)


def choice(model, outputs, record):
    expected_values = tf.nn.softmax(outputs).numpy()
    assert record["prediction"] == expected_values.argmax()
    return [*record["probabilities"].values()], expected_values


TEXT = [{"text": text} for text in LONG]
PAIRS = [{"one": one, "other": other} for one, other in zip(LONG, LONG[::-1], strict=True)]
WORDS = [{"words": ["so", "good"]}, {"words": ["the", "film"]}]
CHOICES = [{"context": "the plot", "choices": ["was bad", "is fine"]}]
QUESTIONS = [{"question": "what film", "context": "a good film"}] * 2
SPANS = {"max_query_length": 8, "doc_stride": 8}
HEAD_TAIL = {"long_text": "head_tail"}
# Name to task type, model class, options, examples and function that returns the values to compare.
ROWS = {
    "classes": ("classification", "BertClassifier", {}, TEXT, probabilities),
    "pairs": ("classification", "BertClassifier", {}, PAIRS, probabilities),
    "several": ("multilabel", "BertClassifier", {}, TEXT, several),
    "numbers": ("regression", "BertRegressor", HEAD_TAIL, TEXT, number),
    "tags": ("tagging", "BertTokenClassifier", {}, WORDS, tags),
    "choices": ("multiple_choice", "BertMultipleChoice", {}, CHOICES, choice),
    "questions": ("squad", "BertSpanPredictor", SPANS, QUESTIONS, None),  # test_objective compares
}


def write(folder, task_type, class_name, options, columns, length=LENGTH):
    named = {"text_columns": columns, "label_column": "label", "id_column": None}
    own = named if "text" in columns or "one" in columns else {}
    labels = {"BertClassifier": LABELS, "BertTokenClassifier": TAGS}.get(class_name, ())
    write_model(
        folder, class_name, CLASSES if labels else {},
        TaskFile(task_type, "own", length, own, options),
        labels=labels, multi_label=task_type == "multilabel",
    )  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_predictions_equal_the_model(name, tmp_path, capsys):
    task_type, class_name, options, examples, compare = ROWS[name]
    folder, table = tmp_path / "model", tmp_path / "in.jsonl"
    columns = [*examples[0]]
    length = LENGTH if task_type in ("classification", "regression") else 16
    write(folder, task_type, class_name, options, columns, length)
    table.write_text("".join(f"{json.dumps(example)}\n" for example in examples))
    predict(folder, table, tmp_path / "out.jsonl", text_columns=columns)
    written = read_lines(tmp_path / "out.jsonl")
    capsys.readouterr()
    predictor = bert_tf.Predictor(folder)
    records = predictor(examples)
    one = predictor("so good" if task_type == "tagging" else examples[0])
    assert capsys.readouterr() == ("", "")
    assert len(records) == len(examples) and one["id"] == "0"
    for found, row in zip([*records, one], [*written, written[0]], strict=True):
        assert found.keys() == row.keys()
        assert json.loads(json.dumps(found)) == approx(row)
    if name in ("classes", "questions"):  # the other task types use the same code
        assert approx(api.predict(folder, examples)) == json.loads(json.dumps(records))
    model = bert_tf.load(folder)
    assert model.preprocessor.max_seq_length == length
    if compare is None:
        return
    for example, record in zip(examples, records, strict=True):
        texts = [" ".join(example["words"])] if task_type == "tagging" else [*example.values()]
        if task_type == "multiple_choice":
            texts = [[texts[0]] * len(texts[1]), texts[1]]
        else:
            texts = [[text] for text in texts]
        rows = model.preprocessor(tuple(texts) if texts[1:] else texts[0])
        if task_type == "multiple_choice":
            rows = {key: value[None] for key, value in rows.items()}
        outputs = tf.nest.map_structure(lambda values: values[0], model(rows, training=False))
        np.testing.assert_allclose(*compare(model, outputs, record), atol=1e-5)


def exported_signatures(folder, tmp_path):
    return tf.saved_model.load(api.export(folder, tmp_path / "1", verbose=False).path).signatures


def untraced_signatures(folder, tmp_path):
    """Returns the signatures of the export without tracing them."""
    options = export.options_of(open_checkpoint(str(folder)), {})
    model = loaded(folder)
    served = untraced(model, model.preprocessor.tokenizer, options)
    return {name: one.function for name, one in model_signatures(served).items()}


@pytest.mark.parametrize(
    "signatures", [untraced_signatures, pytest.param(exported_signatures, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", ROWS)
def test_export_outputs_equal_predictions(name, signatures, tmp_path):
    """The outputs of the signature are converted to the records of ``predict``."""
    task_type, class_name, options, examples, _ = ROWS[name]
    columns = [*examples[0]]
    length = LENGTH if task_type in ("classification", "regression") else 16
    write(tmp_path / "model", task_type, class_name, options, columns, length)
    records = api.predict(tmp_path / "model", examples)
    model = bert_tf.load(tmp_path / "model")
    items = [types.SimpleNamespace(**example, offsets=()) for example in examples]
    signature, inputs = {
        "pairs": ("pair", {"one": "text", "other": "text_pair"}), "tags": ("words", {}),
    }.get(name, ("serving_default", {}))  # fmt: skip
    request = {inputs.get(key, key): [each[key] for each in examples] for key in columns}
    answers = signatures(tmp_path / "model", tmp_path)[signature](
        **{key: tf.constant(values) for key, values in request.items()}
    )
    if signatures is exported_signatures:  # predict also takes the export itself
        from_export = api.predict(tmp_path / "1", examples)
        assert json.loads(json.dumps(from_export)) == approx(records)
    restored = KINDS[task_type].restore_options(options, {})
    task = KINDS[task_type]("own", None, {}, {}, labels=model.labels, options=restored)
    rows = [_to_task_outputs(name, row) for row in _split_examples(answers)]
    for record, found in zip(records, task.records(items, iter(rows)), strict=True):
        assert json.loads(json.dumps(found)) == approx({k: record[k] for k in found})
        assert {*record} - {*found} == {"id"}


def _split_examples(answers):
    """Splits the outputs of a signature into examples."""
    columns = {key: as_text(np.asarray(value).tolist()) for key, value in answers.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _to_task_outputs(name, answer):
    """Removes padding and adds the keys that the task expects."""
    if name == "tags":
        return {key: answer[key][: answer["counts"]] for key in ("tags", "scores")}
    if name == "questions":
        return {**answer, "probability": answer["probabilities"][0], "null_odds": None}
    return answer


@pytest.mark.parametrize("truncation", ["head", "head_tail", "windows"])
def test_export_reports_truncated_texts(truncation, tmp_path):
    folder = tmp_path / "model"
    write(folder, "regression", "BertRegressor", {"long_text": truncation}, ["text"])
    expected = [record["prediction"] for record in api.predict(folder, LONG)]
    answers = untraced_signatures(folder, tmp_path)["serving_default"](text=tf.constant(LONG))
    np.testing.assert_allclose(answers["value"], expected, atol=1e-5)
    lengths = np.array([len(text.split()) for text in LONG])
    is_cut = (lengths > LENGTH - 2) & (truncation != "windows")
    assert answers["truncated"].numpy().tolist() == is_cut.tolist()


def test_encoder_from_checkpoint_has_the_default_length(tmp_path):
    """This also applies to the model itself if the length in its task file is invalid."""
    write(tmp_path, "classification", "BertClassifier", {}, ["text"])
    encoder = bert_tf.BertEncoder.from_checkpoint(str(tmp_path))
    default_length = encoder.config.max_position_embeddings
    assert encoder.preprocessor.max_seq_length == default_length
    assert bert_tf.load(tmp_path, max_seq_length=9).preprocessor.max_seq_length == 9
    task = json.loads((tmp_path / "task.json").read_text())
    for length in ("8", 8.0, True, None):
        (tmp_path / "task.json").write_text(json.dumps({**task, "max_seq_length": length}))
        assert bert_tf.load(tmp_path).preprocessor.max_seq_length == default_length
