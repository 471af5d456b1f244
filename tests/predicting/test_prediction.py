"""Predictions of texts from and to all file formats, and errors."""

import csv
import functools
import io
import json
import re
import shutil
import sys
import types

import numpy as np
import pytest

from bert_tf.predicting import inputs
from bert_tf.predicting.predictor import Predictor
from bert_tf.tasks.task_file import TaskFile
from tests.processes import run_bert_tf

from .prediction_models import (
    CLASSES,
    LABELS,
    TEXTS,
    predict,
    preprocessor_of,
    probabilities_of,
    read_lines,
    text_task,
    write_model,
)

# === Classification ===


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_control_characters_are_escaped_on_terminals(classifier, tmp_path, monkeypatch):
    table = tmp_path / "a.jsonl"
    table.write_text(json.dumps({"id": "a\x1b[2J\x9bb", "text": TEXTS[0]}) + "\n")
    screen = _Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    predict(classifier[0], table, text_columns=["text"], id_column="id")
    header, row = screen.getvalue().splitlines()
    assert header.startswith("id\tprediction\t")
    assert row.startswith("a\\x1b[2J\\x9bb\t")


def test_jsonl_output_keeps_the_order(classifier, table, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(inputs, "_CHUNK", 4)
    output = tmp_path / "new" / "predictions.jsonl"
    predict(classifier[0], table, output)
    assert [row["id"] for row in read_lines(output)] == ["7", "6", "5", "4", "3", "2"]
    printed = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"Predicting: 6 examples in \d+s\.", printed[0])
    assert printed[1:] == [f"Predictions: {output}"]


def test_top_k_classes(classifier, table, tmp_path):
    folder, model = classifier
    probabilities = probabilities_of(model, TEXTS, length=6)
    predict(folder, table, tmp_path / "out.tsv", top_k=2, max_seq_length=6)
    header, *lines = (tmp_path / "out.tsv").read_text().splitlines()
    assert header.split("\t") == [
        *("id", "prediction", "probability", "prediction_2", "probability_2")
    ]
    for line, row in zip(lines, probabilities, strict=True):
        _, first, first_probability, second, second_probability = line.split("\t")
        ranked = np.argsort(-row)
        assert (float(first_probability), float(second_probability)) == pytest.approx(
            tuple(row[ranked[:2]]), abs=1e-5
        )
        assert [first, second] == [LABELS[index] for index in ranked[:2]]


# === Multi-label classification ===


def test_multilabel_threshold_applies_to_calibrated_probabilities(table, tmp_path):
    folder, output = tmp_path / "model", tmp_path / "out.jsonl"
    settings = {"multi_label": True, "thresholds": {"probability": 0.6, "temperature": 2.0}}
    task = text_task("multilabel")
    model = write_model(folder, "BertClassifier", CLASSES, task, labels=LABELS, **settings)
    logits = [model(preprocessor_of(16)([text]), training=False)[0] for text in TEXTS]
    probabilities = 1 / (1 + np.exp(-np.array(logits) / 2))
    assert len({(probabilities >= threshold).sum() for threshold in (0.1, 0.5, 0.6, 1.0)}) == 4
    for options, threshold in (({}, 0.6), ({"threshold": 0.1}, 0.1), ({"threshold": 1.0}, 1.0)):
        predict(folder, table, output, **options)
        for row, expected in zip(read_lines(output), probabilities, strict=True):
            assert row["prediction"] == [
                LABELS[index] for index in np.flatnonzero(expected >= threshold)
            ]
            assert [*row["probabilities"].values()] == pytest.approx(expected.tolist(), abs=2e-6)
    with pytest.raises(ValueError, match="--threshold=2: expected a probability from 0 to 1"):
        predict(folder, table, output, threshold=2)


# === Bad input ===


