"""One's own tables of choices, and SWAG's."""

import pytest

from bert_tf.readers.examples import ChoiceExample
from bert_tf.tasks.texts.multiple_choice import read_choices, read_swag, swag_has_labels
from tests.readers.test_bad_rows import SWAG

SWAG_ROWS = [
    '0,v1,18313,"He stands, up. He","He stands, up.",He,gold,"says ""so"".",b.,c.,d.',
    "1,v2,9,A man runs. ,A man runs.,,gen,a.,b.,c.,d.",
]


def test_swag(write):
    labelled = [f"{row},{label}" for row, label in zip(SWAG_ROWS, (2, 0), strict=True)]
    path = write("train.csv", [f"{SWAG},label", *labelled], line_end="\r\n")
    examples = read_swag(path)
    assert examples.items == [
        ChoiceExample("0", "He stands, up.", ('He says "so".', "He b.", "He c.", "He d."), 2),
        ChoiceExample("1", "A man runs.", ("a.", "b.", "c.", "d."), 0),
    ]
    assert (examples.labels, examples.skipped) == ((), [])
    assert swag_has_labels(path)
    path = write("test.csv", [SWAG, *SWAG_ROWS])
    assert not swag_has_labels(path)
    unlabelled = read_swag(path, labelled=False).items
    assert [item.label for item in unlabelled] == [None, None]
    assert [item.choices for item in unlabelled] == [item.choices for item in examples.items]
    with pytest.raises(ValueError, match="line 1: expected one column 'label', got none"):
        read_swag(path)


def test_own_columns(write):
    path = write("a.csv", ["n,q,x,y,z,best", "17,Why?,A,B,C,1", "18,How?,D,E,F,0"])
    columns = {"text_columns": ["q", "z", "x"], "label_column": "best"}
    assert read_choices(path, **columns, id_column="n").items == [
        ChoiceExample("17", "Why?", ("C", "A"), 1),
        ChoiceExample("18", "How?", ("F", "D"), 0),
    ]
    items = read_choices(path, **{**columns, "label_column": None}).items
    assert [(item.id, item.label) for item in items] == [("0", None), ("1", None)]


def test_own_lists(write):
    columns = {"text_columns": ["q", "c"], "label_column": "y"}
    good = {"q": "Why?", "c": ["A", "B", "C"], "y": 2}
    path = write("a.jsonl", [good, {"q": "How?", "c": ["D", "E"], "y": "0"}])
    assert read_choices(path, **columns).items == [
        ChoiceExample("0", "Why?", ("A", "B", "C"), 2),
        ChoiceExample("1", "How?", ("D", "E"), 0),
    ]
