"""Tables of texts, gzip or not, row by row.

| name ends in | a row is                                      | a field is                        |
|--------------|-----------------------------------------------|-----------------------------------|
| .tsv         | a line                                        | text between tabs; quotes are text|
| .csv         | a line, or several inside quotes (RFC 4180)   | text between commas, unquoted     |
| .jsonl       | a line with one JSON object                   | any JSON value, named by its key  |
| .json        | an object of a list (pandas: "records")       | the same                          |
| .parquet     | a row; by pyarrow                             | a value of the column             |

The first line of .tsv and .csv names the columns; another delimiter may separate them. Blank lines
are skipped, except in tables of one column, where they are empty fields. A name like "<train>" is
of rows that were given in Python (``records.giving``).
"""

import collections
import csv
import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.untrusted import listed

from .examples import BadRowError, BadRows, Place
from .records import LINES, READERS, Record, is_given, read_given
from .text_files import read_lines

# What separates the fields of a form whose fields are texts.
_DELIMITERS = {".tsv": "\t", ".csv": ","}
SUFFIXES = (*_DELIMITERS, *(suffix for suffix in READERS if suffix != LINES))
# The forms by the names that flags have for them.
FORMS = tuple(suffix.removeprefix(".") for suffix in (*_DELIMITERS, *READERS))
# The csv module's own limit is 131,072 characters. A longer field than these is no text, but what
# follows a quote that nothing ends.
_LONGEST_FIELD = 1 << 30
# What other files separate their columns by.
_GAPS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "vertical bars"}
_QUOTES = re.compile('"+')


@dataclasses.dataclass(frozen=True)
class TableFile:
    """A table's path and how it is read.

    ``encoding`` and ``delimiter`` are those of .csv and .tsv (the encoding of .jsonl, too);
    ``None`` is the form's own delimiter. ``suffix`` is the form, in place of the path's end.
    """

    path: str
    encoding: str = "utf-8"
    delimiter: str | None = None
    suffix: str | None = None

    def __str__(self) -> str:
        return self.path

    @property
    def holds_values(self) -> bool:
        """Whether the fields are values, as lists and numbers, and not all of them texts."""
        return self.suffix in READERS if self.suffix else holds_values(self.path)

    @classmethod
    def of(cls, path: Any) -> "TableFile":
        """A path as a table's file, read as its name says."""
        return path if isinstance(path, cls) else cls(str(path))


def is_table(path: str) -> bool:
    """Whether a path's name is that of a table.

    >>> is_table("a.jsonl.gz"), is_table("<train>"), is_table("eng.train")
    (True, True, False)
    """
    return is_given(path) or path.lower().removesuffix(".gz").endswith(SUFFIXES)


def holds_values(path: str) -> bool:
    """Whether a table's fields are values, as lists and numbers, and not all of them texts.

    >>> holds_values("a.jsonl"), holds_values("a.csv")
    (True, False)
    """
    return is_given(path) or path.lower().removesuffix(".gz").endswith(tuple(READERS))


class Row(NamedTuple):
    """The wanted fields of a row."""

    number: int  # in the file, bad rows included, counted from 0
    values: list[Any]  # in the order asked for; None for a column not asked for


# A row's first line, and its fields or what is wrong with them.
_Fields = tuple[int, list[str] | BadRowError]


