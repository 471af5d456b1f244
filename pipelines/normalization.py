"""Splits text into words exactly as Google's or Hugging Face's code does.

tensorflow-text's ``FastBertNormalize`` replaces each code point according to a model. Its bundled
model approximates Google's cleaning: it folds case and turns control characters into spaces. The
model built here is exact wherever the replacement of a code point does not depend on its neighbors.
Elsewhere it inserts ``AMBIGUOUS``, surrounded by spaces. The tokenizer recognizes the id of that
word and passes the complete string to ``WordSplitter``, which is slower and follows the definition
step by step. Unambiguous strings are therefore scanned only once.

The model surrounds non-ASCII punctuation with spaces, because the next operation splits at the
punctuation of its ICU version, which may be older than Unicode 14. For the learner of vocabularies,
which only splits at spaces, it also surrounds ASCII punctuation and ideographs. Invalid UTF-8 bytes
are removed, as in Google's ``convert_to_unicode`` (``bytes.decode("utf-8", "ignore")``).

Hugging Face's package ``tokenizers`` 0.23 uses three Unicode versions: 8 for categories, 9 for
normal forms, and 17 for lower case. Its tables are Google's tables, modified as below.

Letters: N strings, C characters of all strings, W words of all strings.
"""

import dataclasses
import functools
import string
import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import flatbuffers
import numpy as np
import tensorflow as tf

from .bounded_memory import value_rows
from .text_rules import AS_GOOGLE, GOOGLE, SEPARATOR, TextRules, TokenFinder

NUM_CODE_POINTS = 0x110000
REPLACEMENT_CHARACTER = 0xFFFD


def _ranges(text: str) -> tuple[tuple[int, int], ...]:
    """Parses ranges in hexadecimal into pairs of first and last code point."""
    ends = (part.split("-") for part in text.split())
    return tuple((int(first, 16), int([first, *last][-1], 16)) for first, *last in ends)


# Code points that were assigned in Unicode 15.0 or 15.1.
ASSIGNED_AFTER_14 = _ranges("""
CF3 ECE 2FFC-2FFF 31EF 10EFD-10EFF 1123F-11241 11B00-11B09 11F00-11F10 11F12-11F3A 11F3E-11F59 1342F
13439-13455 1B132 1B155 1D2C0-1D2D3 1DF25-1DF2A 1E030-1E06D 1E08F 1E4D0-1E4F9 1F6DC 1F774-1F776
1F77B-1F77F 1F7D9 1FA75-1FA77 1FA87-1FA88 1FAAD-1FAAF 1FABB-1FABD 1FABF 1FACE-1FACF 1FADA-1FADB
1FAE8 1FAF7-1FAF8 2B739 2EBF0-2EE5D 31350-323AF""")

# Blocks that Google's tokenizer treats as Chinese characters, including unassigned code points.
IDEOGRAPHS = _ranges(
    "3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2B73F 2B740-2B81F 2B820-2CEAF 2F800-2FA1F"
)

# === Differences of ``tokenizers`` ===

