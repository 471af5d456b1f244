"""Validation of untrusted input: JSON, line lengths and model names."""

import json
import math
import os
import re
from typing import Any

from .messages import one_line, quote

# LaBSE's tokenizer.json, with 501,153 tokens, has 10 MB. Parsed JSON uses up to 30 times as much
# memory as the text.
MAX_JSON_BYTES = 32 << 20
# Default value of the environment variable LINE_VARIABLE.
_LINE_MB = 64
LINE_VARIABLE = "BERT_TF_MAX_LINE_MB"


def parse_json(text: str | bytes, where: str, *, unique_keys: bool = False) -> Any:
    """Parses JSON from a string, or from bytes in UTF-8, UTF-16 or UTF-32.

    ``where`` describes the source in errors. ``NaN`` and ``Infinity`` are valid, as in ``json``.

    Raises:
        ValueError: If the text is not JSON, is nested too deeply, contains an integer of thousands
            of digits, or, with ``unique_keys``, repeats a key of an object.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))
        hook = _unique if unique_keys else None
        return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=hook)
    except ValueError as error:  # Includes UnicodeDecodeError.
        raise ValueError(f"{where} is not JSON: {one_line(str(error))}.") from error
    except RecursionError as error:
        raise ValueError(f"{where} cannot be read as JSON: it is nested too deeply.") from error


def parse_json_object(
    text: str | bytes, where: str, *, unique_keys: bool = False
) -> dict[str, Any]:
    """Parses a JSON object."""
    value = parse_json(text, where, unique_keys=unique_keys)
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a JSON object, got {type(value).__name__}.")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"duplicate key {quote(key)}")
        key.encode()  # Rejects lone surrogates, which cannot be written to a file.
        result[key] = value
    return result


def max_line_bytes() -> int:
    """Returns the maximum number of bytes per line of text."""
    return int(os.environ.get(LINE_VARIABLE, _LINE_MB)) << 20


def check_line_length(length: int, path: str, line: int) -> None:
    """Checks the number of bytes that have been read so far from a line."""
    if length > max_line_bytes():
        limit = max_line_bytes() >> 20
        raise ValueError(
            f"{path}, line {line:,}: expected at most {limit} MiB per line, got more. For longer "
            f"lines, set the environment variable {LINE_VARIABLE}={2 * limit}."
        )


def is_number(value: object) -> bool:
    """Whether a JSON value is a finite number within the range of a float; booleans are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_model_name(name: str) -> None:
    """Checks that a model name can be part of a URL and the name of a directory."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", name):
        raise ValueError(
            f'name={quote(name)}: expected letters, digits, ".", "_" and "-", starting with a '
            "letter or a digit, because the name is part of the URL."
        )
