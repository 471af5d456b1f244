"""Examples, which the readers of task files return, the rows left out, and what fields hold."""

import ast
import contextlib
import dataclasses
import decimal
import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Sized
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from bert_tf.io.untrusted import parse_json
from bert_tf.io.wording import listed, quote

T = TypeVar("T")
RowT = TypeVar("RowT")
_MAX_VALUE_LENGTH = 60
_LARGEST = (2 - 2**-23) * 2.0**127  # of float32, which models learn in
_MAX_DIGITS = 80  # Arrow's decimals have up to 76
# Where a row is in its file: a line's number, counted from 1, or words.
Location = int | str


@dataclasses.dataclass(frozen=True, slots=True)
class TextExample:
    """One text or two, to be classified or scored."""

    id: str  # what the file calls it, or the row's number counted from 0
    text_a: str
    text_b: str | None
    # A class's name, a number, the names of all classes that hold (multilabel), or None.
    label: str | float | tuple[str, ...] | None


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedExample:
    """A sentence: at least one word, none of them empty, and a tag for each, or None."""

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    document: int  # the number of the document that the sentence is in, counted from 0
    # The text that the words are of, if any, and for each word its first character and the one
    # behind its last. The words say the same: whether data have changed is told without these.
    text: str = dataclasses.field(default="", repr=False)
    offsets: tuple[tuple[int, int], ...] = dataclasses.field(default=(), repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A context (segment A) and at least two choices of what may follow it (segment B)."""

    id: str
    context: str
    choices: tuple[str, ...]
    label: int | None  # the right choice's number, counted from 0


@dataclasses.dataclass(frozen=True, slots=True)
class SimilarityExample:
    """Two texts, or an anchor, a text that belongs to it and one that does not."""

    id: str
    texts: tuple[str, ...]
    # How similar two texts are, in the file's units; None where they belong together, or are to be
    # predicted.
    label: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A span of a context, and its first byte in the context's UTF-8 (not a character's number)."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True, slots=True)
class QuestionExample:
    """A question about a context, the paragraph that may answer it."""

    id: str  # what the file calls it; no two questions of a file share one
    title: str  # the article that the context is from; "" where the file names none
    question: str
    context: str
    # Every answer that was collected, duplicates included; () where there is none, or it is to be
    # predicted.
    answers: tuple[Answer, ...]
    is_impossible: bool  # whether the context is known not to answer the question


_TEXTS = ("text_a", "text_b", "words", "context", "choices", "texts", "question")


def texts_of(example: Any) -> list[str]:
    """The texts of an example of any kind; of a tagged one its words."""
    fields = (getattr(example, name, None) or () for name in _TEXTS)
    return [t for texts in fields for t in ([texts] if isinstance(texts, str) else texts)]


def label_of(example: Any) -> Hashable:
    """Returns the label of an example of any kind, or ``None``.

    Several classes are a set. Of a question it is whether the context has an answer, since a reader
    may choose one of several.
    """
    if isinstance(example, QuestionExample):
        return "answer" if example.answers else "no answer"
    label: Hashable = getattr(example, "label", getattr(example, "tags", None))
    if isinstance(example, TextExample) and isinstance(label, tuple):
        return frozenset(label)
    return label


@dataclasses.dataclass(frozen=True)
class ExampleSet(Generic[T]):
    """The examples of a file, and what its reader has to say about them."""

    items: list[T]  # in the order of the file, at least one unless every row is answered
    labels: tuple[str, ...]  # the classes' names in the order of their ids; () where there are none
    skipped: list[str]  # a sentence for each row that was left out: file, line, what was expected
    notes: tuple[str, ...] = ()  # sentences on what is read as it is, and may not be meant


# === Bad rows ===


class BadRowError(ValueError):
    """Says what is wrong with a row, "expected ..., got ...", without its place."""

    def __init__(
        self, reason: str, line: int | None = None, known: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        super().__init__(reason)
        self.line = line  # the one at fault, where a row has several
        self.known = known  # the fields of the row that are known all the same, by column


class NoTextError(BadRowError):
    """Says that there is no text where a row should have some."""


class BadRow(NamedTuple):
    """A bad row, for those who answer every row of a file."""

    before: int  # how many good rows come before it
    id: str  # what the file calls it, or its number; "" where that is not known
    words: tuple[str, ...]  # of a sentence, where they are known
    reason: str  # a sentence: file, line, what was expected


class BadRows:
    """Handling of a file's bad rows: the first is an error, or all are skipped and listed.

    ``skip`` is ``None`` where who reads the file has no flag to skip them. Where every row
    of the file is answered (``bad_rows_get_a_record``), a row without text is listed, and there may
    be no row.
    """

    def __init__(
        self,
        path: str,
        skip: bool | None,
        *,
        bad_rows_get_a_record: bool = False,
        id_column: str | None = None,
        check_row: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        self.path = path
        self.check_row = check_row  # raises a BadRowError by all columns of a row
        self.id_column = id_column  # without it rows are numbered
        self.skipped: list[str] = []  # a sentence for each bad row so far
        self.rows: list[BadRow] = []
        self.location: Location = 0  # of the row of which an example is made
        self._skip = skip
        self.bad_rows_get_a_record = bad_rows_get_a_record
        self._good: Sized = ()
        self._id: Any = ""
        self._words: Sequence[str] = ()

    @staticmethod
    def from_option(path: str, skip: "bool | BadRows") -> "BadRows":
        """Returns the ``BadRows`` that a reader was given as ``skip``, or a new one."""
        return skip if isinstance(skip, BadRows) else BadRows(path, skip)

    def begin(self, number: int | None, row_id: Any = None, words: Sequence[str] = ()) -> None:
        """Notes what is known of the next row, good or bad: its number, id and words."""
        self._id = number if row_id is None else row_id
        self._words = words

    def report(self, location: Location, reason: object) -> None:
        """Raises a ``ValueError`` for a bad row, "expected ..., got ...", or lists it."""
        can_have_record = isinstance(reason, NoTextError) and self._known_id()
        if not (self._skip or (self.bad_rows_get_a_record and can_have_record)):
            flag = ", or leave out bad rows by --skip_bad_rows (in Python skip_bad_rows=True)"
            instead = "" if self._skip is None else flag
            where = f"{self.path}, {format_location(location)}"
            raise ValueError(f"{where}: {reason}; correct the row{instead}.")
        self.skip(location, reason)

    def skip(self, location: Location, reason: object) -> None:
        """Lists a bad row, whether or not bad rows are to be skipped."""
        self.skipped.append(f"{self.path}, {format_location(location)}: {reason}.")
        words, sentence = tuple(self._words), self.skipped[-1]
        self.rows.append(BadRow(len(self._good), self._known_id(), words, sentence))

    def _known_id(self) -> str:
        return str(self._id).strip() if isinstance(self._id, str | int) else ""

    def collect(
        self, rows: Iterable[tuple[Location, RowT]], make_example: Callable[[RowT], T]
    ) -> list[T]:
        """Makes an example of every row; reports those for which that is a ``BadRowError``.

        A ``ValueError`` says that there is no row, or no good one, unless every row is answered.
        """
        self._good = examples = []  # ``report`` counts those before a bad row
        for self.location, row in rows:
            try:
                examples.append(make_example(row))
            except BadRowError as error:
                self.report(self.location if error.line is None else error.line, error)
        if not examples and self.skipped and not self.bad_rows_get_a_record:
            raise ValueError(
                f"{self.path} has no good row: {len(self.skipped)} were skipped, the first of them "
                f"because: {self.skipped[0]}"
            )
        if not examples and not self.bad_rows_get_a_record:
            raise ValueError(f"{self.path} has no rows: expected at least one example.")
        return examples


def format_location(location: Location) -> str:
    """A row's place in words."""
    return f"line {location}" if isinstance(location, int) else location


# === Fields ===

# A field of a .tsv or .csv file is a string, one of a JSON line any JSON value. Each function gives
# the text, the number or the name that it stands for, or raises ``BadRowError``.


class ClassName(str):
    """A class's name where a file has its number; ``class_id`` is that among all, from 0."""

    class_id: int


def quoted(value: object) -> str:
    """Spells a value for an error, cut where it is long."""
    return quote(value, _MAX_VALUE_LENGTH)


def text(value: Any, what: str) -> str:
    """Text, perhaps empty; half of a surrogate pair, which UTF-8 cannot spell, is none."""
    if value is None:
        raise NoTextError(f"expected text in {what}, got None")
    if not isinstance(value, str):
        raise BadRowError(f"expected text in {what}, got {quoted(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadRowError(
                f"expected text in {what}, got half a surrogate pair at character {error.start}"
            ) from error
    return value


def non_empty_text(value: Any, what: str) -> str:
    """Text that is not white space alone."""
    checked = text(value, what)
    # Zeros are what a file has where its last blocks were never written.
    if not checked.replace("\0", "").strip():
        raise NoTextError(f"expected text in {what}, got {quoted(checked)}")
    return checked


# How Python, NumPy and JSON spell a list of texts, one of numbers, and an item of either.
_STRING_LIST = re.compile(r"[\[({]+(np\.\w+\(|array\(|b?['\"]).*[\])}]\s*", re.DOTALL)
_NUMBER_LIST = re.compile(r"\[\s*(?:-?\d+(?:\.\d*)?(?:\s*,\s*|\s+|(?=\]))|\.\.\.[\s,]*)*\]\s*")
_ITEM = re.compile(
    r"""\s*(np\.\w+\()?(b?'(?:[^'\\\n]|\\[\\'"abfnrtvxuU])*'|b?"(?:[^"\\\n]|\\[\\'"abfnrtvxuU])*\""""
    r"""|-?\d+(?:\.\d*)?|None)(?(1)\))(\s*,|\s+|(?=[\])}]))"""
)


def parse_list(value: Any, what: str, *, allow_numbers: bool = False) -> Any:
    """The list, tuple or set that a text spells, as ``to_csv`` writes one; else the value.

    >>> parse_list("['a' 'b']", "x"), parse_list("[a b]", "x"), parse_list("[1]", "x")
    (['a', 'b'], '[a b]', '[1]')
    """
    is_list = isinstance(value, str) and (
        _STRING_LIST.fullmatch(value) or (allow_numbers and _NUMBER_LIST.fullmatch(value))
    )
    if not is_list:
        return value
    with contextlib.suppress(ValueError):
        return parse_json(value, what)
    items, end = [], 1
    with contextlib.suppress(ValueError, SyntaxError):
        while item := _ITEM.match(value, end):
            items.append(ast.literal_eval(item[2]))
            end = item.end()
        if value[0] == "(" and len(items) == 1 and value[end - 1] != ",":
            return value  # a text in brackets: a tuple of one ends with a comma
        if value[0] + value[end:].strip() in ("[]", "()", "{}"):
            return items
    if value[0] != "[":
        return value
    raise BadRowError(
        f"expected a list in {what}, got {quoted(value)}, from whose spelling it cannot be read: "
        "write lists to .jsonl or .parquet"
    )


def list_of(value: Any, what: str) -> list[Any]:
    """A cell's words or tags: a list, its spelling, or a text that white space separates."""
    value = parse_list(value, what)
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list):
        return value
    raise BadRowError(f"expected a list in {what}, got {quoted(value)}")


