"""Entities as spans of a text's characters: read as words with tags, written of words with tags."""

import bisect
import functools
import itertools
from collections.abc import Collection, Sequence
from typing import Any

from bert_tf.pipelines.normalization import code_points
from bert_tf.untrusted import listed

from .examples import BadRowError, known_name, shown

# The characters from which a word starts to behind its last.
Place = tuple[int, int]
_KEYS = ("start", "end", "label")
# Tools that write entities in another form, by one of their keys.
_TOOLS = {"start_offset": "doccano", "labels": "Label Studio", "result": "Label Studio"}


def word_places(text: str) -> tuple[Place, ...]:
    """Where a text's words are: what blanks separate, a mark or an ideograph each alone.

    They are the words that the tokenizer makes of the whole text.
    """
    found: list[Place] = []
    start, end = None, 0  # of the word that has begun, if any
    for place, character in enumerate(text):
        kind = _kind(character)
        if kind == "letter":
            start, end = place if start is None else start, place + 1
        elif kind != "dropped":  # what is invisible may be within a word, not at its ends
            if start is not None:
                found.append((start, end))
            start = None
            if kind == "alone":
                found.append((place, place + 1))
    return (*found, (start, end)) if start is not None else tuple(found)


@functools.cache
def _kind(character: str) -> str:
    """Kind of a character in the tokenizer's rules."""
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
    of ``types`` where these are known; their own ``text`` is compared, where they have one, and
    other keys are ignored. A ``BadRowError``, which calls the spans ``what``, is raised where they
    are none, overlap, begin or end within a word, or are of another text.

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
            raise BadRowError(
                f"expected objects with {listed(_KEYS)} in {what}, got {shown(span)}{_whose(span)}"
            )
        start, end = span["start"], span["end"]
        if not all(type(place) is int for place in (start, end)) or not 0 <= start < end:
            raise BadRowError(f"expected 0 <= start < end in {what}, got {shown(span)}")
        kind = known_name(span["label"], f"the label of {what}", types)
        first, last = bisect.bisect_left(starts, start), bisect.bisect_left(ends, end)
        own, fault = span.get("text"), ""
        if end > len(text):
            fault = f"spans of the text's {len(text)} characters"
        elif isinstance(own, str) and own in text and own not in text[start:end]:
            fault = f"{shown(own)}, as the span's own text is,"
        elif starts[first : first + 1] != [start] or ends[last : last + 1] != [end]:
            fault = "spans of whole words"
        if fault:
            got = f"{shown(text[start:end])} (characters {start} to {end})"
            around = shown(_around(text, places, start, end))
            cause = _likely_cause(text, start, end, places, own)
            raise BadRowError(f"expected {fault} in {what}, got {got} of {around}{cause}")
        if {*tags[first : last + 1]} != {"O"}:
            raise BadRowError(f"expected spans that do not overlap in {what}, got {shown(span)}")
        tags[first : last + 1] = [f"B-{kind}", *[f"I-{kind}"] * (last - first)]
    return tuple(tags)


def _around(text: str, places: Sequence[Place], start: int, end: int) -> str:
    """The words that a span touches, with what is between them."""
    touched = [place for place in places if place[0] < end and place[1] > start]
    first, last = (touched[0][0], touched[-1][1]) if touched else (start, end)
    return text[min(first, start) : max(last, end)]


def _whose(span: Any) -> str:
    """Which tool writes an entity in a way that is not ours, and what to write."""
    tool = next((_TOOLS[key] for key in _TOOLS if isinstance(span, dict) and key in span), "")
    tool = "doccano or spaCy" if isinstance(span, list) else tool
    return f', as {tool} writes it; write {{"start": 0, "end": 3, "label": "PER"}}' if tool else ""


def by_utf16(text: str, start: int, end: int) -> Place:
    """The characters of a span whose places count UTF-16 units; its own if they count none."""
    if len(text.encode("utf-16-le")) == 2 * len(text):
        return start, end
    units = list(itertools.accumulate((1 + (char > "\uffff") for char in text), initial=0))
    known = {start, end} <= {*units}
    return (units.index(start), units.index(end)) if known else (start, end)


def _likely_cause(text: str, start: int, end: int, places: Sequence[Place], own: Any) -> str:
    """Known cause of a misplaced span, with its remedy, or ""."""
    here, words = text[start:end], dict(places)
    first, last = by_utf16(text, start, end)
    meant, are_words = text[first:last], first in words and last in words.values()
    has_own = isinstance(own, str) and own in text
    if meant != here and (meant == own if has_own else are_words):
        return (
            f"; in UTF-16 units, which browsers count, the place is that of {shown(meant)}: count "
            "characters, an emoji as one"
        )
    return "; leave out the blanks at its ends" if here != here.strip() else ""
