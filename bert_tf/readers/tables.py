"""Tables of texts, gzip or not, row by row.

| name ends in | a row is                                      | a field is                        |
|--------------|-----------------------------------------------|-----------------------------------|
| .tsv         | a line                                        | text between tabs; quotes are text|
| .csv         | a line, or several inside quotes (RFC 4180)   | text between commas, unquoted     |
| .jsonl       | a line with one JSON object                   | any JSON value, named by its key  |
| .ndjson      | the same                                      | the same                          |
| .json        | an object of a list (pandas: "records")       | the same                          |
| .parquet     | a row; by pyarrow                             | a value of the column             |
| .arrow       | the same, of a file or a stream (.feather)    | the same                          |

The first line of .tsv and .csv names the columns; another delimiter may separate them. Blank lines
are skipped, except in tables of one column, where they are empty fields. A name like "<train>" is
of rows that were given in Python (``table_formats.in_memory_tables``).
"""

import csv
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from bert_tf.io.untrusted import max_line_bytes
from bert_tf.io.wording import listed

from .examples import BadRowError, BadRows, Location, quoted
from .table_formats import (
    LINES,
    READERS_BY_SUFFIX,
    Record,
    RowOrError,
    is_in_memory,
    read_in_memory,
    read_lines,
)

# Separators of the forms that hold texts alone, by suffix.
_DELIMITERS = {".tsv": "\t", ".csv": ","}
SUFFIXES = (*_DELIMITERS, *(suffix for suffix in READERS_BY_SUFFIX if suffix != LINES))
# The forms by the names that flags have for them.
TABLE_FORMATS = tuple(suffix.removeprefix(".") for suffix in (*_DELIMITERS, *READERS_BY_SUFFIX))
# Endings of files that people have tables in, and what to do with them.
_UNSUPPORTED = {
    "xlsx|xlsm|xlsb|xls|ods|numbers": 'save the sheet as .csv, in Excel as "CSV UTF-8"',
    "bz2|xz|zst|lz4|zip|7z|rar|tar|tar.gz|tgz": "unpack it, as of packed files gzip alone is read",
    "txt|text|tab|dat|psv": "rename it to .tsv if tabs separate its columns, else to .csv",
    "pkl|pickle|h5|hdf5|db|sqlite|sqlite3|orc|avro|dta|sav|rds|npy|npz|pt|tfrecord|array_record|xml"
    "|html?|ya?ml|docx?|pdf": "read it in Python and write .jsonl or .parquet, or give the rows to "
    "api.fine_tune",
}
# Names of separators, for sentences.
_SEPARATORS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "vertical bars"}
# Hardly the name of a column: a number, or many words.
_UNLIKELY_NAME = re.compile(r"\s*(-?\d+(\.\d+)?\s*$|(\S+ +){4}\S)")
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
    ``names`` are the columns' where no line of a .tsv has them; a row may lack the last
    ``optional`` ones.
    """

    path: str
    encoding: str = "utf-8"
    delimiter: str | None = None
    suffix: str | None = None
    names: tuple[str, ...] = ()
    optional: int = 0

    def __str__(self) -> str:
        return self.path

    @property
    def has_typed_fields(self) -> bool:
        """True if the fields are values, as lists and numbers, and not all of them texts.

        >>> TableFile("a.jsonl.gz").has_typed_fields, TableFile("a.csv").has_typed_fields
        (True, False)
        """
        name = self.suffix or self.path.lower().removesuffix(".gz")
        return is_in_memory(self.path) or name.endswith(tuple(READERS_BY_SUFFIX))

    @classmethod
    def from_path(cls, path: Any) -> "TableFile":
        """A path as a table's file, read as its name says."""
        return path if isinstance(path, cls) else cls(str(path))


