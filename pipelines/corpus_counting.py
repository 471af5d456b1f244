"""What the documents of a block of text are, for a corpus' index: ``corpus_formats.parse``, faster.

``corpus_formats`` defines how text becomes documents, with regular expressions in-graph. Here NumPy
finds where they have nothing to decide, which is nearly everywhere, and the same expressions run on
the other lines alone. The result is the same to the byte: every rule below either is certain of a
place or leaves its line to the expressions.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from . import corpus_formats
from .corpus import fingerprint_texts

Transform = Callable[[tf.Tensor], tf.Tensor]

_NEWLINE = 10
_BLANK = 32


def count_text(text: bytes, text_format: str) -> tuple[np.ndarray, np.ndarray]:
    """Counts a text's documents: their numbers of sentences, int32, and fingerprints, int64.

    The text is valid UTF-8; the documents are those of ``corpus_formats.parse``.
    """
    text = _unify_newlines(text.removeprefix(b"\xef\xbb\xbf"))
    if text_format == corpus_formats.WIKIEXTRACTOR:
        text = _mark_sentences(_clean_wiki(text))
    elif text_format == corpus_formats.PROSE:
        text = _mark_sentences(_unwrap(text))
    elif text_format == corpus_formats.PARAGRAPHS:
        text = _mark_sentences(_run(corpus_formats.mark_paragraphs, text))
    return _count_documents(text, text_format)


# === Lines of text ===


def _unify_newlines(text: bytes) -> bytes:
    """What ``corpus_formats.unify_newlines`` does."""
    if b"\r" not in text:
        return text
    unified = np.frombuffer(text + b"\0", np.uint8).copy()
    returns = np.flatnonzero(unified == ord("\r"))
    before_newline = unified[returns + 1] == _NEWLINE
    unified[returns[~before_newline]] = _NEWLINE
    return np.delete(unified[:-1], returns[before_newline]).tobytes()


class _Lines:
    """Where the lines of a text are."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.bytes = np.frombuffer(text, np.uint8)
        self.newlines = np.flatnonzero(self.bytes == _NEWLINE)
        self.begins = np.concatenate([[0], self.newlines + 1])
        self.ends = np.append(self.newlines, len(text))

    def with_any(self, characters: bytes) -> np.ndarray:
        """Which lines, bool, hold one of some ASCII characters."""
        hits = self.bytes == characters[0]
        for character in characters[1:]:
            hits |= self.bytes == character
        return self.at(np.flatnonzero(hits))

    def at(self, places: np.ndarray) -> np.ndarray:
        """Which lines, bool, hold one of some places."""
        chosen = np.zeros(len(self.begins), bool)
        chosen[np.searchsorted(self.newlines, places)] = True
        return chosen

    def first_bytes(self) -> tuple[np.ndarray, np.ndarray]:
        """The first two bytes of each line, line breaks among them."""
        padded = np.append(self.bytes, np.array([_NEWLINE, _NEWLINE], np.uint8))
        return padded[self.begins], padded[self.begins + 1]


def _replace(
    lines: _Lines, chosen: np.ndarray, transform: Transform, others: bytes | None = None
) -> bytes:
    """Puts what an expression makes of them in place of some lines.

    The expression sees neighbours together, and the line breaks round them. ``others`` is a text as
    long as the lines', from which those are taken that are not chosen.
    """
    text, others = lines.text, lines.text if others is None else others
    if not chosen.any():
        return others
    borders = np.diff(chosen.astype(np.int8), prepend=0, append=0)
    first, last = np.flatnonzero(borders == 1), np.flatnonzero(borders == -1) - 1
    begins, ends = lines.begins[first].tolist(), lines.ends[last].tolist()
    # No text has a carriage return here: one on a line of its own keeps runs of lines apart.
    runs = b"\n\r\n".join([text[a:b] for a, b in zip(begins, ends, strict=True)])
    before = b"\n" if begins[0] else b""
    behind = b"\n" if ends[-1] < len(text) else b""
    found = _run(transform, before + runs + behind)
    found = found[len(before) : len(found) - len(behind)]
    # An expression of sentences breaks lines with a carriage return.
    replaced = [part.replace(b"\r", b"") for part in found.split(b"\n\r\n")]
    kept = [others[a:b] for a, b in zip([0, *ends], [*begins, len(text)], strict=True)]
    return b"".join([part for pair in zip(kept, [*replaced, b""], strict=True) for part in pair])


def _run(transform: Transform, text: bytes) -> bytes:
    result: bytes = _traced(transform)(tf.constant(text)).numpy()
    return result


@functools.cache
def _traced(transform: Transform) -> Any:
    return tf.function(transform, [tf.TensorSpec([], tf.string)], autograph=False)


# === Markup ===


