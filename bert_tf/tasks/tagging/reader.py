"""A user's own tables of tagged words, or of texts with their entities as spans of characters."""

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
    """Reads sentences, each a document of its own, with a tag for each word.

    The column of words and that of tags hold a list, its spelling as Python, NumPy or JSON print
    it, or a text that white space separates. With
    ``character_spans`` the former holds a text, whose words are the tokenizer's, and the latter a
    list of its entities, as ``spans_to_tags`` takes them; the tags are of IOB2.
    """
    bad = BadRows.from_option(str(path), skip_bad_rows)
    known = None if labels is None else dict.fromkeys(labels)
    types = None if labels is None else {label[2:]: None for label in labels if label != "O"}
    (words_column,) = text_columns
    words_are, tags_are = f"column {words_column!r}", f"column {label_column!r}"
    label_counts = LabelCounts()
    spans: set[tuple[str, str]] = set()  # their texts by characters, and by UTF-16 units

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
                # Of a span that its text or the words' ends decide, units are not meant.
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
                    f"expected tags in {tags_are}, got {read.quoted(tagged[0])}, which is for "
                    "--character_spans"
                )
            tags = tuple(read.known_name(tag, tags_are, known) for tag in tagged)
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
    """A note on rows of one word; a ``ValueError`` where a column says which are a sentence."""
    if len(items) < 2 or any(len(item.words) > 1 for item in items):
        return []
    columns = next(filter(None, read_rows(path)), {})
    for column in filter(_SENTENCE_COLUMN.fullmatch, columns):
        if column in columns_read:
            continue
        names = {str(row.get(column)) for row in read_rows(path)} - {"None", ""}
        if len(names) < len(items):
            raise ValueError(
                f"{path} has a word in each row, and the column {column!r} says which of them are "
                "a sentence: expected a row for each sentence, with lists of its words and tags, "
                f"as pandas makes them by frame[{column!r}] = frame[{column!r}].ffill() and "
                f"frame.groupby({column!r}, sort=False).agg(list).reset_index()."
            )
    return [
        f"{path}: each row has one word, and is read as a sentence of that word alone: if several "
        "rows are a sentence, give one row for it, with lists of its words and tags."
    ]


# === Notes on what is read as it is, and may not be meant ===


def tag_notes(path: str, label_counts: LabelCounts) -> list[str]:
    """Notes on tags that look like tags of entities and are not."""
    odd = find_odd_tags(label_counts.counts)
    if label_counts.counts and all(map(NUMBER.fullmatch, label_counts.counts)):
        return [
            f"{path}: the tags are numbers, such as "
            f"{label_counts.format([*label_counts.counts][:1])}: words are scored, not "
            "entities; if they stand for names, as in datasets' ClassLabel, write the names."
        ]
    if not odd:
        return alike_notes(path, label_counts)
    if any(is_tag(tag) and tag != "O" for tag in label_counts.counts):
        return [
            f"{path}: most tags are those of entities, but not {label_counts.format(odd)}: they "
            "count as O where entities are scored; correct them if they are misspelt."
        ]
    return [
        f"{path}: the tags look like those of entities and are none, such as "
        f"{label_counts.format(odd)}: words are scored, not entities; "
        "spell them O, B-TYPE and I-TYPE."
    ]


def span_notes(path: str, spans: Collection[tuple[str, str]]) -> list[str]:
    """A note on spans that seem to count UTF-16 units.

    ``spans`` are the texts of entities by the characters, and by the units, that they count; ""
    where these cannot be meant.
    """
    entities = {text for text, utf16_text in spans if text == utf16_text}
    moved = [pair for pair in spans if pair[0] not in entities and pair[1] in entities]
    right = sum(
        not utf16_text or (text != utf16_text and text in entities) for text, utf16_text in spans
    )
    seem = "seem to" if moved else "may"
    if not moved and not right:  # nothing says which are meant
        moved = [pair for pair in spans if pair[0] != pair[1]]
    if len(moved) <= right:
        return []
    text, utf16_text = map(read.quoted, min(moved))
    return [
        f"{path}: spans behind an emoji or a rare ideograph {seem} count UTF-16 units, as browsers "
        f"do: {text} is read, by units it would be {utf16_text}; count characters."
    ]
