"""Predictions of tags, choices and answers from and to all file formats."""

import json
import re

import numpy as np
import pytest

from bert_tf import Predictor
from bert_tf.predicting.inputs import read_inputs
from bert_tf.tasks.tagging.entities import find_all
from bert_tf.tasks.task_file import TaskFile

from . import prediction_models
from .prediction_models import CLASSES, TEXTS, predict, read_lines, write_model

# === Tagging ===

TAGS = ("O", "B-LOC", "I-LOC")


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    """Returns the directory of a tagger with random weights."""
    folder = tmp_path_factory.mktemp("tagger")
    columns = {"text_columns": ["words"], "label_column": "tags", "id_column": None}
    task = TaskFile("tagging", "ner", 16, columns, {"document_context": True})
    write_model(folder, "BertTokenClassifier", CLASSES, task, labels=TAGS)
    return folder


def test_empty_sentences_have_records(tagger, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"words": words}) + "\n" for words in ([], ["good"], "")))
    predict(tagger, source, tmp_path / "out.jsonl")
    rows = read_lines(tmp_path / "out.jsonl")
    assert [row["words"] for row in rows] == [[], ["good"], []]
    assert [len(row["tags"]) for row in rows] == [0, 1, 0]
    assert rows[2]["error"].endswith("line 3: expected words in column 'words', got none.")
    source = tmp_path / "in.conll"
    source.write_bytes(b"good\n\nbad\n\0\n\n")
    predict(tagger, source, tmp_path / "out.conll", skip_bad_rows=True)
    lines = (tmp_path / "out.conll").read_bytes().split(b"\n")
    assert lines[0].startswith(b"good ") and lines[1:] == [b"", b"bad _", b"\0 _", b"", b""]


def test_words_with_spaces_are_rejected_for_conll_and_tsv(tagger, tmp_path, monkeypatch):
    source = tmp_path / "in.jsonl"
    source.write_text('{"words": ["so"]}\n{"words": ["good film", "is"]}\n')
    # The error is raised before the model is loaded.
    monkeypatch.setattr(prediction_models, "_load_once", None)
    for output, subject in (
        (tmp_path / "a.conll", "--output="),
        (None, "The tab-separated output"),
    ):
        message = f"^{subject}.*, row 1: 'good film' would not be read back .* ends in .jsonl.$"
        with pytest.raises(ValueError, match=message):
            predict(tagger, source, output)
    assert not (tmp_path / "a.conll").exists()


def test_entities_have_character_offsets(tmp_path):
    columns = {"text_columns": ["text"], "label_column": "e", "id_column": None}
    task = TaskFile("tagging", "own", 16, {**columns, "character_spans": True})
    folder = tmp_path / "model"
    folder.mkdir()
    write_model(folder, "BertTokenClassifier", CLASSES, task, labels=TAGS)
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    texts = [f"  {text.replace(' ', '  ')}" for text in TEXTS]
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*texts, ""]))
    predict(folder, source, output)
    *rows, bad = read_lines(output)
    assert bad["error"].endswith("line 7: expected non-empty text in column 'text', got ''.")
    found = []
    for text, row in zip(texts, rows, strict=True):
        words = text.split()
        expected = [
            (label, " +".join(words[start:end]), np.mean(row["scores"][start:end]))
            for label, start, end in find_all([row["tags"]])[0]
        ]
        for entity, (label, pattern, score) in zip(row["entities"], expected, strict=True):
            assert entity["label"] == label and re.fullmatch(pattern, entity["text"])
            assert text[entity["start"] : entity["end"]] == entity["text"]
            assert entity["score"] == pytest.approx(score, abs=2e-6)
        found += row["entities"]
    assert len(found) > 2
    predict(folder, source, tmp_path / "out.tsv")
    header, line, *_ = (tmp_path / "out.tsv").read_text().splitlines()
    assert header == "id\twords\ttags\tscores\tentities\terror"
    assert line.split("\t")[2] == " ".join(rows[0]["tags"])
    assert json.loads(line.split("\t")[4]) == rows[0]["entities"]


# === Multiple choice ===


