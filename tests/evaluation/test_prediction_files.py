"""Exact bytes of prediction files."""

import collections
import csv
import datetime
import decimal
import functools
import io
import json
import math
import random
import re
import time
import uuid

import pytest

from bert_tf.evaluation.prediction_files import (
    check_columns,
    columns_suffix,
    text_stream,
    write_file,
    write_records,
)
from bert_tf.readers.examples import BadRowError
from bert_tf.tasks.tagging.reader import read_conll, read_tagging

RECORDS = [
    {"id": "a\tb", "prediction": ["x y", "z"], "probabilities": {"x y": 0.123456789, "z": 1.0}},
    {"id": "c", "prediction": [], "probabilities": {"x y": 1e-9, "z": 0.0}},
]


def test_tables_have_one_column_per_probability(tmp_path):
    path = tmp_path / "new" / "a.tsv"
    write_file(str(path), RECORDS)
    assert path.read_bytes() == (
        b"id\tprediction\tprobability_x y\tprobability_z\na b\tx y,z\t0.123457\t1\nc\t\t1e-09\t0\n"
    )


def test_json_lines_keep_every_value(tmp_path):
    path = tmp_path / "a.jsonl"
    write_file(str(path), [*RECORDS, {"id": "ä\u2028", "words": ("a", "b"), "prediction": 1.5}])
    lines = path.read_bytes().split(b"\n")
    assert [json.loads(line) for line in lines[:-1]] == [
        {"id": "a\tb", "prediction": ["x y", "z"], "probabilities": {"x y": 0.123457, "z": 1.0}},
        {"id": "c", "prediction": [], "probabilities": {"x y": 1e-9, "z": 0.0}},
        {"id": "ä\u2028", "words": ["a", "b"], "prediction": 1.5},
    ]
    assert lines[-1] == b""


def test_record_is_one_line(tmp_path):
    path = tmp_path / "a.tsv"
    write_file(str(path), [{"id": 0, "text": "a\nb\r\n\tc\u2028d\u00a0e  f", "tags": ("B", "I")}])
    assert path.read_text().splitlines() == ["id\ttext\ttags", "0\ta b c d e f\tB I"]
    write_file(str(path), [])
    assert path.read_bytes() == b""


