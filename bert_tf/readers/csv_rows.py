"""Rows of a .csv by the csv module, and where a row ends that it refuses.

The module splits lines into fields, and refuses a row whose quotes are misplaced. It does not say
where such a row ends: what follows on the next lines may be the row's text, and look like rows. A
reader that skips bad rows needs that, so that no text becomes a row.
"""

import collections
import csv
import re
from collections.abc import Iterator, Sequence

from .examples import BadRowError
from .text_files import read_lines

# The csv module's own limit is 131,072 characters. A longer field than these is no text, but what
# follows a quote that nothing ends.
_LONGEST_FIELD = 1 << 30
_QUOTES = re.compile('"+')
# A row's first line, and its fields or what is wrong with them.
Fields = tuple[int, list[str] | BadRowError]


def is_separator(fields: list[str] | BadRowError) -> bool:
    """Whether a line is Excel's, "sep=" and the separator."""
    return fields == ["sep=", ""]


def csv_rows(path: str, encoding: str, delimiter: str) -> Iterator[Fields]:
    """The rows of a file, and what is wrong with those that are none."""
    lines = _Lines(path, encoding)
    quoting = _Quoting(delimiter)
    taken: list[str] = []  # the row's lines

    def take() -> Iterator[str]:
        for line in lines:
            taken.append(line)
            yield line

    reader = csv.reader(take(), strict=True, delimiter=delimiter)
    width = 0
    may_end = True
    while True:
        first = lines.count + 1
        taken.clear()
        try:
            fields = _next_row(reader)
        except csv.Error as error:
            if lines.has_ended:
                raise ValueError(
                    f"{path}, line {first}: a quoted field of this row never ends; double each "
                    "quote that is text, and put quotes round the field."
                ) from error
            may_end = _skip_broken_row(lines, taken, width, may_end, quoting)
            where = "" if lines.count == first else f" (in its lines {first} to {lines.count})"
            yield first, BadRowError(f"expected {quoting.what} fields, got: {error}{where}")
            continue
        if fields is None:
            return
        if not is_separator(fields):
            width = width or len(fields)
        yield first, fields or [""]


class _Lines:
    """A file's lines with their ends, some of which may be put back."""

    def __init__(self, path: str, encoding: str) -> None:
        self.count = 0  # given so far
        self.has_ended = False
        self._lines = (text + "\n" for _, text in read_lines(path, encoding))
        self._put_back: collections.deque[str] = collections.deque()

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._put_back.popleft() if self._put_back else next(self._lines, None)
        self.has_ended = line is None
        if line is None:
            raise StopIteration
        self.count += 1
        return line

    def put_back(self, lines: Sequence[str]) -> None:
        self._put_back.extendleft(reversed(lines))
        self.count -= len(lines)


def _next_row(reader: Iterator[list[str]]) -> list[str] | None:
    # The limit is the whole process's: other readers keep theirs.
    limit = csv.field_size_limit(_LONGEST_FIELD)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(limit)


def _skip_broken_row(
    lines: _Lines, taken: list[str], width: int, may_end: bool, quoting: "_Quoting"
) -> bool:
    """Skips a row whose quotes are misplaced, and the lines after it that may be its text.

    A quote in it that is followed by neither a comma nor a line's end counts as text. So the row
    ends where its last quoted field does, unless all lines from that of the error to there are rows
    without a misplaced quote. Where the next quote of the file ends a field that none began, a
    quote at which the row seemed to end was text, too.

    ``lines`` are those after the line of the error, ``taken`` the row's so far, ``width`` is the
    number of its fields. Without ``may_end`` no quote that ends a field is looked for; returned is
    whether one may still follow.
    """
    is_open = False
    for line in taken:
        is_open = quoting.is_open(line, is_open)
    ahead: list[str] = []
    while is_open and may_end:
        line = next(lines, "")
        if line:
            ahead.append(line)
            is_open = quoting.is_open(line, is_open)
        else:
            may_end = False
    if not may_end or (ahead and quoting.are_rows("".join(ahead), width)):
        lines.put_back(ahead)
        return may_end
    ahead = []
    for line in lines:
        ahead.append(line)
        if '"' in line:
            break
    if not ahead or not quoting.ends_field.match(ahead[-1]):
        lines.put_back(ahead)
    return True


class _Quoting:
    """Where the quoted fields of lines begin and end, for fields that ``delimiter`` separates."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter
        self.what = "comma-separated" if delimiter == "," else f"{delimiter!r}-separated"
        mark = re.escape(delimiter)
        # A line whose first quote ends a field that the line does not begin.
        self.ends_field = re.compile(rf'[^"]*[^"{mark}]"(?:"")*[{mark}\n]')
        # A field without a misplaced quote or a single return.
        self._field = rf'(?:"[^"]*(?:""[^"]*)*"|[^"{mark}\r\n]*)'

    def is_open(self, line: str, is_open: bool) -> bool:
        """Whether a quoted field is open at a line's end, and whether one is at its beginning."""
        ends_a_field = f"{self._delimiter}\n"
        at = 0
        while True:
            if not is_open and line.startswith('"', at):
                is_open = True
                at += 1
            if is_open:
                ends = (quotes.end() for quotes in _QUOTES.finditer(line, at) if len(quotes[0]) % 2)
                at = next((end for end in ends if line[end] in ends_a_field), -1)
                if at < 0:
                    return True
                is_open = False
            else:
                at = line.find(self._delimiter, at)
            if at < 0 or line[at] == "\n":
                return False
            at += 1

    def are_rows(self, text: str, width: int) -> bool:
        """Whether a text is whole rows of so many fields."""
        mark = re.escape(self._delimiter)
        row = re.compile(rf"{self._field}(?:{mark}{self._field}){{{width - 1}}}\n")
        at = 0
        while at < len(text):
            found = row.match(text, at)
            if not found:
                return False
            at = found.end()
        return True