# Code points that are treated as letters, because their properties were added after Unicode 8.
_LETTERS_UNTIL_8 = """
61D 7FD 890-8E2 9FD-9FE A76 AFA-AFF B55 C04-C3C C77 C84 D00 D3B-D3C D81 EBA 1715 180F-1886 1ABF-1ACE
1B7D-1B7E 1DF6-1DFB 2E43-2E5D A82C A8C5 A8FF A9BD 10D24-10F89 11070-11074 110C2-110CD 111C9 111CF
1123E 1133B 11438-1145E 11660-1166C 116B9 1182F-11FFF 12FF1-13438 16E97-16F4F 16FE2-16FF1
1CF00-1CF46 1E000-1E2EF 1E944-1E95F"""
# The code points among these that are marks in Unicode 9, which canonical ordering moves.
_MARKS_OF_9 = "8D4-8E1 1DFB 11442-11446 11C3F 1E000-1E02A 1E944-1E94A"
_PUNCTUATION_UNTIL_8 = "166D 111C9"
_NONSPACING_UNTIL_8 = "1734"
_NO_IDEOGRAPHS = "2B820-2B91F"  # a typo in ``tokenizers``: 2B920 instead of 2B820
_PRIVATE = "E000-F8FF F0000-FFFFD 100000-10FFFD"  # removed like control characters
# Capitals added after Unicode 14, and the offsets of their lower-case letters.
_LATER_CAPITALS = {
    **{"1C89 A7CC A7CE A7D2 A7D4 A7DA": 1, "10D50-10D65": 0x20, "16EA0-16EB8": 0x1B},
    **{"A7CB": 0x264 - 0xA7CB, "A7DC": 0x19B - 0xA7DC},
}
# Punctuation of Unicode 15 to 17 for the operation that splits words.
_LATER_PUNCTUATION = """
1B4E-1B4F 1B7F 10D6E 113D4-113D5 113D7-113D8 11B00-11B09 11BE1 11F43-11F4F 16D6D-16D6F 1E5FF"""


# Google's tokenizer treats all of these as punctuation, although `$+<=>^`|~` are not in category P.
ASCII_PUNCTUATION = frozenset(string.punctuation)


@dataclasses.dataclass(frozen=True)
class CodePoints:
    """Character properties, as arrays indexed by code point."""

    dropped: np.ndarray  # bool; removed by cleaning: NUL, U+FFFD, Cc and Cf except white space
    space: np.ndarray  # bool; word separator: tab, line feed, return, Zs, U+2028 and U+2029
    ideograph: np.ndarray  # bool; a separate word, determined before normalization
    punctuation: np.ndarray  # bool; a separate word, determined after normalization
    nonspacing: np.ndarray  # bool; category Mn, which accent stripping removes
    cased: np.ndarray  # bool; determines the lower case of an adjacent capital sigma
    case_ignorable: np.ndarray  # bool; skipped when looking for adjacent cased characters
    combining_class: np.ndarray  # uint8; key of canonical ordering, 0 if it does not move
    # Lower case (U+03A3 becomes U+03C3) and canonical decomposition of code points that change.
    lowered: dict[int, str]
    decomposed: dict[int, str]


class Normalization(NamedTuple):
    """Casing and ``TextRules`` options that determine the words of a text."""

    lower: bool
    strip: bool
    characters: str = GOOGLE
    split_ideographs: bool = True
    separated: bool = False  # whether spaces separate all words, without a further operation

    @classmethod
    def from_rules(cls, do_lower_case: bool, rules: TextRules) -> "Normalization":
        """Creates the normalization of a tokenizer from its casing and rules."""
        strip = do_lower_case if rules.strip_accents is None else rules.strip_accents
        return cls(do_lower_case, strip, rules.characters, rules.split_ideographs)

    @property
    def has_final_sigma(self) -> bool:
        """Whether the lower case of a capital sigma depends on its position in the word."""
        return self.lower and self.characters == GOOGLE


@functools.cache
def code_points(characters: str = GOOGLE) -> CodePoints:
    """Returns the character properties, built once per process."""
    return _google_code_points() if characters == GOOGLE else _tokenizers_code_points()


