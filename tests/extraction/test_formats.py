"""Written files are equal when read by the library of each format."""

import importlib.util
import json

import numpy as np
import pytest

from bert_tf.extraction.output import WRITERS, Block, Layout, Rows, check_can_write

VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", 'quote"', "é", "中")
LENGTHS = np.array([3, 2, 5, 2, 4], np.int32)
LAYOUTS = {
    "a vector a token": Layout((-1,), 3, False, VOCABULARY),
    "vectors a token": Layout((-1, 0), 3, False, VOCABULARY),
    "a vector a line": Layout((-1,), 3, True, VOCABULARY),
    "vectors a line": Layout((-2, 1, 0), 3, True, VOCABULARY),
}


@pytest.fixture(params=LAYOUTS)
def layout(request):
    return LAYOUTS[request.param]


@pytest.fixture
def lines(layout):
    """Returns the index, tokens and float32 values of each line."""
    rng = np.random.default_rng(0)
    found = []
    for number, length in enumerate(LENGTHS, 70):
        tokens = [VOCABULARY[id] for id in rng.integers(0, len(VOCABULARY), length)]
        count = 1 if layout.is_pooled else length
        found.append((number, tokens, rng.normal(size=(count, *layout.shape)).astype("f4") * 3))
    return found


def write(format, layout, lines, path):
    """Writes the lines in blocks of two."""
    ids = np.array([VOCABULARY.index(token) for _, tokens, _ in lines for token in tokens], "i4")
    rows = Rows(70, LENGTHS, ids, np.zeros_like(ids))

    def blocks():
        for begin in (0, 2, 4):
            end = min(begin + 2, 5)
            values = np.concatenate([values for _, _, values in lines[begin:end]])
            values = values.reshape(-1, len(layout.layers), layout.width)
            yield Block(rows.slice(begin, end), values)

    WRITERS[format][1](str(path), layout, rows, blocks())


def check(read, lines, layout):
    assert len(read) == 5
    for (index, tokens, values), (number, expected, exact) in zip(read, lines, strict=True):
        assert index == number
        assert tokens == (None if layout.is_pooled else expected)
        np.testing.assert_array_equal(values, exact[0] if layout.is_pooled else exact)


def test_jsonl(layout, lines, tmp_path):
    write("jsonl", layout, lines, tmp_path / "a")
    read = [json.loads(line) for line in (tmp_path / "a").read_text("ascii").splitlines()]
    assert len(read) == 5
    for line, (number, tokens, exact) in zip(read, lines, strict=True):
        vectors = [line] if layout.is_pooled else line["features"]
        if not layout.is_pooled:
            assert [vector["token"] for vector in vectors] == tokens
        assert line["linex_index"] == number
        for vector, values in zip(vectors, exact, strict=True):
            assert [layer["index"] for layer in vector["layers"]] == list(layout.layers)
            # Python's rounding of each value.
            expected = [[round(float(x), 6) for x in row] for row in values.reshape(-1, 3)]
            assert [layer["values"] for layer in vector["layers"]] == expected


def test_numpy(layout, lines, tmp_path):
    write("numpy", layout, lines, tmp_path / "a")
    with np.load(tmp_path / "a") as file:
        found = dict(file)
    assert found["values"].dtype == np.float32
    if layout.is_pooled:
        assert set(found) == {"line_index", "values"}
        tokens, values = [None] * 5, list(found["values"])
    else:
        assert found["lengths"].tolist() == LENGTHS.tolist()
        splits = np.cumsum(LENGTHS)[:-1]
        values = np.split(found["values"], splits)
        tokens = [[VOCABULARY[id] for id in ids] for ids in np.split(found["token_ids"], splits)]
    check(list(zip(found["line_index"], tokens, values, strict=True)), lines, layout)


def test_parquet(layout, lines, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    write("parquet", layout, lines, tmp_path / "a")
    read = [
        (row["line_index"], row.get("tokens"), np.array(row["values"]))
        for row in parquet.read_table(tmp_path / "a").to_pylist()
    ]
    check(read, lines, layout)
    assert parquet.ParquetFile(tmp_path / "a").num_row_groups == 3


@pytest.mark.parametrize("value", [0.0078125, -0.0234375, 1.0000005, -1e-9, 123.4567891])
def test_halves_are_rounded_as_python_rounds_them(tmp_path, value):
    layout = Layout((-1,), 1, True, VOCABULARY)
    values = np.array([[[value]]], "f4")
    rows = Rows(0, LENGTHS[:1], np.zeros(3, "i4"), np.zeros(3, "i4"))
    WRITERS["jsonl"][1](str(tmp_path / "a"), layout, rows, [Block(rows, values)])
    (layer,) = json.loads((tmp_path / "a").read_text())["layers"]
    assert repr(layer["values"][0]) == repr(round(float(values[0, 0, 0]), 6))


def test_without_pyarrow(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_can_write("numpy")
    with pytest.raises(ValueError, match="--format=parquet requires pyarrow. Run pip install"):
        check_can_write("parquet")
