"""Bad rows raise an error or are skipped; fields become texts, names and numbers."""

import re

import pytest

from bert_tf.readers import examples
from bert_tf.readers.examples import BadRowError, BadRows


def halve(row):
    if row % 2:
        raise BadRowError(f"expected an even number, got {row}")
    return row // 2


def test_first_bad_row_raises_error():
    bad = BadRows("a.tsv", skip=False)
    assert bad.collect([(1, 2), (2, 4)], halve) == [1, 2]
    message = (
        "a.tsv, line 7: expected an even number, got 5. Correct the row, or skip bad rows with "
        "--skip_bad_rows."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        bad.collect([(6, 2), (7, 5), (8, 9)], halve)
    with pytest.raises(ValueError, match=r"^a.tsv, line 7: .*, got 5\. Correct the row\.$"):
        BadRows("a.tsv", skip=None).collect([(7, 5)], halve)


def test_no_valid_row_raises_error():
    with pytest.raises(ValueError, match="a.tsv has no rows. Use a file with at least one example"):
        BadRows("a.tsv", skip=True).collect([], halve)
    message = (
        "a.tsv has no valid rows; 2 bad rows were skipped. The first: a.tsv, line 1: expected an "
        "even number, got 1."
    )
    with pytest.raises(ValueError, match=message):
        BadRows("a.tsv", skip=True).collect([(1, 1), (2, 3)], halve)


def test_valid_fields():
    assert [examples.text(value, "x") for value in ("", " é😀 ")] == ["", " é😀 "]
    names = [examples.name(value, "x") for value in (" yes ", 3, -1, True, False, 12.0)]
    assert names == ["yes", "3", "-1", "true", "false", "12"]
    assert examples.known_name(1, "x", ("0", "1")) == "1"
    assert examples.known_name("anything", "x", None) == "anything"
    assert [examples.row_id(value, 7) for value in (None, 12)] == ["7", "12"]
    numbers = [examples.number(value, "x") for value in (" 1.5", 2, "-3e2", 0.25)]
    assert numbers == [1.5, 2, -300, 0.25]
    assert [examples.integer(value, "x", 3) for value in ("0", " 3 ", 2, 1.0)] == [0, 3, 2, 1]


@pytest.mark.parametrize(
    ("read", "values", "message"),
    [
        (examples.text, (None, 3, ["a"]), "expected a string in x, got (None|3|\\['a'\\])$"),
        (examples.text, ("ab\ud800",), "in x, got an unpaired surrogate at character 2"),
        (examples.non_empty_text, ("", " \t", "\0\0 "), "expected non-empty text in x, got '"),
        (examples.number, ("a" * 100,), f"got '{'a' * 27}[.]{{3}}{'a' * 28}'$"),
        (examples.name, (None, 1.5, float("inf"), "", ["a"]), "expected .* in x, got"),
        (lambda value, what: examples.known_name(value, what, ("no", "yes")), ("Yes",),
         "expected one of no, yes in x, got 'Yes'"),
        (lambda value, what: examples.known_name(value, what, list(map(str, range(13)))), ("Yes",),
         "expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 3 more in x, got 'Yes'"),
        (lambda value, what: examples.row_id(value, 7), ("",), "expected non-empty text in the "
            "id, got ''"),
        (examples.number, ("1,5", "", None, True, "nan", "inf", float("nan"), 10**400, [1]),
         "expected a finite number in x, got "),
        (examples.number, ("1e39", -1e39), r"expected a number from -3.4e.38 to 3.4e.38 in x, got"),
        (lambda value, what: examples.integer(value, what, 3),
         ("4", "-1", 4, -1, "1.0", 1.5, 4.0, True, None, "", "²"),
         "expected an integer from 0 to 3 in x, got "),
    ],
)  # fmt: skip
def test_invalid_fields_raise_error(read, values, message):
    for value in values:
        with pytest.raises(BadRowError, match=message):
            read(value, "x")


def test_name_order():
    assert examples.sorted_names(["b", "a", "B", "a"]) == ("B", "a", "b")
    assert examples.sorted_names(["10", "-1", "9", "9"]) == ("-1", "9", "10")
    assert examples.sorted_names([]) == ()
