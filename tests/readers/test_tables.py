"""Rows and columns of .tsv, .csv and JSON lines, and errors about invalid rows."""

import csv
import gzip
import re

import pytest

from bert_tf.readers.examples import BadRows
from bert_tf.readers.tables import TableFile, read_columns, read_rows


@pytest.fixture
def read(tmp_path):
    def read_table(name, content, columns, *, skip=False, skip_short_rows=False, **options):
        path = tmp_path / name
        content = content.encode(options.get("encoding", "utf-8"))
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        bad = BadRows(name, skip)
        table = TableFile(str(path), **options)
        rows = list(read_columns(table, columns, bad, skip_short_rows=skip_short_rows))
        found = [(line, row.number, row.values) for line, row in rows]
        return (found, bad.skipped) if skip else found

    return read_table


def test_tsv_quotes_are_text(read):
    content = '\ufeffid\ttext\tlabel\r\n1\t"so, he said\t0\r\n2\ta "b""\t1\r\n\r\n3\t\t1'
    rows = [(2, 0, ["0", '"so, he said']), (3, 1, ["1", 'a "b""']), (5, 2, ["1", ""])]
    assert read("a.tsv", content, ["label", "text"]) == rows
    assert read("a.TSV.gz", content, ["label", "text"]) == rows
    assert read("a.csv", content, ["label", "text"], suffix=".tsv") == rows
    assert read("a.tsv", content, ["label", None, "id"])[2] == (5, 2, ["1", None, "3"])


def test_csv_quotes_are_removed(read):
    content = 'id,"a text"\r\n1,"so, ""he"" said"\r\n2,"two\r\nlines\n"\r\n\r\n3,it\'s "so"\n4,\n'
    assert read("a.csv", content, ["a text", "id"]) == [
        (2, 0, ['so, "he" said', "1"]),
        (3, 1, ["two\nlines\n", "2"]),
        (7, 2, ['it\'s "so"', "3"]),
        (8, 3, ["", "4"]),
    ]


def test_prodigy_column_in_csv_is_an_ordinary_column(read):
    content = "text,_task_hash,answer\nso good,5,reject\n"
    assert read("a.csv", content, ["answer"]) == [(2, 0, ["reject"])]


def test_json_lines_keep_types(read):
    content = '{"a": [1, "x"], "b": null}\n\n{"b": true, "c": 0, "a": "ü"}\n'
    assert read("a.jsonl", content, ["b", "a", None]) == [
        (1, 0, [None, [1, "x"], None]),
        (3, 1, [True, "ü", None]),
    ]


def test_empty_line_is_a_row_in_single_column_tables(read):
    assert read("a.tsv", "text\n\nb\n", ["text"]) == [(2, 0, [""]), (3, 1, ["b"])]
    assert read("a.csv", "text\n\nb\n", ["text"]) == [(2, 0, [""]), (3, 1, ["b"])]


def test_rows_with_wrong_number_of_columns(read):
    content = "a\tb\n1\t2\n3\n4\t5\t6\n7\t8\n"
    message = "a.tsv, line 3: expected 2 columns, got 1. Correct the row, or skip bad rows with"
    with pytest.raises(ValueError, match=message):
        read("a.tsv", content, ["a"])
    rows = [(2, 0, ["1"]), (5, 3, ["7"])]
    expected_skipped = [
        f"a.tsv, line {3 + at}: expected 2 columns, got {1 + 2 * at}." for at in range(2)
    ]
    assert read("a.tsv", content, ["a"], skip=True) == (rows, expected_skipped)
    assert read("a.csv", content.replace("\t", ","), ["a"], skip=True)[0] == rows
    short = content.replace("4\t5\t6\n", "")
    assert [row[2] for row in read("a.tsv", short, ["a"], skip_short_rows=True)] == [["1"], ["7"]]
    with pytest.raises(ValueError, match="line 4: expected 2 columns, got 3"):
        read("a.tsv", content, ["a"], skip_short_rows=True)


