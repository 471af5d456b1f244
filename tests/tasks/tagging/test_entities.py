"""Entities are found, scored and converted by conlleval's rules, in valid and invalid tags."""

import numpy as np
import pytest

from bert_tf.evaluation.metrics import compare_entities, total
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.readers.examples import BadRows
from bert_tf.tasks.tagging.entities import (
    Entity,
    as_iob2,
    find_all,
    find_invalid_tag,
    find_odd_tags,
    word_offsets,
)
from bert_tf.tasks.tagging.reader import read_tagging

TYPES = ("PER", "LOC", "MISC")


def entity_scores(true, predicted):
    """Returns the entity scores over all types of two lists of tag sequences."""
    entities = [*zip(find_all(true), find_all(predicted), strict=True)]
    return total(compare_entities(true, predicted, entities).classes.values())


def _random_tags(seed, count=40):
    """Returns sequences of random tags, including invalid transitions such as O to I-."""
    rng = np.random.default_rng(seed)
    choices = ["O"] + [f"{prefix}-{kind}" for prefix in "BI" for kind in TYPES]
    return [rng.choice(choices, rng.integers(1, 12)).tolist() for _ in range(count)]


def _random_entities(seed, count=40):
    """Returns sequences as lists of (type or "", length): entities and gaps."""
    rng = np.random.default_rng(seed)

    def part():
        return str(rng.choice(["", *TYPES])), int(rng.integers(1, 4))

    return [[part() for _ in range(rng.integers(1, 7))] for _ in range(count)]


def _tags_of(parts, scheme):
    tags = []
    last = ""
    for kind, length in parts:
        first = "B" if scheme == "IOB2" or kind == last else "I"
        tags += [f"{first}-{kind}"] + [f"I-{kind}"] * (length - 1) if kind else ["O"] * length
        last = kind
    return tags


def _with_ends(sequences, last, single):
    """Returns IOB2 sequences with the tags of BIOES or BILOU at the ends of entities."""
    marked = [list(tags) for tags in sequences]
    for tags, entities in zip(marked, find_all(sequences), strict=True):
        for kind, start, end in entities:
            tags[end - 1] = f"{single if end - start == 1 else last}-{kind}"
    return marked


def _altered(sequences, seed):
    rng = np.random.default_rng(seed)
    others = _random_tags(seed + 100, 1)[0]
    return [[t if rng.random() < 0.8 else str(rng.choice(others)) for t in s] for s in sequences]


@pytest.mark.parametrize("end", ["E", "L"])
@pytest.mark.parametrize("single", ["S", "U"])
def test_end_tags_are_not_continued(end, single):
    tags = [f"{single}-PER", "I-PER", f"{end}-PER", "I-PER", f"{single}-PER", "I-PER"]
    expected = [Entity("PER", *offsets) for offsets in [(0, 1), (1, 3), (3, 4), (4, 5), (5, 6)]]
    assert find_all([tags])[0] == expected


def test_entities_equal_literals():
    tags = ["O", "I-PER", "I-PER", "B-PER", "I-LOC", "I-LOC", "O", "B-PER", "I-LOC", "B-LOC"]
    assert find_all([tags])[0] == [
        Entity("PER", 1, 3),
        Entity("PER", 3, 4),
        Entity("LOC", 4, 6),
        Entity("PER", 7, 8),
        Entity("LOC", 8, 9),
        Entity("LOC", 9, 10),
    ]
    assert find_all([["O", "B-A-B", "I-A-B"]]) == [[Entity("A-B", 1, 3)]]
    assert find_all([[]]) == [[]]


@pytest.mark.parametrize("seed", range(3))
def test_conversion_to_iob2(seed):
    parts = _random_entities(seed)
    iob1 = [_tags_of(sequence, "IOB1") for sequence in parts]
    iob2 = [_tags_of(sequence, "IOB2") for sequence in parts]
    assert iob1 != iob2
    for tags in (iob1, iob2, _with_ends(iob2, "E", "S"), _with_ends(iob2, "L", "U")):
        assert as_iob2(tags) == iob2
    scores = entity_scores(iob1, iob2)
    assert scores.num_true == scores.num_correct == scores.num_predicted > 50


def test_conversion_yields_valid_tags():
    tags = _random_tags(7)
    converted = as_iob2(tags)
    assert not any(find_invalid_tag(each, "IOB2") for each in converted)
    assert find_all(converted) == find_all(tags)


@pytest.mark.parametrize(
    ("tags", "scheme", "message"),
    [
        (["B-PER", "I-LOC"], "IOB2",
         "Tag 1 is 'I-LOC' after 'B-PER': in IOB2 an entity begins with B-LOC."),
        (["O", "I-" + "a" * 10**5], "IOB2", f"Tag 1 is 'I-{'a' * 55}...{'a' * 58}' after 'O': "
         f"in IOB2 an entity begins with B-{'a' * 26}...{'a' * 59}."),
        (["I-PER", "B-PER", "O", "B-PER"], "IOB1", "Tag 3 is 'B-PER' after 'O': in IOB1 an entity "
         "begins with I-PER unless it follows another PER."),
    ],
)  # fmt: skip
def test_invalid_tags_are_described(tags, scheme, message):
    assert find_invalid_tag(tags, scheme)[1] == message


@pytest.mark.parametrize("tag", ["PER", "B-", "O-PER"])
def test_malformed_tag_raises_error(tag):
    message = f"^Tag 1 is '{tag}': expected O, B-TYPE or I-TYPE\\.$"
    with pytest.raises(ValueError, match=message):
        find_all([["O", tag]])


