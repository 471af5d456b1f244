"""Spans of characters as tags of words."""

import pytest

from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.readers.entities import find_all, word_places
from bert_tf.readers.examples import BadRows
from bert_tf.readers.own_data import read_tagging

COLUMNS = {"words_column": "text", "tags_column": "entities", "character_spans": True}


def span(start, end, label="PER"):
    return {"start": start, "end": end, "label": label}


@pytest.mark.parity
def test_words_are_those_of_tokenizers():
    pre_tokenizers = pytest.importorskip("tokenizers").pre_tokenizers
    texts = ["Ann Lee's (2).", "a_b\u00a0c\u2028d $5 \u20ac7", "\u3002e\u0301 x"]
    texts.append(" \t\u00bfqu\u00e9? \U0001f600x")
    for text in texts:
        expected = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text)
        assert list(word_places(text)) == [place for _, place in expected]


def test_words_are_those_of_our_tokenizer():
    text = "\u200bAnn\x0bL\u200bee\ufeff, \u00ad\x00 \x85.\u2029\ufffdx"
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "x"], False)
    _, starts, ends = tokenizer.tokenize_with_offsets([text])
    places = zip(starts.values.numpy(), ends.values.numpy(), strict=True)
    expected = [tuple(len(text.encode()[:at].decode()) for at in place) for place in places]
    found = word_places(text)
    assert [start for start, _ in found] == [start for start, _ in expected]
    # Without what the tokenizer removes behind a word.
    assert [text[start:end] for start, end in found] == ["Ann\x0bL\u200bee", ",", ".", "x"]


def test_ideographs_are_words():
    assert word_places("in\u5317\u4eac x") == ((0, 2), (2, 3), (3, 4), (5, 6))


def test_spans_become_tags(write):
    text = "Ann Lee, Bo\u00e9 met\nACME's \U0001f600 man."
    entities = [span(9, 12), span(17, 21, "ORG"), span(0, 7), {**span(13, 16, "X"), "id": 7}]
    rows = [(text, entities), ("Nothing.", []), ("Lee Bo", [span(0, 3), span(4, 6)])]
    path = write("a.jsonl", [{"text": text, "entities": entities} for text, entities in rows])
    examples = read_tagging(path, **COLUMNS)
    first, second, third = examples.items
    assert first.words == ("Ann", "Lee", ",", "Bo\u00e9", "met", "ACME", "'", "s", "\U0001f600",
                           "man", ".")  # fmt: skip
    found = {
        (first.places[a][0], first.places[b - 1][1], t) for t, a, b in find_all([first.tags])[0]
    }
    assert found == {(e["start"], e["end"], e["label"]) for e in entities}
    assert [text[start:end] for start, end in first.places] == list(first.words)
    assert second.tags == ("O", "O") and third.tags == ("B-PER", "B-PER")
    assert examples.labels == ("O", "B-ORG", "I-ORG", "B-PER", "I-PER", "B-X", "I-X")
    unlabelled = read_tagging(path, **{**COLUMNS, "tags_column": None})
    assert unlabelled.items[2].tags is None and unlabelled.items[2].words == ("Lee", "Bo")


def test_a_file_of_utf16_places_is_told_where_words_are_single_characters(write):
    rows = [("\u738b\u82b3\u662f\u8c01", 0), ("\U0001f600\u738b\u82b3\u662f\u8c01", 1)]

    def read(shift):
        lines = [
            {"text": text, "entities": [span(at + shift * at, at + shift * at + 2)]}
            for text, at in rows
        ]
        return read_tagging(write("a.jsonl", lines), **COLUMNS)

    assert read(0).notes == ()
    (note,) = read(1).notes
    assert "seem to count UTF-16 units" in note
    assert "'\u82b3\u662f' is read, '\u738b\u82b3' meant" in note


def test_an_own_text_that_is_not_in_the_text_is_another_name(write):
    row = {"text": "NYC \U0001f600 Ann", "entities": [{**span(0, 3), "text": "New York"}]}
    row["entities"].append({**span(6, 9), "text": "Ann"})
    examples = read_tagging(write("a.jsonl", [row]), **COLUMNS)
    assert examples.items[0].tags == ("B-PER", "O", "B-PER") and examples.notes == ()


def test_a_row_of_prodigy_without_spans_has_no_entities(write):
    rows = [
        {"text": "Ann left", "_task_hash": 1, "spans": [span(0, 3)], "answer": "accept"},
        {"text": "It rained", "_task_hash": 2, "answer": "accept"},
    ]
    path = write("a.jsonl", rows)
    examples = read_tagging(path, **{**COLUMNS, "tags_column": "spans"})
    assert [item.tags for item in examples.items] == [("B-PER", "O"), ("O", "O")]
    rejected = [*rows, {**rows[0], "answer": "ignore"}]
    bad = BadRows(path, None, answers_all=True)
    write("a.jsonl", rejected)
    unlabelled = {**COLUMNS, "tags_column": None, "skip_bad_rows": bad}
    assert len(read_tagging(path, **unlabelled).items) == 3
