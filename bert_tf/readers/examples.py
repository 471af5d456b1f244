"""Example types that the readers return, handling of bad rows, and parsing of fields."""

import ast
import contextlib
import dataclasses
import decimal
import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Sized
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from bert_tf.io.messages import listed, quote
from bert_tf.io.untrusted import parse_json

T = TypeVar("T")
RowT = TypeVar("RowT")
_MAX_VALUE_LENGTH = 60
_LARGEST = (2 - 2**-23) * 2.0**127  # maximum of float32
_MAX_DIGITS = 80  # Arrow decimals have up to 76 digits.
# A line number, counted from 1, or a description such as "row 0".
Location = int | str


@dataclasses.dataclass(frozen=True, slots=True)
class TextExample:
    """One text or a pair of texts, for classification or regression."""

    id: str  # from the file, or the index of the row
    text_a: str
    text_b: str | None
    # A class name, a number, the names of all classes that apply (multilabel), or None.
    label: str | float | tuple[str, ...] | None


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedExample:
    """A sentence of at least one non-empty word, with one tag per word or without tags."""

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    document: int  # index of the document that contains the sentence
    # The original text, if any, and the start and end character of each word. The data fingerprint
    # omits both, because the model reads only the words.
    text: str = dataclasses.field(default="", repr=False)
    offsets: tuple[tuple[int, int], ...] = dataclasses.field(default=(), repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A context (segment A) and at least two possible continuations (segment B)."""

    id: str
    context: str
    choices: tuple[str, ...]
    label: int | None  # index of the correct choice


@dataclasses.dataclass(frozen=True, slots=True)
class SimilarityExample:
    """Two texts, or an anchor, a positive and a negative text."""

    id: str
    texts: tuple[str, ...]
    # Similarity in the units of the file; None for positive pairs and for predictions.
    label: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A span of a context, and its start as a byte offset into the UTF-8 of the context."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True, slots=True)
class QuestionExample:
    """A question about a context, the paragraph that may contain the answer."""

    id: str  # unique in the file
    title: str  # title of the article that contains the context, or ""
    question: str
    context: str
    # All annotated answers, including duplicates; () for unanswerable questions and predictions.
    answers: tuple[Answer, ...]
    is_impossible: bool


_TEXTS = ("text_a", "text_b", "words", "context", "choices", "texts", "question")


def texts_of(example: Any) -> list[str]:
    """Returns the texts of an example of any type; for a tagged example, its words."""
    fields = (getattr(example, name, None) or () for name in _TEXTS)
    return [t for texts in fields for t in ([texts] if isinstance(texts, str) else texts)]


def label_of(example: Any) -> Hashable:
    """Returns the label of an example of any type, or ``None``.

    Multiple classes are a ``frozenset``. The label of a question is "answer" or "no answer".
    """
    if isinstance(example, QuestionExample):
        return "answer" if example.answers else "no answer"
    label: Hashable = getattr(example, "label", getattr(example, "tags", None))
    if isinstance(example, TextExample) and isinstance(label, tuple):
        return frozenset(label)
    return label


@dataclasses.dataclass(frozen=True)
class ExampleSet(Generic[T]):
    """The examples of a file, the skipped rows and notes on the data."""

    items: list[T]  # in the order of the file
    labels: tuple[str, ...]  # class names in the order of their ids, or ()
    skipped: list[str]  # one message per skipped row
    notes: tuple[str, ...] = ()  # warnings about suspicious data


# === Bad rows ===


class BadRowError(ValueError):
    """Error in a row; its message, "expected ..., got ...", does not contain the location."""

    def __init__(
        self, reason: str, line: int | None = None, known: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        super().__init__(reason)
        self.line = line  # the line that contains the error, if a row has multiple lines
        self.known = known  # the fields that could be parsed, by column


class NoTextError(BadRowError):
    """Error in a row whose text is missing or empty."""


class BadRow(NamedTuple):
    """A bad row; the output of predict contains a record for every row, even if it is bad."""

    before: int  # number of valid rows before it
    id: str  # from the file, or the index of the row; "" if unknown
    words: tuple[str, ...]  # words of the sentence, if known
    reason: str


class BadRows:
    """Bad rows of a file: the first one raises an error, or all are skipped and listed.

    Args:
        path: Path of the file, for messages.
        skip: Whether to skip bad rows; ``None`` if the caller has no such option.
        bad_rows_get_a_record: Whether the output contains a record for each row. If so, rows that
            have an id but no text are always skipped, and the file may be empty.
        id_column: Column with the ids of the rows; by default rows are numbered.
        check_row: Function that raises a ``BadRowError`` if the columns of a row are invalid.
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
        self.check_row = check_row
        self.id_column = id_column
        self.skipped: list[str] = []
        self.rows: list[BadRow] = []
        self.location: Location = 0  # of the current row
        self._skip = skip
        self.bad_rows_get_a_record = bad_rows_get_a_record
        self._good: Sized = ()
        self._id: Any = ""
        self._words: Sequence[str] = ()

    @staticmethod
    def from_option(path: str, skip: "bool | BadRows") -> "BadRows":
        """Returns ``skip`` if it is a ``BadRows``, else a new instance."""
        return skip if isinstance(skip, BadRows) else BadRows(path, skip)

    def begin(self, number: int | None, row_id: Any = None, words: Sequence[str] = ()) -> None:
        """Stores the index or id and the words of the next row, in case the row is bad."""
        self._id = number if row_id is None else row_id
        self._words = words

    def report(self, location: Location, reason: object) -> None:
        """Raises a ``ValueError`` for a bad row, or skips the row."""
        can_have_record = isinstance(reason, NoTextError) and self._known_id()
        if not (self._skip or (self.bad_rows_get_a_record and can_have_record)):
            flag = ", or skip bad rows with --skip_bad_rows"
            message = f"{self.path}, {format_location(location)}: {str(reason).rstrip('.')}"
            raise ValueError(f"{message}. Correct the row{'' if self._skip is None else flag}.")
        self.skip(location, reason)

    def skip(self, location: Location, reason: object) -> None:
        """Skips a bad row, regardless of the option."""
        self.skipped.append(f"{self.path}, {format_location(location)}: {reason}.")
        words, reason = tuple(self._words), self.skipped[-1]
        self.rows.append(BadRow(len(self._good), self._known_id(), words, reason))

    def _known_id(self) -> str:
        return str(self._id).strip() if isinstance(self._id, str | int) else ""

    def collect(
        self, rows: Iterable[tuple[Location, RowT]], make_example: Callable[[RowT], T]
    ) -> list[T]:
        """Converts each row to an example, and reports the rows that raise a ``BadRowError``.

        Raises:
            ValueError: If the file has no valid rows, unless ``bad_rows_get_a_record``.
        """
        self._good = examples = []  # ``skip`` counts them
        for self.location, row in rows:
            try:
                examples.append(make_example(row))
            except BadRowError as error:
                self.report(self.location if error.line is None else error.line, error)
        if not examples and self.skipped and not self.bad_rows_get_a_record:
            raise ValueError(
                f"{self.path} has no valid rows; {len(self.skipped)} bad rows were skipped. The "
                f"first: {self.skipped[0]}"
            )
        if not examples and not self.bad_rows_get_a_record:
            raise ValueError(f"{self.path} has no rows. Use a file with at least one example.")
        return examples


def format_location(location: Location) -> str:
    """Formats a location for messages."""
    return f"line {location}" if isinstance(location, int) else location


# === Fields ===

# Fields of .tsv and .csv files are strings; fields of JSON lines can be any JSON values. Functions
# return the converted value or raise ``BadRowError``; ``field`` names the field in the message.


class ClassName(str):
    """Name of a class that the file stores as an id."""

    class_id: int


def quoted(value: object) -> str:
    """Formats a value for an error message, shortened if it is long."""
    return quote(value, _MAX_VALUE_LENGTH)


def text(value: Any, field: str) -> str:
    """Checks that a value is a string that UTF-8 can encode."""
    if value is None:
        raise NoTextError(f"expected a string in {field}, got None")
    if not isinstance(value, str):
        raise BadRowError(f"expected a string in {field}, got {quoted(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadRowError(
                f"expected valid Unicode in {field}, got an unpaired surrogate at character "
                f"{error.start}"
            ) from error
    return value


def non_empty_text(value: Any, field: str) -> str:
    """Checks that a string contains more than white space."""
    checked = text(value, field)
    # Files that were not written completely may contain null characters.
    if not checked.replace("\0", "").strip():
        raise NoTextError(f"expected non-empty text in {field}, got {quoted(checked)}")
    return checked


# Lists of strings, lists of numbers, and single items, as Python, NumPy and JSON format them.
_STRING_LIST = re.compile(r"[\[({]+(np\.\w+\(|array\(|b?['\"]).*[\])}]\s*", re.DOTALL)
_NUMBER_LIST = re.compile(r"\[\s*(?:-?\d+(?:\.\d*)?(?:\s*,\s*|\s+|(?=\]))|\.\.\.[\s,]*)*\]\s*")
_ITEM = re.compile(
    r"""\s*(np\.\w+\()?(b?'(?:[^'\\\n]|\\[\\'"abfnrtvxuU])*'|b?"(?:[^"\\\n]|\\[\\'"abfnrtvxuU])*\""""
    r"""|-?\d+(?:\.\d*)?|None)(?(1)\))(\s*,|\s+|(?=[\])}]))"""
)


def parse_list(value: Any, field: str, *, allow_numbers: bool = False) -> Any:
    """Parses a list, tuple or set that was saved as a string; returns other values unchanged.

    For example, pandas ``to_csv`` saves lists as strings.

    >>> parse_list("['a' 'b']", "x"), parse_list("[a b]", "x"), parse_list("[1]", "x")
    (['a', 'b'], '[a b]', '[1]')
    """
    is_list = isinstance(value, str) and (
        _STRING_LIST.fullmatch(value) or (allow_numbers and _NUMBER_LIST.fullmatch(value))
    )
    if not is_list:
        return value
    with contextlib.suppress(ValueError):
        return parse_json(value, field)
    items, end = [], 1
    with contextlib.suppress(ValueError, SyntaxError):
        while item := _ITEM.match(value, end):
            items.append(ast.literal_eval(item[2]))
            end = item.end()
        if value[0] == "(" and len(items) == 1 and value[end - 1] != ",":
            return value  # A tuple of one item ends with a comma.
        if value[0] + value[end:].strip() in ("[]", "()", "{}"):
            return items
    if value[0] != "[":
        return value
    raise BadRowError(
        f"expected a list in {field}, got {quoted(value)}, which cannot be parsed (use .jsonl or "
        ".parquet for lists)"
    )


def list_of(value: Any, field: str) -> list[Any]:
    """Returns the words or tags in a list, a list saved as a string, or a string to split."""
    value = parse_list(value, field)
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list):
        return value
    raise BadRowError(f"expected a list in {field}, got {quoted(value)}")


