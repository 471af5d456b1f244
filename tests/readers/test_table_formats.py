"""Documents, lines and records in all supported file formats."""

import decimal
import gzip
import importlib.util
import json
import os
import sys

import numpy as np
import pytest

from bert_tf.pipelines.corpora import text_bytes
from bert_tf.readers import table_formats
from bert_tf.readers.examples import BadRows, integer, name, number, sorted_names
from bert_tf.readers.table_formats import (
    class_id_decoder,
    in_memory_tables,
    read_json_document,
    read_lines,
)
from bert_tf.readers.tables import read_columns

TEXT = '{"id": ["Ünë", 1.5, null]}'
DOCUMENT = {"id": ["Ünë", 1.5, None]}


@pytest.mark.parametrize(
    "content",
    [TEXT.encode(), b"\xef\xbb\xbf" + TEXT.encode(), gzip.compress(TEXT.encode())],
    ids=["plain", "byte order mark", "gzip"],
)
def test_plain_bom_and_gzip_documents_are_equal(tmp_path, content):
    path = tmp_path / "any_name"
    path.write_bytes(content)
    assert read_json_document(str(path)) == DOCUMENT


def test_document_on_another_file_system():
    import tensorflow as tf

    with tf.io.gfile.GFile("ram://folder/dev.json", "w") as file:
        file.write(TEXT)
    assert read_json_document("ram://folder/dev.json") == DOCUMENT


COMPLETE_GZIP = gzip.compress(os.urandom(500))


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "FILE is empty: expected a JSON document."),
        (gzip.compress(b" \n", mtime=0), "FILE is empty: expected a JSON document."),
        (b'{"a": 1,\n "b" 2}',
         "FILE is not JSON: Expecting ':' delimiter: line 2 column 6 (char 14)."),
        (b"[" * 200_000, "FILE cannot be read as JSON: it is nested too deeply."),
        ("[1, 'ü']".encode("latin-1"),
         "FILE is not UTF-8 (0xfc at offset 5). Use a JSON document, plain or gzip."),
        (COMPLETE_GZIP[:-20],
         "FILE is damaged or incomplete (Compressed file ended before the end-of-stream marker was "
         "reached). Copy the gzip file again."),
    ],
)  # fmt: skip
def test_invalid_document_raises_error(tmp_path, content, message):
    path = tmp_path / "dev.json"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        read_json_document(str(path))
    assert str(caught.value) == message.replace("FILE", str(path))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_too_large_document_raises_error(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(table_formats, "_MAX_BYTES", 1000)
    path = tmp_path / "dev.json"
    path.write_bytes(pack(b" " * 998 + b"[]"))
    assert read_json_document(str(path)) == []
    path.write_bytes(pack(b" " * 999 + b"[]"))
    with pytest.raises(ValueError) as caught:
        read_json_document(str(path))
    assert str(caught.value) == (
        f"{path} has more than 1,000 bytes when decompressed. Split the JSON document."
    )


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_too_long_line_raises_error(tmp_path, monkeypatch, pack):
    monkeypatch.setenv("BERT_TF_MAX_LINE_MB", "1")
    monkeypatch.setattr(text_bytes, "_CHUNK_BYTES", 1 << 18)
    path = tmp_path / "a.csv"
    path.write_bytes(pack(b"a\nb\n" + b"x" * ((1 << 20) - 1) + b"\n" + b"x" * (1 << 21)))
    with pytest.raises(ValueError) as caught:
        list(read_lines(str(path)))
    assert str(caught.value) == (
        f"{path}, line 4: expected at most 1 MiB per line, got more. For longer lines, set the "
        "environment variable BERT_TF_MAX_LINE_MB=2."
    )
    monkeypatch.setenv("BERT_TF_MAX_LINE_MB", "3")
    assert len(list(read_lines(str(path)))) == 4


def test_quoted_field_has_the_line_limit(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_bytes(b'a\nb\n"' + (b"x" * 1023 + b"\n") * 1025 + b'"\n')
    rows = list(read_columns(str(path), ["a"], BadRows(str(path), skip=True)))
    assert [len(row.values[0]) for _, row in rows] == [1, 1025 << 10]
    monkeypatch.setenv("BERT_TF_MAX_LINE_MB", "1")
    with pytest.raises(ValueError, match="a.csv, line 3: a quoted field has more than "):
        list(read_columns(str(path), ["a"], BadRows(str(path), skip=True)))


@pytest.mark.parametrize("read", [read_json_document, lambda path: list(read_lines(path))])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/dev/zero", r"^/dev/zero: expected a file, got a pipe or a device\.$"),
        ("", r"^{}: expected a text file, got a directory\. Pass a file in it\.$"),
        ("a.zip", r"a\.zip is an archive\. Extract it, and pass the path of an extracted file\.$"),
        (
            "saved",
            "saved: expected a text file, got a directory from datasets' save_to_disk. Pass its "
            r'\.arrow file, or run load_from_disk\(PATH\)\["train"\]\.to_parquet\(FILE\)\.$',
        ),
        ("none.csv", r"^No such file: {}\. Pass the path of a text file\.$"),
        ("reviwes.csv", r"reviwes.csv \(did you mean .*/reviews.csv\?\)\. Pass the path of a text"),
    ],
)
def test_path_that_is_not_a_text_file_raises_error(tmp_path, read, name, message):
    (tmp_path / "saved").mkdir()
    for existing in ("a.zip", "reviews.csv", "saved/state.json"):
        (tmp_path / existing).touch()
    path = str(tmp_path / name)
    with pytest.raises(ValueError, match=message.format(path)):
        read(path)