def name(value: Any, what: str) -> str:
    """A name: text, a whole number, true or false."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str) and isinstance(value := _as_integer(value), int):
        return str(value)
    stripped = non_empty_text(value, what).strip()
    return value if value == stripped else stripped  # a ClassName stays one


def _as_integer(value: Any) -> Any:
    """A whole number that a frame's column with gaps, or Arrow's, holds as 1.0; else the value."""
    if isinstance(value, decimal.Decimal):
        # Of one with a large exponent the digits would fill the memory.
        is_short = value.is_finite() and value.adjusted() < _MAX_DIGITS
        return int(value) if is_short and value == value.to_integral_value() else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def known_name(value: Any, what: str, names: Collection[str] | None) -> str:
    """A name, one of ``names`` where these are given."""
    label = name(value, what)
    if names is not None and label not in names:
        raise BadRowError(f"expected one of {listed(names)} in {what}, got {quoted(label)}")
    return label


def row_id(value: Any, row_number: int) -> str:
    """A row's id: its number where it has none (None)."""
    return str(row_number) if value is None else name(value, "the id")


def number(value: Any, what: str) -> float:
    """A finite number of float32."""
    if isinstance(value, str | int | float | decimal.Decimal) and not isinstance(value, bool):
        try:
            parsed = float(value)
        except (ValueError, OverflowError):
            parsed = getattr(value, "class_id", math.nan)
        if abs(parsed) <= _LARGEST:
            return parsed
        if math.isfinite(parsed):
            raise BadRowError(
                f"expected a number from {-_LARGEST:.2g} to {_LARGEST:.2g} in {what}, got "
                f"{quoted(value)}"
            )
    hint = " (a point begins decimals, no comma)" if isinstance(value, str) and "," in value else ""
    raise BadRowError(f"expected a finite number in {what}, got {quoted(value)}{hint}")


