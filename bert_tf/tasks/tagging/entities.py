"""Entities in tag sequences and in texts: detection, validation and conversion.

A tag is ``O``, or a prefix, ``-`` and a type. In IOB2, an entity begins with B- and continues with
I-. In IOB1, an entity begins with I-, or with B- if it directly follows an entity of the same type.
BIOES is IOB2 with E- for the last word of an entity and S- for entities of one word; BILOU uses L-
and U- instead of E- and S-.
"""

import bisect
import functools
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bert_tf.io.messages import listed, one_line, quote
from bert_tf.readers.examples import BadRowError, known_name, quoted

Scheme = Literal["IOB1", "IOB2", "BIOES", "BILOU"]
SCHEMES: tuple[Scheme, ...] = ("IOB2", "IOB1", "BIOES", "BILOU")
# Prefixes of the last word of an entity, and of entities of one word.
_LAST: Mapping[Scheme, str] = {"BIOES": "E", "BILOU": "L"}
_SINGLE: Mapping[Scheme, str] = {"BIOES": "S", "BILOU": "U"}
_TAG = re.compile("O|[BIESLU]-.+", re.DOTALL)
# Misspelled tags: "o", "b-per", "B_PER".
_MISSPELLED = re.compile("O|[BIESLU][-_ ]?.*", re.DOTALL | re.IGNORECASE)
_ENTITY_TAGS = "O, B-TYPE or I-TYPE"


class Entity(NamedTuple):
    """Type of an entity, index of its first token and index after its last token."""

    type: str
    start: int
    end: int


def is_tag(tag: str) -> bool:
    """Returns whether a tag is an entity tag of any scheme.

    >>> is_tag("O"), is_tag("S-PER"), is_tag("B_PER")
    (True, True, False)
    """
    return _TAG.fullmatch(tag) is not None


def prefixes(scheme: Scheme) -> tuple[str, ...]:
    """Returns the tag prefixes of a scheme."""
    return ("B", "I", *([_LAST[scheme], _SINGLE[scheme]] if scheme in _LAST else []))


def entity_labels(tags: Iterable[str], scheme: Scheme) -> tuple[str, ...]:
    """Returns all tags of a scheme for the entity types that occur in the given tags.

    >>> entity_labels(["O", "B-PER", "B-LOC"], "IOB2")
    ('O', 'B-LOC', 'I-LOC', 'B-PER', 'I-PER')
    """
    types = sorted({tag[2:] for tag in tags if tag != "O"})
    return ("O", *(f"{prefix}-{kind}" for kind in types for prefix in prefixes(scheme)))


def find_odd_tags(counts: Mapping[str, int]) -> list[str]:
    """Returns the invalid tags if tags seem to be entity tags, given the number of words per tag.

    Tags seem to be entity tags if most words have one, or if every tag could be a misspelled entity
    tag. For other tags, such as parts of speech, the result is empty.
    """
    odd = [tag for tag in counts if not is_tag(tag)]
    num_entities = sum(tag != "O" and is_tag(tag) for tag in counts)
    if num_entities and 2 * sum(counts[tag] for tag in odd) < sum(counts.values()):
        return odd
    could_be = all(_MISSPELLED.fullmatch(tag) for tag in counts)
    return odd if could_be and any(tag.upper() == "O" for tag in counts) else []


def find_all(sequences: Sequence[Sequence[str]]) -> list[list[Entity]]:
    """Returns the entities of each sequence, like conlleval and seqeval's default mode.

    B-, S- and U- begin an entity; so do I-, E- and L- unless the previous tag is B- or I- of the
    same type.

    Raises:
        ValueError: If a tag is not an entity tag.
    """
    scores = np.zeros(sum(map(len, sequences)))
    return [[entity for entity, _ in found] for found in find_scored(sequences, scores)]


