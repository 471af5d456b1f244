"""What Google's tokenizer asks about a code point, pinned to Unicode 14.

Google's ``BasicTokenizer`` asks Python: ``unicodedata.category``, ``str.lower``,
``unicodedata.normalize("NFD", ...)``. The answers depend on the running Python (3.11 has Unicode
14.0, 3.12 has 15.0, 3.13 has 15.1), and a vocabulary is used for longer than a Python version.
These tables give Unicode 14's answers everywhere: no code point that Unicode 14 assigns was given
another one by 15.0 or 15.1, so it is enough to treat what came later as unassigned. An unassigned
or private code point is an ordinary letter without case, which is what Python 3.11 makes of it.

The tables are derived from ``unicodedata`` when first asked for (a fifth of a second, then kept:
they are constants). A test pins their checksum, so that a later Python that changes an answer is
noticed.

Source: google-research/bert ``tokenization.py``, ``BasicTokenizer``.
"""

import dataclasses
import functools
import unicodedata

import numpy as np

NUM_CODE_POINTS = 0x110000
REPLACEMENT_CHARACTER = 0xFFFD

# Assigned by Unicode 15.0 or 15.1, first and last code point of each range.
ASSIGNED_AFTER_14: tuple[tuple[int, int], ...] = (
    *((0x0CF3, 0x0CF3), (0x0ECE, 0x0ECE), (0x2FFC, 0x2FFF), (0x31EF, 0x31EF), (0x10EFD, 0x10EFF)),
    *((0x1123F, 0x11241), (0x11B00, 0x11B09), (0x11F00, 0x11F10), (0x11F12, 0x11F3A)),
    *((0x11F3E, 0x11F59), (0x1342F, 0x1342F), (0x13439, 0x13455), (0x1B132, 0x1B132)),
    *((0x1B155, 0x1B155), (0x1D2C0, 0x1D2D3), (0x1DF25, 0x1DF2A), (0x1E030, 0x1E06D)),
    *((0x1E08F, 0x1E08F), (0x1E4D0, 0x1E4F9), (0x1F6DC, 0x1F6DC), (0x1F774, 0x1F776)),
    *((0x1F77B, 0x1F77F), (0x1F7D9, 0x1F7D9), (0x1FA75, 0x1FA77), (0x1FA87, 0x1FA88)),
    *((0x1FAAD, 0x1FAAF), (0x1FABB, 0x1FABD), (0x1FABF, 0x1FABF), (0x1FACE, 0x1FACF)),
    *((0x1FADA, 0x1FADB), (0x1FAE8, 0x1FAE8), (0x1FAF7, 0x1FAF8), (0x2B739, 0x2B739)),
    *((0x2EBF0, 0x2EE5D), (0x31350, 0x323AF)),
)

# The blocks that Google's tokenizer calls Chinese characters, whatever is assigned in them.
IDEOGRAPHS: tuple[tuple[int, int], ...] = (
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF)),
    *((0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F)),
)

# ASCII's symbols, which Google's tokenizer calls punctuation although `$+<=>^`|~` are not P*.
ASCII_PUNCTUATION: tuple[tuple[int, int], ...] = ((33, 47), (58, 64), (91, 96), (123, 126))


@dataclasses.dataclass(frozen=True)
class CodePoints:
    """Unicode 14's properties, one array element per code point (``NUM_CODE_POINTS`` of them).

    Attributes:
        dropped: bool; cleaning removes it: NUL, U+FFFD, and Cc and Cf but for tab and line ends.
        space: bool; it separates words: tab, line feed, return, Zs, U+2028 and U+2029.
        ideograph: bool; stands as a word of its own, decided before any normalisation.
        punctuation: bool; stands as a word of its own, decided after normalisation.
        nonspacing: bool; category Mn, which an uncased tokenizer strips.
        combining_class: uint8; what canonical ordering sorts by, 0 = does not move.
        cased: bool; before or after a capital sigma, it decides which small sigma that becomes.
        case_ignorable: bool; is looked through when that is decided.
        lowered: for each assigned code point that this changes, its ``lower()`` in NFD, marks
            kept. U+03A3 is here with its form inside a word, U+03C3.
    """

    dropped: np.ndarray
    space: np.ndarray
    ideograph: np.ndarray
    punctuation: np.ndarray
    nonspacing: np.ndarray
    combining_class: np.ndarray
    cased: np.ndarray
    case_ignorable: np.ndarray
    lowered: dict[int, str]


@functools.cache
def code_points() -> CodePoints:
    """The tables, built once a process.

    >>> table = code_points()
    >>> table.lowered[ord("É")] == "e" + chr(0x301)
    True
    >>> bool(table.punctuation[ord("$")]), bool(table.space[0x2028]), bool(table.dropped[0x85])
    (True, True, True)
    """
    later = _members(ASSIGNED_AFTER_14)
    dropped, space, punctuation, nonspacing, cased, case_ignorable = (
        np.zeros(NUM_CODE_POINTS, bool) for _ in range(6)
    )
    combining_class = np.zeros(NUM_CODE_POINTS, np.uint8)
    lowered = {}
    for code in (*range(0x40000), *range(0xE0000, 0xE1000)):  # nothing is assigned elsewhere
        character = chr(code)
        category = unicodedata.category(character)
        if later[code] or category in ("Cn", "Co", "Cs"):
            continue
        space[code] = category[0] == "Z" or character in "\t\n\r"
        dropped[code] = category in ("Cc", "Cf") and not space[code]
        punctuation[code] = category[0] == "P"
        nonspacing[code] = category == "Mn"
        combining_class[code] = unicodedata.combining(character)
        # Python does not publish these two properties; what a capital sigma behind the character
        # becomes tells them: final behind a cased one, and looked through what is ignorable.
        final_behind = (character + "Σ").lower()[-1] == "ς"
        final_behind_letter = ("A" + character + "Σ").lower()[-1] == "ς"
        cased[code] = final_behind
        case_ignorable[code] = final_behind_letter and not final_behind
        normal = unicodedata.normalize("NFD", character.lower())
        if normal != character:
            lowered[code] = normal
    dropped[REPLACEMENT_CHARACTER] = True

    return CodePoints(
        dropped=dropped,
        space=space,
        ideograph=_members(IDEOGRAPHS),
        punctuation=punctuation | _members(ASCII_PUNCTUATION),
        nonspacing=nonspacing,
        combining_class=combining_class,
        cased=cased,
        case_ignorable=case_ignorable,
        lowered=lowered,
    )


def _members(ranges: tuple[tuple[int, int], ...]) -> np.ndarray:
    """A bool array over all code points, True inside the ranges."""
    members = np.zeros(NUM_CODE_POINTS, bool)
    for first, last in ranges:
        members[first : last + 1] = True
    return members