def _google_code_points() -> CodePoints:
    """Builds the properties of Unicode 14, on every Python version."""
    flags, classes = np.zeros((7, NUM_CODE_POINTS), bool), np.zeros(NUM_CODE_POINTS, np.uint8)
    table = CodePoints(*[*flags, classes, {}, {}])
    table.ideograph[:] = _members(IDEOGRAPHS)
    later = _members(ASSIGNED_AFTER_14)
    for code in (*range(0x40000), *range(0xE0000, 0xE1000)):  # all assigned code points
        # Most are ideographs, which have none of the other properties unless they decompose.
        if later[code] or (table.ideograph[code] and not unicodedata.decomposition(chr(code))):
            continue
        character = chr(code)
        category = unicodedata.category(character)
        if category in ("Cn", "Co", "Cs"):
            continue
        table.space[code] = category[0] == "Z" or character in "\t\n\r"
        table.dropped[code] = category in ("Cc", "Cf") and not table.space[code]
        table.punctuation[code] = category[0] == "P" or character in ASCII_PUNCTUATION
        table.nonspacing[code] = category == "Mn"
        table.combining_class[code] = unicodedata.combining(character)
        # Python does not expose these two properties. They follow from the lower case of a capital
        # sigma after the character: it is final after a cased character, even if case-ignorable
        # characters are in between.
        is_final_after = (character + "Σ").lower()[-1] == "ς"
        is_final_after_letter = ("A" + character + "Σ").lower()[-1] == "ς"
        table.cased[code] = is_final_after
        table.case_ignorable[code] = is_final_after_letter and not is_final_after
        if (small := character.lower()) != character:
            table.lowered[code] = small
        if (normal := unicodedata.normalize("NFD", character)) != character:
            table.decomposed[code] = normal
    table.dropped[REPLACEMENT_CHARACTER] = True
    return table


def _tokenizers_code_points() -> CodePoints:
    """Returns Google's properties, modified by the differences in ``tokenizers``."""
    google = code_points(GOOGLE)
    letters = _members(_ranges(_LETTERS_UNTIL_8))
    small = {
        code: chr(code + distance)
        for ranges, distance in _LATER_CAPITALS.items()
        for code in _where(_members(_ranges(ranges)))
    }
    return dataclasses.replace(
        google,
        dropped=google.dropped & ~letters | _members(_ranges(_PRIVATE)),
        ideograph=google.ideograph & ~_members(_ranges(_NO_IDEOGRAPHS)),
        punctuation=google.punctuation & ~letters | _members(_ranges(_PUNCTUATION_UNTIL_8)),
        nonspacing=google.nonspacing & ~letters | _members(_ranges(_NONSPACING_UNTIL_8)),
        combining_class=np.where(
            letters & ~_members(_ranges(_MARKS_OF_9)), 0, google.combining_class
        ).astype(np.uint8),
        lowered=google.lowered | small,
        decomposed={at: form for at, form in google.decomposed.items() if not letters[at]},
    )


@functools.cache
def normal_forms(normalization: Normalization) -> dict[int, str]:
    """Returns the lowercase decomposed form, including marks, of each code point that changes."""
    table = code_points(normalization.characters)
    lowered = table.lowered if normalization.lower else {}
    decomposed = table.decomposed if normalization.strip else {}
    forms = {}
    for code in sorted(lowered.keys() | decomposed.keys()):
        form = decomposed.get(code, chr(code))
        forms[code] = "".join(lowered.get(ord(c), c) for c in form)
    return {code: form for code, form in forms.items() if form != chr(code)}