def name(value: Any, field: str) -> str:
    """Returns the class name for a string, an integer or a Boolean."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str) and isinstance(value := _as_integer(value), int):
        return str(value)
    stripped = non_empty_text(value, field).strip()
    # Stripping would convert a ClassName to a string without its id.
    return value if value == stripped else stripped


def _as_integer(value: Any) -> Any:
    """Converts floats and decimals with integer values; returns other values unchanged."""
    if isinstance(value, decimal.Decimal):
        # The digits of a number with a large exponent would fill the memory.
        is_short = value.is_finite() and value.adjusted() < _MAX_DIGITS
        return int(value) if is_short and value == value.to_integral_value() else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def known_name(value: Any, field: str, names: Collection[str] | None) -> str:
    """Returns the class name, which must be in ``names`` if they are known."""
    label = name(value, field)
    if names is not None and label not in names:
        raise BadRowError(f"expected one of {listed(names)} in {field}, got {quoted(label)}")
    return label


def row_id(value: Any, row_number: int) -> str:
    """Returns the id of a row, by default the row's index."""
    return str(row_number) if value is None else name(value, "the id")


def number(value: Any, field: str) -> float:
    """Returns a finite number in the range of float32."""
    if isinstance(value, str | int | float | decimal.Decimal) and not isinstance(value, bool):
        try:
            parsed = float(value)
        except (ValueError, OverflowError):
            parsed = getattr(value, "class_id", math.nan)
        if abs(parsed) <= _LARGEST:
            return parsed
        if math.isfinite(parsed):
            raise BadRowError(
                f"expected a number from {-_LARGEST:.2g} to {_LARGEST:.2g} in {field}, got "
                f"{quoted(value)}"
            )
    hint = " (use a decimal point)" if isinstance(value, str) and "," in value else ""
    raise BadRowError(f"expected a finite number in {field}, got {quoted(value)}{hint}")