def read_columns(
    source: str | TableFile,
    columns: Sequence[str | None],
    bad: BadRows,
    *,
    skip_short_rows: bool = False,
) -> Iterator[tuple[Place, Row]]:
    r"""Yields some columns of a table: of each good row its place and the row.

    ``columns`` are names of columns (JSON lines: of keys), each in the table; None gives None.
    ``bad`` gets rows with more or fewer fields than the first line, or quotes in the wrong place,
    lines with the columns' names again or without a JSON object, objects that lack a key. A place
    is a line's number, counted from 1, or "row 0". With ``skip_short_rows`` rows of too few fields
    are listed, and never an error.

    Raises:
        ValueError: the file is empty, has none of the suffixes, lacks a column or has it twice, or
            opens a quoted field that never ends; or as ``read_lines`` and ``bad``.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write('id,text\n1,"Yes, ""so""."\n')
    >>> list(read_columns(path, ["text", None], BadRows(path, skip=False)))
    [(2, Row(number=0, values=['Yes, "so".', None]))]
    """
    table = TableFile.of(source)
    path, suffix = table.path, table.suffix or _suffix(table.path)
    if suffix not in _DELIMITERS:
        yield from _read_objects(table, suffix, columns, bad)
        return
    rows = _texts(table, suffix)
    line, header = next(
        ((line, fields) for line, fields in rows if not _is_separator(fields)), (1, None)
    )
    if header is None:
        raise ValueError(
            f"{path} is empty: expected a first line that names its columns, {_names(columns)}."
        )
    if isinstance(header, BadRowError):
        raise ValueError(f"{path}, line {line}: {header}; correct the line with the columns.")
    header = [name.strip() for name in header]
    positions = [
        None if column is None else _position(path, line, header, column) for column in columns
    ]
    yield from _select(rows, {len(header)}, positions, bad, skip_short_rows, header)


def read_rows(source: str | TableFile) -> Iterator[Mapping[str, Any]]:
    """Yields every row with all of its columns, in the order of ``read_columns``; {} of a bad one.

    >>> from .records import giving
    >>> with giving({"<rows>": [{"a": 1}, "no row"]}):
    ...     list(read_rows("<rows>"))
    [{'a': 1}, {}]
    """
    table = TableFile.of(source)
    suffix = table.suffix or _suffix(table.path)
    if suffix not in _DELIMITERS:
        for _, row in _records(table, suffix):
            yield {} if isinstance(row, BadRowError) else row
        return
    rows = (fields for _, fields in _texts(table, suffix) if not _is_separator(fields))
    header = next(rows, [])
    names = [] if isinstance(header, BadRowError) else [name.strip() for name in header]
    for fields in rows:
        if fields == [""] and len(names) > 1:
            continue
        if isinstance(fields, BadRowError) or len(fields) != len(names):
            yield {}
        else:
            yield dict(zip(names, fields, strict=True))


def _texts(table: TableFile, suffix: str) -> Iterator[_Fields]:
    delimiter = table.delimiter or _DELIMITERS[suffix]
    make_rows = _csv_rows if suffix == ".csv" else _tsv_rows
    return make_rows(table.path, table.encoding, delimiter)


def _records(table: TableFile, suffix: str) -> Iterator[Record]:
    read = READERS[suffix] if suffix else read_given
    return read(table.path, table.encoding)


def read_fields(
    path: str, positions: Sequence[int | None], widths: Collection[int], bad: BadRows
) -> Iterator[tuple[int, Row]]:
    """Yields some fields of a tab-separated table whose first line is a row.

    As ``read_columns``; ``positions`` are counted from 0, and a row has one of ``widths`` fields.
    """
    rows = _tsv_rows(path, "utf-8", _DELIMITERS[".tsv"])
    yield from _select(rows, widths, positions, bad, skip_short_rows=False)


def _suffix(path: str) -> str:
    """The form of a table; "" of rows that were given in Python."""
    if is_given(path):
        return ""
    name = path.lower().removesuffix(".gz")
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return suffix
    raise ValueError(
        f"{path} is no table: expected a name that ends in {', '.join(SUFFIXES)} (or in one of "
        "them and .gz)."
    )


def _is_separator(fields: list[str] | BadRowError) -> bool:
    """Whether a line is Excel's, "sep=" and the separator."""
    return fields == ["sep=", ""]


def _names(columns: Sequence[str | None]) -> str:
    return ", ".join(column for column in columns if column is not None)


