"""Readers of tagged sentences: user tables and CoNLL's column format.

A row of a table contains tagged words, or a text with its entities as character spans. A line of a
CoNLL file contains a word in the first column and its tag in the last column. Empty lines separate
sentences, and a line ``-DOCSTART-`` starts a document. CoNLL-2003 uses IOB1, and CoNLL-2002 uses
IOB2 (see ``entities``). An entity can continue in the next sentence, as happens once in each
Spanish file of CoNLL-2002 (". B-LOC" is followed by "San I-LOC").

Sources: the CoNLL-2002 and CoNLL-2003 shared tasks (Tjong Kim Sang); BERT (2018), section 5.3.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf.io.messages import listed, quote
from bert_tf.readers import examples as read
from bert_tf.readers.data_warnings import NUMBER, LabelCounts, alike_notes
from bert_tf.readers.examples import BadRowError, BadRows, ExampleSet, NoTextError, TaggedExample
from bert_tf.readers.table_formats import read_lines
from bert_tf.readers.tables import Row, TableFile, read_columns, read_rows

from .entities import (
    SCHEMES,
    Scheme,
    as_iob2,
    entity_labels,
    find_invalid_tag,
    find_odd_tags,
    is_tag,
    prefixes,
    spans_to_tags,
    utf16_to_characters,
    word_offsets,
)

# === User tables ===


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

    The word and tag columns contain lists, lists written as in Python, NumPy or JSON, or strings
    separated by white space. With ``character_spans``, they contain a text, which is split into
    words, and a list of its entities (see ``spans_to_tags``), which are converted to IOB2 tags.
    """
    bad = BadRows.from_option(str(path), skip_bad_rows)
    known_tags = None if labels is None else dict.fromkeys(labels)
    types = None if labels is None else {label[2:]: None for label in labels if label != "O"}
    (words_column,) = text_columns
    words_are, tags_are = f"column {words_column!r}", f"column {label_column!r}"
    label_counts = LabelCounts()
    spans: set[tuple[str, str]] = set()  # see ``span_notes``

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
                # Offsets are not in UTF-16 units if ``text`` matches or they would split words.
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
    """Returns a note if every row contains a single word.

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
    """Returns notes on tags that are numbers, resemble each other or resemble entity tags."""
    odd = find_odd_tags(label_counts.counts)
    if label_counts.counts and all(map(NUMBER.fullmatch, label_counts.counts)):
        return [
            f"{path}: the tags are numbers, such as "
            f"{label_counts.format([*label_counts.counts][:1])}, so words are scored, not "
            "entities. If the numbers are class ids, use the class names."
        ]
    if not odd:
        return alike_notes(path, label_counts)
    if any(is_tag(tag) and tag != "O" for tag in label_counts.counts):
        return [
            f"{path}: most tags are entity tags, but not {label_counts.format(odd)}, which are "
            "scored as O. Correct misspelled tags."
        ]
    return [
        f"{path}: some tags, such as {label_counts.format(odd)}, resemble entity tags but are "
        "invalid, so words are scored, not entities. Use O, B-TYPE and I-TYPE."
    ]


def span_notes(path: str, spans: Collection[tuple[str, str]]) -> list[str]:
    """Returns a note if the offsets of spans seem to be in UTF-16 code units.

    ``spans`` contains pairs of texts: those at the offsets of an entity in characters and in UTF-16
    code units. The second is "" if the offsets cannot be in UTF-16 code units.
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
        f"{path}: the offsets of spans after an emoji or a rare ideograph {seem} be in UTF-16 code "
        f"units, as in browsers: {text} is read instead of {utf16_text}. Use offsets in characters."
    ]


# === CoNLL's column format ===


class _Sentence(NamedTuple):
    first_line: int
    document: int
    rows: list[list[str]]  # columns of each word
    previous_tag: str  # last tag of the previous sentence in the document

    def tags(self) -> list[str]:
        return [row[-1] for row in self.rows]

    def invalid(self, scheme: Scheme) -> tuple[int, str] | None:
        """Returns the index of the first invalid tag and an error message, or ``None``."""
        tags = self.tags()
        kind = tags[0].removeprefix("I-")
        if scheme == "IOB2" and kind != tags[0] and self.previous_tag[1:] == f"-{kind}":
            tags[0] = f"B-{kind}"
        return find_invalid_tag(tags, scheme)