def test_csv_cells_may_contain_any_text(tmp_path):
    path = tmp_path / "a.csv"
    texts = ["a\nb", "a\rb", "a\r\nb", 'a "b"', "a,b", "", " a "]
    write_file(str(path), [{"id": str(n), "text": text} for n, text in enumerate(texts)])
    with path.open(newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)] == texts


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
@pytest.mark.parametrize("columns", [{"id": "", "prediction": None}, None])
def test_unknown_record_key_raises_error(suffix, columns):
    records = [{"id": "0", "prediction": "a"}, {"id": "1", "prediction": "b", "margin": 0.5}]
    message = (
        "A record has the unknown column 'margin': expected id, prediction. Add it to the task's "
        "record_columns."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        write_records(io.StringIO(), records, suffix, columns)
    lines = io.StringIO()
    write_records(lines, records, ".jsonl", columns)
    assert json.loads(lines.getvalue().splitlines()[1])["margin"] == 0.5


def test_names_with_commas_are_written_as_json(tmp_path):
    path = tmp_path / "a.tsv"
    names = [["food, drinks", "so"], ["food", "so"], ["[1]"], []]
    write_file(str(path), [{"id": "0", "prediction": each} for each in names])
    cells = [line.split("\t")[1] for line in path.read_text().splitlines()[1:]]
    assert cells == ['["food, drinks", "so"]', "food,so", '["[1]"]', ""]


def written(form, *records, **options):
    file = io.StringIO()
    write_records(file, records, form, **options)
    return file.getvalue().encode()


# A value of an input column, and its forms in .jsonl and .csv.
DEEP = functools.reduce(lambda inner, _: [inner], range(5000), "a")
STORED = [
    ("a\tb\n\u2028", "a\tb\n\u2028", "a\tb\n\u2028"),
    (None, None, ""),
    (True, True, "true"),
    (10**30, 10**30, str(10**30)),
    (1.5, 1.5, "1.5"),
    (math.nan, None, "NaN"),
    (-0.0, -0.0, "-0.0"),
    (decimal.Decimal("1.50"), "1.50", "1.50"),
    (datetime.date(2026, 1, 2), "2026-01-02", "2026-01-02"),
    (datetime.datetime(2026, 1, 2, 3, 4), "2026-01-02 03:04:00", "2026-01-02 03:04:00"),
    (datetime.time(3, 4), "03:04:00", "03:04:00"),
    (datetime.timedelta(hours=1), "1:00:00", "1:00:00"),
    (uuid.UUID(int=1), str(uuid.UUID(int=1)), str(uuid.UUID(int=1))),
    ({"a": [math.nan, (1,), datetime.date(2026, 1, 2)]}, {"a": [None, [1], "2026-01-02"]},
     '{"a": [null, [1], "2026-01-02"]}'),
]  # fmt: skip
# A value that cannot be stored, its description in the error, and its form in a listed row.
NOT_STORED = [
    (b"\x89PNG", "b'\\x89PNG'", None),
    ([{"bytes": b"\xff", "path": None}], "b'\\xff'", [{"bytes": None, "path": None}]),
    ("cut \ud83d", "an unpaired surrogate, 'cut \\ud83d'", "cut \ud83d"),
    ({"a": ["\udc4d"]}, "an unpaired surrogate, '\\udc4d'", {"a": ["\udc4d"]}),
    ([-math.inf], "-inf", [None]),
    (object, "<class 'object'>", None),
    (DEEP, "too deeply nested lists", None),
]


@pytest.mark.parametrize("number", range(len(STORED)), ids=lambda n: repr(STORED[n][0])[:40])
def test_input_columns_are_stored_by_value(number):
    value, in_json, in_table = STORED[number]
    for suffix in (".jsonl", ".csv", ".tsv"):
        check_columns({"kept": value}, suffix)
    (line,) = written(".jsonl", {"id": 0}, rows=lambda: [{"kept": value}]).splitlines()
    assert json.loads(line, parse_constant=pytest.fail) == {"kept": in_json}
    table = written(".csv", {"id": 0}, rows=lambda: [{"kept": value}]).decode()
    assert [*csv.reader(io.StringIO(table, newline=""))] == [["kept"], [in_table]]


@pytest.mark.parametrize("number", range(len(NOT_STORED)), ids=lambda n: NOT_STORED[n][1][:40])
def test_input_columns_that_cannot_be_stored_raise_error(number, tmp_path):
    value, description, listed = NOT_STORED[number]
    for suffix in (".jsonl", ".csv", ".tsv"):
        expected = f"write to {suffix} in column 'kept', got {re.escape(description)}$"
        with pytest.raises(BadRowError, match=expected):
            check_columns({"text": "so", "kept": value}, suffix)
        # Writing succeeds, because such a row may be listed as bad.
        path = tmp_path / f"a{suffix}"
        with text_stream(path.open("wb")) as file:
            write_records(file, [{"id": 0}], suffix, rows=lambda: [{"kept": value}])
        content = path.read_text(encoding="utf-8")
        assert "b'" not in content and "Infinity" not in content
        if suffix == ".jsonl":
            assert json.loads(content) == {"kept": listed}
    check_columns({"kept": math.inf}, ".csv")
    with pytest.raises(BadRowError, match="got inf"):
        check_columns({"kept": math.inf}, ".jsonl")


def test_conll_has_one_line_per_word():
    content = written(
        ".conll",
        {"id": "0", "words": ("New", "York"), "tags": ("B-LOC", "I-LOC")},
        {"id": "1", "words": ("ä\u00a0",), "expected": ("B-X",), "tags": ("O",)},
    )
    assert content.decode() == "New B-LOC\nYork I-LOC\n\nä\u00a0 B-X O\n\n"


READERS = {
    ".conll": read_conll,
    ".tsv": functools.partial(read_tagging, id_column="id"),
    ".jsonl": functools.partial(read_tagging, id_column="id"),
}
# Characters that separate words, end lines or have a meaning in at least one format.
PIECES = [
    *"ab\"',_[]\\{}", " ", "\t", "\n", "\r", "\0", "\x0b", "\x1c", "\x85", "\u00a0", "\u2028",
    "\u3000", "\ufeff", "\u200b", "漢", "😀", "-DOCSTART-", "O", "B-X",
]  # fmt: skip


def tagged(words, tags):
    return {"id": "7", "words": words, "tags": tags}


def test_written_words_are_read_back_or_rejected(tmp_path):
    rng = random.Random(5)
    written_forms = collections.Counter()
    for _ in range(200):
        words = tuple(
            "".join(rng.choices(PIECES, k=rng.randint(1, 3))) for _ in range(rng.randint(1, 3))
        )
        tags = tuple(rng.choice(["O", "B-X", "B-X"]) for _ in words)
        for form, read in READERS.items():
            try:
                content = written(form, tagged(words, tags))
            except ValueError as error:
                message = rf"^row 7: .* would not be read back as one word from a {form} file. Use"
                assert re.search(message, str(error))
                continue
            path = tmp_path / f"out{form}"
            path.write_bytes(content)
            (item,) = read(str(path)).items
            assert (item.words, item.tags) == (words, tags)
            written_forms[form] += 1
            written_forms["chosen"] += form == columns_suffix(words)
    assert min(written_forms.values()) > 30


def test_error_recommends_a_format_for_the_word():
    message = (
        "row 7: 'New York' would not be read back as one word from a .tsv file. Use an --output "
        "that ends in .jsonl."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        written(".tsv", tagged(("in", "New York"), ("O", "O")))
    with pytest.raises(ValueError, match=r"'a\\xa0b' .* Use an --output that ends in .* or .jsonl"):
        written(".tsv", tagged(("a\u00a0b",), ("O",)))
    message = (
        "row 7: 'noun phrase' would not be read back as one word from a .conll file. Use an "
        "--output that ends in .jsonl."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        written(".conll", tagged(("a",), ("noun phrase",)))
    line = b'{"id": "7", "words": ["a b"], "tags": ["c d"]}\n'
    assert written(".jsonl", tagged(("a b",), ("c d",))) == line


@pytest.mark.parametrize("answers", [{"a": 'an "answer"', "ä": ""}, {}])
def test_answers_are_written_as_one_json_object(answers):
    records = [{"id": name, "prediction": answers[name], "null_odds": 1.0} for name in answers]
    assert json.loads(written(".json", *records)) == answers


def test_time_is_linear_in_the_number_of_classes(tmp_path):
    def seconds(count):
        record = {"id": "0", "probabilities": {f"class {number}": 0.0 for number in range(count)}}
        times = []
        for _ in range(3):
            start = time.process_time()
            write_file(str(tmp_path / "a.tsv"), [record])
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(16_000) < 9 * seconds(4_000)