def _clean_wiki(text: bytes) -> bytes:
    lines = _Lines(text)
    first, second = lines.first_bytes()
    # Lines of one of these characters, and lines that may begin with "BULLET::::", "Section::::"
    # or, behind blanks, 'title="ctx'.
    chosen = lines.with_any(b"<[{&|}#") | _is_one_of(first, b" \tt")
    for begin in (b"BU", b"Se"):
        chosen |= (first == begin[0]) & (second == begin[1])
    # The expression for a document's first line takes the title and the blank line behind it.
    headers = np.flatnonzero(chosen & (first == ord("<")))
    for behind in (1, 2):
        chosen[np.minimum(headers + behind, len(chosen) - 1)] = True
    return _replace(lines, chosen, corpus_formats.clean_wiki)


def _unwrap(text: bytes) -> bytes:
    lines = _Lines(text)
    marked = _is_one_of(lines.first_bytes()[0], b"# \t-*_=>")
    lines = _Lines(_wrap(_replace(lines, marked, corpus_formats.drop_markdown_lines)))
    return _replace(lines, lines.with_any(b"_*["), corpus_formats.drop_markdown_words)


def _wrap(text: bytes) -> bytes:
    """Puts each paragraph on one line, with white space round it."""
    lines = _Lines(text)
    empty = lines.begins == lines.ends
    for line in np.flatnonzero(_is_one_of(lines.first_bytes()[0], b" \t")).tolist():
        empty[line] = not text[lines.begins[line] : lines.ends[line]].strip(b" \t")
    # What is behind the last line break is no line that is empty.
    empty[-1] = False
    wrapped = lines.bytes.copy()
    # One line break is left between paragraphs, and a blank behind it: no number begins a line.
    wrapped[lines.newlines[empty[:-1] | ~empty[1:]]] = _BLANK
    return wrapped.tobytes()


def _is_one_of(values: np.ndarray, characters: bytes) -> np.ndarray:
    return _classes(characters)[values] == _YES


# === Sentences ===
#
# The rules below know ASCII and curly quotation marks; one mark at an end, one that closes and one
# that opens, one blank or two. They find where a sentence ends for certain; where they are not
# certain, the expressions decide about the line.

_PAD = 16
_UPPER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LOWER = _UPPER.lower()
_DIGITS = b"0123456789"
_STOPS = b".!?"
_CLOSING = b"\"')]}*_"
_OPENING = b"\"'([{*_"
_OTHER_STOPS = np.array([int.from_bytes(stop.encode(), "big") for stop in "…‽؟۔।॥。！？｡"])
_NO, _YES, _UNSURE = np.uint8(0), np.uint8(1), np.uint8(2)


def _classes(yes: bytes, unsure: bytes = b"") -> np.ndarray:
    """(256,) uint8: which bytes are surely something and which may be, as all beyond ASCII may."""
    table = np.full(256, _NO)
    table[128:] = _UNSURE
    table[list(unsure)] = _UNSURE
    table[list(yes)] = _YES
    return table


_BLANKS = _classes(b" ", _CLOSING + _STOPS + b"\t")
_FIRST_LETTERS = _classes(_UPPER + _DIGITS, _OPENING + b" \t-")
# Before a full stop that ends a sentence is any character but a capital, a blank and another stop.
_BEFORE_STOP = _classes(
    bytes(set(range(0x21, 0x7F)) - set(_UPPER + _STOPS)),
    bytes(set(range(0x80)) - set(b" \t\n")),
)
_BEFORE_CAPITAL = _classes(_UPPER + _LOWER + _DIGITS, bytes(set(range(0x80)) - set(b" \t\n(.")))
_IS_CLOSING, _IS_OPENING = _classes(_CLOSING) == _YES, _classes(_OPENING) == _YES
_IS_UPPER, _IS_DIGIT = _classes(_UPPER) == _YES, _classes(_DIGITS) == _YES
_IS_ROMAN, _IS_WORD = (
    _classes(letters) == _YES for letters in (b"IVXLC", _UPPER + _LOWER + _DIGITS + b"_")
)


def _words(pattern: str) -> list[bytes]:
    """The words of an alternation that have no full stop inside."""
    return [word.encode() for word in pattern.split("|") if re.fullmatch(r"\w+", word)]


def _keys(words: Iterable[bytes]) -> np.ndarray:
    """Sorted numbers that stand for words of at most eight letters, the last one first."""
    return np.sort(np.array([int.from_bytes(word[::-1], "little") for word in words], np.uint64))


