"""Custom tables of texts, and lists in the notations of common programs."""

import json

import numpy as np
import pytest

from bert_tf.readers.examples import TextExample
from bert_tf.readers.examples import is_table_word as is_word
from bert_tf.readers.own_data import read_classification, read_multilabel, read_regression
from bert_tf.tasks.tagging.reader import read_tagging
from bert_tf.tasks.texts.multiple_choice import read_choices


def labels_of(examples):
    return [item.label for item in examples.items]


def test_classification_table(write):
    path = write(
        "a.csv", ["n,review,stars,reply", '7,"Works, ""fine"".", 10,Thanks', "8,Broke.,9,"]
    )
    one = read_classification(path, text_columns=["review"], label_column="stars")
    assert one.items == [
        TextExample("0", 'Works, "fine".', None, "10"),
        TextExample("1", "Broke.", None, "9"),
    ]
    assert one.labels == ("9", "10")
    two = read_classification(
        path,
        text_columns=["reply", "review"],
        label_column="stars",
        id_column="n",
        labels=["10", "9", "0"],
    )
    assert two.items == [
        TextExample("7", "Thanks", 'Works, "fine".', "10"),
        TextExample("8", "", "Broke.", "9"),
    ]
    assert two.labels == ("10", "9", "0")
    unlabeled = read_classification(path, text_columns=["review"], label_column=None)
    assert labels_of(unlabeled) == [None, None]
    assert unlabeled.labels == ()


def test_rows_without_text_are_rejected(write):
    path = write("a.tsv", "a\tb\nx\t\n\ty\n\t\n")
    pairs = read_classification(
        path, text_columns=["a", "b"], label_column=None, skip_bad_rows=True
    )
    assert [(item.text_a, item.text_b) for item in pairs.items] == [("x", ""), ("", "y")]
    assert pairs.skipped == [f"{path}, line 4: expected non-empty text in column 'a', got ''."]
    path = write("a.jsonl", '{"a": null, "b": "y"}\n')
    with pytest.raises(ValueError, match="line 1: expected a string in column 'a', got None"):
        read_classification(path, text_columns=["a", "b"], label_column=None)


def test_multilabel_table(write):
    path = write("a.csv", 't,y\na,"joy,awe, joy"\nb,\nc,fear\n')
    examples = read_multilabel(path, text_columns=["t"], label_column="y")
    assert labels_of(examples) == [("joy", "awe"), (), ("fear",)]
    assert examples.labels == ("awe", "fear", "joy")
    path = write(
        "a.jsonl", '{"t": "a", "y": [2, "10"]}\n{"t": "b", "y": []}\n{"t": "c", "y": "1|2"}'
    )
    examples = read_multilabel(path, text_columns=["t"], label_column="y", label_separator="|")
    assert labels_of(examples) == [("2", "10"), (), ("1", "2")]
    assert examples.labels == ("1", "2", "10")
    path = write("b.jsonl", '{"t": "a", "y": [0, 1]}\n{"t": "b", "y": [1.0]}\n')
    examples = read_multilabel(path, text_columns=["t"], label_column="y")
    assert labels_of(examples) == [("0", "1"), ("1",)]
    for value in ("[0, 1, 0]", "[0.0, 1.0, 1.0]", '"1,0,0"', "[false, false]"):
        path = write("b.jsonl", f'{{"t": "a", "y": {value}}}\n')
        message = r"which looks like yes/no values \(write \[1\] for \[0, 1, 0\]\)"
        with pytest.raises(ValueError, match=message):
            read_multilabel(path, text_columns=["t"], label_column="y")
    message = r"^--label_separator is empty: expected a character such as ','\.$"
    with pytest.raises(ValueError, match=message):
        read_multilabel(path, text_columns=["t"], label_column="y", label_separator="")


def test_regression_table(write):
    path = write("a.jsonl", '{"t": "a", "y": 2}\n{"t": "b", "y": "-0.5"}\n{"t": "c", "y": 1e-3}\n')
    examples = read_regression(path, text_columns=["t"], label_column="y")
    assert labels_of(examples) == [2.0, -0.5, 0.001]
    assert all(isinstance(label, float) for label in labels_of(examples))
    assert examples.labels == ()


WORDS, TAGS = ["Ann", "it's", 'a "b"', "\u6771\U0001f600"], ["B-X", "O", "O", "I-Y"]


@pytest.mark.parametrize(
    "format_list",
    [
        str,
        json.dumps,
        lambda items: json.dumps(items, separators=(",", ":")),
        lambda items: str(np.array(items)),
        lambda items: str(np.array(items, object)),
        lambda items: str([*np.array(items)]),
        lambda items: str(tuple(items)),
        lambda items: str(items).replace("[", "{").replace("]", "}"),
        lambda items: np.array2string(np.array(items), max_line_width=12),
    ],
    ids=["Python", "JSON", "compact", "NumPy", "objects", "scalars", "tuple", "set", "wrapped"],
)
def test_lists_in_common_notations_are_parsed(write, format_list):
    path = write(
        "a.jsonl",
        [{"words": format_list(WORDS), "tags": format_list(TAGS), "n": format_list([1, 0, 10])}],
    )
    (item,) = read_tagging(path).items
    assert (item.words, item.tags) == (tuple(WORDS), tuple(TAGS))
    columns = {"text_columns": ["n"], "label_column": "tags"}
    (item,) = read_multilabel(path, **columns).items
    assert item.label == ("B-X", "O", "I-Y")
    if format_list([1])[0] == "[":
        columns = {"text_columns": ["n"], "label_column": "n"}
        assert read_multilabel(path, **columns).items[0].label == ("1", "0", "10")
    columns = {"text_columns": ["n", "words"], "label_column": None}
    assert read_choices(path, **columns).items[0].choices == tuple(WORDS)


@pytest.mark.parametrize("name", ["[1-2]", "[555-1234]", "[-]", "[.]", "[2024-01-01]"])
def test_bracketed_names_are_not_lists(write, name):
    path = write("a.jsonl", [{"text": "so", "label": name}, {"text": "it", "label": "[1, -2]"}])
    columns = {"text_columns": ["text"], "label_column": "label"}
    assert [item.label for item in read_multilabel(path, **columns).items] == [(name,), ("1", "-2")]
    assert is_word(name) and not is_word('["a"b]')
