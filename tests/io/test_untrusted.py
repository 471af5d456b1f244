"""Parsing of untrusted JSON."""

import math

import pytest

from bert_tf.io import untrusted


def test_parse_json_equals_json_module():
    assert untrusted.parse_json('{"a": [1, 2.5, null, "ä"]}', "a") == {"a": [1, 2.5, None, "ä"]}
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32-le"):
        assert untrusted.parse_json('["ä"]'.encode(encoding), "a") == ["ä"]
    assert untrusted.parse_json('\ufeff["ä"]', "a") == ["ä"]
    assert untrusted.parse_json("[Infinity]", "a") == [math.inf]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.json, line 3 is not JSON: Expecting value: line 1 column 1 (char 0)."),
        (b'{"a": "\xff"}',
         "a.json, line 3 is not JSON: 'utf-8' codec can't decode byte 0xff in position 7: "
         "invalid start byte."),
        ('{"a": 1, "a": 2}', "a.json, line 3 is not JSON: duplicate key 'a'."),
        ("[" * 100_000, "a.json, line 3 cannot be read as JSON: it is nested too deeply."),
        ("[1]", "a.json, line 3: expected a JSON object, got list."),
        ("9" * 5000, "a.json, line 3 is not JSON: Exceeds the limit"),
    ],
)  # fmt: skip
def test_invalid_json_object_raises_error(text, message):
    with pytest.raises(ValueError) as caught:
        untrusted.parse_json_object(text, "a.json, line 3", unique_keys=True)
    assert str(caught.value).startswith(message)


def test_is_number():
    assert all(map(untrusted.is_number, (0, -1.5, 10**300)))
    assert not any(map(untrusted.is_number, (True, None, "1", [1], math.nan, -math.inf, 10**400)))