_TITLES = _keys(_words(corpus_formats.TITLES))
_TRAILERS = _keys(_words(corpus_formats.TRAILERS))
_NUMBERED = _keys(_words(corpus_formats.NUMBERED))
_LETTERS = _keys([bytes([letter]) for letter in _LOWER])
# Whether a starter may begin with two characters.
_STARTS = np.zeros((256, 256), bool)
for _word in _words(corpus_formats.STARTERS):
    for _end in b" ,":
        _STARTS[tuple((_word + bytes([_end]))[:2])] = True


def _mark_sentences(text: bytes) -> bytes:
    """Puts every sentence on a line of its own, but for white space round it."""
    lines = _Lines(text)
    certain, unclear = _sentence_ends(lines)
    marked = lines.bytes.copy()
    marked[certain] = _NEWLINE
    return _replace(lines, lines.at(unclear), corpus_formats.mark_sentences, marked.tobytes())


def _is_curly(text: np.ndarray, at: np.ndarray, last_bytes: bytes) -> np.ndarray:
    """Whether a curly quotation mark, known by its last byte, begins at some places."""
    curly = text[at] == 0xE2
    at = at[curly]
    curly[curly] = (text[at + 1] == 0x80) & np.isin(text[at + 2], list(last_bytes))
    return curly


def _in(values: np.ndarray, ascending: np.ndarray) -> np.ndarray:
    """Whether values are among some that ascend."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: np.ndarray = ascending[places] == values
    return found


def _sentence_ends(lines: _Lines) -> tuple[np.ndarray, np.ndarray]:
    """The blanks that are ends of sentences, and places in lines that are not clear."""
    edge = np.full(_PAD, _NEWLINE, np.uint8)
    text = np.concatenate([edge, lines.bytes, edge])
    stop = np.flatnonzero((text == ord(".")) | (text == ord("!")) | (text == ord("?")))
    stop = stop[_BLANKS[text[stop + 1]] != _NO]

    # What is behind the stop: one closing mark, one or two blanks, one opening mark, a letter.
    blank = stop + 1 + _IS_CLOSING[text[stop + 1]]
    blank[_is_curly(text, stop + 1, b"\x99\x9d")] += 3
    start = blank + 1 + (text[blank + 1] == _BLANK)
    letter = start + _IS_OPENING[text[start]]
    letter[_is_curly(text, start, b"\x98\x99\x9c\x9d")] += 3
    letter = np.minimum(letter, len(text) - 2)
    behind = np.where(
        _BLANKS[text[blank]] == _YES, _FIRST_LETTERS[text[letter]], _BLANKS[text[blank]]
    )

    # What is before a full stop; question and exclamation marks need nothing but to be alone.
    last = text[stop - 1]
    before = _BEFORE_STOP[last]
    before[_is_curly(text, stop - 3, b"\x99\x9d")] = _YES
    capital = _IS_UPPER[last]
    before[capital] = _BEFORE_CAPITAL[text[stop[capital] - 2]]
    # An initial ends a sentence only where a starter follows.
    may_start = _STARTS[text[start], text[start + 1]] | (_FIRST_LETTERS[text[start]] == _UNSURE)
    before[capital & (before == _NO) & (may_start | (_BLANKS[text[blank]] == _UNSURE))] = _UNSURE
    other = text[stop] != ord(".")
    before[other] = np.where(_is_one_of(last[other], _STOPS), _UNSURE, _YES)

    found = (behind != _NO) & (before != _NO)
    stop, blank, start, letter = (places[found] for places in (stop, blank, start, letter))
    certain = ((behind == _YES) & (before == _YES))[found]
    # An end takes the characters round it: the next one may not begin among them.
    begin = stop - np.where(_BEFORE_STOP[text[stop - 1]] == _YES, 1, 3)
    certain[1:] &= begin[1:] > letter[:-1]

    certain, ends = _without_abbreviations(text, stop, blank, start, letter, certain)
    unclear = stop[~certain] - _PAD
    leads = np.flatnonzero(lines.bytes >= 0xC0)
    if len(leads):
        first, second, third = (text[leads + _PAD + i].astype(np.int64) for i in range(3))
        pairs = first << 8 | second
        stops = np.isin(pairs, _OTHER_STOPS) | np.isin(pairs << 8 | third, _OTHER_STOPS)
        unclear = np.concatenate([unclear, leads[stops]])
    return blank[certain & ends] - _PAD, unclear


def _without_abbreviations(
    text: np.ndarray,
    stop: np.ndarray,
    blank: np.ndarray,
    start: np.ndarray,
    letter: np.ndarray,
    certain: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Whether what is found is certain, and whether it is an end: not behind an abbreviation."""
    ends = np.ones(len(stop), bool)
    at = np.flatnonzero((text[stop] == ord(".")) & (blank == stop + 1))
    place = stop[at]
    before = text[place[:, np.newaxis] - 1 - np.arange(9)]
    length = np.argmin(np.append(_IS_WORD[before], np.zeros((len(at), 1), bool), axis=1), axis=1)
    inside = np.arange(8) < length[:, np.newaxis]
    key = np.ascontiguousarray(before[:, :8] * inside).view(np.uint64)[:, 0]
    key[length > 8] = 0
    may_start = _STARTS[text[start[at]], text[start[at] + 1]]
    trailer = _in(key, _TRAILERS)
    numbered = _in(key, _NUMBERED) & _IS_DIGIT[text[start[at]]]
    ends[at[_in(key, _TITLES) | (trailer & ~may_start) | numbered]] = False
    # A number or a letter that opens a line counts the paragraph.
    counts = (_IS_DIGIT[before[:, :8]] | ~inside).all(1) & (length <= 3)
    counts |= (_IS_ROMAN[before[:, :8]] | ~inside).all(1) & (length <= 7)
    opens = place - 1 - length
    counts &= (text[opens] == _NEWLINE) | _in(opens, start[certain] - 1)
    certain = certain.copy()
    certain[at[_in(key, _LETTERS) | (trailer & may_start) | counts]] = False
    # Behind an abbreviation the expressions leave one blank of two.
    certain &= ends | (start == blank + 1)
    return certain, ends


