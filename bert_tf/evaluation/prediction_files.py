"""Files of predictions, one example after the other: tables, CoNLL's columns, answers as JSON."""

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
from bert_tf.io.wording import quote
from bert_tf.readers.examples import BadRowError, is_conll_word, is_table_word, quoted

# An example's id, prediction and what else is reported of it.
Record = Mapping[str, Any]
# A row of the input, by its columns.
Row = Mapping[str, Any]
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")
# The suffixes of files that hold records of any kind.
TABLES = (".tsv", ".csv", ".jsonl")
# Of a text that has been searched for entities: a list, in JSON even where it is empty.
ENTITIES = "entities"
# The tag of each word of a sentence that has none, in CoNLL's columns.
_NO_TAG = "_"
# Of each form, whether the library's reader gives a word or a tag back as it was written. A JSON
# list has any but white space alone, of which CoNLL's files may have words.
_HOLDS: Mapping[str, Callable[[str], bool]] = {
    ".tsv": is_table_word,
    ".csv": is_table_word,
    ".conll": is_conll_word,
    ".jsonl": lambda text: bool(text.replace("\0", "").strip()),
}


def check_words(suffix: str, texts: Iterable[str], source: str) -> None:
    """Checks that a form of files (".tsv", ".conll", ".jsonl") gives words back as written.

    ``source`` is what they are of, for the error.
    """
    for text in texts:
        if not _HOLDS[suffix](text):
            others = [name for name, holds in _HOLDS.items() if holds(text)]
            raise ValueError(
                f"{source}: {quote(text)} would not be one word when a {suffix} file is read: name "
                f"an --output that ends in {' or '.join(others)}."
            )


def columns_suffix(texts: Iterable[str]) -> str:
    """The form for words and tags: ".conll" where that holds all of them, else ".jsonl"."""
    return ".conll" if all(map(is_conll_word, texts)) else ".jsonl"


def with_columns(row: Row | None, record: Record) -> Record:
    """A record behind the columns of its row, which identify it in place of ``id``.

    A column that is called as a value of the record gives way to it.

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

# Values that JSON has no type for, and which a text is written for.
_WRITTEN_AS_TEXT = (
    *(datetime.date, datetime.time, datetime.timedelta),
    *(decimal.Decimal, uuid.UUID),
)


def check_columns(row: Row, suffix: str) -> None:
    """Raises a ``BadRowError`` if a table of this suffix cannot store a value of the row."""
    for name, value in row.items():
        problems: list[str] = []
        _stored(value, suffix, problems)
        if problems:
            raise BadRowError(
                f"expected a value that --keep_columns can write to {suffix} in column {name!r}, "
                f"got {problems[0]}"
            )


def _stored(value: Any, suffix: str, problems: list[str]) -> Any:
    """The value that a table stores: a string, or a value of JSON.

    Adds what the table cannot store to ``problems``.
    """
    if isinstance(value, float) and suffix != ".jsonl":
        return value
    try:
        return _json_value(value, problems)
    except RecursionError:
        problems.append("lists that are nested too deep")
        return None


def _json_value(value: Any, problems: list[str]) -> Any:
    if isinstance(value, _WRITTEN_AS_TEXT):
        return str(value)
    if isinstance(value, str):
        if _HALF_A_PAIR.search(value):
            problems.append(f"half a surrogate pair, {quoted(value)}")
        return value
    if isinstance(value, float) and not math.isfinite(value):
        if math.isinf(value):
            problems.append(str(value))
        return None  # as pandas writes NaN, a missing number
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
    """Returns a stream of text on a file of bytes, which writes line ends unchanged.

    Bad rows may contain halves of surrogate pairs, which UTF-8 does not have: they are escaped.
    """
    return codecs.getwriter("utf-8")(file, "backslashreplace")


def write_file(path: str, records: Iterable[Record]) -> None:
    """Writes a file of records, its form by its suffix, which appears whole or not at all."""
    with atomic_write(path) as file:
        write_records(text_stream(file), records, os.path.splitext(path)[1])


def write_records(
    file: Any,
    records: Iterable[Record],
    suffix: str,
    columns: Record | None = None,
    rows: Callable[[], Iterable[Row]] | None = None,
) -> None:
    """Writes records as they come to a stream of text, in the form of a suffix.

    ``columns`` has the keys that name a table's columns, by default those of the first record.
    ``rows`` gives the rows of the records, of which tables keep what ``with_columns`` says.

    Raises:
        ValueError: a record has a key that no column of the table has; or words that the form does
            not give back.
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
        if record.get("tags"):  # a bad row has none, and its words were no good to begin with
            for name in ("words", "expected", "tags"):
                check_words(suffix, record.get(name, ()), f"row {record['id']}")
        yield record


def _conll_columns(records: Iterable[Record]) -> Iterator[str]:
    """Lines of a word, its expected tag where the record has one, and its predicted tag.

    They are separated by a blank, as conlleval reads it, and sentences by an empty line. Every tag
    of a sentence that has none is an underscore.
    """
    for record in records:
        columns = [record[name] for name in ("words", "expected", "tags") if name in record]
        columns = [column or [_NO_TAG] * len(record["words"]) for column in columns]
        yield from (f"{' '.join(row)}\n" for row in zip(*columns, strict=True))
        yield "\n"


def _answers_by_id(records: Iterable[Record]) -> Iterator[str]:
    """The official evaluation's form: one JSON object, the answers by their ids.

    The answer to a bad row (with an ``error``) is "", unless another row has its id.
    """
    separator = "{"
    written = {""}  # a bad row without an id has no answer
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
    """Lines of a table, whose columns are the keys of a record, or of JSON.

    The names of a list are separated by commas, or in JSON where one has a comma; the words of a
    tuple, which may hold none, by blanks; a mapping (of probabilities) has a column
    ``probability_NAME`` for each of its names; a list of mappings is in JSON.
    In ".tsv" white space within a text is a blank, so that a record is always a line; in ".csv" a
    text with a comma, quote or line's end is quoted. Numbers have six digits in all.
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
    names: dict[str, None] = {}  # a class has a column, of which there may be many thousands
    if columns is not None:
        # Of all rows: the first may be a bad one, and an object of JSON need not have every key.
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
        if others := [name for name in cells if name not in names]:
            raise ValueError(
                f"A record has {quote(others[0])}, and the table's columns are {', '.join(names)}: "
                "the kind's record_columns is to name every key of its records."
            )
        yield _table_line([cells.get(name, "") for name in names], suffix)


def _table_line(texts: Iterable[str], suffix: str) -> str:
    if suffix == ".tsv":
        texts = (text if text.isprintable() else " ".join(text.split()) for text in texts)
        return "\t".join(texts) + "\n"
    line = io.StringIO()
    # Before Python 3.13 a line's end is quoted only where it is in the terminator.
    csv.writer(line, lineterminator="\r\n").writerow(texts)
    return line.getvalue().removesuffix("\r\n") + "\n"


def _cells(record: Record) -> Iterator[tuple[str, str]]:
    for key, value in record.items():
        if isinstance(value, Mapping):
            for name, number in value.items():
                yield f"probability_{name}", _cell_text(number)
        elif key == ENTITIES and value is not None:  # a text may have none
            yield key, json.dumps(_rounded(value), ensure_ascii=False)
        else:
            yield key, _cell_text(value)


def _row_cells(row: Row, suffix: str) -> dict[str, str]:
    """The fields of a row as text; values that are none are in JSON."""
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
    # Commas would split such names.
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
