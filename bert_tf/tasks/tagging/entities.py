"""Entities in tag sequences: found, their tags checked and converted, made of spans of characters.

A tag is ``O``, or a prefix, ``-`` and a type. In *IOB2* an entity begins with B- and continues with
I-. In *IOB1* it begins with I-, and with B- only where it follows an entity of its own type without
a gap. *BIOES* is IOB2 in which E- ends an entity, and S- is one of a single token; *BILOU* calls
the two L- and U-.
"""

import bisect
import functools
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bert_tf.io.wording import listed, one_line, quote
from bert_tf.readers.examples import BadRowError, known_name, quoted

Scheme = Literal["IOB1", "IOB2", "BIOES", "BILOU"]
SCHEMES: tuple[Scheme, ...] = ("IOB2", "IOB1", "BIOES", "BILOU")
# Prefixes that end an entity, and of an entity of one word, in schemes that mark it.
_LAST: Mapping[Scheme, str] = {"BIOES": "E", "BILOU": "L"}
_SINGLE: Mapping[Scheme, str] = {"BIOES": "S", "BILOU": "U"}
_TAG = re.compile("O|[BIESLU]-.+", re.DOTALL)
# Misspelt tags: "o", "b-per", "B_PER".
_MISSPELLED = re.compile("O|[BIESLU][-_ ]?.*", re.DOTALL | re.IGNORECASE)
_ENTITY_TAGS = "O, B-TYPE or I-TYPE"


class Entity(NamedTuple):
    """A span of tokens: its tags' type, the index of its first token, and that after its last."""

    type: str
    start: int
    end: int


def is_tag(tag: str) -> bool:
    """True if a tag is one of entities, of whatever scheme.

    >>> is_tag("O"), is_tag("S-PER"), is_tag("B_PER")
    (True, True, False)
    """
    return _TAG.fullmatch(tag) is not None


def prefixes(scheme: Scheme) -> tuple[str, ...]:
    """The prefixes that a scheme's tags may have."""
    return ("B", "I", *([_LAST[scheme], _SINGLE[scheme]] if scheme in _LAST else []))


def entity_labels(tags: Iterable[str], scheme: Scheme) -> tuple[str, ...]:
    """All tags of a scheme for the types of some of its tags, whether or not all occur.

    >>> entity_labels(["O", "B-PER", "B-LOC"], "IOB2")
    ('O', 'B-LOC', 'I-LOC', 'B-PER', 'I-PER')
    """
    types = sorted({tag[2:] for tag in tags if tag != "O"})
    return ("O", *(f"{prefix}-{kind}" for kind in types for prefix in prefixes(scheme)))


def find_odd_tags(counts: Mapping[str, int]) -> list[str]:
    """Tags of no entity where most are of one; all tags where they could be misspelt ones.

    ``counts`` says how many words have each tag; [] where the tags are parts of speech.
    """
    odd = [tag for tag in counts if not is_tag(tag)]
    num_entities = sum(tag != "O" and is_tag(tag) for tag in counts)
    if num_entities and 2 * sum(counts[tag] for tag in odd) < sum(counts.values()):
        return odd
    could_be = all(_MISSPELLED.fullmatch(tag) for tag in counts)
    return odd if could_be and any(tag.upper() == "O" for tag in counts) else []


def find_all(sequences: Sequence[Sequence[str]]) -> list[list[Entity]]:
    """Finds the entities of each sequence, as CoNLL's conlleval and seqeval's default mode do.

    B-, S- and U- begin an entity; so do I-, E- and L- unless the tag before is B- or I- of the same
    type. A ``ValueError`` names the first tag that is none.
    """
    scores = np.zeros(sum(map(len, sequences)))
    return [[entity for entity, _ in found] for found in find_scored(sequences, scores)]


def find_scored(
    sequences: Sequence[Sequence[str]], scores: NDArray[Any]
) -> list[list[tuple[Entity, float]]]:
    """Finds entities with the mean of their tokens' ``scores``, (W,) of all sequences."""
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
    """The index of the first tag that is none, or has no place there in a scheme, and why."""
    previous = "O"
    allowed = ("O", *prefixes(scheme))
    for index, tag in enumerate(tags):
        if not is_tag(tag):
            return index, f"Tag {index} is {quote(tag)}: expected {_ENTITY_TAGS}."
        prefix, kind = tag[0], tag[2:]
        continues = previous in (f"B-{kind}", f"I-{kind}")
        problem = ""
        if prefix not in allowed:
            problem = f"in {scheme} there is no {prefix}-"
        elif scheme == "IOB1":
            if prefix == "B" and not continues:
                problem = f"in IOB1 an entity begins with I-{kind}, but right behind another {kind}"
        elif prefix == "I" or prefix == _LAST.get(scheme):
            if not continues:
                problem = f"in {scheme} an entity begins with B-{kind}"
        elif scheme in _LAST and previous[0] in "BI":
            problem = _must_end(previous, scheme)
        if problem:
            behind = f" behind {quote(previous)}" if index else ""
            return index, f"Tag {index} is {quote(tag)}{behind}: {one_line(problem)}."
        previous = tag
    if scheme in _LAST and previous[0] in "BI":
        last, problem = len(tags) - 1, one_line(_must_end(previous, scheme))
        return last, f"Tag {last}, the last, is {quote(previous)}: {problem}."
    return None


