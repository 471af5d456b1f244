"""Files of predictions, one example after the other: tables, CoNLL's columns, SQuAD's JSON."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import IO, Any

from bert_tf.files import replace_whole

SUFFIXES = (".tsv", ".jsonl")
# An example's id, prediction and what else is told of it.
Record = Mapping[str, Any]
# What parts the columns and the lines of a CoNLL file.
_SEPARATOR = re.compile(r"[ \t\r\n]")


class RecordWriter:
    r"""Writes records one by one.

    As JSON lines each is an object. Tab-separated, the first one's keys name the columns; the names
    of a list are parted by commas, the words of a tuple by blanks, a mapping (of probabilities) has
    a column ``probability_NAME`` for each of its names, and white space within a text is a blank,
    so that a record is always a line. Numbers have six digits in both.

    Args:
        file: open for bytes.
        suffix: one of ``SUFFIXES``.

    Raises:
        ValueError: another suffix.

    >>> import io
    >>> file = io.BytesIO()
    >>> writer = RecordWriter(file, ".tsv")
    >>> probabilities = {"bad": 0.25, "good": 0.75}
    >>> writer.write({"id": "0", "prediction": "good", "probabilities": probabilities})
    >>> file.getvalue().decode().splitlines()
    ['id\tprediction\tprobability_bad\tprobability_good', '0\tgood\t0.25\t0.75']
    """

    def __init__(self, file: IO[bytes], suffix: str) -> None:
        if suffix not in SUFFIXES:
            raise ValueError(
                f"Predictions are files of {' or '.join(SUFFIXES)}, got {suffix or 'no suffix'!r}."
            )
        self._file = file
        self._as_json = suffix == ".jsonl"
        self._has_header = False

    def write(self, record: Record) -> None:
        """Writes one record; all have the keys of the first."""
        if self._as_json:
            line = json.dumps(_rounded(record), ensure_ascii=False)
        else:
            cells = dict(_cells(record))
            if not self._has_header:
                self._write_line("\t".join(map(_cell, cells)))
                self._has_header = True
            line = "\t".join(map(_cell, cells.values()))
        self._write_line(line)

    def finish(self) -> None:
        """Nothing is left to do."""

    def _write_line(self, line: str) -> None:
        self._file.write(f"{line}\n".encode())


def write_records(path: str, records: Iterable[Record]) -> None:
    """Writes a file of records, which appears whole or not at all.

    Args:
        path: ends in one of ``SUFFIXES``.
        records: as ``RecordWriter.write`` takes them.

    Raises:
        ValueError: the path has another end.
    """
    with replace_whole(path) as file:
        writer = RecordWriter(file, suffix_of(path))
        for record in records:
            writer.write(record)


def suffix_of(path: str) -> str:
    """The one of ``SUFFIXES`` that a path ends in, or ""."""
    return next((suffix for suffix in SUFFIXES if path.lower().endswith(suffix)), "")


def with_expected(record: Record, expected: Any) -> Record:
    """A record with what was expected, behind what was predicted.

    >>> with_expected({"id": "0", "prediction": "a", "probabilities": {"a": 1.0}}, "b")
    {'id': '0', 'prediction': 'a', 'expected': 'b', 'probabilities': {'a': 1.0}}
    """
    begin = {name: record[name] for name in ("id", "prediction")}
    return {**begin, "expected": expected, **record}


class ConllWriter:
    """Writes records of words and tags as CoNLL's columns, an empty line behind each sentence.

    A line is a word, its expected tag where the record has that, and its predicted one, parted by a
    blank, as conlleval reads it. A blank, a tab or a line's end inside a word is written as an
    underscore.

    Args:
        file: open for bytes.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, record: Record) -> None:
        """Writes a sentence."""
        columns = [record[name] for name in ("words", "expected", "tags") if name in record]
        for row in zip(*columns, strict=True):
            line = " ".join(_SEPARATOR.sub("_", field) for field in row)
            self._file.write(f"{line}\n".encode())
        self._file.write(b"\n")

    def finish(self) -> None:
        """Nothing is left to do."""


class AnswersWriter:
    """Writes records of answers as SQuAD's predictions: one JSON object, the answers by their ids.

    Args:
        file: open for bytes.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._before = "{"

    def write(self, record: Record) -> None:
        """Writes an answer."""
        key, value = (json.dumps(record[name], ensure_ascii=False) for name in ("id", "prediction"))
        self._file.write(f"{self._before}\n  {key}: {value}".encode())
        self._before = ","

    def finish(self) -> None:
        """Ends the object."""
        self._file.write(b"{}\n" if self._before == "{" else b"\n}\n")


def _cells(record: Record) -> Iterable[tuple[str, Any]]:
    for key, value in record.items():
        if isinstance(value, Mapping):
            for name, number in value.items():
                yield f"probability_{name}", number
        else:
            yield key, value


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        value = ("," if isinstance(value, list) else " ").join(map(str, value))
    return " ".join(str(value).split()) if not str(value).isprintable() else str(value)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return value