def test_empty_choices_have_records_and_rows_differ_in_number_of_choices(tmp_path):
    columns = {"text_columns": ["c", "o"], "label_column": "l"}
    task = TaskFile("multiple_choice", "own", 16, columns)
    write_model(tmp_path / "model", "BertMultipleChoice", task=task)
    source, output = tmp_path / "in.jsonl", tmp_path / "out.tsv"
    rows = [{"c": "so", "o": choices} for choices in (["good", ""], ["good", "bad"], ["so"] * 3)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    predict(tmp_path / "model", source, output)
    header, *lines = (line.split("\t") for line in output.read_text().splitlines())
    probability_columns = [f"probability_{number}" for number in range(3)]
    assert header == ["id", "prediction", *probability_columns, "error"]
    has_value = [[bool(cell) for cell in line[1:5]] for line in lines]
    assert has_value == [[False] * 4, [True] * 3 + [False], [True] * 4]
    (tmp_path / "none.tsv").write_text("c\to\n")
    predict(tmp_path / "model", tmp_path / "none.tsv", output)
    assert output.read_text() == "id\tprediction\tprobability_0\n"


# === Questions ===


@pytest.fixture
def questions(tmp_path):
    paragraphs = [
        {"context": text, "qas": [{"id": f"q{number}", "question": "the film"}]}
        for number, text in enumerate(TEXTS)
    ]
    path = tmp_path / "questions.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


def write_answerer(folder, thresholds=None, **options):
    options = {"doc_stride": 4, "max_query_length": 8, **options}
    task = TaskFile("squad", "squad", 16, {}, options)
    return write_model(folder, "BertSpanPredictor", task=task, thresholds=thresholds or {})


def test_answers_and_null_threshold(questions, tmp_path):
    write_answerer(tmp_path / "model", n_best_size=20, max_answer_length=4, with_null=True)
    table = tmp_path / "questions.tsv"
    table.write_text("q\tc\n" + "".join(f"the film\t{text}\n" for text in TEXTS))
    predict(tmp_path / "model", questions, tmp_path / "out.json")
    predict(tmp_path / "model", table, tmp_path / "out.jsonl", text_columns=["q", "c"])
    answers = json.loads((tmp_path / "out.json").read_text())
    rows = read_lines(tmp_path / "out.jsonl")
    assert list(answers) == [f"q{number}" for number in range(6)]
    assert [row["prediction"] for row in rows] == list(answers.values())
    assert all(answer in text for text, answer in zip(TEXTS, answers.values(), strict=True))
    assert list(rows[0]) == ["id", "prediction", "score", "start", "end", "null_odds"]
    odds = {f"q{row['id']}": row["null_odds"] for row in rows}
    threshold = sorted(odds.values())[3]
    predict(tmp_path / "model", questions, tmp_path / "out.json", threshold=threshold - 1e-3)
    answers = json.loads((tmp_path / "out.json").read_text())
    assert {name for name, answer in answers.items() if not answer} == {
        name for name, value in odds.items() if value >= threshold
    }


def test_empty_questions_have_records(questions, tmp_path):
    write_answerer(tmp_path / "model", with_null=True)
    document = json.loads(questions.read_text())
    paragraphs = document["data"][0]["paragraphs"]
    paragraphs[1]["qas"][0]["question"] = " "
    paragraphs[2]["qas"][0]["id"] = "q0"  # a duplicate
    questions.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="expected a unique id per row, got 'q0' again"):
        predict(tmp_path / "model", questions, tmp_path / "out.json")
    predict(tmp_path / "model", questions, tmp_path / "out.json", skip_bad_rows=True)
    answers = json.loads((tmp_path / "out.json").read_text())
    assert list(answers) == ["q0", "q1", "q3", "q4", "q5"] and answers["q1"] == ""
    predict(tmp_path / "model", questions, tmp_path / "out.tsv", skip_bad_rows=True)
    header, *rows = (line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines())
    assert header == ["id", "prediction", "score", "start", "end", "null_odds", "error"]
    assert [row[0] for row in rows] == ["q0", "q1", "q0", "q3", "q4", "q5"]
    assert [bool(row[6]) for row in rows] == [False, True, True, False, False, False]


def test_answers_have_character_offsets(tmp_path):
    write_answerer(tmp_path / "model", with_null=True)
    source = tmp_path / "in.jsonl"
    contexts = ["\U0001f600 the pl\u00f6t was g\u00f6\u00f6d", "so \u00e9 fine"]
    source.write_text(
        "".join(json.dumps({"question": "film", "context": text}) + "\n" for text in contexts)
    )
    for threshold, answered in ((1e5, True), (-1e5, False)):
        predict(tmp_path / "model", source, tmp_path / "out.jsonl", threshold=threshold)
        for context, row in zip(contexts, read_lines(tmp_path / "out.jsonl"), strict=True):
            start, end = row["start"], row["end"]
            assert (row["prediction"] != "") == answered
            assert row["prediction"] == (context[start:end] if answered else "")
            assert answered or start is end is None


def test_null_odds_require_training_with_unanswerable_questions(questions, tmp_path):
    for name, thresholds in (("with", {"null": 0.5}), ("without", {})):
        write_answerer(tmp_path / name, thresholds)
        predictor = Predictor(tmp_path / name)
        columns = predictor.columns(read_inputs(predictor.task, str(questions)))
        assert ("null_odds" in columns) == (name == "with")
    write_answerer(tmp_path / "answered", with_null=False)
    message = "--threshold=1: .* was trained only on questions with answers"
    with pytest.raises(ValueError, match=message):
        predict(tmp_path / "answered", questions, tmp_path / "out.json", threshold=1.0)


def test_wrong_number_of_text_columns_raises_error(tagger, table, tmp_path):
    with pytest.raises(ValueError, match="--text_columns=a,b: expected WORDS for tagging."):
        predict(tagger, table, tmp_path / "out.tsv", text_columns=["a", "b"])
    for class_name, expected in (
        ("BertMultipleChoice", "CONTEXT,CHOICE,... for multiple_choice"),
        ("BertSpanPredictor", "QUESTION,CONTEXT for squad"),
    ):
        write_model(tmp_path / class_name, class_name)
        with pytest.raises(ValueError, match=f"--text_columns=a: expected {expected}."):
            predict(tmp_path / class_name, table, tmp_path / "out.tsv", text_columns=["a"])
    message = "--text_columns: expected QUESTION,CONTEXT, got none. Pass the names of these columns"
    with pytest.raises(ValueError, match=message):
        predict(tmp_path / class_name, table, tmp_path / "out.tsv")
