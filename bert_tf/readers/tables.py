"""Reader of tables, plain or gzip.

| suffix           | row                                         | field                           |
|------------------|---------------------------------------------|---------------------------------|
| .tsv             | line                                        | string; quotes are literal      |
| .csv             | line, or several lines in quotes (RFC 4180) | string, unquoted                |
| .jsonl, .ndjson  | JSON object on a line                       | JSON value of a key             |
| .json            | JSON object in a list (pandas: "records")   | JSON value of a key             |
| .parquet         | row (requires pyarrow)                      | value                           |
| .arrow, .feather | row of a file or a stream (requires pyarrow)| value                           |

The first line of .tsv and .csv is the header. The delimiter is configurable. Blank lines are
skipped, except in tables with one column, where they are empty fields. Names such as "<train>"
refer to rows in memory (``table_formats.in_memory_tables``).
"""

import csv
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from bert_tf.io.messages import listed
from bert_tf.io.untrusted import max_line_bytes

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

# Default delimiters by suffix; all fields of these formats are strings.
_DELIMITERS = {".tsv": "\t", ".csv": ","}
SUFFIXES = (*_DELIMITERS, *(suffix for suffix in READERS_BY_SUFFIX if suffix != LINES))
# Names of the formats as flag values.
TABLE_FORMATS = tuple(suffix.removeprefix(".") for suffix in (*_DELIMITERS, *READERS_BY_SUFFIX))
# Suffixes of unsupported file types, and remedies.
_UNSUPPORTED = {
    "xlsx|xlsm|xlsb|xls|ods|numbers": 'Save the sheet as .csv (in Excel "CSV UTF-8")',
    "bz2|xz|zst|lz4|zip|7z|rar|tar|tar.gz|tgz": "Decompress it, or use gzip",
    "txt|text|tab|dat|psv": "Rename it to .tsv if tabs separate the columns, else to .csv",
    "pkl|pickle|h5|hdf5|db|sqlite|sqlite3|orc|avro|dta|sav|rds|npy|npz|pt|tfrecord|array_record|xml"
    "|html?|ya?ml|docx?|pdf": "Convert it to .jsonl or .parquet in Python, or pass the rows to "
    "api.fine_tune",
}
# Names of delimiters for messages.
_SEPARATORS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "vertical bars"}
# Unlikely column names: numbers, and five or more words.
_UNLIKELY_NAME = re.compile(r"\s*(-?\d+(\.\d+)?\s*$|(\S+ +){4}\S)")
# The number of a row's first line, and the row's fields or an error.
Fields = tuple[int, list[str] | BadRowError]


def check_delimiter(delimiter: str | None) -> str | None:
    """Converts the value of ``--delimiter`` to a single character."""
    character = {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter)
    if character is not None and (len(character) != 1 or character in '"\r\n'):
        raise ValueError(
            f"--delimiter={delimiter}: expected 'tab' or one character, such as ';', except quotes."
        )
    return character


@dataclasses.dataclass(frozen=True)
class TableFile:
    """Path and format of a table.

    Attributes:
        path: Path of the file, or name of rows in memory.
        encoding: Encoding of .csv, .tsv and .jsonl files.
        delimiter: Delimiter of .csv and .tsv files; by default the format's delimiter.
        suffix: Suffix that specifies the format; by default the suffix of the path.
        names: Column names of a .tsv file without a header.
        optional: Number of columns at the end that a row may omit.
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
        """Whether fields may have types other than string, such as lists and numbers.

        >>> TableFile("a.jsonl.gz").has_typed_fields, TableFile("a.csv").has_typed_fields
        (True, False)
        """
        name = self.suffix or self.path.lower().removesuffix(".gz")
        return is_in_memory(self.path) or name.endswith(tuple(READERS_BY_SUFFIX))

    @classmethod
    def from_path(cls, path: Any) -> "TableFile":
        """Returns a ``TableFile`` for a path, in the format of the path's suffix."""
        return path if isinstance(path, cls) else cls(str(path))


