"""Limits of an export: the most rows and bytes of a request.

A refusal is an ``InvalidArgumentError``, INVALID_ARGUMENT of TensorFlow Serving, with a sentence. A
server that joins requests into batches refuses the whole batch: its other requests fail too.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from .samples import Requests
from .served import ExportOptions, Outputs


def within(
    options: ExportOptions, function: Callable[..., Outputs], **inputs: tf.Tensor
) -> Outputs:
    """Calls a signature's function, once the request's rows and bytes are found within limits."""
    checks = []
    if options.max_rows is not None:
        rows = tf.shape(next(iter(inputs.values())))[0]
        checks.append(_at_most(options.max_rows, rows, "The request has", "rows"))
    strings = [value for value in inputs.values() if value.dtype == tf.string]
    if options.max_bytes is not None:
        for value in strings:
            size = tf.strings.length(value)
            size = tf.reduce_sum(size, 1) if value.shape.rank == 2 else size
            most = tf.reduce_max(tf.concat([size, [0]], 0))  # of an empty request 0
            checks.append(_at_most(options.max_bytes, most, "A row has", "bytes"))
    with tf.control_dependencies(checks):
        return function(**{name: tf.identity(value) for name, value in inputs.items()})


def _at_most(limit: int, count: tf.Tensor, subject: str, what: str) -> Any:
    found = tf.strings.as_string(count)
    sentence = tf.strings.join([subject, " ", found, f" {what}, and the most is {limit}."])
    return tf.debugging.Assert(count <= limit, [sentence])


def fitting(options: ExportOptions, requests: Requests) -> Requests:
    """Sample requests without the rows that would be refused; a request of none is left out."""
    found = []
    for columns in requests:
        rows = list(zip(*columns.values(), strict=True))
        kept = [row for row in rows if _fits(options, row)][: options.max_rows]
        if kept:
            values = (list(column) for column in zip(*kept, strict=True))
            found.append(dict(zip(columns, values, strict=True)))
    return tuple(found)


def _fits(options: ExportOptions, row: tuple[Any, ...]) -> bool:
    """True if no column of a row, a string, strings or ids, is beyond a limit."""
    for value in row:
        parts = value if isinstance(value, list) else [value]
        texts = [part.encode() if isinstance(part, str) else part for part in parts]
        texts = [text for text in texts if isinstance(text, bytes)]
        if options.max_bytes is not None and sum(map(len, texts)) > options.max_bytes:
            return False
    return True


def sentence(options: ExportOptions) -> str:
    """The limits, for the model card; "" where there are none."""
    limits: Mapping[str, int | None] = {
        "rows in a request": options.max_rows,
        "bytes in a row's strings": options.max_bytes,
    }
    stated = [f"{limit:,} {what}" for what, limit in limits.items() if limit is not None]
    if not stated:
        return ""
    return (
        f"Takes at most {', '.join(stated)}, and refuses more (INVALID_ARGUMENT). A request beyond "
        "a limit fails all requests that the server has joined with it into a batch."
    )
