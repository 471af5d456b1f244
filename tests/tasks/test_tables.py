"""Rows and columns of .tsv, .csv and JSON lines, and what each says of a row that is none."""

import gzip
import re

import pytest

from bert_tf.tasks.examples import BadRows
from bert_tf.tasks.tables import read_columns, read_fields


@pytest.fixture
def read(tmp_path):
    def read_table(name, content, columns, *, skip=False, **arguments):
        path = tmp_path / name
        content = content.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        bad = BadRows(name, skip)
        rows = list(read_columns(str(path), columns, bad, **arguments))
        found = [(line, row.number, row.values) for line, row in rows]
        return (found, bad.skipped) if skip else found

    return read_table


def test_tsv_takes_quotes_as_text(read):
    content = '\ufeffid\ttext\tlabel\r\n1\t"so, he said\t0\r\n2\ta "b""\t1\r\n\r\n3\t\t1'
    rows = [(2, 0, ["0", '"so, he said']), (3, 1, ["1", 'a "b""']), (5, 2, ["1", ""])]
    assert read("a.tsv", content, ["label", "text"]) == rows
    assert read("a.TSV.gz", content, ["label", "text"]) == rows
    assert read("a.csv", content, ["label", "text"], suffix=".tsv") == rows
    assert read("a.tsv", content, ["label", None, "id"])[2] == (5, 2, ["1", None, "3"])


def test_csv_takes_quotes_off(read):
    content = 'id,"a text"\r\n1,"so, ""he"" said"\r\n2,"two\r\nlines\n"\r\n\r\n3,it\'s "so"\n4,\n'
    assert read("a.csv", content, ["a text", "id"]) == [
        (2, 0, ['so, "he" said', "1"]),
        (3, 1, ["two\nlines\n", "2"]),
        (7, 2, ['it\'s "so"', "3"]),
        (8, 3, ["", "4"]),
    ]


def test_json_lines_keep_their_types(read):
    content = '{"a": [1, "x"], "b": null}\n\n{"b": true, "c": 0, "a": "ü"}\n'
    assert read("a.jsonl", content, ["b", "a", None]) == [
        (1, 0, [None, [1, "x"], None]),
        (3, 1, [True, "ü", None]),
    ]


def test_an_empty_line_is_a_row_of_one_column(read):
    assert read("a.tsv", "text\n\nb\n", ["text"]) == [(2, 0, [""]), (3, 1, ["b"])]
    assert read("a.csv", "text\n\nb\n", ["text"]) == [(2, 0, [""]), (3, 1, ["b"])]


def test_rows_of_another_width(read):
    content = "a\tb\n1\t2\n3\n4\t5\t6\n7\t8\n"
    with pytest.raises(ValueError, match="a.tsv, line 3: expected 2 columns, got 1; correct the"):
        read("a.tsv", content, ["a"])
    rows = [(2, 0, ["1"]), (5, 3, ["7"])]
    assert read("a.tsv", content, ["a"], skip=True) == (
        rows,
        [
            "a.tsv, line 3: expected 2 columns, got 1.",
            "a.tsv, line 4: expected 2 columns, got 3.",
        ],
    )
    assert read("a.csv", content.replace("\t", ","), ["a"], skip=True)[0] == rows
    short = content.replace("4\t5\t6\n", "")
    assert [row[2] for row in read("a.tsv", short, ["a"], skip_short_rows=True)] == [["1"], ["7"]]
    with pytest.raises(ValueError, match="line 4: expected 2 columns, got 3"):
        read("a.tsv", content, ["a"], skip_short_rows=True)


def test_misplaced_quotes(read):
    content = 'a,b\n1,"x" y\n2,z\n3,"x\ny" z\n4,w\n'
    with pytest.raises(ValueError, match="a.csv, line 2: expected comma-separated fields, got: '"):
        read("a.csv", content, ["a"])
    rows, skipped = read("a.csv", content, ["a"], skip=True)
    assert rows == [(3, 1, ["2"]), (6, 3, ["4"])]
    assert "line 4: " in skipped[1] and skipped[1].endswith("(in its lines 4 to 5).")
    for skip in (False, True):  # what is behind the quote is lost: never just a bad row
        with pytest.raises(ValueError, match="line 3: a quoted field of this row never ends"):
            read("a.csv", 'a,b\n1,x\n2,"y\n3,z\n', ["a"], skip=skip)
    with pytest.raises(ValueError, match="line 1: .*; correct the line with the columns"):
        read("a.csv", '"a" b,c\n1,2\n', ["c"], skip=True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{'a': 1}", "expected a JSON object, got \"{'a': 1}\" (the line is not JSON: Expecting"),
        ("[1, 2]", "expected a JSON object, got [1, 2]"),
        ("[" * 10000, "expected a JSON object, got '[[[[[[["),
        ('{"b": 1, "c": 2}', "expected the key 'a', got b, c"),
        ("{}", "expected the key 'a', got none"),
    ],
)
def test_lines_that_are_no_object(read, line, reason):
    content = f'{{"a": 1}}\n{line}\n{{"a": 2}}\n'
    with pytest.raises(ValueError, match=re.escape(f"a.jsonl, line 2: {reason}")):
        read("a.jsonl", content, ["a"])
    rows, skipped = read("a.jsonl", content, ["a"], skip=True)
    assert rows == [(1, 0, [1]), (3, 2, [2])]
    assert len(skipped) == 1


def test_says_which_columns_there_are(read):
    message = "a.tsv, line 1: expected one column 'label', got none; the columns are index, text."
    with pytest.raises(ValueError, match=re.escape(message)):
        read("a.tsv", "index\ttext\n", ["text", "label"])
    with pytest.raises(ValueError, match="expected one column 'x', got 2; the columns are x, y, x"):
        read("a.csv", "x,y, x \n", ["x"])
    with pytest.raises(
        ValueError, match="a.tsv is empty: expected a first line with the columns a"
    ):
        read("a.tsv", "", [None, "a"])


def test_says_which_files_are_tables(read):
    message = r"a\.txt is no table: expected a name that ends in \.tsv, \.csv, \.jsonl \(or in one"
    with pytest.raises(ValueError, match=message):
        read("a.txt", "a\n1\n", ["a"])


def test_tables_without_a_line_of_names(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a\tb\tc\nd\te\nf\n")
    bad = BadRows("a.csv", skip=True)
    rows = [row for _, row in read_fields(str(path), [1, None, 0], {2, 3}, bad)]
    assert rows == [(0, ["b", None, "a"]), (1, ["e", None, "d"])]
    assert bad.skipped == ["a.csv, line 3: expected 2 or 3 columns, got 1."]