def test_json_lines_in_a_json_file_raise_error(tmp_path):
    path = tmp_path / "train.json"
    path.write_text('{"question": "a"}\n{"question": "b"}\n')
    message = (
        r"train\.json contains several JSON documents, one per line\. If they are the rows of a "
        r"table, rename the file to \.jsonl\.$"
    )
    with pytest.raises(ValueError, match=message):
        read_json_document(str(path))
    path.write_text('{"a": 1}\n')
    assert read_json_document(str(path)) == {"a": 1}


# === Lines ===


def lines_of(path, content, **arguments):
    path.write_bytes(content)
    return list(read_lines(str(path), **arguments))


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"one", ["one"]),
        (b"one\n", ["one"]),
        (b"one\n\n", ["one", ""]),
        (b"\xef\xbb\xbfone\r\ntwo\r\n", ["one", "two"]),
        # Only \n ends a line, not a carriage return or one of Unicode's line separators.
        ("a\rb\u2028c\x85d\x0ce\nf".encode(), ["a\rb\u2028c\x85d\x0ce", "f"]),
        ("\ufeffa\n\ufeffb\ufeff\r\n\ufeff".encode(), ["a", "b\ufeff", ""]),
    ],
)
def test_lines_are_split_at_line_feeds(tmp_path, content, lines, monkeypatch):
    expected = list(enumerate(lines, 1))
    assert lines_of(tmp_path / "a.txt", content) == expected
    assert lines_of(tmp_path / "a.gz", gzip.compress(content)) == expected
    # A chunk may end anywhere, for example inside a character or between \r and \n.
    for size in (1, 2, 3, 5):
        monkeypatch.setattr(text_bytes, "_CHUNK_BYTES", size)
        assert lines_of(tmp_path / "a.txt", content) == expected


NOT_ASCII = (
    'expected an encoding that extends ASCII. Save FILE as UTF-8 (in Excel "CSV UTF-8"), or '
    "convert it with iconv -f"
)


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        ("a\nb\nseñor\n".encode("latin-1"), "utf-8", "FILE, line 3: expected utf-8 text, got the "
         "byte 0xf1. Save the file as UTF-8, or pass --encoding to finetune or predict, such as "
         "cp1252 (Windows) or latin-1."),
        (b"one\n" * 8 + b"tw\xffo\n", "utf-8", "FILE, line 9: expected utf-8 text, got the byte "
         "0xff"),
        (b"text\n\0\0\xff", "utf-8", "FILE, line 2: expected utf-8 text, got the byte 0xff. The "
         "file contains null bytes. Use a text file."),
        (b"", "utf-9", "Unknown encoding 'utf-9': expected a name such as utf-8 or latin-1."),
        (b"so", "rot13", "Unknown encoding 'rot13'"),
        (b"text\tlabel\rso\tx\r", "utf-8",
         "FILE: expected line feeds, got only carriage returns."),
        (gzip.compress(b"x" * 1000, mtime=0)[:-9], "utf-8", "FILE is damaged or incomplete"),
        *(("東\n".encode(name), name, f"--encoding={name}: {NOT_ASCII} {name} -t UTF-8.")
          for name in ("utf-16", "utf_16_be", "utf-32", "utf16")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [8, 1 << 20])  # line numbers include earlier chunks
def test_undecodable_text_raises_error(tmp_path, monkeypatch, content, encoding, message, size):
    monkeypatch.setattr(text_bytes, "_CHUNK_BYTES", size)
    path = tmp_path / "a.txt"
    with pytest.raises(ValueError) as caught:
        lines_of(path, content, encoding=encoding)
    assert str(caught.value).startswith(message.replace("FILE", str(path)))


