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

import csv
import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf.untrusted import listed

from .examples import BadRowError, BadRows, Place, shown
from .records import LINES, READERS, Given, Record, is_given, read_given, read_lines

# Separators of the forms that hold texts alone, by suffix.
_DELIMITERS = {".tsv": "\t", ".csv": ","}
SUFFIXES = (*_DELIMITERS, *(suffix for suffix in READERS if suffix != LINES))
# The forms by the names that flags have for them.
FORMS = tuple(suffix.removeprefix(".") for suffix in (*_DELIMITERS, *READERS))
# Names of separators, for sentences.
_GAPS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "vertical bars"}
# Hardly the name of a column: a number, or many words.
_NO_NAME = re.compile(r"\s*(-?\d+(\.\d+)?\s*$|(\S+ +){4}\S)")
# The csv module's own limit is 131,072 characters. A longer field than these is no text, but what
# follows a quote that nothing ends.
_LONGEST_FIELD = 1 << 30
# A row's first line, and its fields or what is wrong with them.
Fields = tuple[int, list[str] | BadRowError]


def check_delimiter(delimiter: str | None) -> str | None:
    """Separator of a table's columns that a flag names, as one character."""
    character = {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter)
    if character is not None and (len(character) != 1 or character in '"\r\n'):
        raise ValueError(
            f"--delimiter={delimiter}: expected one character, such as ';', or tab, and no quote."
        )
    return character


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
        """True if the fields are values, as lists and numbers, and not all of them texts.

        >>> TableFile("a.jsonl.gz").holds_values, TableFile("a.csv").holds_values
        (True, False)
        """
        name = self.suffix or self.path.lower().removesuffix(".gz")
        return is_given(self.path) or name.endswith(tuple(READERS))

    @classmethod
    def of(cls, path: Any) -> "TableFile":
        """A path as a table's file, read as its name says."""
        return path if isinstance(path, cls) else cls(str(path))


def is_table(path: str) -> bool:
    """True if a path's name is that of a table.

    >>> is_table("a.jsonl.gz"), is_table("<train>"), is_table("eng.train")
    (True, True, False)
    """
    return is_given(path) or path.lower().removesuffix(".gz").endswith(SUFFIXES)


class Row(NamedTuple):
    """The wanted fields of a row."""

    number: int  # in the file, bad rows included, counted from 0
    values: list[Any]  # in the order asked for; None for a column not asked for


def read_columns(
    source: str | TableFile,
    columns: Sequence[str | None],
    bad: BadRows,
    *,
    skip_short_rows: bool = False,
) -> Iterator[tuple[Place, Row]]:
    """Yields some columns of a table: of each good row its place and the row.

    ``columns`` are names of columns (JSON lines: of keys), each in the table; None gives None.
    ``bad`` gets the other rows. A place is a line's number, counted from 1, or "row 0". With
    ``skip_short_rows`` rows of too few fields are listed, and never an error.
    """
    table = TableFile.of(source)
    path, suffix = table.path, table.suffix or _suffix(table.path)
    if suffix not in _DELIMITERS:
        yield from _read_objects(table, suffix, columns, bad)
        return
    line, header, rows = _texts(table, suffix)
    if header is None:
        names = ", ".join(filter(None, columns))
        raise ValueError(f"{path} is empty: expected a first line that names its columns, {names}.")
    if isinstance(header, BadRowError):
        raise ValueError(f"{path}, line {line}: {header}; correct the line with the columns.")
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
    _, header, rows = _texts(table, suffix)
    names = header if isinstance(header, list) else []
    for _, fields in rows:
        if fields == [""] and len(names) > 1:
            continue
        if isinstance(fields, BadRowError) or len(fields) != len(names):
            yield {}
        else:
            yield dict(zip(names, fields, strict=True))


def _texts(
    table: TableFile, suffix: str
) -> tuple[int, list[str] | BadRowError | None, Iterator[Fields]]:
    """The line and the names of the columns, and the rows behind it."""
    make_rows = _csv_rows if suffix == ".csv" else _tsv_rows
    rows = make_rows(table.path, table.encoding, table.delimiter or _DELIMITERS[suffix])
    # Excel may write a line before it, "sep=" and the separator.
    line, header = next((row for row in rows if row[1] != ["sep=", ""]), (1, None))
    return line, [*map(str.strip, header)] if isinstance(header, list) else header, rows