def integer(value: Any, what: str, limit: int) -> int:
    """A whole number from 0 to ``limit``."""
    parsed = _as_integer(getattr(value, "class_id", value))
    if isinstance(parsed, str) and parsed.strip().isdecimal():
        parsed = int(parsed)
    if isinstance(parsed, int) and not isinstance(parsed, bool) and 0 <= parsed <= limit:
        return parsed
    raise BadRowError(f"expected a whole number from 0 to {limit} in {what}, got {quoted(value)}")


def sorted_names(names: Iterable[str]) -> tuple[str, ...]:
    """Puts names of classes in order: whole numbers by value, else by place or by characters."""
    unique = set(names)
    try:
        return tuple(sorted(unique, key=lambda label: (int(label), label)))
    except ValueError:
        return tuple(sorted(unique, key=lambda label: (getattr(label, "class_id", 0), label)))


# === How tables and CoNLL's files hold words, and which texts come back as they were ===

DOCUMENT_START = "-DOCSTART-"
# Only blanks and tabs separate columns: a word may be, or hold, other white space.
_GAP = re.compile("[ \t]+")
# In files of single characters a word may be a blank, which a tab separates from its tag.
_BLANK_WORD = re.compile("( *)\t")


def is_table_word(text: str) -> bool:
    r"""True if a table of tagged words has a text as one word, and as it is, from a text of words.

    >>> is_table_word("York"), is_table_word("New York"), is_table_word("1\u00a0000")
    (True, False, False)
    """
    with contextlib.suppress(BadRowError):
        return list_of(text, "") == [text] and bool(text.strip("\0"))
    return False


def is_conll_word(text: str) -> bool:
    r"""True if ``read_conll`` reads a text in a column as one word, unchanged.

    >>> is_conll_word("1\u00a0000"), is_conll_word("New York"), is_conll_word("-DOCSTART-")
    (True, False, False)
    """
    is_text = text.strip("\0") and "\n" not in text and not text.endswith("\r")
    return bool(is_text) and text != DOCUMENT_START and conll_columns(f"{text} O") == [text, "O"]


def conll_columns(line: str) -> list[str]:
    r"""Returns the columns of a line of a CoNLL file, [""] for an empty one.

    >>> conll_columns("York B-LOC"), conll_columns(" \tO"), conll_columns(" \t")
    (['York', 'B-LOC'], [' ', 'O'], [''])
    """
    # Where files were joined there is a byte order mark.
    line = line.removeprefix("\ufeff")
    columns = _GAP.split(line.strip(" \t"))
    blank = _BLANK_WORD.match(line) if columns != [""] else None
    return [blank[1], *columns] if blank else columns