def integer(value: Any, field: str, limit: int) -> int:
    """Returns an integer from 0 to ``limit``."""
    parsed = _as_integer(getattr(value, "class_id", value))
    if isinstance(parsed, str) and parsed.strip().isdecimal():
        parsed = int(parsed)
    if isinstance(parsed, int) and not isinstance(parsed, bool) and 0 <= parsed <= limit:
        return parsed
    raise BadRowError(f"expected an integer from 0 to {limit} in {field}, got {quoted(value)}")


def sorted_names(names: Iterable[str]) -> tuple[str, ...]:
    """Sorts class names by value if all are integers, else by class id or alphabetically."""
    unique = set(names)
    try:
        return tuple(sorted(unique, key=lambda label: (int(label), label)))
    except ValueError:
        return tuple(sorted(unique, key=lambda label: (getattr(label, "class_id", 0), label)))


# === Words of tables and CoNLL files ===

DOCUMENT_START = "-DOCSTART-"
# Only spaces and tabs separate columns; words may contain other white space.
_GAP = re.compile("[ \t]+")
# In character-level files, a word may be a space, followed by a tab and the word's tag.
_BLANK_WORD = re.compile("( *)\t")


def is_table_word(text: str) -> bool:
    r"""Returns whether the table reader returns a string unchanged, as a single word.

    >>> is_table_word("York"), is_table_word("New York"), is_table_word("1\u00a0000")
    (True, False, False)
    """
    with contextlib.suppress(BadRowError):
        return list_of(text, "") == [text] and bool(text.strip("\0"))
    return False


def is_conll_word(text: str) -> bool:
    r"""Returns whether ``read_conll`` returns a column unchanged, as a single word.

    >>> is_conll_word("1\u00a0000"), is_conll_word("New York"), is_conll_word("-DOCSTART-")
    (True, False, False)
    """
    is_text = text.strip("\0") and "\n" not in text and not text.endswith("\r")
    return bool(is_text) and text != DOCUMENT_START and conll_columns(f"{text} O") == [text, "O"]


def conll_columns(line: str) -> list[str]:
    r"""Splits a line of a CoNLL file into columns; an empty line has the column "".

    >>> conll_columns("York B-LOC"), conll_columns(" \tO"), conll_columns(" \t")
    (['York', 'B-LOC'], [' ', 'O'], [''])
    """
    # Concatenated files may contain a byte order mark in the middle.
    line = line.removeprefix("\ufeff")
    columns = _GAP.split(line.strip(" \t"))
    blank = _BLANK_WORD.match(line) if columns != [""] else None
    return [blank[1], *columns] if blank else columns