def is_table(path: str) -> bool:
    """Returns whether a path has the suffix of a table.

    >>> is_table("a.jsonl.gz"), is_table("<train>"), is_table("eng.train")
    (True, True, False)
    """
    return is_in_memory(path) or path.lower().removesuffix(".gz").endswith(SUFFIXES)


class Row(NamedTuple):
    """Requested fields of a row."""

    number: int  # index in the file, including bad rows
    values: list[Any]  # in the order of the columns; None for the column None


def read_columns(
    source: str | TableFile,
    columns: Sequence[str | None],
    bad: BadRows,
    *,
    skip_short_rows: bool = False,
) -> Iterator[tuple[Location, Row]]:
    """Yields the location and the requested columns of each valid row of a table.

    Args:
        source: Path of the table.
        columns: Names of columns or JSON keys that each row must have; ``None`` yields ``None``.
        bad: Handler of the invalid rows.
        skip_short_rows: Whether to skip rows with missing fields even if other bad rows are errors.
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
    """Yields all columns of each row, in the order of ``read_columns``; {} for bad rows.

    >>> from .table_formats import in_memory_tables
    >>> with in_memory_tables({"<rows>": [{"a": 1}, "no row"]}):
    ...     list(read_rows("<rows>"))
    [{'a': 1}, {}]
    """
    for _, row in _records(TableFile.from_path(source)):
        yield {} if isinstance(row, BadRowError) else row


def _records(table: TableFile, columns: Sequence[str | None] = ()) -> Iterator[Record]:
    """Returns an iterator over the rows; a header must contain ``columns``."""
    suffix = table.suffix or _table_suffix(table.path)
    if suffix in _DELIMITERS:
        return _read_fields(table, suffix, columns)
    return READERS_BY_SUFFIX.get(suffix, read_in_memory)(table.path, table.encoding)


def _values(
    row: RowOrError, columns: Sequence[str | None], wanted: Set[str], bad: BadRows
) -> list[Any]:
    """Returns a row's values for ``columns``; ``wanted`` contains the columns that are not None."""
    if isinstance(row, BadRowError):
        raise row
    # Prodigy writes an integer hash, and omits empty lists of spans.
    if isinstance(row.get("_task_hash"), int):
        row = {"spans": [], **row}
        if row.get("answer", "accept") != "accept" and not bad.bad_rows_get_a_record:
            raise BadRowError(f"expected Prodigy's answer 'accept', got {quoted(row['answer'])}")
    is_task = "annotations" in row and isinstance(row.get("data"), Mapping)
    if is_task and ("data" in wanted or not row.keys() >= wanted):
        raise BadRowError(
            "expected a row, got a Label Studio task (export JSON-MIN, or convert entities with "
            "examples/convert_annotations.py)"
        )
    try:
        return [None if name is None else row[name] for name in columns]
    except KeyError as error:
        missing = str(error.args[0])
        hint = _multiple_columns_hint(missing, row)
        raise BadRowError(f"expected the key {missing!r}, got {listed(row)}{hint}") from None


def _multiple_columns_hint(column: str, known: Iterable[str]) -> str:
    """Returns advice if a column name consists of the names of several columns."""
    hint = " (for multilabel, write the names of the classes into one column)"
    return hint if "," in column and {*column.split(",")} <= {*known} else ""


def _table_suffix(path: str) -> str:
    """Returns the suffix of a table; "" for rows in memory."""
    if is_in_memory(path):
        return ""
    name = path.lower().removesuffix(".gz")
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return suffix
    hints = (hint for ends, hint in _UNSUPPORTED.items() if re.search(rf"\.({ends})(\.gz)?$", name))
    hint = "".join(f" {hint}." for hint in hints)
    raise ValueError(
        f"{path} is not a table: expected the suffix {', '.join(SUFFIXES)}, optionally with .gz."
        f"{hint}"
    )


# === Fields of .tsv and .csv ===