def find_scored(
    sequences: Sequence[Sequence[str]], scores: NDArray[Any]
) -> list[list[tuple[Entity, float]]]:
    """Returns each sequence's entities and their mean scores, given the words' ``scores``, (W,)."""
    lengths = np.array([len(tags) for tags in sequences], np.int64)
    names = sorted({tag for tags in sequences for tag in tags})
    if not all(map(is_tag, names)):
        tags = next(tags for tags in sequences if not all(map(is_tag, tags)))
        index = next(index for index, tag in enumerate(tags) if not is_tag(tag))
        raise ValueError(f"Tag {index} is {quote(tags[index])}: expected {_ENTITY_TAGS}.")
    by_sequence: list[list[tuple[Entity, float]]] = [[] for _ in sequences]
    if not names:
        return by_sequence
    numbers = {name: number for number, name in enumerate(names)}
    labels = np.array([numbers[tag] for tags in sequences for tag in tags])
    text = np.repeat(np.arange(len(lengths)), lengths)
    from .answer import join_words, read_labels

    entities = join_words(labels, text, scores, read_labels(names))
    begins = np.cumsum(lengths) - lengths
    columns = (column.numpy().tolist() for column in entities)
    for number, first, last, kind, score in zip(*columns, strict=True):
        begin = int(begins[number])
        by_sequence[number].append((Entity(kind.decode(), first - begin, last + 1 - begin), score))
    return by_sequence


def find_invalid_tag(tags: Sequence[str], scheme: Scheme) -> tuple[int, str] | None:
    """Returns the index of the first tag that is invalid in a scheme, and an error message."""
    previous = "O"
    allowed = ("O", *prefixes(scheme))
    for index, tag in enumerate(tags):
        if not is_tag(tag):
            return index, f"Tag {index} is {quote(tag)}: expected {_ENTITY_TAGS}."
        prefix, kind = tag[0], tag[2:]
        continues = previous in (f"B-{kind}", f"I-{kind}")
        problem = ""
        if prefix not in allowed:
            problem = f"{scheme} has no prefix {prefix}-"
        elif scheme == "IOB1":
            if prefix == "B" and not continues:
                problem = f"in IOB1 an entity begins with I-{kind} unless it follows another {kind}"
        elif prefix == "I" or prefix == _LAST.get(scheme):
            if not continues:
                problem = f"in {scheme} an entity begins with B-{kind}"
        elif scheme in _LAST and previous[0] in "BI":
            problem = _must_end(previous, scheme)
        if problem:
            context = f" after {quote(previous)}" if index else ""
            return index, f"Tag {index} is {quote(tag)}{context}: {one_line(problem)}."
        previous = tag
    if scheme in _LAST and previous[0] in "BI":
        last, problem = len(tags) - 1, one_line(_must_end(previous, scheme))
        return last, f"Tag {last}, the last one, is {quote(previous)}: {problem}."
    return None


def _must_end(tag: str, scheme: Scheme) -> str:
    kind = tag[2:]
    return f"in {scheme} an entity ends with {_LAST[scheme]}-{kind} or is {_SINGLE[scheme]}-{kind}"


def as_iob2(sequences: Sequence[Sequence[str]]) -> list[list[str]]:
    """Converts tag sequences of any scheme to IOB2."""
    converted = [["O"] * len(tags) for tags in sequences]
    for tags, entities in zip(converted, find_all(sequences), strict=True):
        for kind, start, end in entities:
            tags[start:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 1)]
    return converted


# === Entities as character spans ===

# Index of a word's first character, and index after the word's last character.
Offsets = tuple[int, int]
_SPAN_KEYS = ("start", "end", "label")

# Annotation tools with other formats, by a key of the entities that they write.
_TOOLS = {"start_offset": "doccano", "labels": "Label Studio", "result": "Label Studio"}
_CONVERTER = "examples/convert_annotations.py"


def word_offsets(text: str) -> tuple[Offsets, ...]:
    """Returns the character offsets of a text's words, which are split as in the tokenizer."""
    offsets: list[Offsets] = []
    start, end = None, 0  # the current word, if any
    for index, character in enumerate(text):
        kind = _character_kind(character)
        if kind == "letter":
            start, end = index if start is None else start, index + 1
        elif kind != "dropped":  # invisible characters can be inside a word
            if start is not None:
                offsets.append((start, end))
            start = None
            if kind == "alone":
                offsets.append((index, index + 1))
    return (*offsets, (start, end)) if start is not None else tuple(offsets)


@functools.cache
def _character_kind(character: str) -> str:
    """Returns how the tokenizer's rules classify a character."""
    from bert_tf.pipelines.normalization import code_points

    table, code = code_points(), ord(character)
    if table.dropped[code]:
        return "dropped"
    if table.space[code]:
        return "space"
    return "alone" if table.punctuation[code] or table.ideograph[code] else "letter"