def read_conll(
    path: str,
    *,
    encoding: str = "utf-8",
    labels: Collection[str] | None = None,
    labelled: bool = True,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[TaggedExample]:
    """Reads sentences and their entity tags; ``path`` and ``encoding`` are those of ``read_lines``.

    The scheme is the one with the fewest invalid sentences. IOB1 tags are converted to IOB2. BIOES
    and BILOU tags are kept, unless the scheme of the allowed ``labels`` does not mark the end of
    entities. If the file is not ``labelled``, only the first column is used. Ids and documents are
    numbered from 0. The returned labels are ``labels`` or, by default, all tags of the scheme for
    the entity types that occur.
    """
    path = str(path)
    bad = BadRows.from_option(path, skip_bad_rows)
    sentences = list(_sentences(path, encoding))
    _check_first_column(path, sentences)
    width = len(sentences[0].rows[0]) if sentences else 0
    if not labelled:
        _check_is_not_text(path, sentences)
    if labelled and width == 1:
        raise ValueError(
            f"{path}, line {sentences[0].first_line}: expected a word and its tag, got one column."
        )
    file_scheme = _most_likely_scheme(sentences) if labelled else None
    scheme: Scheme = file_scheme or "IOB2"
    marks_ends = not {name[0] for name in labels or prefixes(scheme)} <= {"O", "B", "I"}
    # Invalid sentences are skipped.
    tags_by_sentence = [
        s.tags() if file_scheme and not s.invalid(file_scheme) else [] for s in sentences
    ]
    if not marks_ends:
        tags_by_sentence, scheme = as_iob2(tags_by_sentence), "IOB2"

    def make_example(row: tuple[int, _Sentence]) -> TaggedExample:
        number, sentence = row
        words = tuple(columns[0] for columns in sentence.rows)
        bad.begin(number, words=words)
        _check_columns(sentence, width if labelled else None)
        tags = None
        if file_scheme is not None:
            tags = _checked_tags(sentence, tags_by_sentence[number], file_scheme, labels)
        return TaggedExample(str(number), words, tags, sentence.document)

    lines = (sentence.first_line for sentence in sentences)
    items = bad.collect(zip(lines, enumerate(sentences), strict=True), make_example)
    known_labels = labels or entity_labels(
        (tag for item in items for tag in item.tags or ()), scheme
    )
    return ExampleSet(items, tuple(known_labels) if labelled else (), bad.skipped)


def _sentences(path: str, encoding: str) -> Iterator[_Sentence]:
    document, document_is_empty = 0, True
    previous_tag = "O"
    rows: list[list[str]] = []
    line = 0
    for line, text in read_lines(path, encoding):
        columns = read.conll_columns(text)
        starts_document = columns[0] == read.DOCUMENT_START
        if columns != [""] and not starts_document:
            rows.append(columns)
            continue
        if rows:
            yield _Sentence(line - len(rows), document, rows, previous_tag)
            previous_tag = rows[-1][-1]
            rows, document_is_empty = [], False
        if starts_document and not document_is_empty:
            document, document_is_empty = document + 1, True
            previous_tag = "O"
    if rows:
        yield _Sentence(line + 1 - len(rows), document, rows, previous_tag)


def _check_first_column(path: str, sentences: Sequence[_Sentence]) -> None:
    """Rejects files with comments or with word numbers in the first column."""
    rows = sentences[0].rows if sentences else [[""]]
    first, last = rows[0], rows[-1]
    looks_like_comment = first[0] == "#" or len(first) != len(last)
    has_no_tag = len(first) > 1 and not is_tag(first[-1])
    is_comment = first[0].startswith("#") and has_no_tag and looks_like_comment
    columns = [[row[0] for row in s.rows] for s in sentences if len(s.rows) > 1]
    if is_comment or (columns and all(map(_numbers_words, columns))):
        raise ValueError(
            f"{path}, line {sentences[0].first_line}: expected a word first and its tag last, got "
            f"{read.quoted(' '.join(first))}. Remove comments and columns before the words, for "
            "example with 'cut -f2,3' if tabs separate columns."
        )


def _check_is_not_text(path: str, sentences: Sequence[_Sentence]) -> None:
    """Rejects files of plain text, whose lines have different numbers of words."""
    widths: set[int] = set()
    for sentence in sentences:
        for line, columns in enumerate(sentence.rows, start=sentence.first_line):
            widths.add(len(columns))
            if len(widths - {1}) > 1:  # some words may have no tag
                raise ValueError(
                    f"{path}, line {line}: expected the same number of columns as before, got "
                    f"{len(columns)}. If each line is a text, pass --input_format=lines."
                )


def _numbers_words(column: Sequence[str]) -> bool:
    """Returns whether a column numbers the words (CoNLL-U also has numbers such as 1-2 and 8.1)."""
    numbers = [int(text) for text in column if text.isdecimal()]
    are_numbers = bool(numbers) and all(text[:1].isdecimal() for text in column)
    return are_numbers and numbers == [*range(numbers[0], numbers[0] + len(numbers))]


def _check_columns(sentence: _Sentence, width: int | None) -> None:
    for line, columns in enumerate(sentence.rows, start=sentence.first_line):
        if not columns[0].strip("\0"):
            raise BadRowError(f"expected a word, got {read.quoted(columns[0])}", line)
        if width is not None and len(columns) != width:
            raise BadRowError(
                f"expected {width} columns as in the first line, got {len(columns)} (CoNLL files "
                "have one word per line)",
                line,
            )


def _most_likely_scheme(sentences: Sequence[_Sentence]) -> Scheme:
    """Returns the first scheme with the fewest invalid sentences."""
    num_invalid = {
        scheme: sum(sentence.invalid(scheme) is not None for sentence in sentences)
        for scheme in SCHEMES
    }
    return min(SCHEMES, key=lambda scheme: num_invalid[scheme])


def _checked_tags(
    sentence: _Sentence, tags: Sequence[str], scheme: Scheme, labels: Collection[str] | None
) -> tuple[str, ...]:
    invalid = sentence.invalid(scheme)
    if invalid is not None:
        raise BadRowError(invalid[1].rstrip("."), sentence.first_line + invalid[0])
    for line, tag in enumerate(tags, start=sentence.first_line):
        if labels is not None and tag not in labels:
            raise BadRowError(f"expected one of {listed(labels)}, got the tag {quote(tag)}", line)
    return tuple(tags)
