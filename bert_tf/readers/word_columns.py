"""How tables and CoNLL's files hold words, and which texts come back as they were."""

import contextlib
import re
from typing import Any

from .examples import BadRowError, shown, spelt_list

DOCUMENT_START = "-DOCSTART-"
# Only blanks and tabs separate columns: a word may be, or hold, other white space.
_GAP = re.compile("[ \t]+")
# In files of single characters a word may be a blank, which a tab separates from its tag.
_BLANK_WORD = re.compile("( *)\t")


def is_table_word(text: str) -> bool:
    r"""True if a table of tagged words has a text as one word, and as it is, from a text of words.

    >>> is_table_word("York"), is_table_word("New York"), is_table_word("1\u00a0000")
    (True, False, False)
    """
    with contextlib.suppress(BadRowError):
        return list_of(text, "") == [text] and bool(text.strip("\0"))
    return False


def list_of(value: Any, what: str) -> list[Any]:
    """A cell's words or tags: a list, its spelling, or a text that white space separates."""
    value = spelt_list(value, what)
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list):
        return value
    raise BadRowError(f"expected a list in {what}, got {shown(value)}")


def is_conll_word(text: str) -> bool:
    r"""True if ``read_conll`` reads a text in a column as one word, unchanged.

    >>> is_conll_word("1\u00a0000"), is_conll_word("New York"), is_conll_word("-DOCSTART-")
    (True, False, False)
    """
    is_text = text.strip("\0") and "\n" not in text and not text.endswith("\r")
    return bool(is_text) and text != DOCUMENT_START and conll_columns(f"{text} O") == [text, "O"]


def conll_columns(line: str) -> list[str]:
    r"""Returns the columns of a line of a CoNLL file, [""] for an empty one.

    >>> conll_columns("York B-LOC"), conll_columns(" \tO"), conll_columns(" \t")
    (['York', 'B-LOC'], [' ', 'O'], [''])
    """
    # Where files were joined there is a byte order mark.
    line = line.removeprefix("\ufeff")
    columns = _GAP.split(line.strip(" \t"))
    blank = _BLANK_WORD.match(line) if columns != [""] else None
    return [blank[1], *columns] if blank else columns