def is_table(path: str) -> bool:
    """True if a path's name is that of a table.

    >>> is_table("a.jsonl.gz"), is_table("<train>"), is_table("eng.train")
    (True, True, False)
    """
    return is_in_memory(path) or path.lower().removesuffix(".gz").endswith(SUFFIXES)


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
) -> Iterator[tuple[Location, Row]]:
    """Yields some columns of a table: of each good row its place and the row.

    ``columns`` are names of columns (JSON lines: of keys), each in the table; None gives None.
    ``bad`` gets the other rows. A place is a line's number, counted from 1, or "row 0". With
    ``skip_short_rows`` those of too few fields are added to ``bad.skipped``, even where other bad
    rows are errors.
    """
    wanted = {name for name in columns if name is not None}
    for number, (location, row) in enumerate(_records(TableFile.from_path(source), columns)):
        known = row.known if isinstance(row, BadRowError) else row
        bad.begin(number, None if bad.id_column is None else known.get(bad.id_column, ""))
        try:
            values = _values(row, columns, wanted, bad)
            if bad.check_row is not None and not isinstance(row, BadRowError):
                bad.check_row(row)
        except BadRowError as error:
            is_skipped = skip_short_rows and isinstance(error, _ShortRowError)
            (bad.skip if is_skipped else bad.report)(location, error)
        else:
            yield location, Row(number, values)


def read_rows(source: str | TableFile) -> Iterator[Mapping[str, Any]]:
    """Yields every row with all of its columns, in the order of ``read_columns``; {} of a bad one.

    >>> from .table_formats import in_memory_tables
    >>> with in_memory_tables({"<rows>": [{"a": 1}, "no row"]}):
    ...     list(read_rows("<rows>"))
    [{'a': 1}, {}]
    """
    for _, row in _records(TableFile.from_path(source)):
        yield {} if isinstance(row, BadRowError) else row


def _records(table: TableFile, columns: Sequence[str | None] = ()) -> Iterator[Record]:
    """The rows of a table; if the first line names its columns, ``columns`` must be among them."""
    suffix = table.suffix or _table_suffix(table.path)
    if suffix in _DELIMITERS:
        return _read_fields(table, suffix, columns)
    return READERS_BY_SUFFIX.get(suffix, read_in_memory)(table.path, table.encoding)


def _values(
    row: RowOrError, columns: Sequence[str | None], wanted: Set[str], bad: BadRows
) -> list[Any]:
    """The values of a row's columns, ``wanted`` where they are not None."""
    if isinstance(row, BadRowError):
        raise row
    # A number is Prodigy's, which leaves out a list without spans; a text is a column of a .csv.
    if isinstance(row.get("_task_hash"), int):
        row = {"spans": [], **row}
        if row.get("answer", "accept") != "accept" and not bad.bad_rows_get_a_record:
            raise BadRowError(f"expected Prodigy's answer accept, got {quoted(row['answer'])}")
    is_task = "annotations" in row and isinstance(row.get("data"), Mapping)
    if is_task and ("data" in wanted or not row.keys() >= wanted):
        raise BadRowError(
            "expected a row, got a task of Label Studio's JSON; export JSON-MIN, or convert "
            "entities by the program in docs/guides/entities.md"
        )
    try:
        return [None if name is None else row[name] for name in columns]
    except KeyError as error:
        missing = str(error.args[0])
        hint = _multiple_columns_hint(missing, row)
        raise BadRowError(f"expected the key {missing!r}, got {listed(row)}{hint}") from None


def _multiple_columns_hint(column: str, known: Iterable[str]) -> str:
    """Advice where one name joins those of several columns."""
    then = " (where columns hold 0 and 1, write the names of those with 1 into one, for multilabel)"
    return then if "," in column and {*column.split(",")} <= {*known} else ""


def _table_suffix(path: str) -> str:
    """The form of a table; "" of rows that were given in Python."""
    if is_in_memory(path):
        return ""
    name = path.lower().removesuffix(".gz")
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return suffix
    hints = (todo for ends, todo in _UNSUPPORTED.items() if re.search(rf"\.({ends})(\.gz)?$", name))
    hint = "".join(f"; {todo}" for todo in hints)
    raise ValueError(
        f"{path} is no table: expected a name that ends in {', '.join(SUFFIXES)} (or in one of "
        f"them and .gz){hint}."
    )


# === Fields of .tsv and .csv ===


class _ShortRowError(BadRowError):
    """Says that a row has too few fields."""


def _read_fields(table: TableFile, suffix: str, columns: Sequence[str | None]) -> Iterator[Record]:
    read_fields = _csv_rows if suffix == ".csv" else _tsv_rows
    rows = read_fields(table.path, table.encoding, table.delimiter or _DELIMITERS[suffix])
    names = table.names or _read_names(table.path, rows, columns)
    widths = sorted({len(names) - table.optional, len(names)})
    for line, fields in rows:
        if isinstance(fields, BadRowError):
            yield line, fields
        elif fields != [""] or len(names) == 1:
            yield line, _row_error(fields, names, widths) or dict(zip(names, fields, strict=False))


