"""One's own tables of texts and of tagged sentences."""

import re

import pytest

from bert_tf.readers.examples import TaggedExample, TextExample
from bert_tf.readers.own_data import (
    read_classification,
    read_multilabel,
    read_regression,
    read_tagging,
)


def labels_of(examples):
    return [item.label for item in examples.items]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'n,review,stars,reply\n7,"Works, ""fine"".", 10,Thanks\n8,Broke.,9,\n'),
        ("a.tsv", 'n\treview\tstars\treply\n7\tWorks, "fine".\t10\tThanks\n8\tBroke.\t9\t\n'),
        ("a.jsonl", '{"n": 7, "review": "Works, \\"fine\\".", "stars": "10 ", "reply": "Thanks"}\n'
         '{"n": "8", "review": "Broke.", "stars": 9, "reply": "", "more": []}\n'),
    ],
)  # fmt: skip
def test_classification(write, name, content):
    path = write(name, content)
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


def test_names_of_classes(write):
    path = write(
        "a.jsonl", "".join(f'{{"t": "x", "y": {y}}}\n' for y in ('"b"', "true", "3", '"a"'))
    )
    examples = read_classification(path, text_columns=["t"], label_column="y")
    assert examples.labels == ("3", "a", "b", "true")
    assert labels_of(examples) == ["b", "true", "3", "a"]


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


def test_says_how_to_name_columns(write):
    path = write("a.tsv", "text\tlabel\nx\t1\n")
    for columns in ("text", [], ["a", "b", "c"]):
        message = f"text_columns is {columns!r}: expected a list of one or two names"
        with pytest.raises(ValueError, match=re.escape(message)):
            read_classification(path, text_columns=columns, label_column=None)
    message = "expected one column 'sentence', got none; the columns are text, label"
    with pytest.raises(ValueError, match=message):
        read_classification(path, text_columns=["sentence"], label_column="label")


def test_multilabel(write):
    path = write("a.csv", 't,y\na,"joy,awe, joy"\nb,\nc,fear\n')
    examples = read_multilabel(path, text_columns=["t"], label_column="y")
    assert labels_of(examples) == [("joy", "awe"), (), ("fear",)]
    assert examples.labels == ("awe", "fear", "joy")
    path = write(
        "a.jsonl", '{"t": "a", "y": [2, "10"]}\n{"t": "b", "y": []}\n{"t": "c", "y": "1|2"}'
    )
    examples = read_multilabel(path, text_columns=["t"], label_column="y", separator="|")
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
        read_multilabel(path, text_columns=["t"], label_column="y", separator="")


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
    columns = {"words_column": "w", "tags_column": "t", "id_column": "n"}
    examples = read_tagging(path, **columns, labels=["O", "I"])
    assert examples.items == [TaggedExample("5", ("So", "be", "it"), ("O", "O", "I"), 0)]
    assert examples.labels == ("O", "I")
    unlabelled = read_tagging(path, **{**columns, "tags_column": None})
    assert unlabelled.items[0].tags is None
    assert unlabelled.labels == ()


# === What is read as it is, and may not be meant ===


def notes_of(tmp_path, rows, read=read_classification, name="a.tsv", **columns):
    path = tmp_path / name
    path.write_text("t\tl\n" + "".join(f"text {n}\t{label}\n" for n, label in enumerate(rows)))
    columns = columns or {"text_columns": ["t"], "label_column": "l"}
    return [note.removeprefix(str(path)) for note in read(str(path), **columns).notes]


@pytest.mark.parametrize(
    ("rows", "notes"),
    [
        (["a", "b"] * 30, []),
        (["a"] * 99, []),
        (["a"] * 97 + ["b"] * 3, ["97.0% of the examples have the class 'a', so the "]),
        (["a", "b", "l", "a"], [", line 4: the class 'l' is the column's own name: if "]),
        (["a", "nan", "NULL", "a"], [": 'nan' (line 3), 'NULL' (line 4) count as classes: where "]),
        (["a", "-100", "-", "b"], [": '-100' (line 3), '-' (line 4) count as classes: where the"]),
        (["a", "a\u200b", "b"], [": 'a' (line 2), 'a\\u200b' (line 3) count as classes, and look"]),
        (["So so", "so\xa0so", "b"], [": 'So so' (line 2), 'so\\xa0so' (line 3) count as"]),
        (["می\u200cخواهم", "a\u200db", "b"], []),
        (["1.0", "0.0", "1.0"], [": '1.0' (line 2), '0.0' (line 3) count as classes: numb"]),
        ([f"row {n}" for n in range(30)], ["l has 30 classes in 30 examples: is it the column to"]),
        ([str(n % 20 - 3) for n in range(60)], [": '-3' (line 2), '-2' (line 3), '-1' (line 4), "]),
        ([f"{n % 20}.5" for n in range(60)], [": '0.5' (line 2), '1.5' (line 3), '2.5' (line 4),"]),
        ([f"{n % 19}" for n in range(60)], []),
    ],
)  # fmt: skip
def test_classes_that_may_not_be_meant(tmp_path, rows, notes):
    found = notes_of(tmp_path, list(rows))
    assert [note[: len(start)] for note, start in zip(found, notes, strict=True)] == notes


