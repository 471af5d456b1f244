"""Mutations of bytes, JSON and lines: from a random generator and contents to others."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

Mutator = Callable[[Random, bytes], bytes]

# Sentences about a value must neither repeat all of it nor its control characters.
_TEXTS = ("", " ", "x", "12", "-1", "nan", "../../etc/passwd", "/dev/zero", "..", "\x1b[31mred\x07",
          "\x00", "a\nb", "a\r\nb", "\ufeff", "\u202eabc", "\x9b31m", "\ud800", "a" * 100_000, "=1",
          "[PAD]", "##", "\u200b")  # fmt: skip
_NUMBERS = (0, 1, -1, 2, 127, 2**31, 2**63, 10**9, 10**30, 0.5, -0.5, 1e-30, 1e300, 100_001)
_VALUES = (None, True, False, [], {}, [[]], [None], {"": None}, *_NUMBERS, *_TEXTS)
# JSON that no Python value stands for.
_RAW = ("NaN", "Infinity", "1" * 5000, "[" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000,
        "1e99999", "01", "'x'", "", '{"a":1,"a":2}', "[1,]", '"\\ud800"', '"\x01"')  # fmt: skip
_CELLS = (*_TEXTS, '"', '""', 'a"b', "\t", ",", ";", "\r", "\n", "\u2028", "\x85", "\x0c", "B-",
          "I-PER", "-DOCSTART-", "NULL", "1.0", "inf", '["a"]', "1,5", "١", "e\u0301", "&a [*a]",
          "a: &x {<<: *x}", "!!python/object/apply:os.system [true]", "[" * 3000)  # fmt: skip
_MARK = "@raw@"


def mutate_bytes(rng: Random, content: bytes) -> bytes:
    """Turns a bit, writes or inserts odd bytes, repeats some, or cuts some out."""
    data = bytearray(content or b"\0")
    at = rng.randrange(len(data))
    length = min(len(data) - at, rng.choice((1, 2, 4, 8, 16, 64, 4096)))
    odd = rng.choice((bytes(length), b"\xff" * length, b"\x7f" * length, rng.randbytes(length)))
    kind = rng.randrange(7)
    if kind <= 1:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 2:
        data[at : at + length] = odd
    elif kind == 3:
        data[at:at] = odd
    elif kind == 4:
        data[at:at] = data[at : at + length]
    else:
        del data[at : at + length if kind == 5 else len(data)]
    return bytes(data)


def mutate_json(rng: Random, content: bytes) -> bytes:
    """Changes values and keys of a JSON file, or its text."""
    if rng.random() < 0.15:
        return mutate_bytes(rng, content)
    root = {"": json.loads(content)}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder, key = rng.choice(_places(root))
        value = holder[key]
        kind = rng.randrange(8)
        if kind == 0 and holder is not root:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[rng.choice((*_TEXTS, key + "x"))] = value
        elif kind == 2:
            holder[key] = _MARK
        else:
            holder[key] = rng.choice((*_VALUES, *_like(value)))
    text = json.dumps(root.get(""), ensure_ascii=False)
    text = text.replace(f'"{_MARK}"', rng.choice(_RAW))
    return text.encode("utf-8", "surrogatepass")


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    found, left = [], [value]
    for item in left:
        keys = item if isinstance(item, dict) else range(len(item))
        found += [(item, key) for key in keys]
        left += [item[key] for key in keys if isinstance(item[key], dict | list)]
    return found


def _like(value: Any) -> list[Any]:
    """What is nearly a value."""
    found = [{"value": value}, [value], [value] * 1000, str(value)]
    if isinstance(value, int | float):
        found += [value + 1, -value, value * 1000, float(value), not value]
    if isinstance(value, str | list):
        found += [value[:-1], value * 2, value[::-1]]
    if isinstance(value, dict):
        found += [list(value), dict.fromkeys(value)]
    return found


def mutate_lines(rng: Random, content: bytes) -> bytes:
    """Changes lines of text: whole lines, cells, or the text's encoding."""
    lines = content.decode().split("\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(10)
    if kind <= 3:
        place = rng.randint(0, len(lines[at]))
        end = place + rng.choice((0, 0, 1, 3, 1000))
        lines[at] = lines[at][:place] + rng.choice(_CELLS) + lines[at][end:]
    elif kind == 4:
        del lines[at]
    elif kind == 5:
        lines.insert(at, lines[other])
    elif kind == 6:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 7:
        lines[at] *= rng.choice((2, 100, 20_000))
    elif kind == 8:
        return mutate_bytes(rng, content)
    else:
        end = rng.choice(("\r\n", "\r", "\n\n", "\u2028", "\x85", "\n\ufeff"))
        return end.join(lines).encode(rng.choice(("utf-8", "utf-16", "utf-32", "utf-8-sig")))
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def mutate_json_lines(rng: Random, content: bytes) -> bytes:
    """Changes JSON lines: a line's value, or the lines."""
    if rng.random() < 0.3:
        return mutate_lines(rng, content)
    lines = content.rstrip(b"\n").split(b"\n")
    at = rng.randrange(len(lines))
    lines[at] = mutate_json(rng, lines[at])
    return b"\n".join(lines)