def _read_names(path: str, rows: Iterator[Fields], columns: Sequence[str | None]) -> Sequence[str]:
    """The names of the columns, in a table's first line, with ``columns`` among them."""
    wanted = [column for column in columns if column is not None]
    # Excel may write a line before it, "sep=" and the separator.
    line, header = next((row for row in rows if row[1] != ["sep=", ""]), (1, None))
    if header is None:
        names = ", ".join(["its columns", *wanted])
        raise ValueError(f"{path} is empty: expected a first line that names {names}.")
    if isinstance(header, BadRowError):
        raise ValueError(f"{path}, line {line}: {header}; correct the line with the columns.")
    header = [*map(str.strip, header)]
    for column in wanted:
        if (count := header.count(column)) != 1:
            raise ValueError(
                f"{path}, line {line}: expected one column {column!r}, got {count or 'none'}; the "
                f"columns are {listed(header)}{_missing_column_hint(column, header)}."
            )
    return header


def _missing_column_hint(column: str, header: Sequence[str]) -> str:
    """Likely cause of a missing column, with its remedy, or ""."""
    found = (each for each in _SEPARATORS if len(header) == 1 and each in header[0])
    separator = next(found, None)
    if any(map(_UNLIKELY_NAME.match, header[0].split(separator) if separator else header)):
        return " (the first line seems to be a row: put one with the columns' names before it)"
    if separator is None:
        return _multiple_columns_hint(column, header)
    flag_value = "tab" if separator == "\t" else repr(separator)
    return (
        f" (the file seems to use {_SEPARATORS[separator]}: finetune and predict take "
        f"--delimiter={flag_value}; or save it as .csv with commas or as .tsv with tabs)"
    )


def _row_error(
    fields: Sequence[str], names: Sequence[str], widths: Sequence[int]
) -> BadRowError | None:
    """The fault of fields that are no row of these columns."""
    if len(fields) not in widths:
        error = _ShortRowError if len(fields) < widths[0] else BadRowError
        expected = " or ".join(map(str, widths))
        # Which fields are missing is not known, but the first is there.
        known = {names[0]: fields[0]}
        return error(f"expected {expected} columns, got {len(fields)}", known=known)
    if len(names) > 1 and fields[-1].strip() == names[-1] and [*map(str.strip, fields)] == [*names]:
        again = "expected a row, got the names of the columns again (were files joined?)"
        return BadRowError(again, known=dict(zip(names, fields, strict=False)))
    return None


def _csv_rows(path: str, encoding: str, delimiter: str) -> Iterator[Fields]:
    """The rows that the csv module makes; one that it refuses ends with its line."""
    lines = (f"{text}\n" for _, text in read_lines(path, encoding))
    reader = csv.reader(lines, strict=True, delimiter=delimiter)
    what = "comma-separated" if delimiter == "," else f"{delimiter!r}-separated"
    first = 1
    while True:
        try:
            while (fields := _next_fields(reader)) is not None:
                yield first, fields or [""]
                first = reader.line_num + 1
            return
        except csv.Error as error:
            endless = {
                "unexpected end of data": "never ends",
                "field larger than": f"has more than {max_line_bytes() >> 20} MiB",
            }
            if problem := next((endless[sign] for sign in endless if sign in str(error)), None):
                raise ValueError(
                    f"{path}, line {first}: a quoted field of this row {problem}; double each "
                    "quote that is text, and put quotes round the field."
                ) from error
            where = "" if reader.line_num == first else f" (in line {reader.line_num})"
            yield first, BadRowError(f"expected {what} fields, got: {error}{where}")
            first = reader.line_num + 1


def _next_fields(rows: Iterator[list[str]]) -> list[str] | None:
    """The next row of the csv module, whose limit is the process' own at any other time."""
    # A quoted field has several lines, and is as long as one at most: its quote may have no end.
    limit = csv.field_size_limit(max_line_bytes())
    try:
        return next(rows, None)
    finally:
        csv.field_size_limit(limit)


def _tsv_rows(path: str, encoding: str, delimiter: str) -> Iterator[Fields]:
    for line, text in read_lines(path, encoding):
        yield line, text.split(delimiter)
