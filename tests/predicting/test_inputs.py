"""Input files are validated first and then read in chunks."""

import json

import pytest

from bert_tf.predicting import inputs
from bert_tf.predicting.inputs import read_inputs
from bert_tf.readers.examples import BadRow, ChoiceExample, TextExample, texts_of
from bert_tf.readers.tables import TableFile
from bert_tf.tasks.task_file import TaskFile

TEXTS = TaskFile("classification", "own", 16, {"text_columns": ["text"], "id_column": "n"})


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(inputs, "_CHUNK", 3)


def write(tmp_path, name, lines):
    path = tmp_path / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_chunks_can_be_read_repeatedly(tmp_path, small_chunks):
    path = write(tmp_path, "a.tsv", ["n\ttext\tlabel", *(f"i{n}\ttext {n}\t?" for n in range(7))])
    found = read_inputs(TEXTS, path)
    assert (found.count, found.skipped) == (7, [])
    for _ in range(2):
        chunks = list(found.chunks())
        assert [len(chunk) for chunk in chunks] == [3, 3, 1]
        items = [item for chunk in chunks for item in chunk]
        assert items == [TextExample(f"i{n}", f"text {n}", None, None) for n in range(7)]


def test_ids_are_read_if_the_first_row_is_invalid(tmp_path):
    tsv = write(tmp_path, "a.tsv", ["n\ttext", "i0\tone\ttoo many", "i1\tgood"])
    jsonl = write(tmp_path, "a.jsonl", ["no JSON", '{"n": "i1", "text": "good"}'])
    for path in (tsv, jsonl):
        (items,) = read_inputs(TEXTS, path, skip_bad_rows=True).chunks()
        # The id is read even if the row has too many columns.
        assert [item.id for item in items] == ["i0" if path == tsv else "", "i1"]
        assert isinstance(items[0], BadRow)
    for name, lines in (("b.tsv", ["text", "good"]), ("b.jsonl", ['{"text": "good"}'])):
        (items,) = read_inputs(TEXTS, write(tmp_path, name, lines)).chunks()
        assert [item.id for item in items] == ["0"]


def test_only_one_chunk_is_read_at_a_time(tmp_path, small_chunks, monkeypatch):
    parsed_rows = []

    def count(row, names):
        parsed_rows.append(row.number)
        return TextExample(str(row.number), "", None, None)

    monkeypatch.setattr(inputs, "text_example", count)
    path = write(tmp_path, "a.tsv", ["n\ttext", *(f"{n}\tx" for n in range(9))])
    chunks = read_inputs(TEXTS, path).chunks()
    parsed_rows.clear()
    next(chunks)
    assert parsed_rows == [0, 1, 2]


def test_one_text_of_a_pair_may_be_empty(tmp_path):
    pairs = TaskFile("regression", "own", 16, {"text_columns": ["a", "b"]})
    path = write(tmp_path, "a.csv", ["b,a", "x,y", ",y", "x,"])
    items = next(read_inputs(pairs, path).chunks())
    assert [(item.text_a, item.text_b) for item in items] == [("y", "x"), ("y", ""), ("", "x")]
    path = write(tmp_path, "b.csv", ["b,a", "x,y", ","])
    (items,) = read_inputs(pairs, path).chunks()
    assert items[1] == BadRow(
        0, "1", (), f"{path}, line 3: expected non-empty text in column 'a', got ''."
    )


@pytest.mark.parametrize(("with_context", "sizes"), [(False, [3, 1]), (True, [4])])
def test_documents_are_not_split(tmp_path, small_chunks, with_context, sizes):
    task = TaskFile("tagging", "ner", 16, {}, {"document_context": with_context})
    path = write(tmp_path, "a.conll", ["a O", "", "b O", "c O", "", "d O", "", "e O"])
    found = read_inputs(task, path)
    assert found.count == 4 and [len(chunk) for chunk in found.chunks()] == sizes


def test_choices_are_read_from_swag_or_named_columns(tmp_path):
    swag = TaskFile("multiple_choice", "swag", 16)
    lines = ["sent1,sent2,ending0,ending1,ending2,ending3", "It is,,w,x,y,z"]
    (items,) = read_inputs(swag, write(tmp_path, "a.csv", lines)).chunks()
    assert items == [ChoiceExample("0", "It is", ("w", "x", "y", "z"), None)]
    path = write(tmp_path, "a.jsonl", [json.dumps({"c": "x", "o": ["y", "z"]})])
    (items,) = read_inputs(swag, path, text_columns=["c", "o"]).chunks()
    assert items == [ChoiceExample("0", "x", ("y", "z"), None)]
    with pytest.raises(ValueError, match="expected one column 'sent1', got none"):
        read_inputs(swag, write(tmp_path, "a.csv", ["c,o", "x,y"]))


def test_unknown_suffix_raises_error(tmp_path):
    path = write(tmp_path, "a.txt", ["Ann sang", "Bob left"])
    message = r"a\.txt does not have the suffix of a table \(\.tsv, .*lines for one text per line"
    entities = {"text_columns": ["text"], "label_column": "e", "character_spans": True}
    for task in (TEXTS, TaskFile("tagging", "tagging", 16, entities)):
        with pytest.raises(ValueError, match=message):
            read_inputs(task, path)
    lines = TableFile(path, suffix=".lines")
    (items,) = read_inputs(TaskFile("tagging", "tagging", 16, entities), lines).chunks()
    assert [item.text for item in items] == ["Ann sang", "Bob left"]


@pytest.mark.parametrize(
    ("kind", "row", "texts"),
    [
        ("classification", {"text": "a"}, ["a"]),
        ("classification", {"text_a": "a", "text_b": "b"}, ["a", "b"]),
        ("regression", {"text_a": "a", "text_b": "b", "text": "c"}, ["c"]),
        ("multilabel", {"text": "a"}, ["a"]),
        ("tagging", {"words": ["a", "b"]}, ["a", "b"]),
        ("multiple_choice", {"context": "c", "choices": ["a", "b"]}, ["c", "a", "b"]),
        ("similarity", {"text_a": "a", "text_b": "b"}, ["a", "b"]),
        ("squad", {"question": "q", "context": "c"}, ["c", "q"]),
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_models_without_columns_read_the_default_columns(tmp_path, kind, row, texts, suffix):
    task, names = TaskFile(kind, "other", 16), ["n", *row]
    lines = [json.dumps({"n": 1, **row})]
    if suffix == "csv":
        lines = [",".join(names), ",".join(f'"{value}"' for value in ("1", *row.values()))]
    (items,) = read_inputs(task, write(tmp_path, f"a.{suffix}", lines)).chunks()
    assert texts_of(items[0]) == texts
    wrong = write(tmp_path, f"b.{suffix}", ["n,m", "1,2"] if suffix == "csv" else ['{"n": 1}'])
    with pytest.raises(
        ValueError, match="--text_columns: expected .* got none. .* does not define them"
    ):
        read_inputs(task, wrong)
    if suffix == "csv":
        assert read_inputs(task, write(tmp_path, "c.csv", lines[:1])).count == 0