class _ShortRowError(BadRowError):
    """Error in a row with too few fields."""


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
    """Returns the names of the columns, which must contain ``columns``."""
    wanted = [column for column in columns if column is not None]
    # Excel may write a first line with "sep=" and the delimiter.
    line, header = next((row for row in rows if row[1] != ["sep=", ""]), (1, None))
    if header is None:
        names = ", ".join(wanted) or "the names of the columns"
        raise ValueError(f"{path} is empty: expected a header with {names}.")
    if isinstance(header, BadRowError):
        raise ValueError(f"{path}, line {line}: {header}. Correct the header.")
    header = [*map(str.strip, header)]
    for column in wanted:
        if (count := header.count(column)) != 1:
            raise ValueError(
                f"{path}, line {line}: expected one column {column!r}, got {count or 'none'}. The "
                f"columns are {listed(header)}{_missing_column_hint(column, header)}."
            )
    return header


def _missing_column_hint(column: str, header: Sequence[str]) -> str:
    """Returns the likely cause of a missing column and its remedy, or ""."""
    found = (mark for mark in _SEPARATORS if len(header) == 1 and mark in header[0])
    separator = next(found, None)
    if any(map(_UNLIKELY_NAME.match, header[0].split(separator) if separator else header)):
        return " (the first line looks like data; add a header with the names of the columns)"
    if separator is None:
        return _multiple_columns_hint(column, header)
    flag_value = "tab" if separator == "\t" else repr(separator)
    return (
        f" (the delimiters seem to be {_SEPARATORS[separator]}; pass --delimiter={flag_value} to "
        "finetune or predict)"
    )


def _row_error(
    fields: Sequence[str], names: Sequence[str], widths: Sequence[int]
) -> BadRowError | None:
    """Returns the error of a row whose fields do not match the columns, or ``None``."""
    if len(fields) not in widths:
        error = _ShortRowError if len(fields) < widths[0] else BadRowError
        expected = " or ".join(map(str, widths))
        # Only the first field is known, because the others may belong to other columns.
        known = {names[0]: fields[0]}
        return error(f"expected {expected} columns, got {len(fields)}", known=known)
    if len(names) > 1 and fields[-1].strip() == names[-1] and [*map(str.strip, fields)] == [*names]:
        again = "expected a row, got a second header (remove it if files were concatenated)"
        return BadRowError(again, known=dict(zip(names, fields, strict=False)))
    return None


def _csv_rows(path: str, encoding: str, delimiter: str) -> Iterator[Fields]:
    """Yields the rows that the csv module parses; after an error, continues at the next line."""
    lines = (f"{text}\n" for _, text in read_lines(path, encoding))
    reader = csv.reader(lines, strict=True, delimiter=delimiter)
    separated = "comma-separated" if delimiter == "," else f"{delimiter!r}-separated"
    first = 1
    while True:
        try:
            while (fields := _next_fields(reader)) is not None:
                yield first, fields or [""]
                first = reader.line_num + 1
            return
        except csv.Error as error:
            endless = {
                "unexpected end of data": "is not closed",
                "field larger than": f"has more than {max_line_bytes() >> 20} MiB",
            }
            if problem := next((endless[sign] for sign in endless if sign in str(error)), None):
                raise ValueError(
                    f"{path}, line {first}: a quoted field {problem}. Close it, and double the "
                    "quotes inside of quoted fields."
                ) from error
            where = "" if reader.line_num == first else f" (in line {reader.line_num})"
            yield first, BadRowError(f"expected {separated} fields, got: {error}{where}")
            first = reader.line_num + 1


def _next_fields(rows: Iterator[list[str]]) -> list[str] | None:
    """Returns the csv module's next row; sets the module's global limit only temporarily."""
    # The limit ends the search for a quote that is never closed.
    limit = csv.field_size_limit(max_line_bytes())
    try:
        return next(rows, None)
    finally:
        csv.field_size_limit(limit)


def _tsv_rows(path: str, encoding: str, delimiter: str) -> Iterator[Fields]:
    for line, text in read_lines(path, encoding):
        yield line, text.split(delimiter)
