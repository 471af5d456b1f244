"""Readers of user tables: tagged words, or texts with entities as character spans."""

import re
from collections.abc import Collection, Sequence
from typing import Any

from bert_tf.readers import examples as read
from bert_tf.readers.data_warnings import NUMBER, LabelCounts, alike_notes
from bert_tf.readers.examples import BadRowError, BadRows, ExampleSet, NoTextError, TaggedExample
from bert_tf.readers.tables import Row, TableFile, read_columns, read_rows

from .entities import (
    entity_labels,
    find_odd_tags,
    is_tag,
    spans_to_tags,
    utf16_to_characters,
    word_offsets,
)


def read_tagging(
    path: str | TableFile,
    *,
    text_columns: Sequence[str] = ("words",),
    label_column: str | None = "tags",
    character_spans: bool = False,
    id_column: str | None = None,
    labels: Sequence[str] | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[TaggedExample]:
    """Reads sentences with a tag per word; each sentence is a separate document.

    The columns of words and tags contain lists, their representation in Python, NumPy or JSON, or
    strings separated by white space. With ``character_spans``, they contain a text, which is split
    by the tokenizer, and a list of its entities (see ``spans_to_tags``); the tags are IOB2.
    """
    bad = BadRows.from_option(str(path), skip_bad_rows)
    known_tags = None if labels is None else dict.fromkeys(labels)
    types = None if labels is None else {label[2:]: None for label in labels if label != "O"}
    (words_column,) = text_columns
    words_are, tags_are = f"column {words_column!r}", f"column {label_column!r}"
    label_counts = LabelCounts()
    spans: set[tuple[str, str]] = set()  # texts of the spans in characters and in UTF-16 units

    def make_from_spans(example_id: str, number: int, value: Any, entities: Any) -> TaggedExample:
        text = read.non_empty_text(value, words_are)
        offsets = word_offsets(text)
        words = tuple(text[start:end] for start, end in offsets)
        if not words:
            raise NoTextError(
                f"expected visible text in {words_are}, got only invisible characters"
            )
        tags = None
        if label_column is not None:
            tags = spans_to_tags(text, entities, offsets, types, tags_are)
            words_from, words_to = ({*offsets} for offsets in zip(*offsets, strict=True))
            for span in [] if text.isascii() else entities:
                start, end = span["start"], span["end"]
                first, last = utf16_to_characters(text, start, end)
                # UTF-16 units are excluded if the span's own text or the words match.
                may_be_units = span.get("text") != text[start:end] and (
                    (first, last) == (start, end) or (first in words_from and last in words_to)
                )
                spans.add((text[start:end], text[first:last] if may_be_units else ""))
        return TaggedExample(example_id, words, tags, number, text, offsets)

    def make_from_words(example_id: str, number: int, value: Any, tagged: Any) -> TaggedExample:
        words = tuple(
            read.non_empty_text(word, words_are) for word in read.list_of(value, words_are)
        )
        if not words:
            raise NoTextError(f"expected words in {words_are}, got none")
        tags = None
        if label_column is not None:
            tagged = read.list_of(read.parse_list(tagged, tags_are, allow_numbers=True), tags_are)
            if any(isinstance(tag, dict) for tag in tagged):
                raise BadRowError(
                    f"expected tags in {tags_are}, got {read.quoted(tagged[0])}. Use "
                    "--character_spans"
                )
            tags = tuple(read.known_name(tag, tags_are, known_tags) for tag in tagged)
            if len(tags) != len(words):
                raise BadRowError(f"expected a tag for each of {len(words)} words, got {len(tags)}")
        return TaggedExample(example_id, words, tags, number)

    def make_example(row: Row) -> TaggedExample:
        example_id, value, tagged = row.values
        make = make_from_spans if character_spans else make_from_words
        example = make(read.row_id(example_id, row.number), row.number, value, tagged)
        label_counts.add(example.tags or (), bad.location, "" if character_spans else tagged)
        return example

    rows = read_columns(path, [id_column, words_column, label_column], bad)
    items = bad.collect(rows, make_example)
    notes = []
    if labels is None:
        notes += tag_notes(str(path), label_counts) + label_counts.type_notes(str(path))
    if not character_spans:
        notes += _single_word_note(path, items, (words_column, label_column))
    notes += span_notes(str(path), spans)
    if labels is None:
        labels = read.sorted_names(label_counts.counts)
        if character_spans and label_column is not None:
            labels = entity_labels(labels, "IOB2")
    return ExampleSet(items, tuple(labels), bad.skipped, tuple(notes))


_SENTENCE_COLUMN = re.compile(
    r"sent(ence)?s?[\W_]*((id|no|num|number|idx|index)\W*)?", re.IGNORECASE
)


def _single_word_note(
    path: str | TableFile, items: Sequence[TaggedExample], columns_read: Sequence[str | None]
) -> list[str]:
    """Returns a note on rows of one word.

    Raises:
        ValueError: If another column identifies the sentence of each word.
    """
    if len(items) < 2 or any(len(item.words) > 1 for item in items):
        return []
    columns = next(filter(None, read_rows(path)), {})
    for column in filter(_SENTENCE_COLUMN.fullmatch, columns):
        if column in columns_read:
            continue
        names = {str(row.get(column)) for row in read_rows(path)} - {"None", ""}
        if len(names) < len(items):
            raise ValueError(
                f"{path} has one word per row: expected one sentence per row, with lists of words "
                f"and tags. In pandas, use frame[{column!r}] = frame[{column!r}].ffill() and "
                f"frame.groupby({column!r}, sort=False).agg(list).reset_index()."
            )
    return [
        f"{path}: each row has a single word and is read as a sentence. If sentences have several "
        "words, use one row per sentence, with lists of words and tags."
    ]


# === Notes on suspicious data ===


def tag_notes(path: str, label_counts: LabelCounts) -> list[str]:
    """Returns notes on tags that resemble entity tags."""
    odd = find_odd_tags(label_counts.counts)
    if label_counts.counts and all(map(NUMBER.fullmatch, label_counts.counts)):
        return [
            f"{path}: the tags are numbers, such as "
            f"{label_counts.format([*label_counts.counts][:1])}, so words are scored, not "
            "entities. If they are class ids, use the names."
        ]
    if not odd:
        return alike_notes(path, label_counts)
    if any(is_tag(tag) and tag != "O" for tag in label_counts.counts):
        return [
            f"{path}: most tags are entity tags, but not {label_counts.format(odd)}, which count "
            "as O in entity scores. Correct misspelled tags."
        ]
    return [
        f"{path}: the tags resemble entity tags, but are not, such as {label_counts.format(odd)}, "
        "so words are scored, not entities. Use O, B-TYPE and I-TYPE."
    ]


def span_notes(path: str, spans: Collection[tuple[str, str]]) -> list[str]:
    """Returns a note if spans seem to count UTF-16 units.

    ``spans`` are the texts of entities in characters and in UTF-16 units, "" if these are excluded.
    """
    entities = {text for text, utf16_text in spans if text == utf16_text}
    moved = [pair for pair in spans if pair[0] not in entities and pair[1] in entities]
    num_correct = sum(
        not utf16_text or (text != utf16_text and text in entities) for text, utf16_text in spans
    )
    seem = "seem to" if moved else "may"
    if not moved and not num_correct:  # both units are possible
        moved = [pair for pair in spans if pair[0] != pair[1]]
    if len(moved) <= num_correct:
        return []
    text, utf16_text = map(read.quoted, min(moved))
    return [
        f"{path}: spans after an emoji or a rare ideograph {seem} count UTF-16 units, as browsers "
        f"do: {text} is read, in UTF-16 units it is {utf16_text}. Count characters."
    ]
