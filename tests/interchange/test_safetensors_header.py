"""A header is believed only where it is what the format allows and fits the file."""

import json
import random

import numpy as np
import pytest

from bert_tf.interchange import safetensors_header
from bert_tf.interchange.safetensors import open_file


def _field(dtype="F32", shape=(1,), data_offsets=(0, 4), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(data_offsets), **more}


def _open(tmp_path, header, data_size=4):
    """Opens a file of a header, as bytes or as an object, and of zeros."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(data_size))
    return open_file(str(path))


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        (b'{"a":\xff}', r"m\.safetensors: the header is not JSON: 'utf-8' codec"),
        (b'{"a":', r"the header is not JSON: Expecting value"),
        (b"[1]", r"m\.safetensors: expected a header that begins with '\{', got b"),
        (b' {"a":1}', r"m\.safetensors: expected a header that begins with '\{', got b"),
        (b"", r"m\.safetensors: expected a header that begins with '\{', got b"),
        (b'{"a":1} {}', r"the header is not JSON: Extra data"),
        (
            b'{"a":' * 200_000,
            r"the header is not JSON that is read: it is nested deeper than 64 levels",
        ),
        (b'{"a":1,"a":2}', r"the header is not JSON: 'a' stands twice in it\."),
        (b'{"a":{"shape":1,"shape":2}}', r"'shape' stands twice in it\."),
        (b'{"\\ud800":1}', r"the header is not JSON: .*surrogates not allowed"),
        (b'{"a":' + b"9" * 5000 + b"}", r"the header is not JSON: Exceeds the limit"),
    ],
    ids=range(11),
)
def test_what_is_no_json_object_is_refused(tmp_path, header, sentence):
    with pytest.raises(ValueError, match=sentence):
        _open(tmp_path, header)


@pytest.mark.parametrize("metadata", [{"format": 1}, {"a": None}, {"a": {}}, ["a"], "a", None])
def test_metadata_maps_strings_to_strings(tmp_path, metadata):
    with pytest.raises(ValueError, match=r"expected __metadata__ to map strings to strings, got "):
        _open(tmp_path, {"__metadata__": metadata, "a": _field()})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"dtype": "F32", "shape": [1]},
        _field(strides=[1]),
        {**_field(), "extra": None},
        [1, 2, 3],
        None,
        "F32",
    ],
)
def test_a_tensor_has_three_fields(tmp_path, fields):
    sentence = r"tensor 'a' must have dtype, shape and data_offsets and nothing else, got "
    with pytest.raises(ValueError, match=sentence):
        _open(tmp_path, {"a": fields})


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "C64", "float32", "f32", "", 32, None, []])
def test_a_dtype_is_one_that_is_read(tmp_path, dtype):
    sentence = r"tensor 'a' has the dtype .*: expected one of BOOL, U8, .*BF16.*; convert the file"
    with pytest.raises(ValueError, match=sentence):
        _open(tmp_path, {"a": _field(dtype=dtype)})


@pytest.mark.parametrize(
    "shape",
    [
        *("[-1]", "[1.0]", "[true]", '["1"]', "[[1]]", "[null]", "1", "{}", "[1e0]", "[NaN]"),
        *("[9223372036854775808]", f"[{'9' * 4000}]", f"[{','.join('1' * 33)}]"),
    ],
)
def test_a_shape_consists_of_sizes(tmp_path, shape):
    header = json.dumps({"a": _field()}).replace('"shape": [1]', f'"shape": {shape}').encode()
    with pytest.raises(ValueError, match=r"'a' has the shape .*: expected at most 32 integers"):
        _open(tmp_path, header)


@pytest.mark.parametrize(
    "offsets",
    [
        *("[0]", "[0,4,8]", "[-4,0]", "[0,4.0]", "[false,4]", '["0","4"]', "4", "{}", "[0,1e99]"),
        "[0,18446744073709551616]",
    ],
)
def test_offsets_are_two_sizes(tmp_path, offsets):
    header = json.dumps({"a": _field()}).replace("[0, 4]", offsets).encode()
    with pytest.raises(ValueError, match=r"'a' has the data_offsets .*: expected two integers"):
        _open(tmp_path, header)


@pytest.mark.parametrize(
    ("shape", "offsets"),
    [
        # Products that are 0, or 4, modulo 2**64: what arithmetic that overflows would believe.
        ([2**32, 2**32], [0, 0]),
        ([2**62 + 1, 4], [0, 4]),
        # NumPy has no such array, though no byte of it is stored.
        ([2**62, 0], [0, 0]),
    ],
)
def test_sizes_do_not_overflow(tmp_path, shape, offsets):
    with pytest.raises(ValueError, match=r"tensor 'a' has the shape .*: no memory holds that\."):
        _open(tmp_path, {"a": _field(shape=shape, data_offsets=offsets)})


@pytest.mark.parametrize(
    ("dtype", "shape", "offsets", "sentence"),
    [
        ("F32", [2], [0, 4], r"takes 4 bytes by its data_offsets and 8 by its dtype and shape\."),
        ("BF16", [1], [0, 4], r"takes 4 bytes by its data_offsets and 2 by "),
        ("F32", [], [0, 8], r"takes 8 bytes by its data_offsets and 4 by "),
        ("F32", [0], [0, 4], r"takes 4 bytes by its data_offsets and 0 by "),
        ("F32", [1], [4, 0], r"takes -4 bytes by its data_offsets and 4 by "),
    ],
)
def test_offsets_fit_dtype_and_shape(tmp_path, dtype, shape, offsets, sentence):
    with pytest.raises(ValueError, match=f"tensor 'a' {sentence}"):
        _open(tmp_path, {"a": _field(dtype, shape, offsets)}, data_size=8)


@pytest.mark.parametrize(
    ("offsets", "data_size", "sentence"),
    [
        ([[0, 4], [4, 8]], 7, r"tensor 'b' ends at byte 8 of the data, which has 7 bytes: .*short"),
        ([[0, 4], [4 << 60, 4 + (4 << 60)]], 8, r"tensor 'b' ends at byte 4,611,686,018,427,387,9"),
        ([[0, 4], [0, 4]], 8, r"tensor 'b' begins at byte 0 .* tensor before it ends at 4: "),
        ([[2, 6], [0, 4]], 8, r"tensor 'a' begins at byte 2 .* ends at 4: expected tensors w"),
        ([[0, 4], [5, 9]], 9, r"tensor 'b' begins at byte 5 .* ends at 4: expected tensors w"),
        ([[8, 12], [4, 8]], 12, r"tensor 'b' begins at byte 4 .* ends at 0: expected tensors w"),
        ([[0, 4], [4, 8]], 11, r"m\.safetensors has 3 bytes after its last tensor: expected none"),
    ],
)
def test_tensors_fill_the_data(tmp_path, offsets, data_size, sentence):
    header = {n: _field(data_offsets=o) for n, o in zip("ab", offsets, strict=True)}
    with pytest.raises(ValueError, match=sentence):
        _open(tmp_path, header, data_size)


def test_a_tensor_without_bytes_lies_in_no_other(tmp_path):
    empty = {"dtype": "F32", "shape": [3, 0]}
    for position in (0, 4):
        header = {"a": _field(), "b": {**empty, "data_offsets": [position] * 2}}
        assert _open(tmp_path, header).tensors["b"].read().shape == (3, 0)
    with pytest.raises(ValueError, match=r"tensor 'b' begins at byte 2 .* ends at 4"):
        _open(tmp_path, {"a": _field(), "b": {**empty, "data_offsets": [2, 2]}})


def test_a_stranger_cannot_fill_the_screen(tmp_path):
    for header in ({"n" * 5000: {}}, {"a": {"n" * 5000: "v" * 5000}}, {"a": _field("x" * 5000)}):
        with pytest.raises(ValueError) as caught:
            _open(tmp_path, header)
        assert len(str(caught.value).replace(str(tmp_path), "")) < 400


def test_a_damaged_file_is_read_or_refused(tmp_path):
    """Whatever happens to a byte: tensors of the size they claim, or one sentence."""
    raw = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "a": _field("BF16", (2, 3), (0, 12)),
            "b": _field("F32", (1,), (12, 16)),
            "c": _field("BOOL", (0, 2), (16, 16)),
            "d": _field("I64", (), (16, 24)),
        },
        separators=(",", ":"),
    ).encode()
    whole = len(raw).to_bytes(8, "little") + raw + bytes(range(24))
    path = tmp_path / "m.safetensors"
    rng = random.Random(7)
    outcomes = {"read": 0, "refused": 0}
    for turn in range(2000):
        damaged = bytearray(whole)
        for _ in range(rng.choice([1, 1, 2, 5])):
            # A fifth of the blows fall on the header's length.
            position = rng.randrange(min(8, len(damaged)) if turn % 5 == 0 else len(damaged))
            action = rng.randrange(4)
            if action == 0:
                damaged[position] ^= 1 << rng.randrange(8)
            elif action == 1:
                damaged[position] = rng.choice(b'0123456789-.eE"[]{},: tn')
            elif action == 2:
                damaged.insert(position, rng.randrange(256))
            else:
                del damaged[max(1, position) :]
        path.write_bytes(damaged)
        try:
            tensors = open_file(str(path)).tensors
            for entry in tensors.values():
                array = entry.read()
                assert (array.shape, array.dtype) == (entry.shape, np.dtype(entry.dtype))
                assert array.nbytes < 100
            outcomes["read"] += 1
        except ValueError as error:
            assert str(path) in str(error)
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 20, outcomes


def test_more_tensors_than_any_model_has(monkeypatch):
    monkeypatch.setattr(safetensors_header, "MAX_TENSORS", 1)
    tensor = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    raw = json.dumps({"a": tensor, "b": tensor}).encode()
    with pytest.raises(
        ValueError, match=r"^m names 2 tensors: expected at most 1, more than any B"
    ):
        safetensors_header.check_header(raw, 0, "m")
