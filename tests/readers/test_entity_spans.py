"""Spans of characters as tags of words."""

import json
import re

import pytest

from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.readers.entities import find_entities
from bert_tf.readers.entity_spans import word_places
from bert_tf.readers.own_data import read_tagging

COLUMNS = {"words_column": "text", "tags_column": "entities", "character_spans": True}


def span(start, end, label="PER"):
    return {"start": start, "end": end, "label": label}


@pytest.fixture
def write(tmp_path):
    def write_rows(*rows):
        path = tmp_path / "a.jsonl"
        rows = [{"text": text, "entities": entities} for text, entities in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write_rows


@pytest.mark.parity
def test_words_are_those_of_tokenizers():
    pre_tokenizers = pytest.importorskip("tokenizers").pre_tokenizers
    texts = [
        "Ann Lee's (2).",
        "a_b\u00a0c\u2028d $5 \u20ac7",
        " \t\u00bfqu\u00e9? \U0001f600x",
        "\u3002e\u0301 x",
    ]
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


def test_a_text_of_invisible_characters_is_none(write):
    with pytest.raises(
        ValueError, match=r"a\.jsonl, line 1: expected text in column 'text', got inv"
    ):
        read_tagging(write(("\u200b \u200b", [])), **COLUMNS)


def test_spans_become_tags(write):
    text = "Ann Lee, Bo\u00e9 met\nACME's \U0001f600 man."
    entities = [span(9, 12), span(17, 21, "ORG"), span(0, 7), {**span(13, 16, "X"), "id": 7}]
    path = write((text, entities), ("Nothing.", []), ("Lee Bo", [span(0, 3), span(4, 6)]))
    examples = read_tagging(path, **COLUMNS)
    first, second, third = examples.items
    assert first.words == ("Ann", "Lee", ",", "Bo\u00e9", "met", "ACME", "'", "s", "\U0001f600",
                           "man", ".")  # fmt: skip
    found = {
        (first.places[a][0], first.places[b - 1][1], t) for t, a, b in find_entities(first.tags)
    }
    assert found == {(e["start"], e["end"], e["label"]) for e in entities}
    assert [text[start:end] for start, end in first.places] == list(first.words)
    assert second.tags == ("O", "O") and third.tags == ("B-PER", "B-PER")
    assert examples.labels == ("O", "B-ORG", "I-ORG", "B-PER", "I-PER", "B-X", "I-X")
    unlabelled = read_tagging(path, **{**COLUMNS, "tags_column": None})
    assert unlabelled.items[2].tags is None and unlabelled.items[2].words == ("Lee", "Bo")


@pytest.mark.parametrize(
    ("entities", "message"),
    [
        ([span(0, 2)], "expected spans of whole words in column 'entities', got 'An' (characters 0 "
                       "to 2) of 'Ann'"),
        ([span(4, 8)], "got 'Lee ' (characters 4 to 8) of 'Lee '"),
        ([span(3, 7)], "got ' Lee' (characters 3 to 7) of ' Lee'"),
        ([span(3, 4)], "got ' ' (characters 3 to 4) of ' '"),
        ([span(0, 7), span(4, 7, "ORG")], "expected spans that do not overlap in column"),
        ([span(0, 99)], "expected spans of the text's 12 characters in column 'entities', got {"),
        ([span(3, 3)], "expected 0 <= start < end in column 'entities', got {'end': 3, "),
        ([span("0", 3)], "expected 0 <= start < end"),
        ([span(0, 3, "LOC")], "expected one of ORG, PER in the label of column"),
        ([{"start": 0}], "expected objects with start, end, label in column 'entities', got {"),
        ([[0, 3, "PER"]], "expected objects with start, end, label in column 'entities', got [0"),
        ("B-PER O", "expected a list of {start, end, label} in column 'entities', got 'B-PER O'"),
    ],
)  # fmt: skip
def test_bad_spans(write, entities, message):
    path = write(("Ann", [span(0, 3)]), ("Ann Lee left", entities))
    labels = ["O", "B-ORG", "I-ORG", "B-PER", "I-PER"]
    with pytest.raises(ValueError, match=f"a.jsonl, line 2: .*{re.escape(message)}"):
        read_tagging(path, **COLUMNS, labels=labels)
    assert len(read_tagging(path, **COLUMNS, labels=labels, skip_bad_rows=True).items) == 1
