"""What is told is a warning at the caller's line, and one line on a command's standard error."""

import subprocess
import sys
import textwrap
import warnings

import pytest

import bert_tf
from bert_tf.io.messages import warn


def test_a_warning_stands_at_the_callers_line_and_may_be_made_an_error():
    with pytest.warns(bert_tf.DifferenceWarning, match="a key is ignored") as told:
        warn(["a key is ignored"])
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", bert_tf.DifferenceWarning)
        with pytest.raises(bert_tf.DifferenceWarning, match="a key is ignored"):
            warn(["a key is ignored"])


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