def test_invalid_rows_have_records_with_errors(classifier, tmp_path, capsys):
    source, output = tmp_path / "texts.tsv", tmp_path / "out.jsonl"
    source.write_text("n\ttext\n1\tgood\n2\n3\t \n4\tbad\n")
    with pytest.raises(ValueError) as error:
        predict(classifier[0], source, output)
    assert str(error.value) == (
        f"{source}, line 3: expected 2 columns, got 1. Correct the row, or skip bad rows with "
        "--skip_bad_rows."
    )
    assert not output.exists()
    predict(classifier[0], source, output, skip_bad_rows=True)
    rows = read_lines(output)
    assert [row["id"] for row in rows] == ["1", "2", "3", "4"]
    assert [row["prediction"] in LABELS for row in rows] == [True, False, False, True]
    assert rows[1] == {
        "id": "2", "prediction": None, "error": f"{source}, line 3: expected 2 columns, got 1."
    }  # fmt: skip
    assert "error" not in rows[3] and rows[2]["error"].endswith(
        "expected non-empty text in column 'text', got ' '."
    )
    assert capsys.readouterr().out.splitlines()[1:4] == [
        "No prediction for 2 bad rows:",
        f"  {source}, line 3: expected 2 columns, got 1.",
        f"  {source}, line 4: expected non-empty text in column 'text', got ' '.",
    ]
    source.write_text("n\ttext\n" + "2\n" * 7 + "1\tgood\n")
    predict(classifier[0], source, output, skip_bad_rows=True)
    assert "  and 2 more" in capsys.readouterr().out
    output = tmp_path / "out.tsv"
    # A row without text has a record, unless its id is also missing.
    source = tmp_path / "texts.jsonl"
    source.write_text('{"text": null}\n{"text": "bad"}\n')
    predict(classifier[0], source, output)
    _, none, good = (line.split("\t") for line in output.read_text().splitlines())
    assert none[:5] == ["0", *[""] * 4]
    assert none[5] == f"{source}, line 1: expected a string in column 'text', got None."
    assert good[1] in LABELS and good[-1] == ""
    source.write_text('{"n": "", "text": ""}\n')
    message = (
        "line 1: expected non-empty text in column 'text', got ''. Correct the row, or skip bad "
        r"rows with --skip_bad_rows"
    )
    with pytest.raises(ValueError, match=message):
        predict(classifier[0], source, output)


def test_empty_table_gives_only_a_header(classifier, tmp_path, capsys):
    source, output = tmp_path / "texts.csv", tmp_path / "out.tsv"
    source.write_text("n,text\n")
    predict(classifier[0], source, output)
    assert f"{source} has no rows.\n" in capsys.readouterr().out
    header = "id\tprediction\tprobability_neg\tprobability_neutral\tprobability_pos\n"
    assert output.read_text() == header


def test_incomplete_run_is_reported(classifier, table, tmp_path, capsys):
    folder = shutil.copytree(classifier[0], tmp_path / "run")
    (folder / "flags.json").write_text("{}")
    predict(folder, table, tmp_path / "out.tsv")
    assert "run is an unfinished run; its best weights so far are used" in capsys.readouterr().out
    (folder / "results.json").write_text("{}")
    predict(folder, table, tmp_path / "out.tsv")
    assert "unfinished" not in capsys.readouterr().out


def test_invalid_flags_are_rejected(classifier, table, tmp_path):
    folder, output = classifier[0], tmp_path / "out.tsv"
    positions = f"expected 5 to 32, the number of positions of {folder}."
    endings = "expected the suffix .tsv or .csv or .jsonl for classification."
    for options, message in (
        ({"max_seq_length": 33}, f"--max_seq_length=33: {positions}"),
        ({"max_seq_length": 4}, f"--max_seq_length=4: {positions}"),
        ({"threshold": 0.5},
         "--threshold=0.5 is not supported for classification, only for multilabel and squad"),
        ({"threshold": float("nan")}, "--threshold=nan: expected a number."),
        ({"threshold": float("inf")}, "--threshold=inf: expected a finite number."),
        ({"text_columns": list("ab")},
         "--text_columns=a,b: expected one column, because the model was trained on text."),
        ({"text_columns": ["other"]}, f"{table}, line 1: expected one column 'other', got none"),
        ({"id_column": "other"}, f"{table}, line 1: expected one column 'other', got none"),
        ({"output": str(table)}, f"--output={table} is also the --input. Use another path."),
        *(({"output": name}, f"--output={name}: {endings}") for name in ("a.txt", "a.conll")),
    ):  # fmt: skip
        with pytest.raises(ValueError) as error:
            predict(folder, table, **{"output": str(output), **options})
        assert str(error.value).startswith(message)


