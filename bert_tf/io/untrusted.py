"""Reading files of strangers: JSON within bounds, lines of a bounded length, names of models."""

import json
import math
import os
import re
from typing import Any

from .wording import one_line, quote

# The most that readers of JSON files take. LaBSE's tokenizer.json, of 501,153 pieces, has 10 MB; a
# parsed value takes up to thirty times the text.
MAX_JSON_BYTES = 32 << 20
# The most MiB of a line of text, unless this environment variable says another number.
_LINE_MB = 64
LINE_VARIABLE = "BERT_TF_MAX_LINE_MB"


def parse_json(text: str | bytes, where: str, *, unique_keys: bool = False) -> Any:
    """Parses JSON: text, or bytes in UTF-8 (a byte order mark may begin it), UTF-16 or UTF-32.

    Refuses numbers of thousands of digits, thousands of levels and, with ``unique_keys``, objects
    that have a key twice. NaN and Infinity are read, as ``json`` writes them.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))
        hook = _unique if unique_keys else None
        return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=hook)
    except ValueError as error:  # UTF-8's errors are ValueErrors, too
        raise ValueError(f"{where} is not JSON: {one_line(str(error))}.") from error
    except RecursionError as error:
        raise ValueError(f"{where} is not JSON that is read: it is nested too deep.") from error


def parse_json_object(
    text: str | bytes, where: str, *, unique_keys: bool = False
) -> dict[str, Any]:
    """Parses JSON that is an object."""
    value = parse_json(text, where, unique_keys=unique_keys)
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a JSON object, got a {type(value).__name__}.")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"{quote(key)} stands twice in it")
        key.encode()  # JSON can spell half a character, which no file or terminal takes
        result[key] = value
    return result


def max_line_bytes() -> int:
    """Returns the maximum number of bytes of a line of text."""
    return int(os.environ.get(LINE_VARIABLE, _LINE_MB)) << 20


def check_line_length(length: int, path: str, line: int) -> None:
    """Refuses a line of too many bytes, of which ``length`` were read: it may have no end."""
    if length > max_line_bytes():
        limit = max_line_bytes() >> 20
        raise ValueError(
            f"{path}, line {line:,}: expected a line of at most {limit} MiB, got more; if it is "
            f"meant, set the environment variable {LINE_VARIABLE}={2 * limit}."
        )


def is_number(value: object) -> bool:
    """True if a JSON value is a finite number that a float can hold; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_model_name(name: str) -> None:
    """Raises a ``ValueError`` where a model's name cannot be in an address and be a folder."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", name):
        raise ValueError(
            f'The name is {quote(name)}: expected letters, digits, ".", "_" and "-", a letter or a '
            "digit first, as it is part of the address that clients ask."
        )
