"""JSON of strangers is bounded, and what is shown of their files obeys no terminal's codes."""

import io
import math

import pytest

from bert_tf import untrusted


def test_json_is_read_as_pythons_own_json_does():
    assert untrusted.parse_json('{"a": [1, 2.5, null, "ä"]}', "a") == {"a": [1, 2.5, None, "ä"]}
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32-le"):
        assert untrusted.parse_json('["ä"]'.encode(encoding), "a") == ["ä"]
    assert untrusted.parse_json('\ufeff["ä"]', "a") == ["ä"]
    assert untrusted.parse_json("[Infinity]", "a") == [math.inf]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "a.json, line 3 is not JSON: Expecting value: line 1 column 1 (char 0)."),
        (b'{"a": "\xff"}',
         "a.json, line 3 is not JSON: 'utf-8' codec can't decode byte 0xff in position 7: "
         "invalid start byte."),
        ('{"a": 1, "a": 2}', "a.json, line 3 is not JSON: 'a' stands twice in it."),
        ("[" * 100_000, "a.json, line 3 is not JSON that is read: it is nested too deep."),
        ("[1]", "a.json, line 3: expected a JSON object, got a list."),
        ("9" * 5000, "a.json, line 3 is not JSON: Exceeds the limit"),
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_refused(text, sentence):
    with pytest.raises(ValueError) as caught:
        untrusted.parse_json_object(text, "a.json, line 3", unique_keys=True)
    assert str(caught.value).startswith(sentence)


def test_numbers_are_finite():
    assert all(map(untrusted.is_number, (0, -1.5, 10**300)))
    assert not any(map(untrusted.is_number, (True, None, "1", [1], math.nan, -math.inf, 10**400)))


# C0 and C1 codes, separators of lines and paragraphs, turns of the direction, half a character.
OBEYED = [*map(chr, range(32)), "\x7f", *map(chr, range(0x80, 0xA0)), *"\u2028\u2029\ufeff"]
OBEYED += [*"\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ud800"]


@pytest.mark.parametrize(
    "show", [untrusted.quote, untrusted.one_line, lambda text: untrusted.listed([text])]
)
def test_nothing_is_shown_that_a_terminal_obeys(show):
    for character in OBEYED:
        assert character not in show(f"a{character}b"), ascii(character)
        assert "\\" in show(f"a{character}b")
        assert character not in show(character * 10**6)


def test_words_are_shown_as_they_are():
    for text in ("Ünë 北京 \\ it's", "می\u200cخواهم", "👩\u200d👩", "co\u00adop", "a\u00a0b"):
        assert untrusted.one_line(text) == text


def test_nothing_long_is_shown():
    assert untrusted.one_line("x" * 10**6, 21) == "x" * 9 + "..." + "x" * 9
    assert len(untrusted.quote("x" * 10**6)) == 120
    deep = "x" * 10**6
    for _ in range(8):
        deep = [{deep if isinstance(deep, str) else "key": deep}] * 50
    assert len(untrusted.quote(deep)) <= 240
    assert len(untrusted.listed(["x" * 10**6] * 10**4)) < 700


def test_a_screen_is_written_no_more_than_text():
    screen = io.StringIO()
    print("a\tb\x1b[31m", "Ünë\u2028", "".join(OBEYED), file=untrusted.Screen(screen), flush=True)
    assert screen.getvalue().startswith("a\tb\\x1b[31m Ünë\\u2028 ")
    assert set(screen.getvalue()) & set(OBEYED) == {"\t", "\n"}


def test_tensorflows_errors_are_said_without_its_graph(tmp_path):
    import tensorflow as tf

    path = str(tmp_path / "none")
    for failing in (
        lambda: tf.io.read_file(path),
        tf.function(lambda: tf.io.read_file(path)),
        lambda: tf.raw_ops.RestoreV2(
            prefix=path, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32]
        ),
    ):
        with pytest.raises(tf.errors.NotFoundError) as caught:
            failing()
        said = untrusted.reason(caught.value)
        assert path in said and not {"{", "[", "\n"} & set(said), said
        # Advice behind it stays.
        assert untrusted.reason(ValueError(f"{caught.value.message}; go on.")).endswith("go on.")


def test_an_errors_kind_is_what_is_said_where_it_says_nothing():
    assert untrusted.reason(MemoryError()) == "MemoryError"
