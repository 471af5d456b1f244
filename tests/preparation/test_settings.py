"""Flags of a preparation: what is filled in, and what is refused."""

import pytest

from bert_tf.preparation.settings import resolve


def test_what_is_not_given_has_its_default():
    settings = resolve(input=["a", "b"], output="c")
    assert (settings.input, settings.scripts) == (("a", "b"), ())
    assert (settings.near_duplicates, settings.held_out_fraction) == (0.8, 0.01)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"input": []}, "--input is missing: prepare needs --input and --output."),
        ({"output": None}, "--output is missing: prepare needs --input and --output."),
        ({"scripts": ["latin", "runes"]}, "--scripts=runes: expected some of arabic, "),
        ({"near_duplicates": 0.3}, "--near_duplicates=0.3: expected a number from 0.5 to 1, or 0."),
        ({"near_duplicates": float("nan")}, "--near_duplicates=nan: expected a number from 0.5"),
        ({"held_out_fraction": 1.0}, "--held_out_fraction=1.0: expected a number from 0 to below"),
        ({"min_script_share": 0.0}, "--min_script_share=0.0: expected a number above 0, at most"),
    ],
)
def test_what_is_refused(flags, sentence):
    with pytest.raises(ValueError) as error:
        resolve(**{"input": ["a"], "output": "b", **flags})
    assert sentence in str(error.value)
