"""One's own tables: texts to classify, tag and compare, choices; SWAG's."""

import json
import re

import numpy as np
import pytest

from bert_tf.readers.examples import ChoiceExample, TaggedExample, TextExample
from bert_tf.readers.own_data import (
    is_word,
    read_choices,
    read_classification,
    read_multilabel,
    read_regression,
    read_similarity,
    read_swag,
    read_tagging,
    swag_has_labels,
)

from .test_bad_rows import SWAG


def labels_of(examples):
    return [item.label for item in examples.items]


def test_classification(write):
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
    unlabelled = read_classification(path, text_columns=["review"], label_column=None)
    assert labels_of(unlabelled) == [None, None]
    assert unlabelled.labels == ()


def test_rows_without_any_text(write):
    path = write("a.tsv", "a\tb\nx\t\n\ty\n\t\n")
    pairs = read_classification(
        path, text_columns=["a", "b"], label_column=None, skip_bad_rows=True
    )
    assert [(item.text_a, item.text_b) for item in pairs.items] == [("x", ""), ("", "y")]
    assert pairs.skipped == [f"{path}, line 4: expected text in column 'a', got ''."]
    path = write("a.jsonl", '{"a": null, "b": "y"}\n')
    with pytest.raises(ValueError, match="line 1: expected text in column 'a', got None"):
        read_classification(path, text_columns=["a", "b"], label_column=None)


def test_multilabel(write):
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
        with pytest.raises(ValueError, match="which seems to say of each class whether it does: w"):
            read_multilabel(path, text_columns=["t"], label_column="y")
    with pytest.raises(ValueError, match="The separator of labels is empty: expected a character"):
        read_multilabel(path, text_columns=["t"], label_column="y", label_separator="")


def test_regression(write):
    path = write("a.jsonl", '{"t": "a", "y": 2}\n{"t": "b", "y": "-0.5"}\n{"t": "c", "y": 1e-3}\n')
    examples = read_regression(path, text_columns=["t"], label_column="y")
    assert labels_of(examples) == [2.0, -0.5, 0.001]
    assert all(isinstance(label, float) for label in labels_of(examples))
    assert examples.labels == ()


def test_tagging(write):
    content = '{"words": ["New", "York", "!"], "tags": ["B", "I", "O"]}\n'
    path = write("a.jsonl", content + '{"words": "So be it", "tags": "O O I"}\n')
    examples = read_tagging(path)
    assert examples.items == [
        TaggedExample("0", ("New", "York", "!"), ("B", "I", "O"), 0),
        TaggedExample("1", ("So", "be", "it"), ("O", "O", "I"), 1),
    ]
    assert examples.labels == ("B", "I", "O")
    path = write("a.tsv", "n\tw\tt\n5\tSo be it\tO O I\n")
    columns = {"text_columns": ["w"], "label_column": "t", "id_column": "n"}
    examples = read_tagging(path, **columns, labels=["O", "I"])
    assert examples.items == [TaggedExample("5", ("So", "be", "it"), ("O", "O", "I"), 0)]
    assert examples.labels == ("O", "I")
    unlabelled = read_tagging(path, **{**columns, "label_column": None})
    assert unlabelled.items[0].tags is None
    assert unlabelled.labels == ()


