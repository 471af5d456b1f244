r"""Readers of lines, JSON, Parquet and Arrow files, and of rows in memory.

This module does not load TensorFlow for local files.

Lines end with ``\n`` or ``\r\n``. Texts may contain U+2028 and single carriage returns, which
``str.splitlines`` and TensorFlow's ``GFile.readline`` treat as line ends or remove.

Each record consists of a location and a row. A ``BadRowError`` represents an invalid row.
"""

import collections
import contextlib
import contextvars
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import IO, Any

from bert_tf.io import paths
from bert_tf.io.messages import listed, reason
from bert_tf.io.untrusted import parse_json
from bert_tf.pipelines.corpora.text_bytes import open_bytes, open_text, text_chunks

from .examples import BadRowError, ClassName, Location, quoted

# SQuAD has about 40 MB. A document above this limit may exhaust the memory.
_MAX_BYTES = 1 << 29
_CHUNK_BYTES = 1 << 20


def read_json_document(path: str, *, unique_keys: bool = False) -> Any:
    """Reads a JSON document, plain or gzip, of at most 512 MiB when decompressed."""
    # Read in chunks, because the content of a small gzip file may exceed the memory.
    pieces, size = [], 0
    with _open(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            pieces.append(chunk)
            size += len(chunk)
            if size > _MAX_BYTES:
                raise ValueError(
                    f"{path} has more than {_MAX_BYTES:,} bytes when decompressed. Split the JSON "
                    "document."
                )
    content = b"".join(pieces)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 (0x{content[error.start]:02x} at offset {error.start:,}). Use a "
            "JSON document, plain or gzip."
        ) from error
    if not text.strip():
        raise ValueError(f"{path} is empty: expected a JSON document.")
    try:
        return parse_json(text, path, unique_keys=unique_keys)
    except ValueError as error:
        first, _, rest = text.strip().partition("\n")
        if rest and first.startswith("{") and first.rstrip().endswith("}"):
            raise ValueError(
                f"{path} contains several JSON documents, one per line. If they are the rows of a "
                "table, rename the file to .jsonl."
            ) from error
        raise


