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
_LONGEST = 120
_LISTED = 10
_LONGEST_REASON = 2000
# C0 and C1 controls, marks and turns of the writing's direction, separators of lines and of
# paragraphs, a byte order mark, annotations, what is no character, halves of surrogate pairs.
# Joiners and soft hyphens stay: words of some languages, and many emoji, need them.
_OBEYED = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)


def quote(value: object, longest: int = _LONGEST) -> str:
    """Spells a value as Python does, without what a terminal obeys, cut where it is long."""
    spelled = reprlib.Repr()
    spelled.maxstring = spelled.maxother = spelled.maxlong = longest
    spelled.maxlevel = 3
    return _cut(spelled.repr(value), 2 * longest)


def one_line(text: str, longest: int = _LONGEST) -> str:
    """Makes text fit to be shown within a line: no control characters, cut where it is long."""
    if len(text) > 2 * longest:  # what is left out anyway takes no time
        text = text[:longest] + text[-longest:]
    return _cut(_OBEYED.sub(_escape, text), longest)


def near_name(path: str) -> str:
    """Hint at a similar path that exists, for the sentence on a missing one."""
    folder, name = os.path.split(path)
    try:
        if glob.has_magic(name) or os.path.lexists(path):
            return ""
        others = sorted(os.listdir(folder or "."))
    except (OSError, ValueError):  # a name with a null byte
        return ""
    return did_you_mean(name, others, prefix=os.path.join(folder, ""))


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Behind an unknown name, the one that may be meant, as `` (did you mean --seed?)``."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {one_line(prefix + near[0])}?)" if near else ""


def markdown_code(text: str) -> str:
    """A text as code in Markdown; its fence is longer than any within.

    >>> markdown_code("a"), markdown_code("`b`")
    ('`a`', '`` `b` ``')
    """
    text = one_line(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    blank = " " if "`" in text[:1] + text[-1:] or not text else ""
    return f"{fence}{blank}{text}{blank}{fence}"


def listed(names: Iterable[object], limit: int = _LISTED) -> str:
    """Lists the first names of a file, each in one short line, and says how many more there are."""
    every = list(names)
    first = ", ".join(one_line(str(name), _LONGEST // 2) for name in every[:limit]) or "none"
    return first if len(every) <= limit else f"{first} and {len(every) - limit:,} more"


def reason(error: BaseException, longest: int = _LONGEST_REASON) -> str:
    """Message of an error on one line, without the names of TensorFlow's graph."""
    text = str(getattr(error, "message", None) or error) or type(error).__name__
    # Known by its name: most commands have not imported TensorFlow when they end.
    if any(base.__name__ == "OpError" for base in type(error).__mro__):
        text = re.sub(r"\{\{function_node [^}]*\}\} ?", "", text.split("[[{{node")[0])
        text = re.sub(r"\s*\[Op:\w+\][^\n]*\s*$", "", text).strip()
        if text.startswith("Graph execution error:"):
            text = text.split("\n\n")[-1]
    return one_line(re.sub(r"\s*\n\s*", " ", text.strip().split("\n\n")[0]), longest)


class Screen:
    """A stream of text that escapes what a terminal obeys and what its encoding does not have.

    Line breaks and tabs stay.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes text; gives the number of its characters."""
        shown = _OBEYED.sub(lambda match: _escape(match, "\n\t"), text)
        # A stream in memory has no encoding, and takes any text.
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _escape(match: re.Match[str], allowed: str = "") -> str:
    return match[0] if match[0] in allowed else match[0].encode("unicode_escape").decode()


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    head = (longest - 3) // 2
    return f"{text[:head]}...{text[len(text) - (longest - 3 - head) :]}"


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


def print_as_lines() -> None:
    """Makes a process print what is told as one line each, other warnings as before."""
    show = warnings.showwarning

    def show_line(message: Any, category: type[Warning], *place: Any, **options: Any) -> None:
        if issubclass(category, DifferenceWarning):
            print(message, file=sys.stderr, flush=True)
        else:
            show(message, category, *place, **options)

    warnings.showwarning = show_line
    warnings.simplefilter("always", DifferenceWarning)
