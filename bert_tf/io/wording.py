"""Text for people: values of files in sentences, each in one short line, and warnings.

A name, a label or a key of a file goes into a sentence or a table by ``quote``, ``one_line`` or
``listed``: without what a terminal obeys, line breaks, and what is long.

What is done otherwise than a file of another library says is told by ``warn``. In Python it is a
warning of a category of its own; a command prints it as one line on standard error. Each sentence
names the key and the consequence.
"""

import difflib
import glob
import os
import re
import reprlib
import sys
import warnings
from collections.abc import Iterable
from typing import Any, TextIO

_PACKAGE = __name__.partition(".")[0]
_MAX_LENGTH = 120
_MAX_LISTED = 10
_MAX_REASON_LENGTH = 2000
# C0 and C1 controls, marks and turns of the writing's direction, separators of lines and of
# paragraphs, a byte order mark, annotations, what is no character, halves of surrogate pairs.
# Joiners and soft hyphens stay: words of some languages, and many emoji, need them.
_CONTROL_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)


def quote(value: object, max_length: int = _MAX_LENGTH) -> str:
    """Spells a value as Python does, without what a terminal obeys, cut where it is long."""
    representation = reprlib.Repr()
    representation.maxstring = representation.maxother = representation.maxlong = max_length
    representation.maxlevel = 3
    return _shorten(representation.repr(value), 2 * max_length)


def one_line(text: str, max_length: int = _MAX_LENGTH) -> str:
    """Makes text fit to be shown within a line: no control characters, cut where it is long."""
    if len(text) > 2 * max_length:  # what is left out anyway takes no time
        text = text[:max_length] + text[-max_length:]
    return _shorten(_CONTROL_CHARACTERS.sub(_escape, text), max_length)


def near_name(path: str) -> str:
    """Hint at a similar path that exists, for the sentence on a missing one."""
    folder, name = os.path.split(path)
    try:
        if glob.has_magic(name) or os.path.lexists(path):
            return ""
        siblings = sorted(os.listdir(folder or "."))
    except (OSError, ValueError):  # a name with a null byte
        return ""
    return did_you_mean(name, siblings, prefix=os.path.join(folder, ""))


def did_you_mean(name: str, names: Iterable[str], prefix: str = "") -> str:
    """Behind an unknown name, the one that may be meant, as `` (did you mean --seed?)``."""
    matches = difflib.get_close_matches(name, list(names), 1)
    return f" (did you mean {one_line(prefix + matches[0])}?)" if matches else ""


def markdown_code(text: str) -> str:
    """A text as code in Markdown; its fence is longer than any within.

    >>> markdown_code("a"), markdown_code("`b`")
    ('`a`', '`` `b` ``')
    """
    text = one_line(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    blank = " " if "`" in text[:1] + text[-1:] or not text else ""
    return f"{fence}{blank}{text}{blank}{fence}"


def listed(names: Iterable[object], limit: int = _MAX_LISTED) -> str:
    """Lists the first names of a file, each in one short line, and says how many more there are."""
    all_names = list(names)
    first = ", ".join(one_line(str(name), _MAX_LENGTH // 2) for name in all_names[:limit]) or "none"
    return first if len(all_names) <= limit else f"{first} and {len(all_names) - limit:,} more"


def reason(error: BaseException, max_length: int = _MAX_REASON_LENGTH) -> str:
    """Message of an error on one line, without the names of TensorFlow's graph."""
    text = str(getattr(error, "message", None) or error) or type(error).__name__
    # Known by its name: most commands have not imported TensorFlow when they end.
    if any(base.__name__ == "OpError" for base in type(error).__mro__):
        text = re.sub(r"\{\{function_node [^}]*\}\} ?", "", text.split("[[{{node")[0])
        text = re.sub(r"\s*\[Op:\w+\][^\n]*\s*$", "", text).strip()
        if text.startswith("Graph execution error:"):
            text = text.split("\n\n")[-1]
    return one_line(re.sub(r"\s*\n\s*", " ", text.strip().split("\n\n")[0]), max_length)


class EscapedStream:
    """A stream of text that escapes what a terminal obeys and what its encoding does not have.

    Line breaks and tabs stay.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes text; gives the number of its characters."""
        escaped = _CONTROL_CHARACTERS.sub(lambda match: _escape(match, "\n\t"), text)
        # A stream in memory has no encoding, and takes any text.
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(escaped.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _escape(match: re.Match[str], allowed: str = "") -> str:
    return match[0] if match[0] in allowed else match[0].encode("unicode_escape").decode()


def _shorten(text: str, max_length: int) -> str:
    if len(text) <= max_length:
        return text
    head = (max_length - 3) // 2
    return f"{text[:head]}...{text[len(text) - (max_length - 3 - head) :]}"


# === Differences ===


class DifferenceWarning(UserWarning):
    """A file says something that this library does otherwise, or does not say what it assumed.

    ``warnings.simplefilter("error", bert_tf.DifferenceWarning)`` makes it an error.

    >>> import warnings
    >>> issubclass(DifferenceWarning, UserWarning)
    True
    """


def warn(messages: Iterable[str]) -> None:
    """Warns by each sentence, at the line that called the library."""
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    for message in messages:
        warnings.warn(message, DifferenceWarning, stacklevel=level)


def print_warnings_as_lines() -> None:
    """Makes a process print what is told as one line each, other warnings as before."""
    show = warnings.showwarning

    def show_line(message: Any, category: type[Warning], *location: Any, **options: Any) -> None:
        if issubclass(category, DifferenceWarning):
            print(message, file=sys.stderr, flush=True)
        else:
            show(message, category, *location, **options)

    warnings.showwarning = show_line
    warnings.simplefilter("always", DifferenceWarning)
