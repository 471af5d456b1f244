"""The fuzzer finds nothing in a few hundred mutations, and would say it if it did."""

import collections

import pytest

from . import child
from .__main__ import FAULTS, fuzz
from .formats import FORMATS


@pytest.mark.slow
def test_no_mutation_ends_in_anything_but_a_sentence(capsys):
    # An export of every head takes a minute; tests/saved_models sends such requests.
    formats = [name for name in FORMATS if not name.startswith("requests_")]
    counts = fuzz(formats, mutations=8 * len(formats), seed=1)
    total = sum(counts.values(), collections.Counter())
    assert {row.total() for row in counts.values()} == {8}
    assert total["refused"] and total["equal"], capsys.readouterr().out
    assert not any(total[outcome] for outcome in FAULTS), capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("a.json is not JSON."), "refused"),
        (FileNotFoundError(2, "No such file"), "refused"),
        (ValueError("a" * 10_000), "traceback"),
        (ValueError(""), "traceback"),
        (KeyError("a"), "traceback"),
        (RecursionError(), "traceback"),
        (MemoryError(), "memory"),
    ],
)
def test_what_is_a_refusal(error, outcome):
    try:
        raise error
    except Exception as caught:
        assert child._outcome_of(caught)[0] == outcome
