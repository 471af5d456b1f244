"""Fields become texts, names and numbers, or say what they are instead."""

import pytest

from bert_tf.tasks import fields
from bert_tf.tasks.examples import BadRowError


def test_texts():
    assert fields.text("", "x") == ""
    assert fields.text(" é😀 ", "x") == " é😀 "
    for value, got in ((None, "None"), (3, "3"), (["a"], r"\['a'\]")):
        with pytest.raises(BadRowError, match=f"expected text in column 'a', got {got}"):
            fields.text(value, "column 'a'")
    with pytest.raises(BadRowError, match="in x, got half a surrogate pair at character 2"):
        fields.text("ab\ud800", "x")
    for value in ("", " \t", "\0\0 "):
        with pytest.raises(BadRowError, match="expected text in x, got '"):
            fields.filled_text(value, "x")


def test_long_values_are_cut():
    assert fields.shown("a" * 100) == "'" + "a" * 27 + "..." + "a" * 28 + "'"


def test_names():
    names = [fields.name(value, "x") for value in (" yes ", 3, -1, True, False)]
    assert names == ["yes", "3", "-1", "true", "false"]
    for value in (None, 1.0, "", ["a"]):
        with pytest.raises(BadRowError, match="expected text in x, got"):
            fields.name(value, "x")
    assert fields.known_name(1, "x", ("0", "1")) == "1"
    assert fields.known_name("anything", "x", None) == "anything"
    with pytest.raises(BadRowError, match="expected one of no, yes in x, got 'Yes'"):
        fields.known_name("Yes", "x", ("no", "yes"))
    many = [str(number) for number in range(13)]
    with pytest.raises(BadRowError, match="one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 3 more in x"):
        fields.known_name("Yes", "x", many)


def test_ids():
    assert fields.row_id(None, 7) == "7"
    assert fields.row_id(12, 7) == "12"
    with pytest.raises(BadRowError, match="expected text in the id, got ''"):
        fields.row_id("", 7)


def test_numbers():
    assert [fields.number(value, "x") for value in (" 1.5", 2, "-3e2", 0.25)] == [
        1.5,
        2,
        -300,
        0.25,
    ]
    for value in ("1,5", "", None, True, "nan", "inf", float("nan"), 10**400, [1]):
        with pytest.raises(BadRowError, match="expected a finite number in x, got "):
            fields.number(value, "x")


def test_whole_numbers():
    assert [fields.whole_number(value, "x", 3) for value in ("0", " 3 ", 2)] == [0, 3, 2]
    for value in ("4", "-1", 4, -1, "1.0", 1.0, True, None, "", "²"):
        with pytest.raises(BadRowError, match="expected a whole number from 0 to 3 in x, got "):
            fields.whole_number(value, "x", 3)


def test_order_of_names():
    assert fields.sorted_names(["b", "a", "B", "a"]) == ("B", "a", "b")
    assert fields.sorted_names(["10", "-1", "9", "9"]) == ("-1", "9", "10")
    assert fields.sorted_names([]) == ()
