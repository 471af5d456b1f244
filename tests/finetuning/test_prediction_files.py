"""Files of predictions, to the byte."""

import io
import json

import pytest

from bert_tf.finetuning.prediction_files import (
    AnswersWriter,
    ConllWriter,
    RecordWriter,
    write_records,
)

RECORDS = [
    {"id": "a\tb", "prediction": ["x y", "z"], "probabilities": {"x y": 0.123456789, "z": 1.0}},
    {"id": "c", "prediction": [], "probabilities": {"x y": 1e-9, "z": 0.0}},
]


def test_tables(tmp_path):
    path = tmp_path / "new" / "a.tsv"
    write_records(str(path), RECORDS)
    assert path.read_bytes() == (
        b"id\tprediction\tprobability_x y\tprobability_z\na b\tx y,z\t0.123457\t1\nc\t\t1e-09\t0\n"
    )


def test_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    write_records(str(path), [*RECORDS, {"id": "ä\u2028", "words": ("a", "b"), "prediction": 1.5}])
    lines = path.read_bytes().split(b"\n")
    assert [json.loads(line) for line in lines[:-1]] == [
        {"id": "a\tb", "prediction": ["x y", "z"], "probabilities": {"x y": 0.123457, "z": 1.0}},
        {"id": "c", "prediction": [], "probabilities": {"x y": 1e-9, "z": 0.0}},
        {"id": "ä\u2028", "words": ["a", "b"], "prediction": 1.5},
    ]
    assert lines[-1] == b""


def test_a_record_is_always_one_line(tmp_path):
    path = tmp_path / "a.tsv"
    write_records(
        str(path), [{"id": 0, "text": "a\nb\r\n\tc\u2028d\u00a0e  f", "tags": ("B", "I")}]
    )
    assert path.read_text().splitlines() == ["id\ttext\ttags", "0\ta b c d e f\tB I"]


def test_no_records_are_an_empty_file(tmp_path):
    write_records(str(tmp_path / "a.tsv"), [])
    assert (tmp_path / "a.tsv").read_bytes() == b""


def test_conll_columns():
    file = io.BytesIO()
    writer = ConllWriter(file)
    writer.write({"id": "0", "words": ("New", "Yo rk"), "tags": ("B-LOC", "I-LOC")})
    writer.write({"id": "1", "words": ("ä\u00a0\t",), "expected": ("B-X",), "tags": ("O",)})
    writer.finish()
    assert file.getvalue().decode() == "New B-LOC\nYo_rk I-LOC\n\nä\u00a0_ B-X O\n\n"


@pytest.mark.parametrize("answers", [{"a": 'an "answer"', "ä": ""}, {}])
def test_answers(answers):
    file = io.BytesIO()
    writer = AnswersWriter(file)
    for example_id, answer in answers.items():
        writer.write({"id": example_id, "prediction": answer, "null_odds": 1.0})
    writer.finish()
    assert json.loads(file.getvalue()) == answers


@pytest.mark.parametrize("name", ["a.txt", "a"])
def test_other_suffixes(tmp_path, name):
    with pytest.raises(ValueError, match=r"files of \.tsv or \.jsonl, got 'no suffix'"):
        write_records(str(tmp_path / name), RECORDS)
    with pytest.raises(ValueError, match=r"files of \.tsv or \.jsonl, got '\.csv'"):
        RecordWriter(io.BytesIO(), ".csv")
