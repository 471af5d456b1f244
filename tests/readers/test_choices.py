"""SWAG's csv, CODAH's tsv, and one's own tables of choices."""

import collections
import json
import re

import pytest

from bert_tf.readers.choices import read_choices, read_codah, read_swag
from bert_tf.readers.examples import ChoiceExample

SWAG_NAMES = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
)
SWAG_ROWS = [
    '0,v1,18313,"He stands, up. He","He stands, up.",He,gold,"says ""so"".",b.,c.,d.',
    "1,v2,9,A man runs. ,A man runs.,,gen,a.,b.,c.,d.",
]


def write(path, *lines):
    path.write_text("".join(f"{line}\r\n" for line in lines))
    return str(path)


def test_swag(tmp_path):
    labelled = [f"{row},{label}" for row, label in zip(SWAG_ROWS, (2, 0), strict=True)]
    path = write(tmp_path / "train.csv", f"{SWAG_NAMES},label", *labelled)
    examples = read_swag(path)
    assert examples.items == [
        ChoiceExample("0", "He stands, up.", ('He says "so".', "He b.", "He c.", "He d."), 2),
        ChoiceExample("1", "A man runs.", ("a.", "b.", "c.", "d."), 0),
    ]
    assert (examples.labels, examples.skipped) == ((), [])
    path = write(tmp_path / "test.csv", SWAG_NAMES, *SWAG_ROWS)
    unlabelled = read_swag(path, labelled=False).items
    assert [item.label for item in unlabelled] == [None, None]
    assert [item.choices for item in unlabelled] == [item.choices for item in examples.items]
    with pytest.raises(ValueError, match="line 1: expected one column 'label', got none"):
        read_swag(path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (f"{SWAG_ROWS[0]},4", "expected a whole number from 0 to 3 in the label, got '4'"),
        (f"{SWAG_ROWS[0]},", "in the label, got ''"),
        ("0,v,9,s,,He,gold,a.,b.,c.,d.,0", "expected text in the context, got ''"),
        ("0,v,9,s,A.,He,gold,a.,b.,,d.,0", "expected text in an ending, got ''"),
        (SWAG_ROWS[0], "expected 12 columns, got 11"),
        ('0,v,9,s,"A" b,He,gold,a.,b.,c.,d.,0', "expected comma-separated fields, got: "),
    ],
)
def test_bad_rows_of_swag(tmp_path, row, message):
    path = write(tmp_path / "a.csv", f"{SWAG_NAMES},label", f"{SWAG_ROWS[1]},3", row)
    with pytest.raises(ValueError, match=f"^{re.escape(path)}, line 3: .*{re.escape(message)}"):
        read_swag(path)
    examples = read_swag(path, skip_bad_rows=True)
    assert [item.label for item in examples.items] == [3]
    assert message in examples.skipped[0]


def test_codah(tmp_path):
    path = write(tmp_path / "a.tsv", 'o\tI "am\ta.\tb.\tc.\td.\t3', "q\tHe\te.\tf.\tg.\th.\t0")
    assert read_codah(path).items == [
        ChoiceExample("0", 'I "am', ("a.", "b.", "c.", "d."), 3),
        ChoiceExample("1", "He", ("e.", "f.", "g.", "h."), 0),
    ]
    path = write(tmp_path / "a.tsv", "o\tI\ta.\tb.\tc.\td.\t3", "q\tHe\te.\tf.\tg.\th.", "o\tI")
    with pytest.raises(ValueError, match="line 2: expected 7 columns, got 6"):
        read_codah(path)
    assert len(read_codah(path, skip_bad_rows=True).skipped) == 2
    path = write(tmp_path / "a.tsv", "o\tI\ta.\tb.\t\td.\t3")
    with pytest.raises(ValueError, match="line 1: expected text in choice 2, got ''"):
        read_codah(path)


def test_own_columns(tmp_path):
    path = write(tmp_path / "a.csv", "n,q,x,y,z,best", "17,Why?,A,B,C,1", "18,How?,D,E,F,0")
    columns = {"context_column": "q", "choice_columns": ["z", "x"], "label_column": "best"}
    assert read_choices(path, **columns, id_column="n").items == [
        ChoiceExample("17", "Why?", ("C", "A"), 1),
        ChoiceExample("18", "How?", ("F", "D"), 0),
    ]
    items = read_choices(path, **{**columns, "label_column": None}).items
    assert [(item.id, item.label) for item in items] == [("0", None), ("1", None)]
    for wrong in ("x", []):
        with pytest.raises(ValueError, match=f"choice_columns is {re.escape(repr(wrong))}: expec"):
            read_choices(path, **{**columns, "choice_columns": wrong})


def test_own_lists(tmp_path):
    columns = {"context_column": "q", "choice_columns": ["c"], "label_column": "y"}
    good = '{"q": "Why?", "c": ["A", "B", "C"], "y": 2}'
    path = write(tmp_path / "a.jsonl", good, '{"q": "How?", "c": ["D", "E"], "y": "0"}')
    assert read_choices(path, **columns).items == [
        ChoiceExample("0", "Why?", ("A", "B", "C"), 2),
        ChoiceExample("1", "How?", ("D", "E"), 0),
    ]
    for choices, expected in (
        ('["A"]', r"a list of 2 to 1,000 choices in column 'c', got \['A'\]"),
        (json.dumps(["A"] * 1001), r"a list of 2 to 1,000 choices in column 'c', got \['A', "),
        ('"A, B, C"', "a list of 2 to 1,000 choices in column 'c', got 'A, B, C'"),
        ('["A", "B", 3]', "text in choice 2, got 3"),
    ):
        path = write(tmp_path / "a.jsonl", good, f'{{"q": "How?", "c": {choices}, "y": 0}}')
        with pytest.raises(ValueError, match=f"line 2: expected {expected}"):
            read_choices(path, **columns)
    path = write(tmp_path / "a.jsonl", good, '{"q": "How?", "c": ["A", "B", "C"], "y": null}')
    with pytest.raises(
        ValueError, match="line 2: expected a whole number from 0 to 2 in the label, "
    ):
        read_choices(path, **columns)


def test_real_codah(data_dir):
    examples = read_codah(str(data_dir / "multiple_choice/codah.tsv"))
    assert len(examples.items) == 2776
    assert examples.items[2] == ChoiceExample(
        "2",
        "My brother is very good at math. He",
        (
            "has a watermelon in his shirt.",
            "is flying out the window.",
            "looks like Billy Bob Buddle.",
            "won a math competition when he was 5.",
        ),
        3,
    )
    labels = collections.Counter(item.label for item in examples.items)
    assert set(labels) == {0, 1, 2, 3} and min(labels.values()) > 600
