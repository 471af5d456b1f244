"""Data that a caller in Python has in memory, as rows: lists, frames, tf.data.

| data                                    | a row is                                              |
|-----------------------------------------|-------------------------------------------------------|
| an iterable of texts                    | the text                                              |
| an iterable of tuples or lists          | the texts, and then the label                         |
| an iterable of mappings                 | its columns by their names                            |
| a mapping of columns                    | an item of each                                       |
| a frame of pandas or polars, a table of | its columns by their names; a missing value is None   |
| Arrow                                   |                                                       |
| a ``tf.data.Dataset``, batched or not   | an element: a tuple, or a dict, or a dict and a label |
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_tf.readers.records import check_columns_differ
from bert_tf.untrusted import quote

from .kinds import Kind

_LABEL = "label"


def rows_of(
    data: Any,
    kind: Kind,
    text_columns: Sequence[str] | None,
    label_column: str | None,
    what: str,
    *,
    labelled: bool = True,
) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of some data, and which columns have the texts.

    ``text_columns`` and ``label_column`` are how columns without names are called, the kind's own
    names where they are ``None``; ``what`` is the argument, for errors. Without labels a list of
    words is a sentence.
    """
    label = label_of(kind, label_column)
    names = [tuple(text_columns)] if text_columns else list(kind.texts_in_python)
    rows = []
    for place, item in enumerate(_items(data, kind, what)):
        if kind.reads_words:
            if not labelled and isinstance(item, list) and all(isinstance(w, str) for w in item):
                item = (item,)
        elif _is_pair_and_label(item):
            item = (*item[0], item[1])
        rows.append(_row(item, names, label, what, place))
    if not rows:
        raise ValueError(f"{what} is empty: expected at least one example.")
    texts = next((list(found) for found in names if {*found} <= rows[0].keys()), None)
    if texts is None:
        forms = " or ".join(", ".join(found) for found in names)
        raise ValueError(
            f"{what} has the columns {', '.join(map(str, rows[0]))}, and none is known to be the "
            f"text: call them {forms}, or pass text_columns."
        )
    return rows, texts


def label_of(kind: Kind, label_column: str | None) -> str:
    """What the column of labels is called."""
    return label_column or kind.default_label or _LABEL


def is_data(value: Any) -> bool:
    """Whether a value is data, not a path."""
    return value is not None and not isinstance(value, str) and not hasattr(value, "__fspath__")


def _items(data: Any, kind: Kind, what: str) -> Iterator[Any]:
    if hasattr(data, "element_spec") and hasattr(data, "as_numpy_iterator"):
        return iter(_elements(data, kind))
    names = getattr(data, "column_names", None) or getattr(data, "columns", None)
    if not isinstance(data, Mapping) and names is not None:  # a frame, which may have one twice
        check_columns_differ([name for name in names if isinstance(name, Hashable)], what)
    for method in ("to_pylist", "to_dicts"):  # Arrow's, polars'
        if hasattr(data, method):
            return iter(getattr(data, method)())
    if hasattr(data, "columns") and hasattr(data, "to_dict"):  # pandas'
        return iter(data.to_dict("records"))
    if isinstance(data, Mapping):
        names, columns = list(data), [list(column) for column in data.values()]
        if len({len(column) for column in columns}) > 1:
            sizes = ", ".join(f"{name} {len(c)}" for name, c in zip(names, columns, strict=True))
            raise ValueError(f"The columns of {what} differ in length: {sizes}.")
        return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
    if isinstance(data, Iterable) and not isinstance(data, bytes):
        return iter(data)
    raise ValueError(
        f"{what} is a {type(data).__name__}: expected a path, a list of examples, a frame or a "
        "tf.data.Dataset."
    )


def _elements(dataset: Any, kind: Kind) -> Iterator[Any]:
    """The elements of a ``tf.data.Dataset`` as they are without batches."""
    import tensorflow as tf

    first = tf.nest.flatten(dataset.element_spec)[0]
    if not kind.reads_words and first.shape.rank == 1:
        dataset = dataset.unbatch()
    for element in dataset:
        yield tf.nest.map_structure(
            lambda t: t.to_list() if isinstance(t, tf.RaggedTensor) else t.numpy(), element
        )


def _row(
    item: Any, names: Sequence[tuple[str, ...]], label: str, what: str, place: int
) -> dict[str, Any]:
    if isinstance(item, str | bytes):
        item = (item,)
    if isinstance(item, Mapping):
        return {str(name): _value(value) for name, value in item.items()}
    if not isinstance(item, Sequence):
        raise ValueError(
            f"{what}[{place}] is {quote(item)}: expected a text, a tuple of texts and a label, or "
            "a mapping."
        )
    if len(item) == 2 and isinstance(item[0], Mapping):
        return {**_row(item[0], names, label, what, place), label: _value(item[1])}
    for texts in names:
        if len(texts) <= len(item) <= len(texts) + 1:
            # A text and a label, not two texts: the shorter names come first.
            return dict(zip((*texts, label), map(_value, item), strict=False))
    forms = " or ".join(f"({', '.join((*texts, label))})" for texts in names)
    raise ValueError(f"{what}[{place}] has {len(item)} items: expected {forms}.")


def _is_pair_and_label(item: Any) -> bool:
    is_row = isinstance(item, Sequence) and not isinstance(item, str | bytes)
    return is_row and len(item) == 2 and isinstance(item[0], tuple)


def _value(value: Any) -> Any:
    """A value as JSON has it; what stands for a missing one is ``None``."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{quote(value)} is not UTF-8 text: decode it first.") from error
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, str | int | float | None):
        # A NumPy float is a float, too.
        return float(value) if isinstance(value, float) else value
    if type(value).__name__ in ("NAType", "NaTType"):  # pandas'
        return None
    if isinstance(value, Mapping):
        return {str(name): _value(item) for name, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy's arrays and scalars
        return _value(value.tolist())
    if isinstance(value, Sequence):
        return [_value(item) for item in value]
    return value
