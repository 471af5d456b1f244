"""What is shown of others' files and errors obeys no terminal's codes, and is short."""

import io
import subprocess
import sys
import textwrap
import warnings

import pytest

import bert_tf
from bert_tf.io import messages

# C0 and C1 codes, separators of lines and paragraphs, turns of the direction, half a character.
OBEYED = [*map(chr, range(32)), "\x7f", *map(chr, range(0x80, 0xA0)), *"\u2028\u2029\ufeff"]
OBEYED += [*"\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ud800"]


@pytest.mark.parametrize(
    "show", [messages.quote, messages.one_line, lambda text: messages.listed([text])]
)
def test_nothing_is_shown_that_a_terminal_obeys(show):
    for character in OBEYED:
        assert character not in show(f"a{character}b"), ascii(character)
        assert "\\" in show(f"a{character}b")
        assert character not in show(character * 10**6)


def test_words_are_shown_as_they_are():
    for text in ("Ünë 北京 \\ it's", "می\u200cخواهم", "👩\u200d👩", "co\u00adop", "a\u00a0b"):
        assert messages.one_line(text) == text


def test_nothing_long_is_shown():
    assert messages.one_line("x" * 10**6, 21) == "x" * 9 + "..." + "x" * 9
    assert len(messages.quote("x" * 10**6)) == 120
    deep = "x" * 10**6
    for _ in range(8):
        deep = [{deep if isinstance(deep, str) else "key": deep}] * 50
    assert len(messages.quote(deep)) <= 240
    assert len(messages.listed(["x" * 10**6] * 10**4)) < 700


def test_a_screen_is_written_no_more_than_text():
    screen = io.StringIO()
    print(
        "a\tb\x1b[31m",
        "Ünë\u2028",
        "".join(OBEYED),
        file=messages.EscapedStream(screen),
        flush=True,
    )
    assert screen.getvalue().startswith("a\tb\\x1b[31m Ünë\\u2028 ")
    assert set(screen.getvalue()) & set(OBEYED) == {"\t", "\n"}


def test_a_screen_escapes_what_its_encoding_does_not_have():
    for encoding, shown in (
        ("ascii", "\\xfc \\u5317"),
        ("latin-1", "ü \\u5317"),
        ("utf-16", "ü 北"),
    ):
        written = io.BytesIO()
        with io.TextIOWrapper(written, encoding) as stream:
            print("ü 北", file=messages.EscapedStream(stream), end="", flush=True)
            assert written.getvalue() == shown.encode(encoding)


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
        said = messages.reason(caught.value)
        assert path in said and not {"{", "[", "\n"} & set(said), said
        # Advice behind it stays.
        assert messages.reason(ValueError(f"{caught.value.message}; go on.")).endswith("go on.")


def test_an_errors_kind_is_what_is_said_where_it_says_nothing():
    assert messages.reason(MemoryError()) == "MemoryError"


# === Differences ===


def test_a_warning_stands_at_the_callers_line_and_may_be_made_an_error():
    with pytest.warns(bert_tf.DifferenceWarning, match="a key is ignored") as told:
        messages.warn(["a key is ignored"])
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", bert_tf.DifferenceWarning)
        with pytest.raises(bert_tf.DifferenceWarning, match="a key is ignored"):
            messages.warn(["a key is ignored"])


def test_a_command_prints_each_as_a_line_of_standard_error():
    program = textwrap.dedent(
        """
        import warnings
        from bert_tf.io.messages import print_warnings_as_lines, warn

        print_warnings_as_lines()
        for _ in range(2):
            warn(["config.json: one", "config.json: two"])
        warnings.warn("another's", stacklevel=1)
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == ""
    lines = ["config.json: one", "config.json: two"] * 2
    assert done.stderr.splitlines() == [*lines, "<string>:8: UserWarning: another's"]