def test_unsupported_models_are_rejected(table, tmp_path):
    pairs = TaskFile("regression", "own", 16, {"text_columns": ["first", "second"]})
    for name, class_name, task, message in (
        ("encoder", "BertEncoder", None, "encoder contains a BertEncoder, which has no task head"),
        ("odd", "BertRegressor", TaskFile("squad", "own", 16),
         "odd is damaged: it was trained for squad but contains a BertRegressor"),
        ("pairs", "BertRegressor", pairs,
         "expected two columns, because the model was trained on first, second."),
        ("bare", "BertRegressor", text_task("regression"),
         "bare has no tokenizer. Set model.preprocessor: "),
    ):  # fmt: skip
        write_model(tmp_path / name, class_name, {"pooler": True} if task is None else {}, task)
        if name == "bare":
            (tmp_path / name / "vocab.txt").unlink()
        with pytest.raises(ValueError, match=message):
            predict(tmp_path / name, table, tmp_path / "out.tsv", text_columns=["text"])


def read_table(path, suffix=".csv"):
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter=",\t"[suffix == ".tsv"]))


def test_keep_columns_copies_input_columns(classifier, tmp_path):
    folder, source, output = classifier[0], tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text('text,n,prediction\n"good, ""film""",7,old\n,8,old\nso,9,old\n')
    predict(folder, source, output, keep_columns=True)
    predict(folder, source, tmp_path / "plain.csv")
    rows, plain = read_table(output), read_table(tmp_path / "plain.csv")
    assert [row["text"] for row in rows] == ['good, "film"', "", "so"]
    assert [row["n"] for row in rows] == ["7", "8", "9"] and "id" not in rows[0]
    assert [row["prediction"] for row in rows] == [row["prediction"] for row in plain]
    assert rows[1]["error"].endswith("expected non-empty text in column 'text', got ''.")
    values = [{"text": "so", "m": 1, "more": {"a": [0.123456789]}}, {"text": "is", "note": "x"}]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f"{json.dumps(row)}\n" for row in values))
    predict(folder, source, tmp_path / "out.jsonl", keep_columns=True)
    for row, record in zip(values, read_lines(tmp_path / "out.jsonl"), strict=True):
        assert {name: record[name] for name in row} == row and record["prediction"] in LABELS
    # The first row lacks columns or is invalid.
    predict(folder, source, output, keep_columns=True)
    assert [row["note"] for row in read_table(output)] == ["", "x"]
    source = tmp_path / "bad.csv"
    source.write_text("key,text\nbroken\n8,so\n")
    predict(folder, source, output, keep_columns=True, skip_bad_rows=True)
    assert [(row["key"], row["text"]) for row in read_table(output)] == [("", ""), ("8", "so")]


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl"])
def test_unwritable_columns_are_rejected_before_predicting(
    classifier, tmp_path, suffix, monkeypatch, capsys
):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    folder, output = classifier[0], tmp_path / f"out{suffix}"
    cut, image = tmp_path / "cut.jsonl", tmp_path / "image.parquet"
    cut.write_text('{"author": "a", "text": "so"}\n' * 3 + '{"author": "\\ud83d", "text": "so"}\n')
    rows = [{"text": "so", "image": {"bytes": None}}, {"text": "is", "image": {"bytes": b"\xff"}}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), image)
    for source, where, got in (
        (cut, "line 4: expected a value .* in column 'author'", "an unpaired surrogate"),
        (image, "row 1: expected a value .* in column 'image'", r"b'\\xff'"),
    ):
        with monkeypatch.context() as context:
            context.setattr(
                Predictor, "records", lambda *args: pytest.fail("a prediction was made")
            )
            message = f"{source.name}, {where}, got {got}.*Correct the row"
            with pytest.raises(ValueError, match=message):
                predict(folder, source, output, keep_columns=True)
        predict(folder, source, output)  # no such column is written
        predict(folder, source, output, keep_columns=True, skip_bad_rows=True)
        assert re.search(f"No prediction for 1 bad row:.*{where}", capsys.readouterr().out, re.S)
        read = read_lines if suffix == ".jsonl" else functools.partial(read_table, suffix=suffix)
        *good, bad = read(output)
        assert all(record["prediction"] and not record.get("error") for record in good)
        assert bad["text"] and not bad["prediction"] and re.search(got, bad["error"])