@pytest.mark.parametrize(
    ("counts", "odd"),
    [
        ({"O": 90, "B-PER": 5, "I-PER": 2, "o": 2, "B_PER": 1}, ["o", "B_PER"]),
        ({"O": 9, "S-LOC": 2, "X": 4}, ["X"]),
        ({"O": 9, "B-PER": 2, "U-LOC": 1}, []),
        ({"o": 9, "B_PER": 2, "i_per": 1}, ["o", "B_PER", "i_per"]),
        ({"NOUN": 9, "VERB": 2, "O": 1}, []),
        ({"NOUN": 9, "S-VERB": 2, "O": 1}, []),
        ({"B": 9, "I": 2, "E": 1}, []),
        ({"O": 3}, []),
    ],
)
def test_odd_tags_are_found(counts, odd):
    assert find_odd_tags(counts) == odd


@pytest.mark.parity
@pytest.mark.slow
@pytest.mark.parametrize("form", ["BIOES", "BILOU"])
@pytest.mark.parametrize("seed", range(3))
def test_scores_of_bioes_and_bilou_equal_seqeval(form, seed):
    """Valid tags equal the strict mode; arbitrary BIOES tags equal the default mode."""
    seqeval = pytest.importorskip("seqeval.scheme")
    metrics = pytest.importorskip("seqeval.metrics")
    scheme, *ends = {"BIOES": (seqeval.IOBES, "E", "S"), "BILOU": (seqeval.BILOU, "L", "U")}[form]
    true, other = (
        _with_ends([_tags_of(parts, "IOB2") for parts in _random_entities(each)], *ends)
        for each in (seed, seed + 9)
    )
    predicted = [(two * len(one))[: len(one)] for one, two in zip(true, other, strict=True)]
    valid = _with_ends(as_iob2(predicted), *ends)
    ours = entity_scores(true, valid)
    theirs = metrics.f1_score(true, valid, mode="strict", scheme=scheme)
    assert ours.f1 == pytest.approx(theirs) and 0 < theirs < 1
    if form == "BIOES":
        altered = _altered(predicted, seed)
        ours = entity_scores(true, altered)
        assert ours.f1 == pytest.approx(metrics.f1_score(true, altered))
        converted = [[(e.type, e.start, e.end - 1) for e in found] for found in find_all(altered)]
        assert converted == list(map(metrics.sequence_labeling.get_entities, altered))


# === Character spans as word tags ===

COLUMNS = {"text_columns": ["text"], "label_column": "entities", "character_spans": True}


def span(start, end, label="PER"):
    return {"start": start, "end": end, "label": label}


@pytest.mark.parity
def test_words_equal_those_of_hugging_face_tokenizers():
    pre_tokenizers = pytest.importorskip("tokenizers").pre_tokenizers
    texts = ["Ann Lee's (2).", "a_b\u00a0c\u2028d $5 \u20ac7", "\u3002e\u0301 x"]
    texts.append(" \t\u00bfqu\u00e9? \U0001f600x")
    for text in texts:
        expected = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text)
        assert list(word_offsets(text)) == [offsets for _, offsets in expected]


def test_words_equal_those_of_the_tokenizer():
    text = "\u200bAnn\x0bL\u200bee\ufeff, \u00ad\x00 \x85.\u2029\ufffdx"
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "x"], False)
    _, starts, ends = tokenizer.tokenize_with_offsets([text])
    byte_offsets = zip(starts.values.numpy(), ends.values.numpy(), strict=True)
    expected = [
        tuple(len(text.encode()[:at].decode()) for at in offsets) for offsets in byte_offsets
    ]
    found = word_offsets(text)
    assert [start for start, _ in found] == [start for start, _ in expected]
    # Without characters after a word that the tokenizer removes.
    assert [text[start:end] for start, end in found] == ["Ann\x0bL\u200bee", ",", ".", "x"]


def test_ideographs_are_single_words():
    assert word_offsets("in\u5317\u4eac x") == ((0, 2), (2, 3), (3, 4), (5, 6))


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
        (first.offsets[a][0], first.offsets[b - 1][1], t) for t, a, b in find_all([first.tags])[0]
    }
    assert found == {(e["start"], e["end"], e["label"]) for e in entities}
    assert [text[start:end] for start, end in first.offsets] == list(first.words)
    assert second.tags == ("O", "O") and third.tags == ("B-PER", "B-PER")
    assert examples.labels == ("O", "B-ORG", "I-ORG", "B-PER", "I-PER", "B-X", "I-X")
    unlabeled = read_tagging(path, **{**COLUMNS, "label_column": None})
    assert unlabeled.items[2].tags is None and unlabeled.items[2].words == ("Lee", "Bo")


def test_span_text_that_is_not_in_the_text_is_ignored(write):
    row = {"text": "NYC \U0001f600 Ann", "entities": [{**span(0, 3), "text": "New York"}]}
    row["entities"].append({**span(6, 9), "text": "Ann"})
    examples = read_tagging(write("a.jsonl", [row]), **COLUMNS)
    assert examples.items[0].tags == ("B-PER", "O", "B-PER") and examples.notes == ()


def test_prodigy_row_without_spans_has_no_entities(write):
    rows = [
        {"text": "Ann left", "_task_hash": 1, "spans": [span(0, 3)], "answer": "accept"},
        {"text": "It rained", "_task_hash": 2, "answer": "accept"},
    ]
    path = write("a.jsonl", rows)
    examples = read_tagging(path, **{**COLUMNS, "label_column": "spans"})
    assert [item.tags for item in examples.items] == [("B-PER", "O"), ("O", "O")]
    rejected = [*rows, {**rows[0], "answer": "ignore"}]
    bad = BadRows(path, None, bad_rows_get_a_record=True)
    write("a.jsonl", rejected)
    unlabeled = {**COLUMNS, "label_column": None, "skip_bad_rows": bad}
    assert len(read_tagging(path, **unlabeled).items) == 3
