"""Formatting of values in messages, and ``DifferenceWarning``.

``quote``, ``one_line`` and ``listed`` format names, labels and keys from files: they escape control
characters and line breaks, and shorten long values.
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
# C0 and C1 controls, bidirectional marks, line and paragraph separators, byte order marks,
# annotations, noncharacters and lone surrogates. Joiners and soft hyphens are not escaped, because
# some languages and many emoji need them.
_CONTROL_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)


def quote(value: object, max_length: int = _MAX_LENGTH) -> str:
    """Returns the ``repr`` of a value, escaped and shortened."""
    representation = reprlib.Repr()
    representation.maxstring = representation.maxother = representation.maxlong = max_length
    representation.maxlevel = 3
    return _shorten(representation.repr(value), 2 * max_length)


def one_line(text: str, max_length: int = _MAX_LENGTH) -> str:
    """Returns text on one line, with control characters escaped, shortened to ``max_length``."""
    if len(text) > 2 * max_length:  # Do not escape characters that are cut.
        text = text[:max_length] + text[-max_length:]
    return _shorten(_CONTROL_CHARACTERS.sub(_escape, text), max_length)


def near_name(path: str) -> str:
    """Returns a suggestion for a missing path, `` (did you mean PATH?)``, or an empty string."""
    folder, name = os.path.split(path)
    try:
        if glob.has_magic(name) or os.path.lexists(path):
            return ""
        siblings = sorted(os.listdir(folder or "."))
    except (OSError, ValueError):  # such as for a name with a null byte
        return ""
    return did_you_mean(name, siblings, prefix=os.path.join(folder, ""))


def did_you_mean(name: str, names: Iterable[str], prefix: str = "") -> str:
    """Returns a suggestion for an unknown name, `` (did you mean --seed?)``, or an empty string."""
    matches = difflib.get_close_matches(name, list(names), 1)
    return f" (did you mean {one_line(prefix + matches[0])}?)" if matches else ""


def markdown_code(text: str) -> str:
    """Returns text as inline code in Markdown.

    >>> markdown_code("a"), markdown_code("`b`")
    ('`a`', '`` `b` ``')
    """
    text = one_line(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    blank = " " if "`" in text[:1] + text[-1:] or not text else ""
    return f"{fence}{blank}{text}{blank}{fence}"


def listed(names: Iterable[object], limit: int = _MAX_LISTED) -> str:
    """Joins the first names, each shortened to one line, and adds the number of remaining names."""
    all_names = list(names)
    first = ", ".join(one_line(str(name), _MAX_LENGTH // 2) for name in all_names[:limit]) or "none"
    return first if len(all_names) <= limit else f"{first} and {len(all_names) - limit:,} more"


def reason(error: BaseException, max_length: int = _MAX_REASON_LENGTH) -> str:
    """Returns an error's message on one line, without the names of graph nodes."""
    text = str(getattr(error, "message", None) or error) or type(error).__name__
    # The class is compared by name, because most commands fail before TensorFlow is imported.
    if any(base.__name__ == "OpError" for base in type(error).__mro__):
        text = re.sub(r"\{\{function_node [^}]*\}\} ?", "", text.split("[[{{node")[0])
        text = re.sub(r"\s*\[Op:\w+\][^\n]*\s*$", "", text).strip()
        if text.startswith("Graph execution error:"):
            text = text.split("\n\n")[-1]
    return one_line(re.sub(r"\s*\n\s*", " ", text.strip().split("\n\n")[0]), max_length)


class EscapedStream:
    """Text stream that escapes control characters and characters outside its encoding.

    Line breaks and tabs are not escaped.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes text and returns the number of characters."""
        escaped = _CONTROL_CHARACTERS.sub(lambda match: _escape(match, "\n\t"), text)
        # Streams in memory have no encoding.
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
    """Warning that bert_tf handles a file's setting differently, or assumes a missing value.

    To raise an error instead, call
    ``warnings.simplefilter("error", bert_tf.DifferenceWarning)``.

    >>> import warnings
    >>> issubclass(DifferenceWarning, UserWarning)
    True
    """


def warn(messages: Iterable[str]) -> None:
    """Issues a ``DifferenceWarning`` per message, attributed to the line that called bert_tf."""
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    for message in messages:
        warnings.warn(message, DifferenceWarning, stacklevel=level)


def print_warnings_as_lines() -> None:
    """Makes the process print each ``DifferenceWarning`` as one line on standard error."""
    show = warnings.showwarning

    def show_line(message: Any, category: type[Warning], *location: Any, **options: Any) -> None:
        if issubclass(category, DifferenceWarning):
            print(message, file=sys.stderr, flush=True)
        else:
            show(message, category, *location, **options)

    warnings.showwarning = show_line
    warnings.simplefilter("always", DifferenceWarning)