def _position(path: str, line: int, header: list[str], column: str) -> int:
    count = header.count(column)
    if count != 1:
        found = next((gap for gap in _GAPS if len(header) == 1 and gap in header[0]), None)
        gaps = (
            f" (the file seems to use {_GAPS[found]}: name them by --delimiter, or save it as .csv "
            "with commas or as .tsv with tabs)"
            if found
            else ""
        )
        raise ValueError(
            f"{path}, line {line}: expected one column {column!r}, got "
            f"{count or 'none'}; the columns are {listed(header)}{gaps}."
        )
    return header.index(column)


def _select(
    rows: Iterator[_Fields],
    widths: Collection[int],
    positions: Sequence[int | None],
    bad: BadRows,
    skip_short_rows: bool,
    header: Sequence[str] = (),
) -> Iterator[tuple[int, Row]]:
    number = -1
    id_at = header.index(bad.id_column) if bad.id_column in header else None
    for line, fields in rows:
        if fields == [""] and 1 not in widths:
            continue
        number += 1
        bad.begin(number, None if id_at is None else _field(fields, id_at, widths))
        if isinstance(fields, BadRowError):
            bad.report(line, fields)
        elif len(header) > 1 and _are_names(fields, header):
            bad.report(
                line, "expected a row, got the names of the columns again (were files joined?)"
            )
        elif len(fields) in widths:
            values = [None if at is None else fields[at] for at in positions]
            yield line, Row(number, values)
        else:
            expected = " or ".join(str(width) for width in sorted(widths))
            tell = bad.skip if skip_short_rows and len(fields) < min(widths) else bad.report
            tell(line, f"expected {expected} columns, got {len(fields)}")


def _field(fields: list[str] | BadRowError, at: int, widths: Collection[int]) -> str:
    """A field of a row; only the first is known of a row with the wrong number of fields."""
    if isinstance(fields, BadRowError) or (at and len(fields) not in widths):
        return ""
    return fields[at]


def _are_names(fields: Sequence[str], header: Sequence[str]) -> bool:
    # A file that was joined to another may begin with a byte order mark.
    return fields[-1].strip() == header[-1] and [
        field.removeprefix("\ufeff").strip() for field in fields
    ] == list(header)


def _tsv_rows(path: str, encoding: str, delimiter: str) -> Iterator[_Fields]:
    for line, text in read_lines(path, encoding):
        yield line, text.split(delimiter)


class _Lines:
    """A file's lines with their ends, some of which may be put back."""

    def __init__(self, path: str, encoding: str) -> None:
        self.count = 0  # given so far
        self.has_ended = False
        self._lines = (text + "\n" for _, text in read_lines(path, encoding))
        self._put_back: collections.deque[str] = collections.deque()

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._put_back.popleft() if self._put_back else next(self._lines, None)
        self.has_ended = line is None
        if line is None:
            raise StopIteration
        self.count += 1
        return line

    def put_back(self, lines: Sequence[str]) -> None:
        self._put_back.extendleft(reversed(lines))
        self.count -= len(lines)


def _csv_rows(path: str, encoding: str, delimiter: str) -> Iterator[_Fields]:
    lines = _Lines(path, encoding)
    quoting = _Quoting(delimiter)
    taken: list[str] = []  # the row's lines

    def take() -> Iterator[str]:
        for line in lines:
            taken.append(line)
            yield line

    reader = csv.reader(take(), strict=True, delimiter=delimiter)
    width = 0
    may_end = True
    while True:
        first = lines.count + 1
        taken.clear()
        try:
            fields = _next_row(reader)
        except csv.Error as error:
            if lines.has_ended:
                raise ValueError(
                    f"{path}, line {first}: a quoted field of this row never ends; double each "
                    "quote that is text, and put quotes round the field."
                ) from error
            may_end = _skip_broken_row(lines, taken, width, may_end, quoting)
            where = "" if lines.count == first else f" (in its lines {first} to {lines.count})"
            yield first, BadRowError(f"expected {quoting.what} fields, got: {error}{where}")
            continue
        if fields is None:
            return
        if not _is_separator(fields):
            width = width or len(fields)
        yield first, fields or [""]


