"""Messages escape terminal control codes and truncate long values."""

import io
import subprocess
import sys
import textwrap
import warnings

import pytest

import bert_tf
from bert_tf.io import messages

# C0 and C1 codes, line and paragraph separators, bidirectional marks, and a lone surrogate.
CONTROL_CODES = [*map(chr, range(32)), "\x7f", *map(chr, range(0x80, 0xA0)), *"\u2028\u2029\ufeff"]
CONTROL_CODES += [*"\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ud800"]


@pytest.mark.parametrize(
    "show", [messages.quote, messages.one_line, lambda text: messages.listed([text])]
)
def test_control_codes_are_escaped(show):
    for character in CONTROL_CODES:
        assert character not in show(f"a{character}b"), ascii(character)
        assert "\\" in show(f"a{character}b")
        assert character not in show(character * 10**6)


def test_printable_text_is_unchanged():
    for text in ("Ünë 北京 \\ it's", "می\u200cخواهم", "👩\u200d👩", "co\u00adop", "a\u00a0b"):
        assert messages.one_line(text) == text


def test_long_values_are_truncated():
    assert messages.one_line("x" * 10**6, 21) == "x" * 9 + "..." + "x" * 9
    assert len(messages.quote("x" * 10**6)) == 120
    deep = "x" * 10**6
    for _ in range(8):
        deep = [{deep if isinstance(deep, str) else "key": deep}] * 50
    assert len(messages.quote(deep)) <= 240
    assert len(messages.listed(["x" * 10**6] * 10**4)) < 700


def test_escaped_stream_escapes_control_codes():
    output = io.StringIO()
    print(
        "a\tb\x1b[31m",
        "Ünë\u2028",
        "".join(CONTROL_CODES),
        file=messages.EscapedStream(output),
        flush=True,
    )
    assert output.getvalue().startswith("a\tb\\x1b[31m Ünë\\u2028 ")
    assert set(output.getvalue()) & set(CONTROL_CODES) == {"\t", "\n"}


def test_escaped_stream_escapes_unencodable_characters():
    for encoding, shown in (
        ("ascii", "\\xfc \\u5317"),
        ("latin-1", "ü \\u5317"),
        ("utf-16", "ü 北"),
    ):
        written = io.BytesIO()
        with io.TextIOWrapper(written, encoding) as stream:
            print("ü 北", file=messages.EscapedStream(stream), end="", flush=True)
            assert written.getvalue() == shown.encode(encoding)


def test_reason_omits_graph_of_tensorflow_errors(tmp_path):
    import tensorflow as tf

    path = str(tmp_path / "none")
    for call in (
        lambda: tf.io.read_file(path),
        tf.function(lambda: tf.io.read_file(path)),
        lambda: tf.raw_ops.RestoreV2(
            prefix=path, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32]
        ),
    ):
        with pytest.raises(tf.errors.NotFoundError) as caught:
            call()
        reason = messages.reason(caught.value)
        assert path in reason and not {"{", "[", "\n"} & set(reason), reason
        # Text after the TensorFlow message is kept.
        assert messages.reason(ValueError(f"{caught.value.message}; go on.")).endswith("go on.")


def test_reason_of_empty_error_is_its_class_name():
    assert messages.reason(MemoryError()) == "MemoryError"


# === DifferenceWarning ===


def test_warning_is_attributed_to_caller_and_can_be_an_error():
    with pytest.warns(bert_tf.DifferenceWarning, match="a key is ignored") as caught:
        messages.warn(["a key is ignored"])
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", bert_tf.DifferenceWarning)
        with pytest.raises(bert_tf.DifferenceWarning, match="a key is ignored"):
            messages.warn(["a key is ignored"])


def test_warnings_are_printed_as_lines_of_stderr():
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