def spans_to_tags(
    text: str, spans: Any, offsets: Sequence[Offsets], types: Collection[str] | None, column: str
) -> tuple[str, ...]:
    """Returns the IOB2 tags of a text's words, given the character spans of the text's entities.

    Args:
        text: Text.
        spans: List of objects with ``start``, ``end`` (the index after the last character) and
            ``label``. An optional ``text`` must match the characters of the span.
        offsets: Character offsets of the words.
        types: Allowed labels, or ``None``.
        column: Name of the column for error messages.

    Raises:
        BadRowError: If a span is invalid.

    >>> text = "Ann Lee left."
    >>> spans_to_tags(text, [{"start": 0, "end": 7, "label": "PER"}], word_offsets(text), None, "x")
    ('B-PER', 'I-PER', 'O', 'O')
    """
    if not isinstance(spans, list):
        raise BadRowError(
            f"expected a list of {{start, end, label}} in {column}, got {quoted(spans)}"
        )
    tags = ["O"] * len(offsets)
    starts, ends = [start for start, _ in offsets], [end for _, end in offsets]
    for span in spans:
        if not isinstance(span, dict) or not {*_SPAN_KEYS} <= span.keys():
            raise BadRowError(
                f"expected objects with {listed(_SPAN_KEYS)} in {column}, got {quoted(span)}"
                f"{_other_tool_hint(span)}"
            )
        start, end = span["start"], span["end"]
        if not all(type(index) is int for index in (start, end)) or not 0 <= start < end:
            raise BadRowError(f"expected 0 <= start < end in {column}, got {quoted(span)}")
        kind = known_name(span["label"], f"the label of {column}", types)
        first, last = bisect.bisect_left(starts, start), bisect.bisect_left(ends, end)
        span_text, problem = span.get("text"), ""
        if end > len(text):
            problem = f"spans within the {len(text)} characters of the text"
        elif isinstance(span_text, str) and span_text in text and span_text not in text[start:end]:
            problem = f"{quoted(span_text)}, the text of the span,"
        elif starts[first : first + 1] != [start] or ends[last : last + 1] != [end]:
            problem = "spans of whole words"
        if problem:
            got = f"{quoted(text[start:end])} (characters {start} to {end})"
            around = quoted(_touched_words(text, offsets, start, end))
            cause = _likely_cause(text, start, end, offsets, span_text)
            raise BadRowError(f"expected {problem} in {column}, got {got} of {around}{cause}")
        if {*tags[first : last + 1]} != {"O"}:
            raise BadRowError(f"expected spans that do not overlap in {column}, got {quoted(span)}")
        tags[first : last + 1] = [f"B-{kind}", *[f"I-{kind}"] * (last - first)]
    return tuple(tags)


def _touched_words(text: str, offsets: Sequence[Offsets], start: int, end: int) -> str:
    """Returns the words that overlap a span, and the text between them."""
    touched = [word for word in offsets if word[0] < end and word[1] > start]
    first, last = (touched[0][0], touched[-1][1]) if touched else (start, end)
    return text[min(first, start) : max(last, end)]


def _other_tool_hint(span: Any) -> str:
    """Returns a hint if an entity has the format of another tool, else ""."""
    tool = next((_TOOLS[key] for key in _TOOLS if isinstance(span, dict) and key in span), "")
    tool = "doccano or spaCy" if isinstance(span, list) else tool
    form = '{"start": 0, "end": 3, "label": "PER"}'
    return f" (the format of {tool}). Use {form}; {_CONVERTER} converts files" if tool else ""


def utf16_to_characters(text: str, start: int, end: int) -> Offsets:
    """Converts a span from UTF-16 code units to characters, unless it splits a character."""
    if len(text.encode("utf-16-le")) == 2 * len(text):
        return start, end
    units = list(itertools.accumulate((1 + (char > "\uffff") for char in text), initial=0))
    falls_on_characters = {start, end} <= {*units}
    return (units.index(start), units.index(end)) if falls_on_characters else (start, end)


def _likely_cause(
    text: str, start: int, end: int, offsets: Sequence[Offsets], span_text: Any
) -> str:
    """Returns the probable cause of a misplaced span and its remedy, or ""."""
    here, words = text[start:end], dict(offsets)
    first, last = utf16_to_characters(text, start, end)
    meant, are_words = text[first:last], first in words and last in words.values()
    has_span_text = isinstance(span_text, str) and span_text in text
    if meant != here and (meant == span_text if has_span_text else are_words):
        return (
            f". In UTF-16 code units, the span is {quoted(meant)}. Use offsets in characters (an "
            "emoji is one)"
        )
    return ". Remove the spaces at its ends" if here != here.strip() else ""
