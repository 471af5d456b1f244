"""Files of parts: what is written is read, and what is damaged is refused."""

import struct

import numpy as np
import pytest

from bert_tf.preparation.exchange import read_at, read_part, split_rows, write_parts

PARTS = [[b"one", b"two"], [], [b"\0" * 5], [b"three"]]


@pytest.fixture
def path(tmp_path):
    write_parts(str(tmp_path / "parts"), PARTS)
    return tmp_path / "parts"


def test_parts_are_read_one_by_one(path):
    assert [read_part(str(path), number) for number in range(4)] == [
        b"onetwo", b"", b"\0" * 5, b"three",
    ]  # fmt: skip
    # The numbers and offsets of five borders, and what is in the parts.
    assert path.stat().st_size == 8 + 8 + 5 * 8 + 16


def test_a_record_is_read_at_its_offset(tmp_path):
    head = struct.Struct("<hI")
    records = [
        head.pack(number, len(text)) + text for number, text in enumerate([b"a", b"", b"bc"])
    ]
    write_parts(str(tmp_path / "parts"), [[records[0]], records[1:]])
    offsets = np.cumsum([0, *map(len, records)])
    found = [read_at(str(tmp_path / "parts"), int(offset), head) for offset in offsets[:-1]]
    assert found == [((0, 1), b"a"), ((1, 0), b""), ((2, 2), b"bc")]


def test_rows_go_to_their_parts():
    rows = np.arange(5, dtype="<i8")
    parts = split_rows(rows, np.array([0, 0, 2, 2, 3], np.uint64), 5)
    assert [np.frombuffer(b"".join(part), "<i8").tolist() for part in parts] == [
        [0, 1], [], [2, 3], [4], [],
    ]  # fmt: skip


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"X" + data[1:]])
def test_a_damaged_file_is_named(path, damage):
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=f"{path} is damaged: delete it, and give the same"):
        read_part(str(path), 3)
