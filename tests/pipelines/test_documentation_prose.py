"""Prose out of documentation: what is kept, what goes, and where sentences end."""

import pytest

from bert_tf.pipelines.documentation_prose import read_prose, split_sentences


def prose(text: str) -> list[list[str]]:
    return list(read_prose(text))


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It is so. Is it so? It is!", ["It is so.", "Is it so?", "It is!"]),
        ("See e.g. Paris. No. 5 is here.", ["See e.g. Paris.", "No. 5 is here."]),
        ('He said "stop." Then he left.', ['He said "stop."', "Then he left."]),
        ("By J. R. Smith, i.e. Bob. Not so.", ["By J. R. Smith, i.e. Bob.", "Not so."]),
        ("Point a. Point b.", ["Point a.", "Point b."]),
        ("Version 3.11 of it. also this", ["Version 3.11 of it. also this"]),
        ("One etc. and more", ["One etc. and more"]),
        ("", []),
    ],
)
def test_split_sentences(text, sentences):
    assert split_sentences(text) == sentences


def test_markup_goes_and_words_stay():
    text = (
        "Uses :class:`~a.B`, :func:`run it <a.run>` and ``code``; *so* **it is**, *args is\n"
        "not [1]_. See `the docs <http://x.y>`_ and [that page](http://z) for more."
    )
    assert prose(text) == [
        [
            "Uses a.B, run it and code; so it is, *args is not.",
            "See the docs and that page for more.",
        ]
    ]


def test_code_tables_and_headings_go():
    text = """\
A heading that is underlined.
=============================
The text below the heading stays.

    >>> print("This is the code that goes.")
    This is the output that goes.

```python
# This is a comment in a fence.

x = the_second_paragraph_of_the_fence()
```

As in this block of code::

    This is a literal block that goes.

    This is its second paragraph.

The text goes on after the block.

.. code-block:: python

    some_code_of_a_directive = None

.. note:: This note is a sentence to keep.

===== =====
Table of words that are not.
===== =====
"""
    kept = [sentence for paragraph in prose(text) for sentence in paragraph]
    assert kept == [
        "The text below the heading stays.",
        "The text goes on after the block.",
        "This note is a sentence to keep.",
    ]


def test_lists_and_parameters_become_sentences():
    text = """\
Args:
  x: The first of the two numbers. It
    is always positive.
  *names (list of str): The names that belong to it.
  y: int
:param z: The number that comes last.
- The first point to be made.
2. The second point to be made.

Returns:
  A number that is neither.

axis : int, optional
    The axis along which to sum.
"""
    assert prose(text) == [
        ["The first of the two numbers.", "It is always positive."],
        ["The names that belong to it."],
        ["The number that comes last."],
        ["The first point to be made."],
        ["The second point to be made."],
        ["A number that is neither."],
        ["The axis along which to sum."],
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Too short now.",
        "A sentence that does not end",
        "The value x_1 y_2 z_3 is f(a) of it.",
        "If a == b then it is so.",
        "TODO: remove this as soon as possible.",
        "The set {1, 2} has but two members.",
        "This sentence is " + "very " * 200 + "long.",
    ],
)
def test_what_is_not_prose(text):
    assert prose(text) == []
