"""Mutations of bytes, JSON, lines and cells: from a random generator and contents to others."""

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

_INTERESTING = (0, 1, 2, 7, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
                2**53, 2**60, 2**63 - 1, 2**63, 2**64 - 1)  # fmt: skip
# Sentences about a value must neither repeat all of it nor its control characters.
_TEXTS = ("", " ", "x", "false", "12", "-1", "1e9", "nan", "../../etc/passwd", "/dev/zero", "..",
          "\x1b[31mred\x07", "\x00", "a\nb", "a\r\nb", "\ufeff", "\u202eabc", "\x9b31m", "\ud800",
          "é" * 50, "a" * 100_000, "=1+1", "{}", "[PAD]", "##", "\u200b")  # fmt: skip
_NUMBERS = (0, 1, -1, 2, 3, 5, 127, -128, 2**31 - 1, 2**31, -(2**31), 2**63, 10**9, 10**12, 10**30,
            0.5, -0.5, 1e-30, 1e300, 1.5, 100_001)  # fmt: skip
# JSON that no Python value stands for.
_RAW = ("NaN", "Infinity", "-Infinity", "1" * 5000, "[" * 100_000, "[" * 100_000 + "]" * 100_000,
        '{"a":' * 50_000 + "1" + "}" * 50_000, "1e99999", "-0", "01", "'x'", "", '{"a":1,"a":2}',
        "[1,]", '"\\ud800"', '"\\u0000"', '"\x01"')  # fmt: skip


def mutate_bytes(rng: Random, content: bytes) -> bytes:
    """One of a dozen changes anywhere in some bytes."""
    data = bytearray(content)
    size = len(data)
    if not size:
        return rng.randbytes(rng.randint(1, 20))
    at = rng.randrange(size)
    length = min(size - at, rng.choice((1, 2, 4, 8, 16, 64, 512, 4096)))
    kind = rng.randrange(12)
    if kind <= 2:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 3:
        data[at] = rng.choice((0, 0xFF, 0x80, 0x7F, rng.randrange(256)))
    elif kind == 4:
        for _ in range(rng.randint(2, 8)):
            data[rng.randrange(size)] ^= rng.randrange(1, 256)
    elif kind == 5:
        width = rng.choice((1, 2, 4, 8))
        number = rng.choice(_INTERESTING) % 256**width
        data[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))
    elif kind == 6:
        del data[at:]
    elif kind == 7:
        del data[at : at + length]
    elif kind == 8:
        data[at:at] = data[at : at + length]
    elif kind == 9:
        data[at:at] = rng.randbytes(length)
    elif kind == 10:
        data[at : at + length] = bytes(length)
    else:
        data[at : at + length] = rng.randbytes(length)
    return bytes(data)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    found: list[tuple[Any, Any]] = []
    left = [value]
    while left:
        item = left.pop()
        keys = item if isinstance(item, dict) else range(len(item))
        for key in keys:
            found.append((item, key))
            if isinstance(item[key], dict | list):
                left.append(item[key])
    return found


def odd_value(rng: Random, value: Any) -> Any:
    """Another value in place of one; a ``_Raw`` is text for ``dumps`` to put there."""
    kind = rng.randrange(10)
    if kind == 0:
        return rng.choice((None, True, False, [], {}, [[]], [None], {"": None}))
    if kind == 1:
        return rng.choice(_TEXTS)
    if kind == 2:
        return rng.choice(_NUMBERS)
    if kind == 3:
        return _Raw(rng.choice(_RAW))
    if kind == 4:
        return [value] * rng.choice((0, 1, 2, 1000))
    if kind == 5:
        return {"value": value}
    if isinstance(value, bool):
        return rng.choice((not value, int(value), str(value).lower()))
    if isinstance(value, int | float):
        return rng.choice((value + 1, value - 1, -value, value * 1000, value + 0.5, str(value),
                           float(value)))  # fmt: skip
    if isinstance(value, str):
        at = rng.randint(0, len(value))
        text = rng.choice(_TEXTS)
        return rng.choice((value[:at] + text + value[at:], value[:at], value.upper(), value * 2))
    if isinstance(value, list):
        return rng.choice((value[::-1], value[:-1], value + value, [*value, rng.choice(_NUMBERS)]))
    if isinstance(value, dict):
        return rng.choice((list(value), list(value.values()), dict.fromkeys(value), str(value)))
    return 0


class _Raw(str):
    """What stands in the JSON text as it is."""


def mutate_value(rng: Random, value: Any) -> Any:
    """Changes a JSON value in place, or gives another."""
    found = places(value) if isinstance(value, dict | list) else []
    if not found or rng.random() < 0.03:
        return odd_value(rng, value)
    container, key = rng.choice(found)
    kind = rng.randrange(6)
    if kind <= 2:
        container[key] = odd_value(rng, container[key])
    elif kind == 3:
        del container[key]
    elif kind == 4 and isinstance(container, dict):
        name = rng.choice((*_TEXTS, key + "x", key.upper(), "a" * 3000))
        if rng.random() < 0.5:
            container[name] = container.pop(key)
        else:
            container[name] = odd_value(rng, container[key])
    else:
        other, place = rng.choice(found)
        if not _holds(container[key], other) and not _holds(other[place], container):
            container[key], other[place] = other[place], container[key]
    return value


