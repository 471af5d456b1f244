"""One field of a row: checked, and made the text, the number or the name that it stands for.

A field of a .tsv or .csv file is a string; one of a JSON line is any JSON value.
"""

import math
from collections.abc import Collection, Iterable
from typing import Any

from bert_tf.untrusted import listed, quote

from .examples import BadRowError, NoTextError

_LONGEST_SHOWN = 60


def shown(value: object) -> str:
    """Spells a value for an error, cut where it is long."""
    return quote(value, _LONGEST_SHOWN)


def text(value: Any, what: str) -> str:
    """Returns a field that is text, perhaps empty.

    Raises:
        BadRowError: it is no string, or holds half of a surrogate pair, which UTF-8 cannot.
    """
    if value is None:
        raise NoTextError(f"expected text in {what}, got None")
    if not isinstance(value, str):
        raise BadRowError(f"expected text in {what}, got {shown(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadRowError(
                f"expected text in {what}, got half a surrogate pair at character {error.start}"
            ) from error
    return value


def filled_text(value: Any, what: str) -> str:
    """Returns a field that is text, and not white space alone; raises ``BadRowError``."""
    found = text(value, what)
    # Zeros are what a file has where its last blocks were never written.
    if not found.replace("\0", "").strip():
        raise NoTextError(f"expected text in {what}, got {shown(found)}")
    return found


def name(value: Any, what: str) -> str:
    """Returns a name: text, a whole number, true or false; raises ``BadRowError``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return filled_text(value, what).strip()


def spelled_number(value: Any) -> Any:
    """Returns a whole number's digits, and anything else as it is."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def known_name(value: Any, what: str, names: Collection[str] | None) -> str:
    """Returns a name, one of ``names`` where these are given; raises ``BadRowError``."""
    found = name(value, what)
    if names is not None and found not in names:
        raise BadRowError(f"expected one of {listed(names)} in {what}, got {shown(found)}")
    return found


def row_id(value: Any, row_number: int) -> str:
    """Returns a row's id: its number where it has none (None); raises ``BadRowError``."""
    return str(row_number) if value is None else name(value, "the id")


def number(value: Any, what: str) -> float:
    """Returns a field that is a finite number; raises ``BadRowError``."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            found = float(value)
        except (ValueError, OverflowError):
            found = math.nan
        if math.isfinite(found):
            return found
    raise BadRowError(f"expected a finite number in {what}, got {shown(value)}")


def whole_number(value: Any, what: str, most: int) -> int:
    """Returns a field that is a whole number from 0 to ``most``; raises ``BadRowError``."""
    found = value
    if isinstance(value, str) and value.strip().isdecimal():
        found = int(value)
    if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= most:
        return found
    raise BadRowError(f"expected a whole number from 0 to {most} in {what}, got {shown(value)}")


def sorted_names(names: Iterable[str]) -> tuple[str, ...]:
    """Puts the names of classes in order: whole numbers by value, all else by their characters.

    >>> sorted_names(["10", "9", "9"]), sorted_names(["10", "9", "x"])
    (('9', '10'), ('10', '9', 'x'))
    """
    found = set(names)
    try:
        return tuple(sorted(found, key=lambda label: (int(label), label)))
    except ValueError:
        return tuple(sorted(found))