def _records(table: TableFile, suffix: str) -> Iterator[Record]:
    return READERS.get(suffix, read_given)(table.path, table.encoding)


def read_fields(
    path: str, positions: Sequence[int | None], widths: Collection[int], bad: BadRows
) -> Iterator[tuple[int, Row]]:
    """Yields some fields of a tab-separated table whose first line is a row.

    ``positions`` are counted from 0, and a row has one of ``widths`` fields.
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


def _position(path: str, line: int, header: list[str], column: str) -> int:
    count = header.count(column)
    if count != 1:
        gap = next((each for each in _GAPS if len(header) == 1 and each in header[0]), None)
        spelling = "tab" if gap == "\t" else repr(gap)
        hint = _several(column, header)
        if any(map(_NO_NAME.match, header[0].split(gap) if gap else header)):
            hint = " (the first line seems to be a row: put one with the columns' names before it)"
        elif gap:
            hint = (
                f" (the file seems to use {_GAPS[gap]}: finetune and predict take "
                f"--delimiter={spelling}; or save it as .csv with commas or as .tsv with tabs)"
            )
        raise ValueError(
            f"{path}, line {line}: expected one column {column!r}, got "
            f"{count or 'none'}; the columns are {listed(header)}{hint}."
        )
    return header.index(column)


def _several(column: str, known: Iterable[str]) -> str:
    """Advice where one name joins those of several columns."""
    then = " (where columns hold 0 and 1, write the names of those with 1 into one, for multilabel)"
    return then if "," in column and {*column.split(",")} <= {*known} else ""


def _select(
    rows: Iterator[Fields],
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
    return fields[-1].strip() == header[-1] and [*map(str.strip, fields)] == list(header)


def _csv_rows(path: str, encoding: str, delimiter: str) -> Iterator[Fields]:
    """The rows that the csv module makes; one that it refuses ends with its line."""
    csv.field_size_limit(_LONGEST_FIELD)
    lines = (f"{text}\n" for _, text in read_lines(path, encoding))
    reader = csv.reader(lines, strict=True, delimiter=delimiter)
    what = "comma-separated" if delimiter == "," else f"{delimiter!r}-separated"
    first = 1
    while True:
        try:
            for fields in reader:
                yield first, fields or [""]
                first = reader.line_num + 1
            return
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                raise ValueError(
                    f"{path}, line {first}: a quoted field of this row never ends; double each "
                    "quote that is text, and put quotes round the field."
                ) from error
            where = "" if reader.line_num == first else f" (in line {reader.line_num})"
            yield first, BadRowError(f"expected {what} fields, got: {error}{where}")
            first = reader.line_num + 1


def _tsv_rows(path: str, encoding: str, delimiter: str) -> Iterator[Fields]:
    for line, text in read_lines(path, encoding):
        yield line, text.split(delimiter)


def _read_objects(
    table: TableFile, suffix: str, columns: Sequence[str | None], bad: BadRows
) -> Iterator[tuple[Place, Row]]:
    for number, (place, row) in enumerate(_records(table, suffix)):
        known = row if isinstance(row, Mapping) else {}
        bad.begin(number, None if bad.id_column is None else known.get(bad.id_column, ""))
        try:
            values = _values(row, columns, bad)
        except BadRowError as error:
            bad.report(place, error)
        else:
            yield place, Row(number, values)


def _values(row: Given, columns: Sequence[str | None], bad: BadRows) -> list[Any]:
    """The values of a row's columns."""
    if isinstance(row, BadRowError):
        raise row
    if "_task_hash" in row:  # of Prodigy, which leaves out a list without spans
        row = {"spans": [], **row}
        if row.get("answer", "accept") != "accept" and not bad.answers_all:
            raise BadRowError(f"expected Prodigy's answer accept, got {shown(row['answer'])}")
    missing = [column for column in columns if column is not None and column not in row]
    is_task = "annotations" in row and isinstance(row.get("data"), Mapping)
    if is_task and (missing or "data" in columns):
        raise BadRowError("expected a row, got a task of Label Studio's JSON; export JSON-MIN")
    if missing:
        hint = _several(missing[0], row)
        raise BadRowError(f"expected the key {missing[0]!r}, got {listed(row)}{hint}")
    return [None if column is None else row[column] for column in columns]
