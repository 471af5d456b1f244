"""Prediction files: tables, CoNLL columns and JSON."""

import codecs
import csv
import datetime
import decimal
import io
import json
import math
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any

from bert_tf.io.files import atomic_write
from bert_tf.io.messages import quote
from bert_tf.readers.examples import BadRowError, is_conll_word, is_table_word, quoted

# An example's id, prediction and further values, by name.
Record = Mapping[str, Any]
# Values of an input row, by column name.
Row = Mapping[str, Any]
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")
# Suffixes of tables, which can store any record.
TABLES = (".tsv", ".csv", ".jsonl")
# Key of a text's entities: a list that is written as JSON even if it is empty.
ENTITIES = "entities"
# Placeholder for missing tags in CoNLL columns.
_NO_TAG = "_"
# Checks, by suffix, that the library's reader restores a word or tag unchanged. CoNLL input may
# contain words of only white space, which a JSON list cannot store.
_CAN_STORE: Mapping[str, Callable[[str], bool]] = {
    ".tsv": is_table_word,
    ".csv": is_table_word,
    ".conll": is_conll_word,
    ".jsonl": lambda text: bool(text.replace("\0", "").strip()),
}


def check_words(suffix: str, texts: Iterable[str], source: str) -> None:
    """Raises a ``ValueError`` if a file format cannot store words unchanged.

    ``source`` names the origin of the words in the error message.
    """
    for text in texts:
        if not _CAN_STORE[suffix](text):
            suitable = [name for name, can_store in _CAN_STORE.items() if can_store(text)]
            raise ValueError(
                f"{source}: {quote(text)} would not be read back as one word from a {suffix} "
                f"file. Use an --output that ends in {' or '.join(suitable)}."
            )


def columns_suffix(texts: Iterable[str]) -> str:
    """Returns ".conll" if that format can store all words and tags, else ".jsonl"."""
    return ".conll" if all(map(is_conll_word, texts)) else ".jsonl"


def with_columns(row: Row | None, record: Record) -> Record:
    """Adds a record's values to the columns of its row, if any.

    Values replace columns of the same name, except that the record's ``id`` is dropped.

    >>> with_columns({"id": "7", "text": "so", "prediction": "b"}, {"id": "0", "prediction": "a"})
    {'id': '7', 'text': 'so', 'prediction': 'a'}
    >>> with_columns(None, {"id": "0", "prediction": "a"})
    {'id': '0', 'prediction': 'a'}
    """
    if row is None:
        return record
    values = {name: value for name, value in record.items() if name != "id"}
    return {**{name: value for name, value in row.items() if name not in values}, **values}


# === Columns of the input ===

# Types without a JSON equivalent, which are written as strings.
_WRITTEN_AS_TEXT = (
    *(datetime.date, datetime.time, datetime.timedelta),
    *(decimal.Decimal, uuid.UUID),
)


def check_columns(row: Row, suffix: str) -> None:
    """Raises a ``BadRowError`` if a table with this suffix cannot store a value of the row."""
    for name, value in row.items():
        problems: list[str] = []
        _stored(value, suffix, problems)
        if problems:
            raise BadRowError(
                f"expected a value that --keep_columns can write to {suffix} in column {name!r}, "
                f"got {problems[0]}"
            )


def _stored(value: Any, suffix: str, problems: list[str]) -> Any:
    """Returns the string or JSON value to store; adds unsupported values to ``problems``."""
    if isinstance(value, float) and suffix != ".jsonl":
        return value
    try:
        return _json_value(value, problems)
    except RecursionError:
        problems.append("too deeply nested lists")
        return None


def _json_value(value: Any, problems: list[str]) -> Any:
    if isinstance(value, _WRITTEN_AS_TEXT):
        return str(value)
    if isinstance(value, str):
        if _HALF_A_PAIR.search(value):
            problems.append(f"an unpaired surrogate, {quoted(value)}")
        return value
    if isinstance(value, float) and not math.isfinite(value):
        if math.isinf(value):
            problems.append(str(value))
        return None  # pandas uses NaN for missing numbers
    if isinstance(value, Mapping):
        return {str(name): _json_value(item, problems) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item, problems) for item in value]
    if value is not None and not isinstance(value, int | float):
        problems.append(quoted(value))
        return None
    return value


# === Writing ===


def text_stream(file: IO[bytes]) -> codecs.StreamWriter:
    """Wraps a binary file in a text stream that does not translate newlines.

    Unpaired surrogates, which bad rows may contain and UTF-8 cannot encode, are escaped.
    """
    return codecs.getwriter("utf-8")(file, "backslashreplace")


def write_file(path: str, records: Iterable[Record]) -> None:
    """Writes records to a file atomically, in the format that the file's suffix specifies."""
    with atomic_write(path) as file:
        write_records(text_stream(file), records, os.path.splitext(path)[1])


def write_records(
    file: Any,
    records: Iterable[Record],
    suffix: str,
    columns: Record | None = None,
    rows: Callable[[], Iterable[Row]] | None = None,
) -> None:
    """Writes records to a text stream, one at a time.

    Args:
        file: Text stream.
        records: Records to write.
        suffix: Suffix that selects the format: ".tsv", ".csv", ".jsonl", ".conll" or ".json".
        columns: Record whose keys define the columns of a table; by default the first record.
        rows: Function that returns the input rows, whose columns are added to a table.

    Raises:
        ValueError: If a record has a key without a column, or the format cannot store its words.
    """
    records = _with_checked_words(records, suffix)
    if suffix == ".conll":
        parts = _conll_columns(records)
    elif suffix == ".json":
        parts = _answers_by_id(records)
    else:
        parts = _table(records, suffix, columns, rows)
    for part in parts:
        file.write(part)


