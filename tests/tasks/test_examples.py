"""Bad rows are an error, or are skipped and listed."""

import re

import pytest

from bert_tf.tasks.examples import BadRowError, BadRows


def halve(row):
    if row % 2:
        raise BadRowError(f"expected an even number, got {row}")
    return row // 2


def test_the_first_bad_row_is_an_error():
    bad = BadRows("a.tsv", skip=False)
    assert bad.collect([(1, 2), (2, 4)], halve) == [1, 2]
    message = (
        "a.tsv, line 7: expected an even number, got 5; correct the row, or leave out bad rows by "
        "--skip_bad_rows (in Python skip_bad_rows=True)."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        bad.collect([(6, 2), (7, 5), (8, 9)], halve)


def test_bad_rows_are_skipped_and_listed():
    bad = BadRows("a.tsv", skip=True)
    assert bad.collect([(1, 2), (2, 3), ("question 9", 5), (4, 6)], halve) == [1, 3]
    assert bad.skipped == [
        "a.tsv, line 2: expected an even number, got 3.",
        "a.tsv, question 9: expected an even number, got 5.",
    ]


def test_a_row_of_several_lines_names_the_one_at_fault():
    def fail(row):
        raise BadRowError("expected a tag, got none", line=12)

    with pytest.raises(ValueError, match="a.tsv, line 12: expected a tag"):
        BadRows("a.tsv", skip=False).collect([(10, 0)], fail)


def test_what_is_always_skipped_is_listed_too():
    bad = BadRows("a.tsv", skip=False)
    bad.skip(3, "expected 6 columns, got 4")
    assert bad.skipped == ["a.tsv, line 3: expected 6 columns, got 4."]


def test_no_row_and_no_good_row_are_errors():
    with pytest.raises(ValueError, match="a.tsv has no rows: expected at least one example"):
        BadRows("a.tsv", skip=True).collect([], halve)
    message = "a.tsv has no good row: 2 were skipped, the first of them because: a.tsv, line 1: exp"
    with pytest.raises(ValueError, match=message):
        BadRows("a.tsv", skip=True).collect([(1, 1), (2, 3)], halve)
