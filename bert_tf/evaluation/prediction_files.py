"""Files of predictions, one example after the other: tables, CoNLL's columns, SQuAD's JSON."""

import abc
import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from bert_tf.files import replace_whole
from bert_tf.readers import conll, own_data
from bert_tf.untrusted import quote

# An example's id, prediction and what else is reported of it.
Record = Mapping[str, Any]
# A row of the input, by its columns.
Row = Mapping[str, Any]


class Writer(abc.ABC):
    """Writes records."""

    @abc.abstractmethod
    def write(self, record: Record) -> None:
        """Writes one."""

    def finish(self) -> None:  # noqa: B027
        """Writes what comes after the last, if anything does."""


# Makes a writer on a file, of records that have the keys of one.
NewWriter = Callable[[IO[bytes], Record], Writer]
# The tag of each word of a sentence that has none, in CoNLL's columns.
_NO_TAG = "_"
# Of each form, whether the library's reader gives a word or a tag back as it was written. A JSON
# list has any but white space alone, of which CoNLL's files may have words.
_HOLDS: Mapping[str, Callable[[str], bool]] = {
    ".tsv": own_data.is_word,
    ".csv": own_data.is_word,
    ".conll": conll.is_word,
    ".jsonl": lambda text: bool(text.replace("\0", "").strip()),
}


def check_words(suffix: str, texts: Iterable[str], where: str) -> None:
    """Checks that a form of files (".tsv", ".conll", ".jsonl") gives words back as written.

    ``where`` is what they are of, for the error.
    """
    for text in texts:
        if not _HOLDS[suffix](text):
            others = [name for name, holds in _HOLDS.items() if holds(text)]
            raise ValueError(
                f"{where}: {quote(text)} would not be one word when a {suffix} file is read: name "
                f"an --output that ends in {' or '.join(others)}."
            )


def _check_tagged(record: Record, suffix: str) -> None:
    if record.get("tags"):  # a bad row has none, and its words were no good to begin with
        for name in ("words", "expected", "tags"):
            check_words(suffix, record.get(name, ()), f"row {record['id']}")


def columns_suffix(texts: Iterable[str]) -> str:
    """The form for words and tags: ".conll" where that holds all of them, else ".jsonl"."""
    return ".conll" if all(map(conll.is_word, texts)) else ".jsonl"


class RecordWriter(Writer):
    r"""Writes records one by one, as a table (".tsv", ".csv") or as JSON lines (".jsonl").

    In a table a record's keys name the columns: those of ``columns``, or else of the first record.
    The names of a list are separated by commas, or in JSON where one has a comma; the words of a
    tuple, which may hold none, by blanks; a mapping (of probabilities) has a column
    ``probability_NAME`` for each of its names; a list of mappings is in JSON.
    In ".tsv" white space within a text is a blank, so that a record is always a line; in ".csv" a
    text with a comma, quote or line's end is quoted. Numbers have six digits in all.
    """

    def __init__(self, file: IO[bytes], suffix: str, columns: Record | None = None) -> None:
        self._file = file
        self._suffix = suffix
        self._columns: list[str] = []
        if columns is not None:
            self.write_header(columns)

    def write(self, record: Record, row: Row | None = None) -> None:
        """Writes one record, behind what ``with_columns`` keeps of a row."""
        _check_tagged(record, self._suffix)
        if self._suffix == ".jsonl":
            found = with_columns(row, _rounded(record))
            self._write_line(json.dumps(found, ensure_ascii=False, default=str))
            return
        if not self._columns:
            self.write_header(record, row)
        cells = with_columns(row and _row_cells(row), dict(_cells(record)))
        self._write_cells([cells.get(name, "") for name in self._columns])

    def write_header(self, record: Record, row: Row | None = None) -> None:
        """Writes a table's names of columns: those of a record, and of a row before it."""
        if self._suffix != ".jsonl":
            self._columns = [*with_columns(row and _row_cells(row), dict(_cells(record)))]
            self._write_cells(self._columns)

    def _write_cells(self, texts: Sequence[str]) -> None:
        if self._suffix == ".csv":
            line = io.StringIO()
            # Before Python 3.13 a line's end is quoted only where it is in the terminator.
            csv.writer(line, lineterminator="\r\n").writerow(texts)
            self._write_line(line.getvalue().removesuffix("\r\n"))
        else:
            self._write_line("\t".join(map(_one_line, texts)))

    def _write_line(self, line: str) -> None:
        self._file.write(f"{line}\n".encode())


