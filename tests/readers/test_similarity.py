"""Tables of texts that are similar."""

import pytest

from bert_tf.readers.own_data import read_similarity

ROWS = "id\ta\tb\tc\tscore\nx\tA cat.\tOne cat.\tA dog.\t4.5\ny\tHe ran.\tHe ran on.\tNo.\t-1\n"


@pytest.fixture
def path(tmp_path):
    (tmp_path / "t.tsv").write_text(ROWS)
    return str(tmp_path / "t.tsv")


@pytest.mark.parametrize(
    ("others", "label", "texts", "labels"),
    [
        (["b"], "score", ("A cat.", "One cat."), [4.5, -1.0]),
        (["b"], None, ("A cat.", "One cat."), [None, None]),
        (["b", "c"], None, ("A cat.", "One cat.", "A dog."), [None, None]),
    ],
)
def test_the_three_forms(path, others, label, texts, labels):
    found = read_similarity(
        path, anchor_column="a", other_columns=others, label_column=label, id_column="id"
    )
    assert found.items[0].texts == texts
    assert [item.label for item in found.items] == labels
    assert [item.id for item in found.items] == ["x", "y"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"other_columns": ["b", "c", "a"]}, "expected a list of one or two names"),
        ({"other_columns": ["b", "c"], "label_column": "score"}, "a score is of two texts: name"),
        ({"label_column": "c"}, "line 2: expected a finite number in column 'c', got 'A dog.'"),
        ({"other_columns": ["d"]}, "line 1: expected one column 'd', got none"),
    ],
)
def test_what_is_refused(path, changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_similarity(path, **{"anchor_column": "a", "other_columns": ["b"], **changes})


def test_an_empty_text_is_a_bad_row(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\nx,\ny,z\n")
    columns = {"anchor_column": "a", "other_columns": ["b"]}
    with pytest.raises(ValueError, match="line 2: expected text in column 'b', got ''"):
        read_similarity(str(tmp_path / "t.csv"), **columns)
    found = read_similarity(str(tmp_path / "t.csv"), **columns, skip_bad_rows=True)
    assert [item.texts for item in found.items] == [("y", "z")] and len(found.skipped) == 1