def _members(ranges: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Returns a bool array over all code points, True inside the ranges."""
    members = np.zeros(NUM_CODE_POINTS, bool)
    for first, last in ranges:
        members[first : last + 1] = True
    return members


# Cleaning removes U+0001 from every text, so this output is unique.
AMBIGUOUS = "\x01"
CAPITAL_SIGMA = 0x03A3

# Values in the trie: bit 30 means "is replaced", bits 6-29 are the offset in the pool of strings,
# and bits 0-5 are the number of bytes.
_IS_REPLACED = 1 << 30
_POOL_SHIFT = 6
# Units of the trie; see _double_array.
_BLOCK = 256
_HAS_VALUE = 1 << 8
_OFFSET_SHIFT = 10
_IS_VALUE = 1 << 31
_CHILDREN = 64  # continuation bytes, from 0x80
_FREE = np.array([index for index in range(1, _BLOCK // 2) if index != _CHILDREN])


@functools.cache
def build_normalizer_model(normalization: Normalization) -> np.ndarray:
    """Builds a ``FastBertNormalizerModel``, uint8, once per process."""
    pool = bytearray()
    value_of: dict[str, int] = {}

    def value(replacement: str) -> int:
        if replacement not in value_of:
            data = replacement.encode()
            value_of[replacement] = _IS_REPLACED | len(pool) << _POOL_SHIFT | len(data)
            pool.extend(data)
        return value_of[replacement]

    removed = value("")
    values = np.zeros(NUM_CODE_POINTS, np.int32)
    for code, new in replacements(normalization).items():
        values[code] = value(new)
    values[code_points(normalization.characters).dropped] = removed
    # NUL terminates keys of the trie, so the model stores its value separately.
    value_of_nul, values[0] = int(values[0]), 0
    trie = _double_array(values, removed)

    builder = flatbuffers.Builder(trie.nbytes + len(pool) + 64)
    pool_offset = builder.CreateByteVector(bytes(pool))
    trie_offset = builder.CreateNumpyVector(trie)
    builder.StartObject(4)
    builder.PrependBoolSlot(0, normalization.strip, False)
    builder.PrependUOffsetTRelativeSlot(1, trie_offset, 0)
    builder.PrependInt32Slot(2, value_of_nul, 0)
    builder.PrependUOffsetTRelativeSlot(3, pool_offset, 0)
    builder.Finish(builder.EndObject())
    return np.frombuffer(bytes(builder.Output()), np.uint8)


@functools.cache
def replacements(normalization: Normalization) -> Mapping[int, str]:
    """Returns the replacement of each code point that the model changes and does not drop."""
    table = code_points(normalization.characters)
    isolated = table.punctuation.copy()
    if normalization.separated:
        isolated |= table.ideograph
    else:  # The next operation splits at ASCII punctuation and at ideographs.
        isolated[:0x80] = False
    spaced = {code: f" {chr(code)} " for code in _where(isolated)}
    changed = dict(spaced)
    stripped = dict.fromkeys(_where(table.nonspacing), "") if normalization.strip else {}
    changed |= stripped
    for code, form in normal_forms(normalization).items():
        changed[code] = form.translate(stripped).translate(spaced)
    changed |= dict.fromkeys(_where(ambiguous_code_points(normalization)), f" {AMBIGUOUS} ")
    changed |= dict.fromkeys(_where(table.space), " ")
    del changed[ord(" ")]
    return changed


def ambiguous_code_points(normalization: Normalization) -> np.ndarray:
    """Returns a mask of the code points whose replacement depends on their neighbors.

    These are capital sigmas with final forms; when stripping accents, code points with marks that
    canonical ordering moves but stripping keeps (combining class above 0, category Mc); and code
    points that only the next operation treats as separate words.
    """
    table = code_points(normalization.characters)
    ambiguous = np.zeros(NUM_CODE_POINTS, bool)
    if normalization.strip:
        ambiguous |= (table.combining_class > 0) & ~table.nonspacing
    if normalization.characters != GOOGLE:
        google = code_points(GOOGLE)
        isolated = google.punctuation | google.ideograph | _members(_ranges(_LATER_PUNCTUATION))
        ideograph = table.ideograph & normalization.split_ideographs
        ambiguous |= isolated & ~(table.punctuation | ideograph)
    for code, form in normal_forms(normalization).items():
        ambiguous[code] |= any(ambiguous[ord(character)] for character in form)
    if normalization.has_final_sigma:
        ambiguous[CAPITAL_SIGMA] = True
    return ambiguous


def _runs(flags: np.ndarray) -> list[tuple[int, int]]:
    """Returns the first and last code point of each run of True."""
    ends = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0))
    return [(int(first), int(end) - 1) for first, end in ends.reshape(-1, 2)]


def _where(flags: np.ndarray) -> list[int]:
    """Returns the code points where a property is True."""
    return np.flatnonzero(flags).tolist()


def _double_array(values: np.ndarray, removed: int) -> np.ndarray:
    """Builds a trie from UTF-8 to values below 2**31, as a uint32 vector.

    ``values`` contains the values by code point; 0 means that a code point is not in the trie.
    Ill-formed characters (Unicode, section 3.9) have the value ``removed``: they are the bytes
    above 0x7F, and incomplete characters of several bytes.

    Units have the format of darts-clone: bits 0-7 are the label (the byte that leads here), bit 8
    means "has a value", and bits 10-30 are the offset. The child for byte b of the node at n is at
    n ^ offset ^ b. The value is at n ^ offset, marked by bit 31. Continuation bytes are 0x80-0xBF,
    so free indices need no search: after the root's children, each block of 256 units stores the
    children of two nodes in its upper half, and values in its lower half. Equal values of leaves
    share an index, as do the children of equal nodes.
    """
    leaf_values = np.unique([*values[values > 0], removed])
    order = np.arange(leaf_values.size)
    value_index = (2 + order // _FREE.size) * _BLOCK + _FREE[order % _FREE.size]
    leaf = value_index[np.searchsorted(leaf_values, removed)]
    # A base is n ^ offset. The bases of a node's children are a row, with 0 for a missing child.
    base_of: dict[bytes, int] = {}

    def add(rows: np.ndarray) -> np.ndarray:
        """Adds nodes with these children, and returns their bases."""
        bases = np.full(len(rows), leaf)
        for at in np.flatnonzero(rows.any(axis=1)):
            free = (2 + len(base_of) // 2) * _BLOCK + len(base_of) % 2 * _CHILDREN
            bases[at] = base_of.setdefault(rows[at].tobytes(), free)
        return bases

    codes = np.flatnonzero(values)
    leaves = np.zeros(values.size, np.int64)
    leaves[codes] = value_index[np.searchsorted(leaf_values, values[codes])]
    # Characters of two, three and four bytes start at 0x80, 0x800 and 0x10000. The longest prefixes
    # are added first, because the rows of shorter ones contain their bases.
    characters = leaves.reshape(-1, _CHILDREN)
    shorter = np.zeros(len(characters), leaves.dtype)
    shorter[0x10000 >> 6 :] = add(characters[0x10000 >> 6 :])
    shorter[0x800 >> 6 : 0x10000 >> 6] = add(characters[0x800 >> 6 : 0x10000 >> 6])
    pairs = shorter.reshape(-1, _CHILDREN)
    fours = np.zeros(5 * _CHILDREN, leaves.dtype)
    fours[0x10000 >> 12 : len(pairs)] = add(pairs[0x10000 >> 12 :])
    root = np.concatenate([leaves[:0x80], np.full(0x80, leaf)])
    root[0xC2:0xE0] = add(characters[0x80 >> 6 : 0x800 >> 6])
    root[0xE0:0xF0] = add(pairs[: 0x10000 >> 12])
    root[0xF0:0xF5] = add(fours.reshape(-1, _CHILDREN))

    nodes = np.array([*base_of.values()])
    rows = np.frombuffer(b"".join(base_of), leaves.dtype).reshape(-1, _CHILDREN)
    units = np.zeros((max(nodes[-1], value_index[-1]) // _BLOCK + 1) * _BLOCK, np.uint32)
    units[0] = _BLOCK << _OFFSET_SHIFT
    row, column = np.nonzero(rows)
    for start, label, base in (
        (nodes[row], column + 0x80, rows[row, column]),
        (_BLOCK, np.flatnonzero(root), root[root > 0]),
    ):
        index = start ^ label
        units[index] = (index ^ base) << _OFFSET_SHIFT | _HAS_VALUE | label
    units[value_index] = leaf_values | _IS_VALUE
    units[nodes] = removed | _IS_VALUE
    return units


# === The definition ===

FINAL_SIGMA = 0x03C2

# Traits of a code point are bits; the bits from 8 on are the combining class.
_DROPPED, _SPACE, _SOLO, _NONSPACING, _CASED, _CASE_IGNORABLE = (1 << bit for bit in range(6))
_CLASSES = 1 << 8


class Words(NamedTuple):
    """Words of N strings, and the source positions of their characters."""

    words: tf.RaggedTensor  # [N, (words)] string, normalized
    num_characters: tf.Tensor  # (W,) int64, characters per word
    token_ids: tf.Tensor  # (W,) int32, id of an added token, else -1
    # (C,) int64, for each character: its first byte in the concatenated words; its first byte in
    # the source string; and its end in the source string, after any removed characters that follow.
    character_starts: tf.Tensor
    source_starts: tf.Tensor
    source_ends: tf.Tensor


class _Characters(NamedTuple):
    """Characters of N normalized strings."""

    codes: tf.Tensor  # (C,) int32
    traits: tf.Tensor  # (C,) int32
    rows: tf.Tensor  # (C,) int64, index of the string
    starts: tf.Tensor  # (C,) int64, first byte in the string
    tokens: tf.Tensor  # (C,) int64, index of the added token from 1, or 0
    ids: tf.Tensor  # (K,) int32, ids of the added tokens


class WordSplitter:
    """Cleans text, optionally lower-cases it and strips accents, and splits it into words.

    Added tokens are words, regardless of their characters.
    """

    def __init__(self, do_lower_case: bool, rules: TextRules = AS_GOOGLE):
        self._normalization = Normalization.from_rules(do_lower_case, rules)
        firsts, traits = _trait_ranges(self._normalization)
        # U+0000, which cleaning removes, ensures that every code point has a preceding entry.
        forms = sorted({0: "\0", **normal_forms(self._normalization)}.items())
        with tf.init_scope(), tf.device("CPU:0"):
            self._range_firsts = tf.constant(firsts)
            self._range_traits = tf.constant(traits)
            if len(forms) > 1:
                self._form_keys = tf.constant([code for code, _ in forms], tf.int32)
                self._form_splits = tf.constant(
                    np.cumsum([0, *(len(new) for _, new in forms)]), tf.int32
                )
                self._form_codes = tf.constant(
                    [ord(character) for _, new in forms for character in new], tf.int32
                )
        self._has_forms = len(forms) > 1
        self._finders: list[TokenFinder | None] = [None, None]
        is_ideograph = code_points(rules.characters).ideograph & rules.split_ideographs
        # Contents are normalized first, because the finder of raw text would exclude parts of them.
        for normalized in (True, False):
            tokens = [t for t in rules.added_tokens if t.normalized == normalized]
            if tokens:
                contents = [token.content for token in tokens]
                if normalized:
                    contents = self._normalize_strings(contents)
                self._finders[normalized] = TokenFinder(
                    contents,
                    tokens,
                    rules.split_special_tokens,
                    _runs(is_ideograph) if normalized else (),
                )

    def _normalize_strings(self, strings: Sequence[str]) -> list[str]:
        """Normalizes the contents of added tokens that are matched in normalized text."""
        with tf.init_scope(), tf.device("CPU:0"):
            codes, _, rows, *_ = self._normalize(tf.constant(strings))
            rows = tf.RaggedTensor.from_value_rowids(codes, rows, len(strings))
            encoded = tf.strings.unicode_encode(rows, "UTF-8").numpy()
        normalized = [text.decode() for text in encoded]
        for content, text in zip(strings, normalized, strict=True):
            if not text:
                raise ValueError(f"Added token {content!r} is empty once normalized. Remove it.")
        return normalized

    def __call__(self, strings: tf.Tensor) -> Words:
        """Splits a vector of strings, shape (N,), into words."""
        codes, traits, rows, starts, tokens, ids = self._normalize(strings)
        finder = self._finders[1]
        if finder is not None:
            rest = tf.where(tokens > 0, SEPARATOR, codes)
            numbers, found = finder(rest, rows, tf.size(strings, tf.int64))
            tokens = tf.where(numbers > 0, numbers + tf.size(ids, tf.int64), tokens)
            ids = tf.concat([ids, found], 0)
            traits = tf.where(tokens > 0, 0, traits)
        ends = _source_ends(strings, rows, starts)

        is_space, is_solo = traits & _SPACE != 0, traits & _SOLO != 0
        follows = (rows == _shift(rows, -1)) & (_shift(traits, _SPACE) & (_SPACE | _SOLO) == 0)
        follows &= tokens == _shift(tokens, 0)
        begins = ~is_space & (is_solo | ~follows)
        codes, rows, starts, ends, tokens, begins = _keep(
            ~is_space, codes, rows, starts, ends, tokens, begins
        )
        word_of_character = tf.cumsum(tf.cast(begins, tf.int64)) - 1
        word_codes = tf.RaggedTensor.from_value_rowids(
            codes, word_of_character, nrows=tf.math.count_nonzero(begins), validate=False
        )
        return Words(
            words=tf.RaggedTensor.from_value_rowids(
                tf.strings.unicode_encode(word_codes, "UTF-8"),
                tf.boolean_mask(rows, begins),
                nrows=tf.size(strings, tf.int64),
                validate=False,
            ),
            num_characters=word_codes.row_lengths(),
            token_ids=tf.gather(tf.concat([[-1], ids], 0), tf.boolean_mask(tokens, begins)),
            character_starts=tf.cumsum(_utf8_lengths(codes), exclusive=True),
            source_starts=starts,
            source_ends=ends,
        )

    def _normalize(self, strings: tf.Tensor) -> "_Characters":
        """Normalizes strings, (N,), to characters."""
        decoded, offsets = tf.strings.unicode_decode_with_offsets(
            strings, "UTF-8", errors="replace", replacement_char=REPLACEMENT_CHARACTER
        )
        codes, rows, starts = decoded.values, value_rows(decoded.row_splits), offsets.values
        tokens, ids = tf.zeros_like(rows), tf.zeros([0], tf.int32)
        finder = self._finders[0]
        if finder is not None:
            tokens, ids = finder(codes, rows, tf.size(strings, tf.int64))
        traits = self._traits(codes, tokens)
        codes, traits, rows, starts, tokens = _keep(
            traits & _DROPPED == 0, codes, traits, rows, starts, tokens
        )
        if self._has_forms:
            if self._normalization.has_final_sigma:
                codes = _choose_sigmas(codes, traits, rows)
            codes, sources = self._expand(codes, tokens)
            rows, starts, tokens = (tf.gather(vector, sources) for vector in (rows, starts, tokens))
            traits = self._traits(codes, tokens)
        if self._normalization.strip:
            order = _canonical_order(traits, rows)
            codes, traits = tf.gather(codes, order), tf.gather(traits, order)
            codes, traits, rows, starts, tokens = _keep(
                traits & _NONSPACING == 0, codes, traits, rows, starts, tokens
            )
        codes = tf.where(traits & _SPACE != 0, ord(" "), codes)
        return _Characters(codes, traits, rows, starts, tokens, ids)

    def _traits(self, codes: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        """Returns the trait bits of each code point; 0 inside added tokens."""
        traits = tf.gather(self._range_traits, upper_bound(self._range_firsts, codes) - 1)
        return tf.where(tokens > 0, 0, traits)

    def _expand(self, codes: tf.Tensor, tokens: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Lower-cases and decomposes code points; returns the results and their source indices."""
        # The entry with the largest key that is not above the code point.
        entries = upper_bound(self._form_keys, codes) - 1
        changes = (tf.gather(self._form_keys, entries) == codes) & (tokens == 0)
        begins = tf.gather(self._form_splits, entries)
        lengths = tf.where(changes, tf.gather(self._form_splits, entries + 1) - begins, 1)
        ends = tf.cumsum(lengths)
        indices = tf.range(tf.reduce_sum(lengths))
        sources = upper_bound(ends, indices)
        within = indices - tf.gather(ends - lengths, sources)
        # Unchanged code points read a valid entry of another code point, which is ignored.
        lowered = tf.gather(self._form_codes, tf.gather(begins, sources) + within)
        new = tf.where(tf.gather(changes, sources), lowered, tf.gather(codes, sources))
        return new, sources


def upper_bound(keys: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Counts the keys of an ascending vector that are not above each value, int32.

    Returns the same as ``tf.searchsorted(..., side="right")`` with a quarter of the graph nodes,
    whose number dominates the graph's startup time.
    """
    bound = tf.raw_ops.UpperBound(
        sorted_inputs=tf.expand_dims(keys, 0), values=tf.expand_dims(values, 0)
    )
    return tf.squeeze(bound, 0)


def next_larger(keys: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Returns the first larger key of an ascending vector per value, else int64's maximum."""
    return tf.gather(tf.concat([keys, [tf.int64.max]], 0), upper_bound(keys, values))


def row_bases(lengths: tf.Tensor) -> tf.Tensor:
    """Numbers the byte offsets, 0 to length, of all strings; returns each string's first number."""
    return tf.cumsum(lengths + 1, exclusive=True)


def _choose_sigmas(codes: tf.Tensor, traits: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Replaces capital sigmas that end a word: Unicode, section 3.13, Final_Sigma.

    A cased letter precedes such a sigma, and none follows; case-ignorable characters are skipped.
    """
    seen = tf.where(traits & _CASE_IGNORABLE == 0)[:, 0]
    seen_codes, seen_rows = tf.gather(codes, seen), tf.gather(rows, seen)
    cased = tf.gather(traits, seen) & _CASED != 0
    same_row = seen_rows[1:] == seen_rows[:-1]
    cased_before = tf.concat([tf.zeros_like(cased[:1]), cased[:-1] & same_row], 0)
    cased_after = tf.concat([cased[1:] & same_row, tf.zeros_like(cased[:1])], 0)
    is_final = (seen_codes == CAPITAL_SIGMA) & cased_before & ~cased_after
    return tf.tensor_scatter_nd_update(
        codes, seen[:, None], tf.where(is_final, FINAL_SIGMA, seen_codes)
    )


def _canonical_order(traits: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Returns the order that sorts each run of marks by combining class (section 3.11)."""
    classes = tf.cast(traits // _CLASSES, tf.int64)
    begins_run = (classes == 0) | (rows != _shift(rows, -1))
    runs = tf.cumsum(tf.cast(begins_run, tf.int64))
    return tf.argsort(runs * 256 + classes, stable=True)


def _source_ends(strings: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
    """Returns the byte offset of the next remaining character, or the end of the string."""
    lengths = tf.cast(tf.strings.length(strings), tf.int64)
    bases = tf.gather(row_bases(lengths), rows)
    following = next_larger(bases + starts, bases + starts)
    return tf.minimum(following - bases, tf.gather(lengths, rows))


def _keep(mask: tf.Tensor, *vectors: tf.Tensor) -> list[tf.Tensor]:
    """Returns the elements of each vector where the mask is True."""
    indices = tf.where(mask)[:, 0]
    return [tf.gather(vector, indices) for vector in vectors]


def _shift(vector: tf.Tensor, first: int | bool) -> tf.Tensor:
    """Shifts a vector by one, with ``first`` as the new first element."""
    return tf.concat([tf.constant([first], vector.dtype), vector], 0)[: tf.size(vector)]


def _utf8_lengths(codes: tf.Tensor) -> tf.Tensor:
    """Returns the number of UTF-8 bytes of each code point, int64."""
    return 1 + sum(tf.cast(codes >= first, tf.int64) for first in (0x80, 0x800, 0x10000))


@functools.cache
def _trait_ranges(normalization: Normalization) -> tuple[np.ndarray, np.ndarray]:
    """Returns runs of code points with equal traits: first code points and traits, int32."""
    table = code_points(normalization.characters)
    bits = table.combining_class.astype(np.int32) * _CLASSES
    flags = {
        _DROPPED: table.dropped,
        _SPACE: table.space,
        _SOLO: table.ideograph & normalization.split_ideographs | table.punctuation,
        _NONSPACING: table.nonspacing,
        _CASED: table.cased,
        _CASE_IGNORABLE: table.case_ignorable,
    }
    for bit, holds in flags.items():
        bits |= np.where(holds, np.int32(bit), np.int32(0))
    firsts = np.flatnonzero(np.diff(bits, prepend=np.int32(-1))).astype(np.int32)
    return firsts, bits[firsts]
