"""What files of strangers say: JSON parsed within bounds, and values shown in one short line.

A name, a label or a key of a file goes into a sentence or onto the screen by ``quote``,
``one_line`` or ``listed`` alone: they let no character through that a terminal obeys, and nothing
that is long.
"""

import json
import reprlib
import unicodedata
from collections.abc import Iterable
from typing import Any

# The most that readers of JSON files take. LaBSE's tokenizer.json, of 501,153 pieces, has 10 MB; a
# parsed value takes up to thirty times the text.
MAX_JSON_BYTES = 32 << 20
# Keras' configs, the deepest files that are read, have about fifteen levels.
_DEEPEST_JSON = 64
_LONGEST = 120
_LISTED = 10
# Format characters that words of some languages, and many emoji, need: they are shown as they are.
_HARMLESS_FORMATS = "\u200c\u200d\u00ad"


def parse_json(text: str | bytes, where: str, *, unique_keys: bool = False) -> Any:
    r"""Parses JSON.

    NaN and Infinity are read as Python reads them, because Python's own ``json`` writes them: who
    expects a number asks whether it is finite.

    Args:
        text: the text, or its bytes (UTF-8, perhaps with a byte order mark, UTF-16 or UTF-32).
        where: what errors name: the file, and the line or the member in it.
        unique_keys: whether an object that has a key twice is an error.

    Raises:
        ValueError: the text is not JSON, has a number of thousands of digits, or is nested deeper
            than 64 levels.

    >>> parse_json('{"a": [1]}', "a.json")
    {'a': [1]}
    >>> parse_json('{"a": ', "a.json")
    Traceback (most recent call last):
    ...
    ValueError: a.json is not JSON: Expecting value: line 1 column 7 (char 6).
    """
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))
        value = json.loads(
            text.removeprefix("\ufeff"), object_pairs_hook=_unique if unique_keys else None
        )
    except ValueError as error:  # UTF-8's errors are ValueErrors, too
        raise ValueError(f"{where} is not JSON: {one_line(str(error))}.") from error
    except RecursionError as error:
        raise ValueError(_too_deep(where)) from error
    if text.count("[") + text.count("{") > _DEEPEST_JSON and _is_deep(value):
        raise ValueError(_too_deep(where))
    return value


def parse_json_object(
    text: str | bytes, where: str, *, unique_keys: bool = False
) -> dict[str, Any]:
    """Parses JSON that is an object.

    Raises:
        ValueError: as ``parse_json``, or the text holds something else.
    """
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


def _too_deep(where: str) -> str:
    return f"{where} is not JSON that is read: it is nested deeper than {_DEEPEST_JSON} levels."


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST_JSON):
        level = [
            item
            for container in level
            if isinstance(container, dict | list)
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True


class _Quoting(reprlib.Repr):
    def __init__(self, longest: int) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = longest
        self.maxlevel = 3


def quote(value: object, longest: int = _LONGEST) -> str:
    r"""Spells a value as Python does, without what a terminal obeys, cut where it is long.

    >>> quote("a\x1b[2J"), quote("x" * 1000, 20)
    ("'a\\x1b[2J'", "'xxxxxxx...xxxxxxxx'")
    """
    return _cut(_Quoting(longest).repr(value), 2 * longest)


def one_line(text: str, longest: int = _LONGEST) -> str:
    r"""Makes text fit to be shown within a line: no control characters, cut where it is long.

    >>> one_line("a\x1b[2J\nb"), one_line("x" * 1000, 9)
    ('a\\x1b[2J\\nb', 'xxx...xxx')
    """
    text = _cut(text, longest)
    if text.isprintable():
        return text
    return _cut("".join(_visible(character) for character in text), longest)


def listed(names: Iterable[object], most: int = _LISTED) -> str:
    """Lists the first names of a file, each in one short line, and says how many more there are.

    >>> listed(["a", "b", "c", "d"], most=2), listed([])
    ('a, b and 2 more', 'none')
    """
    every = list(names)
    shown = ", ".join(one_line(str(name), _LONGEST // 2) for name in every[:most]) or "none"
    return shown if len(every) <= most else f"{shown} and {len(every) - most:,} more"


def _visible(character: str) -> str:
    # Control characters, halves of surrogate pairs, separators of lines and of paragraphs, and the
    # formats that turn the direction of writing, or hide.
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    if not hidden or character in _HARMLESS_FORMATS:
        return character
    return character.encode("unicode_escape").decode()


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    head = (longest - 3) // 2
    return f"{text[:head]}...{text[len(text) - (longest - 3 - head) :]}"