def test_latin_1_and_single_line_with_carriage_return(tmp_path):
    path = tmp_path / "a.txt"
    assert lines_of(path, "señor\n".encode("latin-1"), encoding="latin-1") == [(1, "señor")]
    assert lines_of(path, b"text\tlabel\r") == [(1, "text\tlabel")]


# === Records ===


def rows_of(path, *columns):
    rows = [row for _, row in read_columns(str(path), columns, BadRows(str(path), skip=False))]
    assert [row.number for row in rows] == list(range(len(rows)))
    return [row.values for row in rows]


def test_all_record_formats_yield_the_same_rows(tmp_path):
    rows = [{"n": 1, "words": ["a", "b"]}, {"n": 2, "words": []}, {"n": None, "words": ["é"]}]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    names = ["a.json", "a.jsonl", "a.ndjson"]
    for each in names[1:]:
        (tmp_path / each).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    if importlib.util.find_spec("pyarrow"):
        from pyarrow import Table, feather, ipc, parquet

        names += ["a.parquet", "file.arrow", "stream.arrow", "a.feather"]
        table, paths = Table.from_pylist(rows), [str(tmp_path / name) for name in names[-4:]]
        parquet.write_table(table, paths[0])
        for path, new in zip(paths[1:], (ipc.new_file, ipc.new_stream), strict=False):
            with new(path, table.schema) as file:
                file.write_table(table, max_chunksize=2)
        feather.write_feather(table, paths[3])
    paths = ["<rows>", *(str(tmp_path / name) for name in names)]
    with in_memory_tables({"<rows>": rows}):
        for path in paths:
            assert rows_of(path, "words", None, "n") == [[r["words"], None, r["n"]] for r in rows]
    with pytest.raises(
        ValueError, match="<rows> is the name of data that was passed in another Python call"
    ):
        rows_of("<rows>", "n")


