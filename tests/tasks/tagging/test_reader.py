"""One's own tables of tagged words."""

import re

import pytest

from bert_tf.readers.examples import TaggedExample
from bert_tf.tasks.tagging.reader import read_tagging


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


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "['a' 'b' ... 'c']",
            "expected a list in column 'words', got \"['a' 'b' ... 'c']\", which cannot be parsed "
            "(use .jsonl or .parquet for lists)",
        ),
        ("[['a'], ['b']]", "which cannot be parsed"),
        ('["Hi" he said]', "which cannot be parsed"),
        ("['a''b']", "which cannot be parsed"),
        (r"['\x']", "which cannot be parsed"),
        ("[b'a' b'b']", "expected a string in column 'words', got b'a'"),
        ("['a', None]", "expected a string in column 'words', got None"),
        ("['a', __import__('os')]", "which cannot be parsed"),
        ("[" + "'a\\" * 50_000 + "]", "which cannot be parsed"),
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
    sentence = (
        "has one word per row: expected one sentence per row, with lists of words and tags. "
        f"In pandas, use frame['{column}'] = frame['{column}'].ffill() and "
        f"frame.groupby('{column}', sort=False).agg(list).reset_index()."
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
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
