"""Entities as spans of a text's characters: read as words with tags, written of words with tags."""

import bisect
import functools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from bert_tf.pipelines.normalizer_model import code_points
from bert_tf.untrusted import listed

from .examples import BadRowError, known_name, shown

# The characters from which a word starts to behind its last.
Place = tuple[int, int]
_KEYS = ("start", "end", "label")


def word_places(text: str) -> tuple[Place, ...]:
    """Where a text's words are: what blanks separate, a mark or an ideograph each alone.

    They are the words that the tokenizer makes of the whole text.
    """
    return tuple(_word_places(text))


def _word_places(text: str) -> Iterator[Place]:
    start, end = None, 0  # of the word that has begun, if any
    for place, character in enumerate(text):
        kind = _kind(character)
        if kind == "letter":
            start, end = place if start is None else start, place + 1
        elif kind != "dropped":  # what is invisible may be within a word, not at its ends
            if start is not None:
                yield start, end
            start = None
            if kind == "alone":
                yield place, place + 1
    if start is not None:
        yield start, end


@functools.cache
def _kind(character: str) -> str:
    """What the tokenizer takes a character for."""
    table, code = code_points(), ord(character)
    if table.dropped[code]:
        return "dropped"
    if table.space[code]:
        return "space"
    return "alone" if table.punctuation[code] or table.ideograph[code] else "letter"


def tags_of_spans(
    text: str,
    spans: Any,
    places: Sequence[Place],
    types: Collection[str] | None,
    what: str,
) -> tuple[str, ...]:
    """The tags, of IOB2, of a text's words at ``places``, by the spans of its entities.

    ``spans`` are objects with ``start``, ``end`` (the character behind the last) and ``label``, one
    of ``types`` where these are known; other keys are ignored. A ``BadRowError``, which calls the
    spans ``what``, is raised where they are none, overlap, or begin or end within a word.

    >>> text = "Ann Lee left."
    >>> tags_of_spans(text, [{"start": 0, "end": 7, "label": "PER"}], word_places(text), None, "x")
    ('B-PER', 'I-PER', 'O', 'O')
    """
    if not isinstance(spans, list):
        raise BadRowError(f"expected a list of {{start, end, label}} in {what}, got {shown(spans)}")
    tags = ["O"] * len(places)
    starts, ends = [start for start, _ in places], [end for _, end in places]
    for span in spans:
        if not isinstance(span, dict) or not {*_KEYS} <= span.keys():
            raise BadRowError(f"expected objects with {listed(_KEYS)} in {what}, got {shown(span)}")
        start, end = span["start"], span["end"]
        if not all(type(place) is int for place in (start, end)) or not 0 <= start < end:
            raise BadRowError(f"expected 0 <= start < end in {what}, got {shown(span)}")
        if end > len(text):
            raise BadRowError(
                f"expected spans of the text's {len(text)} characters in {what}, got {shown(span)}"
            )
        kind = known_name(span["label"], f"the label of {what}", types)
        first, last = bisect.bisect_left(starts, start), bisect.bisect_left(ends, end)
        if starts[first : first + 1] != [start] or ends[last : last + 1] != [end]:
            around = shown(_around(text, places, start, end))
            raise BadRowError(
                f"expected spans of whole words in {what}, got {shown(text[start:end])} "
                f"(characters {start} to {end}) of {around}"
            )
        if {*tags[first : last + 1]} != {"O"}:
            raise BadRowError(f"expected spans that do not overlap in {what}, got {shown(span)}")
        tags[first : last + 1] = [f"B-{kind}", *[f"I-{kind}"] * (last - first)]
    return tuple(tags)


def _around(text: str, places: Sequence[Place], start: int, end: int) -> str:
    """The words that a span touches, with what is between them."""
    touched = [place for place in places if place[0] < end and place[1] > start]
    first, last = (touched[0][0], touched[-1][1]) if touched else (start, end)
    return text[min(first, start) : max(last, end)]