def _must_end(tag: str, scheme: Scheme) -> str:
    kind = tag[2:]
    return f"in {scheme} an entity ends with {_LAST[scheme]}-{kind} or is {_SINGLE[scheme]}-{kind}"


def as_iob2(sequences: Sequence[Sequence[str]]) -> list[list[str]]:
    """The entities of each sequence as tags of IOB2, whichever scheme they were in."""
    converted = [["O"] * len(tags) for tags in sequences]
    for tags, entities in zip(converted, find_all(sequences), strict=True):
        for kind, start, end in entities:
            tags[start:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 1)]
    return converted


# === Entities as spans of a text's characters ===

# The characters from which a word starts to behind its last.
Offsets = tuple[int, int]
_SPAN_KEYS = ("start", "end", "label")


# Tools that write entities in another form, by one of their keys.
_TOOLS = {"start_offset": "doccano", "labels": "Label Studio", "result": "Label Studio"}
_PROGRAM = "docs/guides/entities.md"


def word_offsets(text: str) -> tuple[Offsets, ...]:
    """The places of a text's words, as the tokenizer parts them."""
    offsets: list[Offsets] = []
    start, end = None, 0  # of the word that has begun, if any
    for index, character in enumerate(text):
        kind = _character_kind(character)
        if kind == "letter":
            start, end = index if start is None else start, index + 1
        elif kind != "dropped":  # what is invisible may be within a word, not at its ends
            if start is not None:
                offsets.append((start, end))
            start = None
            if kind == "alone":
                offsets.append((index, index + 1))
    return (*offsets, (start, end)) if start is not None else tuple(offsets)


@functools.cache
def _character_kind(character: str) -> str:
    """Kind of a character in the tokenizer's rules."""
    from bert_tf.pipelines.normalization import code_points

    table, code = code_points(), ord(character)
    if table.dropped[code]:
        return "dropped"
    if table.space[code]:
        return "space"
    return "alone" if table.punctuation[code] or table.ideograph[code] else "letter"


def spans_to_tags(
    text: str,
    spans: Any,
    offsets: Sequence[Offsets],
    types: Collection[str] | None,
    column: str,
) -> tuple[str, ...]:
    """The tags, of IOB2, of a text's words at ``offsets``, by the spans of its entities.

    ``spans`` are objects with ``start``, ``end`` (the character behind the last) and ``label``, one
    of ``types`` where these are known; their own ``text`` is compared, where they have one. A
    ``BadRowError`` calls them ``column``.

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
            problem = f"spans of the text's {len(text)} characters"
        elif isinstance(span_text, str) and span_text in text and span_text not in text[start:end]:
            problem = f"{quoted(span_text)}, as the span's own text is,"
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
    """The words that a span touches, with what is between them."""
    touched = [word for word in offsets if word[0] < end and word[1] > start]
    first, last = (touched[0][0], touched[-1][1]) if touched else (start, end)
    return text[min(first, start) : max(last, end)]


def _other_tool_hint(span: Any) -> str:
    """The tool that writes an entity in another form, and what to write, or ""."""
    tool = next((_TOOLS[key] for key in _TOOLS if isinstance(span, dict) and key in span), "")
    tool = "doccano or spaCy" if isinstance(span, list) else tool
    form = '{"start": 0, "end": 3, "label": "PER"}'
    return f", as {tool} writes it; write {form}, as the program in {_PROGRAM} does" if tool else ""


def utf16_to_characters(text: str, start: int, end: int) -> Offsets:
    """Converts a span of UTF-16 units to characters if both ends fall on some, else leaves it."""
    if len(text.encode("utf-16-le")) == 2 * len(text):
        return start, end
    units = list(itertools.accumulate((1 + (char > "\uffff") for char in text), initial=0))
    falls_on_characters = {start, end} <= {*units}
    return (units.index(start), units.index(end)) if falls_on_characters else (start, end)


def _likely_cause(
    text: str, start: int, end: int, offsets: Sequence[Offsets], span_text: Any
) -> str:
    """Known cause of a misplaced span, with its remedy, or ""."""
    here, words = text[start:end], dict(offsets)
    first, last = utf16_to_characters(text, start, end)
    meant, are_words = text[first:last], first in words and last in words.values()
    has_span_text = isinstance(span_text, str) and span_text in text
    if meant != here and (meant == span_text if has_span_text else are_words):
        return (
            f"; in UTF-16 units, which browsers count, the place is that of {quoted(meant)}: count "
            "characters, an emoji as one"
        )
    return "; leave out the blanks at its ends" if here != here.strip() else ""