def test_misplaced_quotes_raise_error(read):
    content = 'a,b\n1,"x" y\n2,z\n3,"x\ny" z\n4,w\n'
    message = """a.csv, line 2: expected comma-separated fields, got: ',' expected after '"'."""
    with pytest.raises(ValueError, match=message):
        read("a.csv", content, ["a"])
    rows, skipped = read("a.csv", content, ["a"], skip=True)
    assert rows == [(3, 1, ["2"]), (6, 3, ["4"])]
    assert "line 4: " in skipped[1] and skipped[1].endswith("(in line 5).")
    # The rows after the quote are lost, so this is an error even if bad rows are skipped.
    for skip in (False, True):
        with pytest.raises(ValueError, match="line 3: a quoted field is not closed"):
            read("a.csv", 'a,b\n1,x\n2,"y\n3,z\n', ["a"], skip=skip)
    with pytest.raises(ValueError, match="line 1: .*. Correct the header"):
        read("a.csv", '"a" b,c\n1,2\n', ["c"], skip=True)


def test_long_fields_are_read(read):
    text = 'word, "so"\n' * 20_000
    content = 'a,b\n1,x\n2,"' + text.replace('"', '""') + '"\n3,y\n'
    limit = csv.field_size_limit()
    assert read("a.csv", content, ["b"]) == [(2, 0, ["x"]), (3, 1, [text]), (20004, 2, ["y"])]
    assert csv.field_size_limit() == limit


def test_csv_field_size_limit_is_restored_between_rows(tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n2\n")
    limit, rows = csv.field_size_limit(), read_rows(str(tmp_path / "a.csv"))
    assert [row["a"] for row in rows if csv.field_size_limit() == limit] == ["1", "2"]


def test_second_header_or_byte_order_mark(read):
    message = "line 3: expected a row, got a second header"
    for name, gap in (("a.csv", ","), ("a.tsv", "\t")):
        content = f"text{gap}label\nso{gap}x\n\ufefftext{gap} label\n\ufefflabel{gap}y\n"
        with pytest.raises(ValueError, match=message):
            read(name, content, ["label"])
        rows = [(2, 0, ["x", "so"]), (4, 2, ["y", "label"])]
        assert read(name, content, ["label", "text"], skip=True)[0] == rows
    assert read("a.csv", 'a,b\n1,2\n\ufeff"3,",4\n', ["a"])[1] == (3, 1, ["3,"])
    assert read("a.tsv", "text\nso\ntext\n", ["text"])[1] == (3, 1, ["text"])
    assert read("a.jsonl", '{"a": 1}\n\ufeff{"a": 2}\n', ["a"])[1] == (2, 1, [2])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "{'a': 1}",
            "expected a JSON object, got \"{'a': 1}\" (the line is not JSON: "
            "Expecting property name enclosed in double quotes: line 1 column 2 (char 1))",
        ),
        (
            "[" * 10000,
            f"expected a JSON object, got '{'[' * 27}...{'[' * 28}' "
            "(the line cannot be read as JSON: it is nested too deeply)",
        ),
        ('{"b": 1, "c": 2}', "expected the key 'a', got b, c"),
    ],
)
def test_lines_that_are_not_objects_raise_error(read, line, reason):
    content = f'{{"a": 1}}\n{line}\n{{"a": 2}}\n'
    with pytest.raises(ValueError, match=re.escape(f"a.jsonl, line 2: {reason}")):
        read("a.jsonl", content, ["a"])
    rows, skipped = read("a.jsonl", content, ["a"], skip=True)
    assert rows == [(1, 0, [1]), (3, 2, [2])]
    assert len(skipped) == 1