def read_lines(path: str, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yields the number, from 1, and the text of each line of a plain or gzip file.

    The ``encoding`` must extend ASCII. Byte order marks of UTF-8 at the start of lines are removed.
    """
    try:
        has_ascii = b"\n\n" in "\n\n".encode(encoding)
    except LookupError as error:
        raise ValueError(
            f"Unknown encoding {encoding!r}: expected a name such as utf-8 or latin-1."
        ) from error
    if not has_ascii:
        raise ValueError(
            f"--encoding={encoding}: expected an encoding that extends ASCII. Save {path} as UTF-8 "
            f'(in Excel "CSV UTF-8"), or convert it with iconv -f {encoding} -t UTF-8.'
        )
    before = 0
    with _open(str(path)) as file:
        for block in _line_blocks(file, str(path)):
            try:
                text = block.decode(encoding)
            except UnicodeDecodeError as error:
                line = before + block.count(b"\n", 0, error.start) + 1
                remedy = (
                    "Save the file as UTF-8, or pass --encoding to finetune or predict, such as "
                    "cp1252 (Windows) or latin-1"
                )
                if b"\0" in block:
                    remedy = "The file contains null bytes. Use a text file"
                raise ValueError(
                    f"{path}, line {line}: expected {encoding} text, got the byte "
                    f"0x{block[error.start]:02x}. {remedy}."
                ) from error
            lines = text.removeprefix("\ufeff").replace("\n\ufeff", "\n").split("\n")
            for number, line_text in enumerate(lines, start=before + 1):
                yield number, line_text.removesuffix("\r")
            before += len(lines)


def _line_blocks(file: IO[bytes], path: str) -> Iterator[bytes]:
    """Yields blocks of complete lines, each without the end of its last line."""
    pieces: list[bytes] = []
    is_one_line = True
    for chunk in text_chunks(file, path):
        lines, newline, rest = chunk.rpartition(b"\n")
        if newline:
            yield b"".join([*pieces, lines])
            pieces = []
            is_one_line = False
        pieces.append(rest)
    last = b"".join(pieces)
    if is_one_line and b"\r" in last[:-1]:
        raise ValueError(
            f"{path}: expected line feeds, got only carriage returns. Save the file with Unix or "
            "Windows line endings."
        )
    if last:
        yield last


@contextlib.contextmanager
def _open(path: str) -> Iterator[IO[bytes]]:
    paths.check_file(path, "a text file")
    if path.lower().endswith(".zip"):
        raise ValueError(
            f"{path} is an archive. Extract it, and pass the path of an extracted file."
        )
    with open_text(path) as file:
        yield file


# === Records ===

RowOrError = Mapping[str, Any] | BadRowError
Rows = Sequence[RowOrError]
Record = tuple[Location, RowOrError]
_BATCH_ROWS = 1024


def read_json_lines(path: str, encoding: str = "utf-8") -> Iterator[Record]:
    """Yields the JSON object of each line; ignores blank lines."""
    for line, text in read_lines(path, encoding):
        if not text.strip():
            continue
        try:
            yield line, _as_record(parse_json(text, "the line", unique_keys=True))
        except ValueError as error:
            problem = str(error).removesuffix(".")
            yield line, BadRowError(f"expected a JSON object, got {quoted(text)} ({problem})")


def _as_record(row: Any) -> RowOrError:
    if isinstance(row, Mapping | BadRowError):
        return row
    return BadRowError(f"expected a JSON object, got {quoted(row)}")


def read_json_list(path: str, encoding: str = "utf-8") -> Iterator[Record]:
    """Yields the objects in a UTF-8 file with a JSON list, which is read into memory."""
    rows = read_json_document(path, unique_keys=True)
    if not isinstance(rows, list):
        raise ValueError(
            f"{path}: expected a JSON list of objects, got {quoted(rows)}. In pandas, use "
            'to_json(path, orient="records").'
        )
    for number, row in enumerate(rows):
        yield f"row {number}", _as_record(row)


def read_parquet(path: str, encoding: str = "utf-8") -> Iterator[Record]:
    """Yields the rows of a Parquet file, loading about a thousand at a time."""

    def batches(file: IO[bytes]) -> Iterator[Any]:
        from pyarrow import parquet

        opened = parquet.ParquetFile(file, page_checksum_verification=True)
        yield opened.schema_arrow
        yield from opened.iter_batches(_BATCH_ROWS)

    return _arrow_rows(path, "Parquet", batches)


def read_arrow(path: str, encoding: str = "utf-8") -> Iterator[Record]:
    """Yields the rows of an Arrow file or stream, as written by Feather and ``datasets``."""

    def read(file: IO[bytes]) -> Iterator[Any]:
        from pyarrow import ipc

        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        opened = ipc.open_file(file) if is_file else ipc.open_stream(file)
        yield opened.schema
        batches = map(opened.get_batch, range(opened.num_record_batches)) if is_file else opened
        for batch in batches:
            batch.validate(full=True)  # Reads with invalid offsets would leave the buffers.
            yield from (batch[at : at + _BATCH_ROWS] for at in range(0, len(batch), _BATCH_ROWS))

    return _arrow_rows(path, "Arrow", read)


def _arrow_rows(
    path: str, form: str, batches: Callable[[IO[bytes]], Iterator[Any]]
) -> Iterator[Record]:
    """Yields the rows of a file; ``batches`` yields the file's schema, then its batches."""
    try:
        from pyarrow import ArrowException
    except ImportError as error:
        raise ImportError(
            f"Reading {path} requires pyarrow. Run pip install pyarrow, or use .csv or .jsonl."
        ) from error
    paths.check_file(path, f"a file in {form} format")
    number = 0
    with open_bytes(path) as file:
        try:
            schema = next(found := batches(file))
            check_unique_columns(schema.names, path)
            put_names = class_id_decoder(schema)
            for batch in found:
                for row in map(put_names, batch.to_pylist()):
                    yield f"row {number}", row
                    number += 1
        except (ArrowException, OSError, UnicodeDecodeError, MemoryError) as error:
            raise ValueError(
                f"{path}, after row {number}: the {form} file is damaged, or its text is not UTF-8 "
                f"({reason(error, 120)})."
            ) from error


def class_id_decoder(data: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Returns a function that replaces class ids in ``datasets.ClassLabel`` columns with names.

    The id -1, which means no class, becomes ``None``.
    """
    schema = getattr(getattr(data, "features", None), "arrow_schema", data)
    metadata = getattr(getattr(schema, "schema", schema), "metadata", None)
    described = metadata.get(b"huggingface", b"") if isinstance(metadata, Mapping) else b""
    if b'"ClassLabel"' in described:
        with contextlib.suppress(AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            classes = _class_names(parse_json(described, "metadata")["info"]["features"])
            return lambda row: _decode_class_ids(row, classes)
    return lambda row: row


def _class_names(feature: Any) -> Any:
    """Returns the class names of a feature or of a list's items, or class names by field."""
    if isinstance(feature, list):  # a Sequence in older versions
        return _class_names(feature[0])
    if not isinstance(feature.get("_type"), str):
        return {name: _class_names(inner) for name, inner in feature.items()}
    if feature["_type"] != "ClassLabel":
        return _class_names(feature.get("feature", {}))
    names = [ClassName(name) for name in feature["names"]]
    ids = list(range(len(names)))
    # If all names are numbers or single letters, the ids follow from their values.
    if all(re.fullmatch("[0-9]{1,9}|[A-Za-z]", name) for name in names):
        ids = [int(name) if name.isdecimal() else ord(name.upper()) - 64 for name in names]
    first = min([1, *ids])
    for name, class_id in zip(names, ids, strict=True):
        name.class_id = class_id - first
    return names


def _decode_class_ids(value: Any, classes: Any) -> Any:
    if isinstance(value, list):
        return [_decode_class_ids(item, classes) for item in value]
    if isinstance(value, dict) and isinstance(classes, dict):
        return {name: _decode_class_ids(item, classes.get(name)) for name, item in value.items()}
    if isinstance(classes, list) and isinstance(value, int) and value < len(classes):
        return classes[value] if value >= 0 else None
    return value


def check_unique_columns(names: Iterable[Any], source: str) -> None:
    """Checks that column names are unique."""
    duplicates = [name for name, count in collections.Counter(names).items() if count > 1]
    if duplicates:
        raise ValueError(f"{source} has duplicate columns: {listed(duplicates)}. Rename them.")


# === Rows in memory ===

_IN_MEMORY_NAME = re.compile(r"<\w+>")
_NOTHING: Mapping[str, Rows] = MappingProxyType({})
_tables: contextvars.ContextVar[Mapping[str, Rows]] = contextvars.ContextVar(
    "given", default=_NOTHING
)


def is_in_memory(path: str) -> bool:
    """Returns whether a path is the name of rows in memory, such as "<train>"."""
    return _IN_MEMORY_NAME.fullmatch(path) is not None


@contextlib.contextmanager
def in_memory_tables(tables: Mapping[str, Rows]) -> Iterator[None]:
    """Makes the rows of ``tables`` available under names such as "<train>" within the context."""
    token = _tables.set({**_tables.get(), **tables})
    try:
        yield
    finally:
        _tables.reset(token)


def read_in_memory(path: str, encoding: str = "utf-8") -> Iterator[Record]:
    """Yields the rows of a table in memory."""
    if path not in _tables.get():
        raise ValueError(
            f"{path} is the name of data that was passed in another Python call. Pass the data "
            "again."
        )
    for number, row in enumerate(_tables.get()[path]):
        yield f"row {number}", _as_record(row)


def read_text_lines(path: str, encoding: str = "utf-8") -> Iterator[Record]:
    """Yields a row with the column "text" for each line."""
    for line, text in read_lines(path, encoding):
        yield line, {LINES_COLUMN: text}


# Name of the format for files without columns; it is not a file name suffix.
LINES = ".lines"
LINES_COLUMN = "text"
READERS_BY_SUFFIX: Mapping[str, Callable[[str, str], Iterator[Record]]] = {
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".json": read_json_list,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".feather": read_arrow,
    LINES: read_text_lines,
}
