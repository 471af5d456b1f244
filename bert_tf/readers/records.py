"""Tables whose fields are values: JSON lines, a JSON list, Parquet, and rows given in Python.

A row is a mapping. What is no such row is a ``BadRowError`` in its place.
"""

import collections
import contextlib
import contextvars
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bert_tf import paths
from bert_tf.pipelines.text_bytes import open_bytes
from bert_tf.untrusted import listed, parse_json, reason

from .examples import BadRowError, ClassName, Place, shown
from .text_files import read_json_document, read_lines

# A row, or what is wrong with it.
Given = Mapping[str, Any] | BadRowError
Rows = Sequence[Given]
Record = tuple[Place, Given]  # and the row's place
_BATCH_ROWS = 1024


def read_json_lines(path: str, encoding: str = "utf-8") -> Iterator[Record]:
    """Yields the object of each line that is not blank."""
    for line, text in read_lines(path, encoding):
        if not text.strip():
            continue
        try:
            yield line, _checked(parse_json(text, "the line", unique_keys=True))
        except ValueError as error:
            what = str(error).removesuffix(".")
            yield line, BadRowError(f"expected a JSON object, got {shown(text)} ({what})")


def _checked(row: Any) -> Given:
    if isinstance(row, Mapping | BadRowError):
        return row
    return BadRowError(f"expected a JSON object, got {shown(row)}")


def read_json_list(path: str, encoding: str = "utf-8") -> Iterator[Record]:
    """Yields the objects of a document that is a list of them; it is UTF-8 and read whole."""
    del encoding
    rows = read_json_document(path, unique_keys=True)
    if not isinstance(rows, list):
        raise ValueError(
            f"{path}: expected a JSON list of objects, a row each, got {shown(rows)}; pandas "
            'writes one by to_json(path, orient="records").'
        )
    for number, row in enumerate(rows):
        yield f"row {number}", _checked(row)


def read_parquet(path: str, encoding: str = "utf-8") -> Iterator[Record]:
    """Yields the rows of a Parquet file, some thousand in memory at a time."""
    del encoding
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ImportError(
            f"{path} needs pyarrow to be read: pip install pyarrow, or write it as .csv or .jsonl."
        ) from error
    paths.check_file(path, "a Parquet file")
    number = 0
    with open_bytes(path) as file:
        try:
            opened = parquet.ParquetFile(file, page_checksum_verification=True)
            check_columns_differ(opened.schema_arrow.names, path)
            put_names = names_of_classes(opened.schema_arrow)
            for batch in opened.iter_batches(_BATCH_ROWS):
                for row in map(put_names, batch.to_pylist()):
                    yield f"row {number}", row
                    number += 1
        except (ArrowException, OSError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{path}, behind row {number}: it is no whole Parquet file, or its text is not "
                f"UTF-8 ({reason(error, 120)})."
            ) from error


def names_of_classes(data: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Returns a function that puts names of classes in place of their numbers in rows.

    The names are those of ``datasets``' ClassLabel; -1, no class, becomes ``None``.
    """
    schema = getattr(getattr(data, "features", None), "arrow_schema", data)
    metadata = getattr(getattr(schema, "schema", schema), "metadata", None)
    described = metadata.get(b"huggingface", b"") if isinstance(metadata, Mapping) else b""
    if b'"ClassLabel"' in described:
        with contextlib.suppress(AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            classes = _classes(parse_json(described, "metadata")["info"]["features"])
            return lambda row: _named(row, classes)
    return lambda row: row


def _classes(feature: Any) -> Any:
    """The names of a feature's classes, of a list's items, or by the names of its fields."""
    if isinstance(feature, list):  # a Sequence, as older versions write it
        return _classes(feature[0])
    if not isinstance(feature.get("_type"), str):
        return {name: _classes(inner) for name, inner in feature.items()}
    if feature["_type"] != "ClassLabel":
        return _classes(feature.get("feature", {}))
    names = [ClassName(name) for name in feature["names"]]
    places = list(range(len(names)))
    # Numbers and letters say where they are, in whatever order they were found.
    if all(re.fullmatch("[0-9]{1,9}|[A-Za-z]", name) for name in names):
        places = [int(name) if name.isdecimal() else ord(name.upper()) - 64 for name in names]
    first = min([1, *places])
    for name, place in zip(names, places, strict=True):
        name.place = place - first
    return names


def _named(value: Any, classes: Any) -> Any:
    if isinstance(value, list):
        return [_named(item, classes) for item in value]
    if isinstance(value, dict) and isinstance(classes, dict):
        return {name: _named(item, classes.get(name)) for name, item in value.items()}
    if isinstance(classes, list) and isinstance(value, int) and value < len(classes):
        return classes[value] if value >= 0 else None
    return value


def check_columns_differ(names: Iterable[Any], what: str) -> None:
    """Refuses two columns of one name, of which a row would have the last one's value."""
    twice = [name for name, count in collections.Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{what}: expected each column once, got {listed(twice)} more than once.")


# === Rows that a caller in Python has in memory ===

_GIVEN_NAME = re.compile(r"<\w+>")
_NOTHING: Mapping[str, Rows] = MappingProxyType({})
_given: contextvars.ContextVar[Mapping[str, Rows]] = contextvars.ContextVar(
    "given", default=_NOTHING
)


def is_given(path: str) -> bool:
    """True if a path is the name of rows in memory: "<train>"."""
    return _GIVEN_NAME.fullmatch(path) is not None


@contextlib.contextmanager
def giving(tables: Mapping[str, Rows]) -> Iterator[None]:
    """Within it, names of ``tables``, such as "<train>", are paths of tables with their rows."""
    token = _given.set({**_given.get(), **tables})
    try:
        yield
    finally:
        _given.reset(token)


def read_given(path: str, encoding: str = "utf-8") -> Iterator[Record]:
    """Yields the rows of a name of ``giving``."""
    del encoding
    if path not in _given.get():
        raise ValueError(
            f"There are no rows called {path} here: they were given in Python, in another call; "
            "give them again."
        )
    for number, row in enumerate(_given.get()[path]):
        yield f"row {number}", _checked(row)


def read_text_lines(path: str, encoding: str = "utf-8") -> Iterator[Record]:
    """Yields a row for each line, its text in the column "text"."""
    for line, text in read_lines(path, encoding):
        yield line, {LINES_COLUMN: text}


# The form of files without columns; no end of a name says it.
LINES = ".lines"
LINES_COLUMN = "text"
READERS: Mapping[str, Callable[[str, str], Iterator[Record]]] = {
    ".jsonl": read_json_lines,
    ".json": read_json_list,
    ".parquet": read_parquet,
    LINES: read_text_lines,
}
