"""Reader of CoNLL's column format: a word per line, its tag in the last column.

Empty lines separate sentences, and a line ``-DOCSTART-`` starts a document. CoNLL-2003 uses IOB1,
CoNLL-2002 IOB2 (see ``entities``). An entity can continue in the next sentence, as it does once in
each Spanish file of CoNLL-2002 (". B-LOC" is followed by "San I-LOC").

Sources: the CoNLL-2002 and CoNLL-2003 shared tasks (Tjong Kim Sang); BERT (2018), section 5.3.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from bert_tf.io.messages import listed, quote
from bert_tf.readers.examples import (
    DOCUMENT_START,
    BadRowError,
    BadRows,
    ExampleSet,
    TaggedExample,
    conll_columns,
    quoted,
)
from bert_tf.readers.table_formats import read_lines

from .entities import SCHEMES, Scheme, as_iob2, entity_labels, find_invalid_tag, is_tag, prefixes


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

    The scheme is the one with the fewest invalid sentences. Tags of IOB1 are converted to IOB2.
    Tags of BIOES and BILOU are kept, unless the scheme of the allowed ``labels`` does not mark the
    end of entities. If the file is not ``labelled``, only the first column is read. Ids and
    documents count from 0. The returned labels are all tags of the scheme for the types that occur.
    """
    path = str(path)
    bad = BadRows.from_option(path, skip_bad_rows)
    sentences = list(_sentences(path, encoding))
    _check_first_column(path, sentences)
    width = len(sentences[0].rows[0]) if sentences else 0
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
        columns = conll_columns(text)
        starts_document = columns[0] == DOCUMENT_START
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
            f"{quoted(' '.join(first))}. Remove comments and columns before the words, for "
            "example with 'cut -f2,3' if tabs separate columns."
        )


def _numbers_words(column: Sequence[str]) -> bool:
    """Returns whether a column numbers the words (CoNLL-U also has numbers such as 1-2 and 8.1)."""
    numbers = [int(text) for text in column if text.isdecimal()]
    are_numbers = bool(numbers) and all(text[:1].isdecimal() for text in column)
    return are_numbers and numbers == [*range(numbers[0], numbers[0] + len(numbers))]


def _check_columns(sentence: _Sentence, width: int | None) -> None:
    for line, columns in enumerate(sentence.rows, start=sentence.first_line):
        if not columns[0].strip("\0"):
            raise BadRowError(f"expected a word, got {quoted(columns[0])}", line)
        if width is not None and len(columns) != width:
            raise BadRowError(
                f"expected {width} columns as in the first line, got {len(columns)}", line
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