def _holds(value: Any, container: Any) -> bool:
    """Whether a container is a value, or lies in it: a swap would make a cycle."""
    if value is container:
        return True
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return any(_holds(item, container) for item in items)
    return False


def dumps(value: Any) -> bytes:
    """JSON of a value with ``_Raw`` in it."""
    raw: list[str] = []

    def marked(item: Any) -> Any:
        if isinstance(item, _Raw):
            raw.append(item)
            return f"@raw{len(raw) - 1}@"
        if isinstance(item, dict):
            return {key: marked(member) for key, member in item.items()}
        if isinstance(item, list):
            return [marked(member) for member in item]
        return item

    text = json.dumps(marked(value), ensure_ascii=False)
    text = re.sub(r'"@raw(\d+)@"', lambda match: raw[int(match[1])], text)
    return text.encode("utf-8", "surrogatepass")


def mutate_json(rng: Random, content: bytes) -> bytes:
    """Changes a JSON file: its values mostly, else its text."""
    try:
        value = json.loads(content)
    except ValueError:
        return mutate_bytes(rng, content)
    kind = rng.random()
    if kind < 0.75:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            value = mutate_value(rng, value)
        return dumps(value)
    if kind < 0.8:  # a key twice
        text = content.decode()
        keys = list(re.finditer(r'"[^"\\]+"\s*:', text))
        if keys:
            match = rng.choice(keys)
            twice = match[0] + dumps(odd_value(rng, 0)).decode("utf-8", "replace") + ","
            return (text[: match.start()] + twice + text[match.start() :]).encode()
    if kind < 0.85:
        return rng.choice((b"\xef\xbb\xbf" + content, content.decode().encode("utf-16"), b"",
                           content + b"x", content + content, b"null", b"[" * 100_000,
                           content.replace(b'"', b"'"), b"// x\n" + content))  # fmt: skip
    return mutate_bytes(rng, content)


_CELLS = (*_TEXTS, '"', '""', '"a', 'a"b', "\t", ",", ";", "|", "\r", "\n", "\u2028", "\x85",
          "\x0c", "\x1c", "O", "B-", "I-PER", "B-PER-X", "b_per", "-DOCSTART-", "NULL", "None",
          "1.0", "inf", "[]", '["a"]', "'a'", "1,5", "١", "\U0001f600", "e\u0301")  # fmt: skip


def mutate_lines(rng: Random, content: bytes) -> bytes:
    """Changes lines of text: whole lines, cells, or the text's encoding."""
    lines = content.decode().split("\n")
    at = rng.randrange(len(lines))
    kind = rng.randrange(14)
    if kind <= 3:
        line = lines[at]
        place = rng.randint(0, len(line))
        cut = rng.choice((0, 0, 1, 3))
        lines[at] = line[:place] + rng.choice(_CELLS) + line[place + cut :]
    elif kind == 4:
        del lines[at]
    elif kind == 5:
        lines.insert(at, lines[rng.randrange(len(lines))])
    elif kind == 6:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 7:
        lines[at] = rng.choice(("", " ", "\t\t", rng.choice(_CELLS)))
    elif kind == 8:
        cells = re.split(r"([\t, ])", lines[at])
        cells[rng.randrange(len(cells))] = rng.choice(_CELLS)
        lines[at] = "".join(cells)
    elif kind == 9:
        lines[at] = lines[at].swapcase()
    elif kind == 10:
        end = rng.choice(("\r\n", "\r", "\n\n", "\u2028", "\x85", "\x0b"))
        return end.join(lines).encode("utf-8", "surrogatepass")
    elif kind == 11:
        text = "\n".join(lines)
        return rng.choice((text.encode("utf-16"), text.encode("latin-1", "replace") + b"\xe9\n",
                           b"\xef\xbb\xbf" + text.encode(), text.encode("utf-32")))  # fmt: skip
    elif kind == 12:
        return mutate_bytes(rng, content)
    else:
        lines[at] *= rng.choice((2, 100, 20_000))
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def mutate_json_lines(rng: Random, content: bytes) -> bytes:
    """Changes JSON lines: a line's value, or the lines."""
    if rng.random() < 0.3:
        return mutate_lines(rng, content)
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    lines[at] = mutate_json(rng, lines[at])
    return b"\n".join(lines)


def mutate_yaml(rng: Random, content: bytes) -> bytes:
    """Changes YAML's lines; now and then a value, by what only YAML has."""
    if rng.random() < 0.6:
        return mutate_lines(rng, content)
    lines = content.decode().split("\n")
    at = rng.randrange(len(lines))
    key = lines[at].split(":")[0]
    value = rng.choice(("&a [*a]", "!!python/object/apply:os.system [true]", "*b", "!!binary x",
                        "{" * 3000, "[" * 100_000, "1e999", ".nan", "yes", "0o17", "2020-13-45",
                        "&x {a: 1, <<: *x}", "? [1]\n: 2", "|\n  text", "12:30:45"))  # fmt: skip
    lines[at] = f"{key}: {value}"
    return "\n".join(lines).encode()


Mutator = Callable[[Random, bytes], bytes]