def test_several_classes_in_one_name(tmp_path):
    (note,) = notes_of(tmp_path, ["a", "b", "a,b", "b, c", "d"] * 5)
    assert note == ": a,b are one class each: --task=multilabel learns several."
    (note,) = notes_of(tmp_path, ["a;b", "b;c", "a;b"], read_multilabel)
    assert note.endswith(" are one class each: --label_separator says what separates several.")


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (
            "fine [SEP] text",
            "most texts hold '[CLS]' or '[SEP]', which are read as letters in brac",
        ),
        (
            "[CLS] fine",
            "most texts hold '[CLS]' or '[SEP]', which are read as letters in brackets:",
        ),
        ("b'fine'", "most texts begin with b and a quote, as Python shows bytes: decode them when"),
        (
            '"fine,pos\nso,neg\nso"',
            "lines inside of 3 texts end with a class, as rows do (the firs",
        ),
        ('"fine,possible\nneg\n, pos"', None),
        ("a [SEP", None),
    ],
)
def test_texts_that_hold_what_is_no_text(tmp_path, text, note):
    path = tmp_path / "a.csv"
    rows = [f"{text},{label}\n" for label in ("pos", "neg", "pos")]
    path.write_text("".join(["t,l\n", *rows, "fine,pos\n", "bad,neg\n"]))
    notes = read_classification(str(path), text_columns=["t"], label_column="l").notes
    assert [found.removeprefix(f"{path}: ")[: len(note or "")] for found in notes] == (
        [note] if note else []
    )


def test_lists_as_programs_print_them(tmp_path):
    found = notes_of(tmp_path, ["['a', 'b']", "['a']", "a,b"], read_multilabel)
    assert len(found) == 1 and found[0].startswith(
        """: "['a'" (line 2), "'b']" (line 2), "['a']" (line 3) count as classes: they look like"""
    )
    assert notes_of(tmp_path, ["a,b", "a", ""], read_multilabel) == []


def test_columns_that_say_of_one_class_whether_it_holds(tmp_path):
    for rows in (["0", "1", "0"], ["False", "True"], ["0,1", "1,0"]):
        (note,) = notes_of(tmp_path, rows, read_multilabel)
        assert "count as classes: if they say whether a class holds, and other columns" in note
    assert notes_of(tmp_path, ["0,1", "1", ""], read_multilabel) == []
    assert notes_of(tmp_path, ["0", "1", "0"]) == []


def test_tags_that_may_not_be_meant(tmp_path):
    columns = {"words_column": "t", "tags_column": "l"}
    (note,) = notes_of(tmp_path, ["O O", "B-X I-X", "o B_X", "O O", "O o"], read_tagging, **columns)
    assert note == (
        ": most tags are those of entities, but not 'o' (line 4), 'B_X' (line 4): they count as O "
        "where entities are scored; correct them if they are misspelt."
    )
    (note,) = notes_of(tmp_path, ["o o", "b-x i-x"], read_tagging, **columns)
    assert note.startswith(": the tags look like those of entities and are none, such as 'o' (line")
    assert notes_of(tmp_path, ["NOUN O", "B-X I-X", "NOUN VERB"], read_tagging, **columns) == []
    (note,) = notes_of(tmp_path, ["NOUN\u200e O", "VERB O"], read_tagging, **columns)
    assert note.startswith(": 'NOUN\\u200e' (line 2) count as classes, and look alike or hold")
    assert notes_of(tmp_path, ["O O", "S-X U-X"], read_tagging, **columns) == []
