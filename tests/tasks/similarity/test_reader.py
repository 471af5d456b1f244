"""One's own tables of texts to compare."""

import pytest

from bert_tf.tasks.similarity.task import read_similarity

SIMILAR = "id\ta\tb\tc\tscore\nx\tA cat.\tOne cat.\tA dog.\t4.5\ny\tHe ran.\tHe ran on.\tNo.\t-1\n"


@pytest.fixture
def path(write):
    return write("t.tsv", SIMILAR)


@pytest.mark.parametrize(
    ("others", "label", "texts", "labels"),
    [
        (["b"], "score", ("A cat.", "One cat."), [4.5, -1.0]),
        (["b"], None, ("A cat.", "One cat."), [None, None]),
        (["b", "c"], None, ("A cat.", "One cat.", "A dog."), [None, None]),
    ],
)
def test_similarity(path, others, label, texts, labels):
    found = read_similarity(path, text_columns=["a", *others], label_column=label, id_column="id")
    assert found.items[0].texts == texts
    assert [item.label for item in found.items] == labels
    assert [item.id for item in found.items] == ["x", "y"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"text_columns": ["a", "b", "c"], "label_column": "score"},
            "The column 'score' contains scores, which require two text columns, but there are "
            "more: a, b, c. Use two text columns or remove the label column",
        ),
        ({"label_column": "c"}, "line 2: expected a finite number in column 'c', got 'A dog.'"),
        ({"text_columns": ["a", "d"]}, "line 1: expected one column 'd', got none"),
    ],
)
def test_columns_that_are_not_those_of_similar_texts(path, changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_similarity(path, **{"text_columns": ["a", "b"], **changes})
