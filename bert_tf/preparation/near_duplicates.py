"""Near duplicates: shingles, MinHash, the buckets of LSH, and the exact similarity.

A shingle is a run of five words. Two documents' similarity is Jaccard's: of the shingles that are
in one or both of them, the share that is in both. The share of MinHash values that two documents
have in common estimates it; documents meet in a bucket where all of a band's values are the same
(Broder 1997; Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, chapter 3).

Everything is computed from the text alone, with hashes that no machine or process changes.
"""

import functools
import hashlib
import math
import re

import numpy as np

WORDS_PER_SHINGLE = 5
NUM_BANDS = 20
# Of pairs just as similar as the threshold, this share at least meet in a bucket.
_RECALL = 0.99
_MOST_ROWS = 16

_BETWEEN_WORDS = re.compile(r"[^\w\s]+")
# Scripts written without blanks between words: each character counts as one.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
# Shingles hashed at once: with all functions they stay in a core's cache.
_AT_ONCE = 1024


def mix(values: np.ndarray) -> np.ndarray:
    """SplitMix64's output function (Steele, Lea, Flood 2014): uint64 to uint64, one to one."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _constants(number: int, first: int) -> np.ndarray:
    """Odd numbers of 64 bits, the same ones always."""
    counters = np.arange(first, first + number, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return mix(counters) | np.uint64(1)


_OF_WORDS = _constants(WORDS_PER_SHINGLE, first=1)


def words_of(text: str) -> list[str]:
    """The words that are compared: lower case, without punctuation."""
    return _BETWEEN_WORDS.sub(" ", _UNSPACED.sub(r" \g<0> ", text.lower())).split()


@functools.lru_cache(maxsize=1 << 18)
def _word_hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def shingles(text: str) -> np.ndarray:
    """Hashes of a text's shingles, in their order, uint64; a text of fewer words is one shingle."""
    words = words_of(text)
    hashes = np.fromiter(map(_word_hash, words), np.uint64, len(words))
    length = min(WORDS_PER_SHINGLE, len(words))
    windows = np.zeros(len(words) - length + 1, np.uint64)
    for place in range(length):
        windows += mix(hashes[place : len(windows) + place] * _OF_WORDS[place])
    return mix(windows)


def jaccard(first: np.ndarray, second: np.ndarray) -> float:
    """The similarity of two texts' shingles, from 0 to 1."""
    first, second = np.unique(first), np.unique(second)
    common = len(np.intersect1d(first, second, assume_unique=True))
    return common / (len(first) + len(second) - common)


def rows_per_band(threshold: float) -> int:
    """How many MinHash values a band has: the most at which pairs of the threshold still meet.

    Two documents of similarity s meet in one of b bands of r values with probability 1 - (1 -
    s**r)**b; more rows let fewer documents meet that are less similar.
    """
    if threshold == 1:
        return _MOST_ROWS
    of_band = 1 - (1 - _RECALL) ** (1 / NUM_BANDS)
    return min(_MOST_ROWS, int(math.log(of_band) / math.log(threshold)))


def signature(hashes: np.ndarray, length: int) -> np.ndarray:
    """The MinHash values of shingles, (length,) uint32: the least of each of as many functions.

    Each is ``a * x + b`` with an odd ``a``, which is one to one: equal in two texts with the
    probability of their similarity.
    """
    values = (hashes >> np.uint64(32)).astype(np.uint32)
    functions = _constants(2 * length, first=1000)
    factors, offsets = (functions >> np.uint64(31)).astype(np.uint32).reshape(2, length, 1)
    least = np.full(length, np.iinfo(np.uint32).max, np.uint32)
    for start in range(0, len(values), _AT_ONCE):
        hashed = values[start : start + _AT_ONCE] * (factors | np.uint32(1)) + offsets
        np.minimum(least, hashed.min(axis=1), out=least)
    return least


def buckets(hashes: np.ndarray, rows: int) -> np.ndarray:
    """The bucket of each band, (NUM_BANDS,) uint64, of a text's shingles."""
    bands = signature(hashes, NUM_BANDS * rows).reshape(NUM_BANDS, rows).astype(np.uint64)
    mixed = _constants(NUM_BANDS, first=500)  # another one in each band, so that they never share
    for row in bands.T:
        mixed = mix(mixed ^ row)
    return mixed
