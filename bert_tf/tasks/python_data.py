"""Conversion of Python data (lists, columns and data frames) to rows.

| data                                   | row                                                |
|----------------------------------------|----------------------------------------------------|
| iterable of strings                    | the text                                           |
| iterable of tuples or lists            | the texts, followed by the label                   |
| iterable of mappings                   | columns by name                                    |
| mapping of columns                     | one item of each column                            |
| pandas or polars data frame,           | columns by name, with missing values as ``None``   |
| Arrow table, ``datasets.Dataset``      |                                                    |
| unbatched ``tf.data.Dataset``          | an element: a tuple, a dict, or a dict and a label |
| NumPy array (N, 2), or a               | like a tuple                                       |
| ``tf.data.Dataset`` of such rows       |                                                    |
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_tf.io.messages import listed
from bert_tf.readers.examples import BadRowError, NoTextError, number, quoted
from bert_tf.readers.table_formats import RowOrError, check_unique_columns, class_id_decoder

from .task import Task

_LABEL = "label"
_PYTHON_FORMATS = (None, "custom")  # formats in which a datasets.Dataset yields Python values


def parse_rows(
    data: Any,
    kind: type[Task],
    text_columns: Sequence[str] | None,
    label_column: str | None,
    argument: str,
    *,
    is_label: Callable[[str], bool] | None = None,
) -> tuple[list[RowOrError], list[str]]:
    """Converts data to rows; an invalid row becomes the error that it causes.

    ``argument`` is the name of the data in error messages. For prediction, pass ``is_label``, which
    decides whether a string after the texts is a label. In tagging, a list of strings is then a
    single example.

    Returns:
        The rows and the names of the text columns.
    """
    label = label_column_name(kind, label_column)
    if isinstance(text_columns, str):
        text_columns = text_columns.split(",")
    names = [tuple(text_columns)] if text_columns else list(kind.in_memory_columns)
    put_names = class_id_decoder(data)
    rows: list[RowOrError] = []
    _check_form(data, kind, argument, to_predict=is_label is not None)
    for item in _items(data, argument):
        try:
            rows.append(put_names(_row(item, names, label, kind, is_label)))
        except BadRowError as error:
            rows.append(error)
    if not rows:
        raise ValueError(f"{argument} is empty: expected at least one example.")
    first = next((row for row in rows if isinstance(row, Mapping)), None)
    if first is None:
        return rows, list(names[0])
    texts = next((list(columns) for columns in names if {*columns} <= first.keys()), None)
    if texts is None:
        forms = " or ".join(", ".join(columns) for columns in names)
        raise ValueError(
            f"{argument} has no text column: expected {forms}, got {', '.join(map(str, first))}. "
            "Rename the columns or pass text_columns."
        )
    return rows, texts


def label_column_name(kind: type[Task], label_column: str | None) -> str:
    """Returns the name of the label column."""
    return label_column or kind.default_label or _LABEL


def is_number(text: str) -> bool:
    """Returns whether a string is a numeric label."""
    try:
        number(text, "the label")
    except BadRowError:
        return False
    return True


def is_data(value: Any) -> bool:
    """Returns whether a value is data rather than a path."""
    return value is not None and not isinstance(value, str) and not hasattr(value, "__fspath__")


def _check_form(data: Any, kind: type[Task], argument: str, *, to_predict: bool) -> None:
    """Rejects data that look like rows but are not: (X, y), mappings of tables, and batches."""
    items: Sequence[Any] = data if isinstance(data, list | tuple) else ()
    parts = [part for part in items if isinstance(part, list) or bool(getattr(part, "shape", ()))]
    apart = 2 <= len(parts) == len(data) <= 3 and len({*map(len, parts)}) == 1
    # A tuple of two lists could also be two rows. This is assumed for prediction, where there is no
    # y. A list of lists is assumed to be a list of rows if the inner lists are short.
    is_long = apart and len(parts[0]) > kind.num_texts[1] + 1 and not kind.reads_words
    if apart and (is_long or (isinstance(data, tuple) and not to_predict)):
        raise ValueError(
            f"{argument} consists of {len(parts)} lists, such as (X, y). Pass rows, list(zip(X, "
            'y)), or columns, {"text": X, "label": y}. If each list is a row, pass a list of '
            "tuples."
        )
    tables = data.values() if isinstance(data, Mapping) else ()
    if tables and all(hasattr(t, "columns") or hasattr(t, "column_names") for t in tables):
        raise ValueError(
            f"{argument} contains the tables {listed(data)}. Pass one of them, such as "
            f"data[{next(iter(data))!r}]."
        )
    if hasattr(data, "element_spec"):
        import tensorflow as tf

        specs = tf.nest.flatten(data.element_spec)
        ranks = [spec.shape.rank or 0 for spec in specs if spec.dtype == tf.string]
        # A string vector is a row, not a batch, if it has no more entries than a row has texts.
        is_row = specs == [data.element_spec] and ranks == [1]
        is_row = is_row and (specs[0].shape[0] or math.inf) <= kind.num_texts[1]
        if ranks and min(ranks) > kind.reads_words and not is_row:
            raise ValueError(f"{argument} is batched. Pass its elements, {argument}.unbatch().")


def _items(data: Any, argument: str) -> Iterator[Any]:
    if (
        hasattr(data, "with_format")
        and getattr(data, "format", {}).get("type") not in _PYTHON_FORMATS
    ):
        data = data.with_format(None)  # its format yields tensors or data frames
    if hasattr(data, "as_numpy_iterator"):
        return iter(data.as_numpy_iterator())
    names = getattr(data, "column_names", None) or getattr(data, "columns", None)
    if not isinstance(data, Mapping) and names is not None:  # a frame can have duplicate columns
        check_unique_columns([name for name in names if isinstance(name, Hashable)], argument)
    for method in ("to_pylist", "to_dicts"):  # Arrow, polars
        if hasattr(data, method):
            return iter(getattr(data, method)())
    if hasattr(data, "columns") and hasattr(data, "to_dict"):
        return iter(data.to_dict("records"))
    if isinstance(data, Mapping):
        for name, column in data.items():
            if isinstance(column, str) or not isinstance(column, Iterable):
                raise ValueError(
                    f"{argument}[{name!r}] is {quoted(column)}: expected a list of values."
                )
        names, columns = list(data), [list(column) for column in data.values()]
        if len({len(column) for column in columns}) > 1:
            sizes = ", ".join(f"{name} {len(c)}" for name, c in zip(names, columns, strict=True))
            raise ValueError(f"The columns of {argument} have different lengths: {sizes}.")
        return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
    if isinstance(data, Iterable) and not isinstance(data, bytes):
        return iter(data)
    raise ValueError(
        f"{argument} has the type {type(data).__name__}: expected a path, a list of examples or a "
        "data frame."
    )


def _row(
    item: Any,
    names: Sequence[tuple[str, ...]],
    label: str,
    kind: type[Task],
    is_label: Callable[[str], bool] | None,
) -> dict[str, Any]:
    if isinstance(item, Mapping):
        return {str(name): plain_value(value) for name, value in item.items()}
    item = item.tolist() if getattr(item, "ndim", 0) == 1 else item
    if kind.reads_words:
        is_list = is_label and isinstance(item, list)
        if is_list and all(isinstance(word, str | bytes) for word in item):
            item = (item,)
    elif isinstance(item, Sequence) and len(item) == 2 and isinstance(item[0], tuple):
        item = (*item[0], item[1])  # ((text_a, text_b), label)
    items: Any = (item,) if isinstance(item, str | bytes) else item
    if not isinstance(items, Sequence):
        error = NoTextError if plain_value(item) is None else BadRowError
        raise error(
            f"expected a string, a tuple of texts{'' if is_label else ' and a label'}, or a "
            f"mapping, got {quoted(item)}"
        )
    if len(items) == 2 and isinstance(items[0], Mapping):
        columns, value = items
        return {**_row(columns, names, label, kind, is_label), label: plain_value(value)}
    values = [plain_value(value) for value in items]
    _, max_texts = kind.num_texts
    check = is_label or (is_number if kind.label_is_optional else None)
    for texts in names:
        # The columns with fewer texts come first, so (text, label) takes precedence over two texts.
        if not 0 <= len(values) - len(texts) <= 1:
            continue
        last = values[-1] if len(texts) < len(values) <= max_texts else None
        if not (check and isinstance(last, str)) or check(last):  # otherwise, ``last`` is a text
            return dict(zip((*texts, label), values, strict=False))
    forms = " or ".join(f"({', '.join(texts if is_label else (*texts, label))})" for texts in names)
    hint = ""
    if kind.label_is_optional and len(values) == max_texts:
        columns = kind.text_form.split(" or ")[-1]
        hint = f" (for {len(values)} texts, pass text_columns={columns})"
    raise BadRowError(f"expected {forms}, got {quoted(item)}{hint}")


def plain_value(value: Any) -> Any:
    """Converts a value to a JSON type; missing values become ``None``."""
    value = value.numpy() if hasattr(value, "numpy") else value  # TensorFlow, PyTorch
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise BadRowError(f"expected UTF-8 text, got {quoted(value)}") from error
    if isinstance(value, float):  # includes NumPy floats
        return None if math.isnan(value) else float(value)
    if isinstance(value, str | int | None):
        return value
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, Mapping):
        return {str(name): plain_value(item) for name, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy arrays and scalars
        return plain_value(value.tolist())
    if isinstance(value, Sequence):
        return [plain_value(item) for item in value]
    return value