def _next_row(reader: Iterator[list[str]]) -> list[str] | None:
    # The limit is the whole process's: other readers keep theirs.
    limit = csv.field_size_limit(_LONGEST_FIELD)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(limit)


def _skip_broken_row(
    lines: _Lines, taken: list[str], width: int, may_end: bool, quoting: "_Quoting"
) -> bool:
    """Skips a row whose quotes are misplaced, and the lines after it that may be its text.

    A quote in it that is followed by neither a comma nor a line's end counts as text. So the row
    ends where its last quoted field does, unless all lines from that of the error to there are rows
    without a misplaced quote. Where the next quote of the file ends a field that none began, a
    quote at which the row seemed to end was text, too.

    ``lines`` are those after the line of the error, ``taken`` the row's so far, ``width`` is the
    number of its fields. Without ``may_end`` no quote that ends a field is looked for; returned is
    whether one may still follow.
    """
    is_open = False
    for line in taken:
        is_open = quoting.is_open(line, is_open)
    ahead: list[str] = []
    while is_open and may_end:
        line = next(lines, "")
        if line:
            ahead.append(line)
            is_open = quoting.is_open(line, is_open)
        else:
            may_end = False
    if not may_end or (ahead and quoting.are_rows("".join(ahead), width)):
        lines.put_back(ahead)
        return may_end
    ahead = []
    for line in lines:
        ahead.append(line)
        if '"' in line:
            break
    if not ahead or not quoting.ends_field.match(ahead[-1]):
        lines.put_back(ahead)
    return True


class _Quoting:
    """Where the quoted fields of lines begin and end, for fields that ``delimiter`` separates."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter
        self.what = "comma-separated" if delimiter == "," else f"{delimiter!r}-separated"
        mark = re.escape(delimiter)
        # A line whose first quote ends a field that the line does not begin.
        self.ends_field = re.compile(rf'[^"]*[^"{mark}]"(?:"")*[{mark}\n]')
        # A field without a misplaced quote or a single return.
        self._field = rf'(?:"[^"]*(?:""[^"]*)*"|[^"{mark}\r\n]*)'

    def is_open(self, line: str, is_open: bool) -> bool:
        """Whether a quoted field is open at a line's end, and whether one is at its beginning."""
        ends_a_field = f"{self._delimiter}\n"
        at = 0
        while True:
            if not is_open and line.startswith('"', at):
                is_open = True
                at += 1
            if is_open:
                ends = (quotes.end() for quotes in _QUOTES.finditer(line, at) if len(quotes[0]) % 2)
                at = next((end for end in ends if line[end] in ends_a_field), -1)
                if at < 0:
                    return True
                is_open = False
            else:
                at = line.find(self._delimiter, at)
            if at < 0 or line[at] == "\n":
                return False
            at += 1

    def are_rows(self, text: str, width: int) -> bool:
        """Whether a text is whole rows of so many fields."""
        mark = re.escape(self._delimiter)
        row = re.compile(rf"{self._field}(?:{mark}{self._field}){{{width - 1}}}\n")
        at = 0
        while at < len(text):
            found = row.match(text, at)
            if not found:
                return False
            at = found.end()
        return True


def _read_objects(
    table: TableFile, suffix: str, columns: Sequence[str | None], bad: BadRows
) -> Iterator[tuple[Place, Row]]:
    for number, (place, row) in enumerate(_records(table, suffix)):
        bad.begin(number, None if bad.id_column is None else "")
        if isinstance(row, BadRowError):
            bad.report(place, row)
            continue
        if bad.id_column is not None:
            bad.begin(number, row.get(bad.id_column, ""))
        missing = [column for column in columns if column is not None and column not in row]
        if missing:
            bad.report(place, f"expected the key {missing[0]!r}, got {listed(row)}")
            continue
        yield place, Row(number, [None if column is None else row[column] for column in columns])