ROW = "the first line looks like data; add a header with the names of the columns)."
SEVERAL = "for multilabel, write the names of the classes into one column)"
GUESS = (
    "got none. The columns are {} (the delimiters seem to be {}; pass --delimiter=';' to finetune "
    "or predict)."
)


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("a.tsv", "index\ttext\n", ["text", "label"],
         "a.tsv, line 1: expected one column 'label', got none. The columns are index, text."),
        ("a.csv", "x,y, x \n", ["x"], "expected one column 'x', got 2. The columns are x, y, x"),
        ("a.tsv", "", [None, "a"],
         "a.tsv is empty: expected a header with a."),
        ("a.csv", "sep=,\n", ["a"],
         "a.csv is empty: expected a header with a."),
        ("a.csv", "text;label\nso;x\n", ["label"], GUESS.format("text;label", "semicolons")),
        ("a.csv", "so good,1\nbad,0\n", ["text"], f"got none. The columns are so good, 1 ({ROW}"),
        ("a.tsv", "At last, a film that is fun\n", ["text"], f"At last, a film that is fun ({ROW}"),
        ("a.csv", "text,toxic,rude\na,0,1\n", ["toxic,rude"], f"toxic, rude ({SEVERAL}"),
        ("a.jsonl", '{"toxic": 0, "rude": 1}', ["toxic,rude"], f"got toxic, rude ({SEVERAL}"),
        ("a.csv", "sep=;\ntext;label\nso;x\n", ["label"], GUESS.format("sep=;", "semicolons")),
        ("a.json", '{"a": 1}\n', ["a"], "a.json: expected a JSON list of objects, got {'a': 1}. "
            "In pandas, use to_json(path, orient=\"records\")."),
        ("a.json", '{"a": 1}\n{"a": 2}\n', ["a"], "rename the file to .jsonl"),
        ("a.json", '[{"a": 1}, 2]', ["a"], "a.json, row 1: expected a JSON object, got 2"),
        ("a.txt", "a\n1\n", ["a"], "a.txt is not a table: expected the suffix .tsv, .csv, .jsonl, "
            ".ndjson, .json, .parquet, .arrow, .feather, optionally with .gz."),
        ("a.txt", "a\n1\n", ["a"],
         " Rename it to .tsv if tabs separate the columns, else to .csv."),
        ("a.xlsx", "", ["a"], ' Save the sheet as .csv (in Excel "CSV UTF-8").'),
        ("a.csv.bz2", "", ["a"], " Decompress it, or use gzip."),
        ("a.pkl.gz", "", ["a"], " Convert it to .jsonl or .parquet in Python, or pass the rows to "
            "api.fine_tune."),
    ],
)  # fmt: skip
def test_missing_column_error_lists_the_columns(read, name, content, columns, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(name, content, columns)


def test_excel_separator_line_is_skipped(read):
    assert read("a.csv", "\ufeffsep=,\r\ntext,label\r\nso,x\r\n", ["label"]) == [(3, 0, ["x"])]
    assert read("a.tsv", "sep=\t\ntext\tlabel\nso\tx\n", ["label"]) == [(3, 0, ["x"])]


def test_table_without_header(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a\tb\tc\nd\te\nf\n")
    bad = BadRows("a.csv", skip=True)
    table = TableFile(str(path), suffix=".tsv", names=("x", "y", "z"), optional=1)
    rows = [row for _, row in read_columns(table, ["y", None, "x"], bad)]
    assert rows == [(0, ["b", None, "a"]), (1, ["e", None, "d"])]
    assert bad.skipped == ["a.csv, line 3: expected 2 or 3 columns, got 1."]


def test_custom_delimiter_and_encoding(read):
    rows = read(
        "a.csv", 'id;text\n1;"é; ""so"""\n2;a,b\n', ["text"], delimiter=";", encoding="latin-1"
    )
    assert rows == [(2, 0, ['é; "so"']), (3, 1, ["a,b"])]
    assert read("a.tsv", "id|text\n1|so\n", ["text"], delimiter="|") == [(2, 0, ["so"])]