def test_hugging_face_classes_are_decoded_to_names(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", exc_type=ImportError)
    from pyarrow import parquet

    label = {"names": ["world", "sport", "art"], "_type": "ClassLabel"}
    fields = {"start": {"dtype": "int64", "_type": "Value"}, "label": label}
    lists = [
        lambda inner: {"feature": inner, "length": -1, "_type": "Sequence"},
        lambda inner: {"feature": inner, "_type": "List"},
        lambda inner: [inner],
    ]
    row = {"y": 0, "tags": [2, 1], "spans": [{"start": 1, "label": 0}], "one": 1, "no": -1, "n": 1}
    path = str(tmp_path / "a.parquet")
    for to_list in lists:
        features = {"tags": to_list(label), "spans": to_list(fields), "n": fields["start"]}
        features |= dict.fromkeys(["y", "no", "gone"], label) | {"one": fields | {"start": label}}
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        rows = pyarrow.Table.from_pylist([row]).replace_schema_metadata(metadata)
        parquet.write_table(rows, path)
        found = rows_of(path, *row)
        spans = [{"start": 1, "label": "world"}]
        assert found == [["world", ["art", "sport"], spans, 1, None, 1]]
        assert sorted_names(found[0][1] + found[0][:1]) == ("world", "sport", "art")
    for wrong in ("7", '{"ClassLabel": {}}', json.dumps({"info": {"features": [label]}}), "["):
        metadata = {"huggingface": wrong + ' "ClassLabel"'[: 13 * (wrong == "[")]}
        rows = pyarrow.Table.from_pylist([row]).replace_schema_metadata(metadata)
        assert class_id_decoder(rows)(row) == row


@pytest.mark.parametrize(
    ("names", "indices", "numbers"),
    [
        (["world", "sport"], [0, 1], [0, 1]),
        (["2", "0", "1"], [2, 0, 1], [2, 0, 1]),
        (["1", "2", "3"], [0, 1, 2], [1, 2, 3]),
        (["B", "D", "A"], [1, 3, 0], [1, 3, 0]),
    ],
)
def test_class_names_become_choices_and_numbers(names, indices, numbers):
    datasets = pytest.importorskip("datasets", exc_type=ImportError)
    feature = datasets.Features({"y": datasets.ClassLabel(names=names)})
    data = datasets.Dataset.from_dict({"y": range(len(names))}, features=feature)
    found = [class_id_decoder(data)(row)["y"] for row in data]
    assert found == names
    assert [integer(name, "y", 9) for name in found] == indices
    assert [number(name, "y") for name in found] == numbers


@pytest.mark.parametrize("form", ["Parquet", "Arrow"])
def test_invalid_parquet_or_arrow_file_raises_error(tmp_path, form):
    pytest.importorskip("pyarrow", exc_type=ImportError)
    path = tmp_path / f"a.{form.lower()}"
    with pytest.raises(ValueError, match=rf"No such file: .*\. Pass .* a file in {form} format\.$"):
        rows_of(path, "a")
    message = f"after row 0: the {form} file is damaged, or its text is not UTF-8"
    for content in (b"PAR1 and no more", b"ARROW1\0\0", b"", b"\xff\xff\xff\xff\x08\0\0\0"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            rows_of(path, "a")


def test_huge_allocation_is_reported_as_damaged_file(tmp_path, monkeypatch):
    ipc = pytest.importorskip("pyarrow.ipc", exc_type=ImportError)
    (tmp_path / "a.arrow").write_bytes(b"ARROW1\0\0")
    monkeypatch.setattr(ipc, "open_file", lambda file: bytearray(1 << 62))
    message = "after row 0: the Arrow file is damaged, or its text is not UTF-8"
    with pytest.raises(ValueError, match=message):
        rows_of(tmp_path / "a.arrow", "a")


def test_out_of_range_arrow_offsets_raise_error(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", exc_type=ImportError)
    table, path = pyarrow.table({"a": ["short", "short"]}), tmp_path / "a.arrow"
    offsets, wrong = (np.array([0, middle, 10], np.int32).tobytes() for middle in (5, 1 << 30))
    message = "after row 0: the Arrow file is damaged, or its text is not UTF-8"
    for new in (pyarrow.ipc.new_file, pyarrow.ipc.new_stream):
        with new(str(path), table.schema) as file:
            file.write_table(table)
        path.write_bytes(path.read_bytes().replace(offsets, wrong))
        with pytest.raises(ValueError, match=message):
            rows_of(path, "a")


def test_decimals_become_numbers_and_names():
    integral, half, huge = map(decimal.Decimal, ("2.00", "0.5", "1E+999999999"))
    assert [number(each, "y") for each in (integral, half)] == [2.0, 0.5]
    assert name(integral, "y") == "2" and integer(integral, "y", 9) == 2
    for read in (number, name, lambda value, what: integer(value, what, 9)):
        for wrong in (huge, decimal.Decimal("NaN")):
            with pytest.raises(ValueError, match="expected .* in y, got Decimal"):
                read(wrong, "y")


def test_duplicate_columns_or_damaged_parquet_raise_error(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", exc_type=ImportError)
    from pyarrow import parquet

    def error_of(path):
        with pytest.raises(ValueError) as caught:
            rows_of(path, "text")
        return str(caught.value)

    path = tmp_path / "twice.parquet"
    columns = [pyarrow.array(["a"]), pyarrow.array(["b"])]
    parquet.write_table(pyarrow.Table.from_arrays(columns, ["text", "text"]), path)
    assert error_of(path) == f"{path} has duplicate columns: text. Rename them."

    damaged = "after row 0: the Parquet file is damaged, or its text is not UTF-8 ("
    path = tmp_path / "latin.parquet"
    latin = pyarrow.array([b"caf\xe9"]).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"text": latin}), path)
    assert error_of(path).startswith(f"{path}, {damaged}")

    path = tmp_path / "flipped.parquet"
    numbers = [f"number {n}" for n in range(1000)]
    options = {"write_page_checksum": True, "compression": "none", "use_dictionary": False}
    parquet.write_table(pyarrow.table({"text": numbers}), path, **options)
    content = bytearray(path.read_bytes())
    content[content.index(b"number 500") + 7] ^= 1  # still UTF-8, so only the checksum detects it
    path.write_bytes(content)
    assert error_of(path).startswith(f"{path}, {damaged}")


def test_duplicate_json_key_raises_error(tmp_path):
    path = str(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n{"n": 1, "n": 2}\n')
    message = r"""a\.jsonl, line 2: expected a JSON object, got '{"n": 1, "n": 2}' """
    message += r"\(the line is not JSON: duplicate key 'n'\)"
    with pytest.raises(ValueError, match=message):
        rows_of(path, "n")
    (tmp_path / "a.json").write_text('[{"n": 1, "n": 2}]')
    with pytest.raises(ValueError, match=r"a\.json is not JSON: duplicate key 'n'\.$"):
        rows_of(tmp_path / "a.json", "n")


def test_parquet_without_pyarrow_raises_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = r"requires pyarrow\. Run pip install pyarrow, or use \.csv or \.jsonl\.$"
    with pytest.raises(ImportError, match=message):
        rows_of(tmp_path / "a.parquet", "a")
