"""Google's clean-up as a model for tensorflow-text's ``FastBertNormalize`` op.

The op replaces each code point by what its model says. tensorflow-text's own model approximates
Google's ``BasicTokenizer`` (it folds case, and turns control characters into spaces); this one is
Google's, exactly, wherever a code point's replacement does not depend on its neighbours. Where it
does, the model puts ``DOUBTFUL``, alone between spaces: the tokenizer sees that word's id, and
takes the whole string to ``normalization.WordSplitter`` instead. So no string is scanned twice to
find the few that need it.

Punctuation beyond ASCII comes out between spaces, because the op behind this one splits at what
*its* ICU calls punctuation, and that may be older than Unicode 14. An invalid UTF-8 byte is
removed, as Google's ``convert_to_unicode`` does (``bytes.decode("utf-8", "ignore")``).
"""

import dataclasses
import functools
import itertools
import unicodedata
from collections.abc import Iterator

import flatbuffers
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
    """The tables, built once a process."""
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


# Cleaning removes U+0001 from every text, so nothing else can come out as this.
DOUBTFUL = "\x01"
CAPITAL_SIGMA = 0x03A3

# The trie's values: bit 30 "is replaced", bits 6-29 where in the pool of strings, bits 0-5 the
# number of bytes there.
_IS_REPLACED = 1 << 30
_POOL_SHIFT = 6
# The trie's units, see _double_array.
_BLOCK = 256
_HAS_VALUE = 1 << 8
_OFFSET_SHIFT = 10
_IS_VALUE = 1 << 31


@functools.cache
def build_normalizer_model(do_lower_case: bool) -> np.ndarray:
    """The op's model, ``FastBertNormalizerModel``: uint8, built once a process."""
    pool = bytearray()
    values: dict[bytes, int] = {}

    def value(replacement: bytes) -> int:
        if replacement not in values:
            values[replacement] = _IS_REPLACED | len(pool) << _POOL_SHIFT | len(replacement)
            pool.extend(replacement)
        return values[replacement]

    replaced = replacements(do_lower_case)
    # NUL ends a key of the trie, so the model holds its value apart.
    value_of_nul = value(replaced.pop(0).encode())
    entries = dict.fromkeys(_ill_formed_sequences(), value(b""))
    entries |= {chr(code).encode(): value(new.encode()) for code, new in replaced.items()}
    trie = _double_array(entries)

    builder = flatbuffers.Builder(trie.nbytes + len(pool) + 64)
    pool_offset = builder.CreateByteVector(bytes(pool))
    trie_offset = builder.CreateNumpyVector(trie)
    builder.StartObject(4)
    builder.PrependBoolSlot(0, do_lower_case, False)
    builder.PrependUOffsetTRelativeSlot(1, trie_offset, 0)
    builder.PrependInt32Slot(2, value_of_nul, 0)
    builder.PrependUOffsetTRelativeSlot(3, pool_offset, 0)
    builder.Finish(builder.EndObject())
    return np.frombuffer(bytes(builder.Output()), np.uint8)


def replacements(do_lower_case: bool) -> dict[int, str]:
    """Replacement of each code point that the model changes."""
    table = code_points()
    # Punctuation between spaces, but ASCII's, which is written into the op behind this one.
    spaced = {code: f" {chr(code)} " for code in _where(table.punctuation) if code >= 0x80}
    changed = dict(spaced)
    if do_lower_case:
        stripped = dict.fromkeys(_where(table.nonspacing), "")
        changed |= stripped
        changed |= {
            code: normal.translate(stripped).translate(spaced)
            for code, normal in table.lowered.items()
        }
        changed |= dict.fromkeys(_where(doubtful_code_points(table)), f" {DOUBTFUL} ")
    changed |= dict.fromkeys(_where(table.dropped), "")
    changed |= dict.fromkeys(_where(table.space), " ")
    del changed[ord(" ")]
    return changed


def doubtful_code_points(table: CodePoints) -> np.ndarray:
    """The code points whose lower-case form depends on the context: a bool array over all.

    They are the capital sigma, and what is or contains a mark that canonical ordering moves and
    stripping keeps, of combining class not 0 and category Mc.
    """
    doubtful = (table.combining_class > 0) & ~table.nonspacing
    for code, normal in table.lowered.items():
        doubtful[code] = any(doubtful[ord(character)] for character in normal)
    doubtful[CAPITAL_SIGMA] = True
    return doubtful


def _where(flags: np.ndarray) -> list[int]:
    """The code points of which a property is true."""
    return np.flatnonzero(flags).tolist()


def _ill_formed_sequences() -> Iterator[bytes]:
    """Every byte string that the op takes for one ill-formed character (Unicode, section 3.9)."""
    for byte in range(0x80, 0x100):
        yield bytes([byte])
    for code in range(0x800, NUM_CODE_POINTS, 0x40):
        if not 0xD800 <= code < 0xE000:
            character = chr(code).encode()
            for length in range(2, len(character)):
                yield character[:length]


def _double_array(entries: dict[bytes, int]) -> np.ndarray:
    """A trie from UTF-8 bytes to values below 2**31, as a uint32 vector.

    A unit has the form of darts-clone: bits 0-7 the label (the byte that leads here), bit 8 "has
    a value", bits 10-30 the offset. The child for byte b of the node at n is at n ^ offset ^ b,
    its value at n ^ offset, where bit 31 tells it from any label. The bytes that continue a
    character are 0x80-0xBF, so that no search for free places is needed: behind the root's
    children, a block of 256 units has the children of two nodes in its upper half, and in its
    lower half values: the two nodes' own, and the leaves', of which equal ones share a place.
    """
    nodes = {key[:length] for key in entries for length in range(1, len(key) + 1)}
    parents = sorted({node[:-1] for node in nodes} - {b""})
    # base = n ^ offset.
    base = {b"": _BLOCK}
    for number, parent in enumerate(parents):
        base[parent] = (2 + number // 2) * _BLOCK + number % 2 * _BLOCK // 4
    free_places = (
        block * _BLOCK + place
        for block in itertools.count(2)
        for place in range(1, _BLOCK // 2)
        if place != _BLOCK // 4
    )
    place_of_value: dict[int, int] = {}
    for leaf in sorted(nodes - base.keys()):
        value = entries[leaf]
        if value not in place_of_value:
            place_of_value[value] = next(free_places)
        base[leaf] = place_of_value[value]

    units = np.zeros((max(base.values()) // _BLOCK + 1) * _BLOCK, np.uint32)
    units[0] = base[b""] << _OFFSET_SHIFT
    for node in nodes:
        place = base[node[:-1]] ^ node[-1]
        units[place] |= (place ^ base[node]) << _OFFSET_SHIFT | node[-1]
        if node in entries:
            units[place] |= _HAS_VALUE
            units[base[node]] = entries[node] | _IS_VALUE
    return units