def _with_checked_words(records: Iterable[Record], suffix: str) -> Iterator[Record]:
    for record in records:
        if record.get("tags"):  # bad rows have no tags
            for name in ("words", "expected", "tags"):
                check_words(suffix, record.get(name, ()), f"row {record['id']}")
        yield record


def _conll_columns(records: Iterable[Record]) -> Iterator[str]:
    """Yields lines of a word, its expected tag (if known) and its predicted tag.

    Fields are separated by a space, as in conlleval, and sentences by an empty line. Missing tags
    are written as underscores.
    """
    for record in records:
        columns = [record[name] for name in ("words", "expected", "tags") if name in record]
        columns = [column or [_NO_TAG] * len(record["words"]) for column in columns]
        yield from (f"{' '.join(row)}\n" for row in zip(*columns, strict=True))
        yield "\n"


def _answers_by_id(records: Iterable[Record]) -> Iterator[str]:
    """Yields one JSON object with the answers by question id, as the official evaluation expects.

    A bad row (with an ``error``) gets the answer "", unless an earlier row has the same id.
    """
    separator = "{"
    written = {""}  # bad rows without an id are skipped
    for record in records:
        name, answer = record["id"], record["prediction"] or ""
        if "error" in record and name in written:
            continue
        written.add(name)
        key, value = (json.dumps(text, ensure_ascii=False) for text in (name, answer))
        yield f"{separator}\n  {key}: {value}"
        separator = ","
    yield "{}\n" if separator == "{" else "\n}\n"


def _table(
    records: Iterable[Record],
    suffix: str,
    columns: Record | None,
    rows: Callable[[], Iterable[Row]] | None,
) -> Iterator[str]:
    """Yields the lines of a table.

    Lists of names are joined by commas, or written as JSON if a name contains a comma. Tuples of
    words are joined by spaces. A mapping of probabilities becomes one column ``probability_NAME``
    per name. Lists of mappings are written as JSON. In ".tsv", line breaks and tabs become spaces
    so that each record is one line; in ".csv", fields are quoted as necessary. Numbers have six
    significant digits.
    """
    pairs: Iterable[tuple[Row | None, Record]] = (
        ((None, record) for record in records)
        if rows is None
        else zip(rows(), records, strict=True)
    )
    if suffix == ".jsonl":
        for row, record in pairs:
            stored = row and {name: _stored(value, suffix, []) for name, value in row.items()}
            values = with_columns(stored, _rounded(record))
            yield f"{json.dumps(values, ensure_ascii=False, default=str)}\n"
        return
    names: dict[str, None] = {}  # a dict for fast lookup of thousands of classes
    if columns is not None:
        # All rows are needed, because bad rows and JSON objects may lack columns.
        row_columns = (
            None if rows is None else dict.fromkeys(name for row in rows() for name in row)
        )
        names = dict.fromkeys(with_columns(row_columns, dict(_cells(columns))))
        yield _table_line(names, suffix)
    for row, record in pairs:
        cells = with_columns(row and _row_cells(row, suffix), dict(_cells(record)))
        if not names:
            names = dict.fromkeys(cells)
            yield _table_line(names, suffix)
        if unknown := [name for name in cells if name not in names]:
            raise ValueError(
                f"A record has the unknown column {quote(unknown[0])}: expected "
                f"{', '.join(names)}. Add it to the task's record_columns."
            )
        yield _table_line([cells.get(name, "") for name in names], suffix)


def _table_line(texts: Iterable[str], suffix: str) -> str:
    if suffix == ".tsv":
        texts = (text if text.isprintable() else " ".join(text.split()) for text in texts)
        return "\t".join(texts) + "\n"
    line = io.StringIO()
    # Python before 3.13 quotes a newline only if it is part of the line terminator.
    csv.writer(line, lineterminator="\r\n").writerow(texts)
    return line.getvalue().removesuffix("\r\n") + "\n"


def _cells(record: Record) -> Iterator[tuple[str, str]]:
    for key, value in record.items():
        if isinstance(value, Mapping):
            for name, number in value.items():
                yield f"probability_{name}", _cell_text(number)
        elif key == ENTITIES and value is not None:  # the list may be empty
            yield key, json.dumps(_rounded(value), ensure_ascii=False)
        else:
            yield key, _cell_text(value)


def _row_cells(row: Row, suffix: str) -> dict[str, str]:
    """Returns the fields of a row as strings; other values are written as JSON."""
    values = {name: _stored(value, suffix, []) for name, value in row.items()}
    return {
        name: value if isinstance(value, str) else "" if value is None else json.dumps(value)
        for name, value in values.items()
    }


def _cell_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple):
        return " ".join(map(_cell_text, value))
    if not isinstance(value, list):
        return str(value)
    names = [*map(_cell_text, value)]
    # A comma would split such names.
    if any("," in name or name.startswith("[") for name in names):
        return json.dumps(names, ensure_ascii=False)
    return ",".join(names)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