# === Documents ===

_WHITE = b" \t\n\v\f\r"
_IS_WHITE = _classes(_WHITE) == _YES


def _count_documents(text: bytes, text_format: str) -> tuple[np.ndarray, np.ndarray]:
    lines = _Lines(text)
    begins, ends = _strip(lines)
    blank = begins == ends
    first = np.append(lines.bytes, np.uint8(0))[begins]
    # A printable ASCII character makes a line count; what begins with another is looked at.
    unclear = np.flatnonzero(~blank & ((first < 0x21) | (first > 0x7E)))
    if len(unclear):
        slices = zip(begins[unclear].tolist(), ends[unclear].tolist(), strict=True)
        found = corpus_formats.is_blank(tf.constant([text[a:b] for a, b in slices]))
        blank[unclear] = found.numpy()
    breaks = blank
    if text_format == corpus_formats.PROSE:
        breaks = np.zeros(len(blank), bool)
    elif text_format == corpus_formats.PARAGRAPHS:
        breaks = (first == 0x1E) & (ends - begins == 1)
    elif text_format == corpus_formats.WIKIEXTRACTOR:
        breaks = np.zeros(len(blank), bool)
        for line in np.flatnonzero(first == ord("<")).tolist():
            breaks[line] = text[begins[line] : ends[line]] in (b"<doc", b"</doc>")
    kept = np.flatnonzero(~(blank | breaks))
    if not len(kept):
        return np.zeros(0, np.int32), np.zeros(0, np.int64)
    document = np.cumsum(breaks)[kept]
    starts = np.flatnonzero(np.diff(document, prepend=-1))
    lengths = np.diff(np.append(starts, len(kept))).astype(np.int32)
    return lengths, _fingerprints(text, begins[kept], ends[kept], starts)


def _strip(lines: _Lines) -> tuple[np.ndarray, np.ndarray]:
    """Where lines begin and end without the white space round them."""
    begins, ends = lines.begins.copy(), lines.ends.copy()
    padded = np.append(lines.bytes, np.uint8(0))
    for edges, step in ((begins, 1), (ends, -1)):
        at = np.flatnonzero(begins < ends)
        for _ in range(4):  # steps of one character; more are few, and taken one line at a time
            at = at[_IS_WHITE[padded[edges[at] - (step < 0)]]]
            edges[at] += step
            at = at[begins[at] < ends[at]]
        for line in at[_IS_WHITE[padded[edges[at] - (step < 0)]]].tolist():
            content = lines.text[begins[line] : ends[line]]
            if step > 0:
                begins[line] = ends[line] - len(content.lstrip(_WHITE))
            else:
                ends[line] = begins[line] + len(content.rstrip(_WHITE))
    return begins, ends


def _fingerprints(
    text: bytes, begins: np.ndarray, ends: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    """The fingerprints of documents, which begin at the lines ``starts``."""
    # Lines that follow each other are taken at once.
    apart = np.flatnonzero(np.append(True, begins[1:] != ends[:-1] + 1))
    firsts = np.union1d(apart, starts)
    runs = [
        text[a:b]
        for a, b in zip(
            begins[firsts].tolist(),
            ends[np.append(firsts[1:], len(begins)) - 1].tolist(),
            strict=True,
        )
    ]
    borders = np.append(np.searchsorted(firsts, starts), len(runs)).tolist()
    texts = [b"\n".join(runs[a:b]) for a, b in itertools.pairwise(borders)]
    prints: np.ndarray = fingerprint_texts(tf.constant(texts, tf.string)).numpy()
    return prints
