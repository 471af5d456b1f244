"""Files of predictions, to the byte."""

import collections
import csv
import functools
import io
import json
import random
import re
import time

import pytest

from bert_tf.evaluation.prediction_files import columns_suffix, write_file, write_records
from bert_tf.tasks.tagging.conll_reader import read_conll
from bert_tf.tasks.tagging.reader import read_tagging

RECORDS = [
    {"id": "a\tb", "prediction": ["x y", "z"], "probabilities": {"x y": 0.123456789, "z": 1.0}},
    {"id": "c", "prediction": [], "probabilities": {"x y": 1e-9, "z": 0.0}},
]


def test_tables_have_a_column_for_each_probability(tmp_path):
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


def test_a_record_is_always_one_line(tmp_path):
    path = tmp_path / "a.tsv"
    write_file(str(path), [{"id": 0, "text": "a\nb\r\n\tc\u2028d\u00a0e  f", "tags": ("B", "I")}])
    assert path.read_text().splitlines() == ["id\ttext\ttags", "0\ta b c d e f\tB I"]
    write_file(str(path), [])
    assert path.read_bytes() == b""


def test_a_cell_of_csv_may_have_any_text(tmp_path):
    path = tmp_path / "a.csv"
    texts = ["a\nb", "a\rb", "a\r\nb", 'a "b"', "a,b", "", " a "]
    write_file(str(path), [{"id": str(n), "text": text} for n, text in enumerate(texts)])
    with path.open(newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)] == texts


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
@pytest.mark.parametrize("columns", [{"id": "", "prediction": None}, None])
def test_a_key_that_no_column_has_is_refused(suffix, columns):
    records = [{"id": "0", "prediction": "a"}, {"id": "1", "prediction": "b", "margin": 0.5}]
    sentence = (
        "A record has 'margin', and the table's columns are id, prediction: the kind's "
        "record_columns is to name every key of its records."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        write_records(io.StringIO(), records, suffix, columns)
    lines = io.StringIO()
    write_records(lines, records, ".jsonl", columns)
    assert json.loads(lines.getvalue().splitlines()[1])["margin"] == 0.5


def test_names_that_a_comma_would_split(tmp_path):
    path = tmp_path / "a.tsv"
    names = [["food, drinks", "so"], ["food", "so"], ["[1]"], []]
    write_file(str(path), [{"id": "0", "prediction": each} for each in names])
    cells_of = [line.split("\t")[1] for line in path.read_text().splitlines()[1:]]
    assert cells_of == ['["food, drinks", "so"]', "food,so", '["[1]"]', ""]


def written(form, *records):
    file = io.StringIO()
    write_records(file, records, form)
    return file.getvalue().encode()


def test_conll_has_a_line_for_each_word():
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
# What parts words in one form or another, ends lines, or means something to a reader.
PIECES = [
    *"ab\"',_[]\\{}", " ", "\t", "\n", "\r", "\0", "\x0b", "\x1c", "\x85", "\u00a0", "\u2028",
    "\u3000", "\ufeff", "\u200b", "漢", "😀", "-DOCSTART-", "O", "B-X",
]  # fmt: skip


def tagged(words, tags):
    return {"id": "7", "words": words, "tags": tags}


def test_words_are_read_as_they_were_written_or_refused(tmp_path):
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
                sentence = rf"^row 7: .* would not be one word when a {form} file is read: name"
                assert re.search(sentence, str(error))
                continue
            path = tmp_path / f"out{form}"
            path.write_bytes(content)
            (item,) = read(str(path)).items
            assert (item.words, item.tags) == (words, tags)
            written_forms[form] += 1
            written_forms["chosen"] += form == columns_suffix(words)
    assert min(written_forms.values()) > 30


def test_says_which_form_holds_a_word():
    message = (
        "row 7: 'New York' would not be one word when a .tsv file is read: name an --output that "
        "ends in .jsonl."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        written(".tsv", tagged(("in", "New York"), ("O", "O")))
    with pytest.raises(
        ValueError, match=r"'a\\xa0b' .*: name an --output that ends in .* or .jsonl"
    ):
        written(".tsv", tagged(("a\u00a0b",), ("O",)))
    message = (
        "row 7: 'noun phrase' would not be one word when a .conll file is read: name an --output "
        "that ends in .jsonl."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        written(".conll", tagged(("a",), ("noun phrase",)))
    line = b'{"id": "7", "words": ["a b"], "tags": ["c d"]}\n'
    assert written(".jsonl", tagged(("a b",), ("c d",))) == line


@pytest.mark.parametrize("answers", [{"a": 'an "answer"', "ä": ""}, {}])
def test_answers_are_one_json_object(answers):
    records = [{"id": name, "prediction": answers[name], "null_odds": 1.0} for name in answers]
    assert json.loads(written(".json", *records)) == answers


def test_the_time_of_many_classes_is_linear(tmp_path):
    def seconds(count):
        record = {"id": "0", "probabilities": {f"class {number}": 0.0 for number in range(count)}}
        times = []
        for _ in range(3):
            began = time.process_time()
            write_file(str(tmp_path / "a.tsv"), [record])
            times.append(time.process_time() - began)
        return min(times)

    assert seconds(16_000) < 9 * seconds(4_000)