# === Similar texts ===

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
            "a score is of two texts: name",
        ),
        ({"label_column": "c"}, "line 2: expected a finite number in column 'c', got 'A dog.'"),
        ({"text_columns": ["a", "d"]}, "line 1: expected one column 'd', got none"),
    ],
)
def test_columns_that_are_not_those_of_similar_texts(path, changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_similarity(path, **{"text_columns": ["a", "b"], **changes})


# === Choices ===

SWAG_ROWS = [
    '0,v1,18313,"He stands, up. He","He stands, up.",He,gold,"says ""so"".",b.,c.,d.',
    "1,v2,9,A man runs. ,A man runs.,,gen,a.,b.,c.,d.",
]


WORDS, TAGS = ["Ann", "it's", 'a "b"', "\u6771\U0001f600"], ["B-X", "O", "O", "I-Y"]


@pytest.mark.parametrize(
    "spell",
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
def test_lists_as_programs_spell_them(write, spell):
    path = write("a.jsonl", [{"words": spell(WORDS), "tags": spell(TAGS), "n": spell([1, 0, 10])}])
    (item,) = read_tagging(path).items
    assert (item.words, item.tags) == (tuple(WORDS), tuple(TAGS))
    columns = {"text_columns": ["n"], "label_column": "tags"}
    (item,) = read_multilabel(path, **columns).items
    assert item.label == ("B-X", "O", "I-Y")
    if spell([1])[0] == "[":
        columns = {"text_columns": ["n"], "label_column": "n"}
        assert read_multilabel(path, **columns).items[0].label == ("1", "0", "10")
    columns = {"text_columns": ["n", "words"], "label_column": None}
    assert read_choices(path, **columns).items[0].choices == tuple(WORDS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("('a' b)", ["('a'", "b)"]),
        ("{'a': 1}", ["{'a':", "1}"]),
        ("[a b]", ["[a", "b]"]),
        ("[ 'a' ]x", ["[", "'a'", "]x"]),
        ("[1]", ["[1]"]),
        ("['", ["['"]),
        ('("Hello there, friend")', ['("Hello', "there,", 'friend")']),
    ],
)
def test_texts_in_brackets_are_texts(write, text, words):
    path = write("a.jsonl", [{"words": text}])
    assert read_tagging(path, label_column=None).items[0].words == tuple(words)


@pytest.mark.parametrize("name", ["[1-2]", "[555-1234]", "[-]", "[.]", "[2024-01-01]"])
def test_names_in_brackets_are_names(write, name):
    path = write("a.jsonl", [{"text": "so", "label": name}, {"text": "it", "label": "[1, -2]"}])
    columns = {"text_columns": ["text"], "label_column": "label"}
    assert [item.label for item in read_multilabel(path, **columns).items] == [
        (name,),
        ("1", "-2"),
    ]
    assert is_word(name) and not is_word('["a"b]')


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "['a' 'b' ... 'c']",
            "got \"['a' 'b' ... 'c']\", from whose spelling it cannot be read: write",
        ),
        ("[['a'], ['b']]", "from whose spelling it cannot be read"),
        ('["Hi" he said]', "from whose spelling it cannot be read"),
        ("['a''b']", "from whose spelling it cannot be read"),
        (r"['\x']", "from whose spelling it cannot be read"),
        ("[b'a' b'b']", "expected text in column 'words', got b'a'"),
        ("['a', None]", "expected text in column 'words', got None"),
        ("['a', __import__('os')]", "from whose spelling it cannot be read"),
        ("[" + "'a\\" * 50_000 + "]", "from whose spelling it cannot be read"),
    ],
)
def test_spellings_that_are_not_read(write, words, sentence):
    path = write("a.jsonl", [{"words": words, "tags": "O"}])
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_tagging(path)


ONE_WORD_A_ROW = [
    ("Sentence #,w,t", ["Sentence: 1,Mira,B-X", ",runs,O", "Sentence: 2,So,O"]),
    ("sentence_id,w,t", ["0,Mira,B-X", "0,runs,O", "1,So,O"]),
]


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("sentence,t", {"text_columns": ["sentence"]}),
        ("w,t,sentiment", {"text_columns": ["w"]}),
        ("w,sent", {"text_columns": ["w"], "label_column": "sent"}),
    ],
)
def test_columns_that_only_begin_as_a_sentences_do_are_no_reason(write, header, columns):
    rows = [["so", "O", "good"], ["so", "O", "good"], ["it", "O", "bad"]]
    count = header.count(",") + 1
    path = write("a.csv", [header, *(",".join(row[:count]) for row in rows)])
    assert len(read_tagging(path, **{"label_column": "t", **columns}).items) == 3


def test_texts_of_one_word_with_spans_are_no_rows_of_one_word(write):
    rows = [{"text": "Ann", "spans": [], "sentence_id": 0}] * 2
    columns = {"text_columns": ["text"], "label_column": "spans", "character_spans": True}
    found = read_tagging(write("a.jsonl", rows), **columns, labels=["O", "B-X", "I-X"])
    assert not found.notes


@pytest.mark.parametrize(("header", "rows"), ONE_WORD_A_ROW)
@pytest.mark.parametrize("label", ["t", None])
def test_words_of_sentences_a_row_each_are_refused(write, header, rows, label):
    path = write("a.csv", [header, *rows])
    column = header.split(",")[0]
    with pytest.raises(ValueError, match=f"has a word in each row, and the column '{column}' says"):
        read_tagging(path, text_columns=["w"], label_column=label)
    columns = {"text_columns": ["w"], "label_column": "t"}
    for good in (["0,Mira,B-X", "1,runs,O"], ["0,Mira,B-X", "0,so it,O O"]):
        read_tagging(write("a.csv", [header, *good]), **columns)
    pandas = pytest.importorskip("pandas")  # what the sentence proposes
    frame = pandas.read_csv(write("a.csv", [header, *rows]))
    frame[column] = frame[column].ffill()
    grouped = frame.groupby(column, sort=False).agg(list).reset_index()
    grouped.to_json(path + ".jsonl", orient="records", lines=True)
    items = read_tagging(path + ".jsonl", **columns).items
    assert [item.words for item in items] == [("Mira", "runs"), ("So",)]


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
