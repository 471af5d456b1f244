"""Tables of text: tab-separated, comma-separated and JSON lines, gzip or not, row by row.

| name ends in | a row is                                    | a field is                         |
|--------------|---------------------------------------------|------------------------------------|
| .tsv         | a line                                      | what tabs part; quotes are text    |
| .csv         | a line, or several inside quotes (RFC 4180) | what commas part, unquoted         |
| .jsonl       | a line with one JSON object                 | any JSON value, named by its key   |

The first line of .tsv and .csv names the columns. Blank lines are passed over, except in tables of
one column, where they are empty fields.
"""

import csv
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf.untrusted import parse_json

from .examples import BadRowError, BadRows
from .fields import shown
from .text_lines import read_lines

_SUFFIXES = (".tsv", ".csv", ".jsonl")


class Row(NamedTuple):
    """The wanted fields of a row.

    Attributes:
        number: the row's number in the file, bad rows included, counted from 0.
        values: the fields in the order asked for; None for a column not asked for.
    """

    number: int
    values: list[Any]


# A row's first line, and its fields or what is wrong with them.
_Fields = tuple[int, list[str] | BadRowError]


def read_columns(
    path: str,
    columns: Sequence[str | None],
    bad: BadRows,
    *,
    suffix: str | None = None,
    skip_short_rows: bool = False,
) -> Iterator[tuple[int, Row]]:
    r"""Reads some of a table's columns.

    Args:
        path: see ``text_lines.read_lines``.
        columns: names of columns (JSON lines: of keys), each in the table; None gives None.
        bad: told of rows with more or fewer fields than the first line, of quotes in the wrong
            place, of lines that are no JSON object, of objects that lack a key.
        suffix: ".tsv", ".csv" or ".jsonl"; None to go by the end of the path, before ".gz".
        skip_short_rows: rows of too few fields are listed by ``bad``, and never an error.

    Yields:
        Each good row's line, counted from 1, and the row.

    Raises:
        ValueError: the file is empty, has none of the three suffixes, lacks a column or has it
            twice, or opens a quoted field that never ends; or as ``read_lines`` and ``bad``.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write('id,text\n1,"Yes, ""so""."\n')
    >>> list(read_columns(path, ["text", None], BadRows(path, skip=False)))
    [(2, Row(number=0, values=['Yes, "so".', None]))]
    """
    suffix = suffix or _suffix(path)
    if suffix == ".jsonl":
        yield from _read_objects(path, columns, bad)
        return
    rows = _csv_rows(path) if suffix == ".csv" else _tsv_rows(path)
    line, header = next(rows, (1, None))
    if header is None:
        raise ValueError(
            f"{path} is empty: expected a first line with the columns {_names(columns)}."
        )
    if isinstance(header, BadRowError):
        raise ValueError(f"{path}, line {line}: {header}; correct the line with the columns.")
    header = [name.strip() for name in header]
    positions = [
        None if column is None else _position(path, line, header, column) for column in columns
    ]
    yield from _select(rows, {len(header)}, positions, bad, skip_short_rows)


def read_fields(
    path: str, positions: Sequence[int | None], widths: Collection[int], bad: BadRows
) -> Iterator[tuple[int, Row]]:
    """Reads some columns of a tab-separated table whose first line is a row.

    Args:
        path: see ``text_lines.read_lines``.
        positions: which fields, counted from 0; None gives None.
        widths: how many fields a row may have.
        bad: told of rows that have another number of them.

    Yields:
        Each good row's line, counted from 1, and the row.

    Raises:
        ValueError: as ``read_lines`` and ``bad``.
    """
    yield from _select(_tsv_rows(path), widths, positions, bad, skip_short_rows=False)


def _suffix(path: str) -> str:
    name = path.lower().removesuffix(".gz")
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return suffix
    raise ValueError(
        f"{path} is no table: expected a name that ends in {', '.join(_SUFFIXES)} (or in one of "
        "them and .gz)."
    )


def _names(columns: Sequence[str | None]) -> str:
    return ", ".join(column for column in columns if column is not None)


def _position(path: str, line: int, header: list[str], column: str) -> int:
    count = header.count(column)
    if count != 1:
        raise ValueError(
            f"{path}, line {line}: expected one column {column!r}, got "
            f"{count or 'none'}; the columns are {', '.join(header)}."
        )
    return header.index(column)


def _select(
    rows: Iterator[_Fields],
    widths: Collection[int],
    positions: Sequence[int | None],
    bad: BadRows,
    skip_short_rows: bool,
) -> Iterator[tuple[int, Row]]:
    number = -1
    for line, fields in rows:
        if fields == [""] and 1 not in widths:
            continue
        number += 1
        if isinstance(fields, BadRowError):
            bad.report(line, fields)
        elif len(fields) in widths:
            values = [None if at is None else fields[at] for at in positions]
            yield line, Row(number, values)
        else:
            expected = " or ".join(str(width) for width in sorted(widths))
            tell = bad.skip if skip_short_rows and len(fields) < min(widths) else bad.report
            tell(line, f"expected {expected} columns, got {len(fields)}")


def _tsv_rows(path: str) -> Iterator[_Fields]:
    for line, text in read_lines(path):
        yield line, text.split("\t")


def _csv_rows(path: str) -> Iterator[_Fields]:
    ended = False

    def lines() -> Iterator[str]:
        nonlocal ended
        for _, text in read_lines(path):
            yield text + "\n"
        ended = True

    reader = csv.reader(lines(), strict=True)
    while True:
        first = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            if ended:
                raise ValueError(
                    f"{path}, line {first}: a quoted field of this row never ends; double each "
                    "quote that is text, and put quotes round the field."
                ) from error
            last = reader.line_num
            where = "" if last == first else f" (in its lines {first} to {last})"
            yield first, BadRowError(f"expected comma-separated fields, got: {error}{where}")
            continue
        if fields is None:
            return
        yield first, fields or [""]


def _read_objects(
    path: str, columns: Sequence[str | None], bad: BadRows
) -> Iterator[tuple[int, Row]]:
    number = -1
    for line, text in read_lines(path):
        if not text.strip():
            continue
        number += 1
        try:
            row = parse_json(text, "the line")
        except ValueError as error:
            bad.report(
                line, f"expected a JSON object, got {shown(text)} ({str(error).removesuffix('.')})"
            )
            continue
        if not isinstance(row, dict):
            bad.report(line, f"expected a JSON object, got {shown(row)}")
            continue
        missing = [column for column in columns if column is not None and column not in row]
        if missing:
            bad.report(line, f"expected the key {missing[0]!r}, got {', '.join(row) or 'none'}")
            continue
        yield line, Row(number, [None if column is None else row[column] for column in columns])