def write_records(path: str, records: Iterable[Record]) -> None:
    """Writes a file of records, its form by its suffix, which appears whole or not at all."""
    with replace_whole(path) as file:
        writer = RecordWriter(file, os.path.splitext(path)[1])
        for record in records:
            writer.write(record)


def with_expected(record: Record, expected: Any) -> Record:
    """A record with what was expected, behind what was predicted.

    >>> with_expected({"id": "0", "prediction": "a", "probabilities": {"a": 1.0}}, "b")
    {'id': '0', 'prediction': 'a', 'expected': 'b', 'probabilities': {'a': 1.0}}
    """
    begin = {name: record[name] for name in ("id", "prediction")}
    return {**begin, "expected": expected, **record}


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
    found = {name: value for name, value in record.items() if name != "id"}
    return {**{name: value for name, value in row.items() if name not in found}, **found}


class ConllWriter(Writer):
    """Writes records of words and tags as CoNLL's columns, an empty line after each sentence.

    A line is a word, its expected tag where the record has one, and its predicted tag, separated by
    a blank, as conlleval reads it. Every tag of a sentence that has none is an underscore.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, record: Record) -> None:
        """Writes a sentence."""
        columns = [record[name] for name in ("words", "expected", "tags") if name in record]
        _check_tagged(record, ".conll")
        columns = [column or [_NO_TAG] * len(record["words"]) for column in columns]
        for row in zip(*columns, strict=True):
            self._file.write(f"{' '.join(row)}\n".encode())
        self._file.write(b"\n")


class AnswersWriter(Writer):
    """Writes records of answers as SQuAD's predictions: one JSON object, the answers by their ids.

    The answer to a bad row (with an ``error``) is "", unless another row has its id.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._before = "{"
        self._ids = {""}

    def write(self, record: Record) -> None:
        """Writes an answer."""
        if "error" in record and record["id"] in self._ids:
            return
        self._ids.add(record["id"])
        values = (record["id"], record["prediction"] or "")
        key, value = (json.dumps(value, ensure_ascii=False) for value in values)
        self._file.write(f"{self._before}\n  {key}: {value}".encode())
        self._before = ","

    def finish(self) -> None:
        """Ends the object."""
        self._file.write(b"{}\n" if self._before == "{" else b"\n}\n")


# Of a text that has been searched for entities: a list, in JSON even where it is empty.
ENTITIES = "entities"


def _cells(record: Record) -> Iterator[tuple[str, str]]:
    for key, value in record.items():
        if isinstance(value, Mapping):
            for name, number in value.items():
                yield f"probability_{name}", _cell_text(number)
        elif key == ENTITIES and value is not None:  # a text may have none
            yield key, json.dumps(_rounded(value), ensure_ascii=False)
        else:
            yield key, _cell_text(value)


def _row_cells(row: Row) -> dict[str, str]:
    """The fields of a row as text; values that are none are in JSON."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, default=str)
        for name, value in ((name, "" if value is None else value) for name, value in row.items())
    }


def _cell_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return _cell_of_names(list(map(_cell_text, value)))
    return " ".join(map(_cell_text, value)) if isinstance(value, tuple) else str(value)


def _cell_of_names(names: Sequence[str]) -> str:
    """A list of names as a cell of a table: between commas, or in JSON where that would mislead.

    >>> _cell_of_names(["food", "drinks"]), _cell_of_names(["food, drinks"])
    ('food,drinks', '["food, drinks"]')
    """
    plain = not any("," in name or name.startswith("[") for name in names)
    return ",".join(names) if plain else json.dumps(names, ensure_ascii=False)


def _one_line(text: str) -> str:
    return text if text.isprintable() else " ".join(text.split())


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