def test_lines_of_standard_input_are_predicted(classifier, tmp_path, monkeypatch):
    folder = classifier[0]
    content = io.BytesIO(b"good film\n\nthe plot was so bad\n")
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=content))
    predict(folder, "-", tmp_path / "out.tsv", input_format="lines")
    rows = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert [row[0] for row in rows] == ["id", "0", "1", "2"]
    error = "standard input, line 2: expected non-empty text in column 'text', got ''."
    assert rows[2][1] == "" and rows[2][-1] == error
    assert {rows[1][1], rows[3][1]} <= set(LABELS)
    for text, options, message in (
        (b"", {}, "--input=- requires --input_format"),
        (b"", {"input_format": "csv"}, "standard input is empty: expected a header with text"),
        (b"text\n\xff\n", {"input_format": "csv"}, "standard input, line 2: expected utf-8 text"),
        (b"no JSON\n", {"input_format": "jsonl"}, "standard input, line 1: expected a JSON object"),
        (b"PAR1", {"input_format": "parquet"}, "standard input, after row 0: the Parquet file is"),
    ):
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(text)))
        with pytest.raises(ValueError, match=f"^{message}"):
            predict(folder, "-", tmp_path / "out.tsv", **options)


def test_delimiter_and_encoding_are_configurable(classifier, tmp_path):
    (tmp_path / "in.csv").write_text("n;text\n5;so\u00e9\n", encoding="latin-1")
    options = {"delimiter": ";", "encoding": "latin-1"}
    predict(classifier[0], tmp_path / "in.csv", tmp_path / "out.jsonl", **options)
    assert [record["id"] for record in read_lines(tmp_path / "out.jsonl")] == ["5"]
    message = "--delimiter=;;: expected 'tab' or one character, such as ';', except quotes"
    with pytest.raises(ValueError, match=message):
        predict(classifier[0], tmp_path / "in.csv", tmp_path / "out.jsonl", delimiter=";;")


def test_keep_columns_requires_tables(tmp_path):
    labels = {"labels": ("O", "B-X"), "task": TaskFile("tagging", "ner", 16)}
    write_model(tmp_path, "BertTokenClassifier", {"num_classes": 2}, **labels)
    (tmp_path / "a.conll").write_text("good O\n")
    message = "--keep_columns requires a table with column names, got .*a.conll"
    with pytest.raises(ValueError, match=message):
        predict(tmp_path, tmp_path / "a.conll", tmp_path / "out.tsv", keep_columns=True)
    (tmp_path / "a.jsonl").write_text('{"words": ["good"]}\n')
    with pytest.raises(ValueError, match="--keep_columns requires a table as --output, got .conll"):
        predict(tmp_path, tmp_path / "a.jsonl", tmp_path / "out.conll", keep_columns=True,
                text_columns=["words"])  # fmt: skip


@pytest.mark.slow
def test_standard_output_contains_only_predictions(classifier, table, tmp_path):
    predict(classifier[0], table, tmp_path / "out.tsv")
    done = run_bert_tf("predict", f"--model={classifier[0]}", f"--input={table}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (tmp_path / "out.tsv").read_text()
    assert "Predicting: 6 examples in " in done.stderr
