"""From text to words by the book: Google's ``BasicTokenizer`` over code points, in-graph.

This is the slow way, a step per sentence of the definition, for the few strings that
``normalizer_model`` cannot do code point by code point. Core TensorFlow operations only.

Letters: N strings, C characters of all strings together, W words of all strings together.
"""

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from .bounded_memory import value_rows
from .normalizer_model import CAPITAL_SIGMA, REPLACEMENT_CHARACTER, code_points

FINAL_SIGMA = 0x03C2

# A code point's traits are bits; from bit 8 on stands its combining class.
_DROPPED, _SPACE, _SOLO, _NONSPACING, _CASED, _CASE_IGNORABLE = (1 << bit for bit in range(6))
_CLASSES = 1 << 8


class Words(NamedTuple):
    """The words of N strings, and where their characters come from.

    Attributes:
        words: [N, (words)] string, normalised.
        num_characters: (W,) int64, the characters of each word.
        character_starts: (C,) int64, the first byte of each character in the concatenation of all
            words.
        source_starts: (C,) int64, the byte of its string that each character comes from.
        source_ends: (C,) int64, the byte behind that, and behind the characters that were removed
            after it.
    """

    words: tf.RaggedTensor
    num_characters: tf.Tensor
    character_starts: tf.Tensor
    source_starts: tf.Tensor
    source_ends: tf.Tensor


class WordSplitter:
    """Cleans, lowers the case, strips accents, splits at spaces and punctuation.

    Args:
        do_lower_case: whether to lower the case and strip accents.
    """

    def __init__(self, do_lower_case: bool):
        self._do_lower_case = do_lower_case
        firsts, traits = _trait_ranges()
        # An entry for U+0000, which cleaning removes, so that no code point stands before all.
        lowered = sorted({0: "\0", **code_points().lowered}.items())
        with tf.init_scope(), tf.device("CPU:0"):
            self._range_firsts = tf.constant(firsts)
            self._range_traits = tf.constant(traits)
            if do_lower_case:
                self._lowered_keys = tf.constant([code for code, _ in lowered], tf.int32)
                self._lowered_splits = tf.constant(
                    np.cumsum([0, *(len(new) for _, new in lowered)]), tf.int32
                )
                self._lowered_codes = tf.constant(
                    [ord(character) for _, new in lowered for character in new], tf.int32
                )

    def __call__(self, strings: tf.Tensor) -> Words:
        """Splits a vector of strings, shape (N,), into words."""
        decoded, offsets = tf.strings.unicode_decode_with_offsets(
            strings, "UTF-8", errors="replace", replacement_char=REPLACEMENT_CHARACTER
        )
        codes, rows, starts = decoded.values, value_rows(decoded.row_splits), offsets.values
        traits = self._traits(codes)
        codes, traits, rows, starts = _keep(traits & _DROPPED == 0, codes, traits, rows, starts)
        if self._do_lower_case:
            codes, sources = self._expand(_choose_sigmas(codes, traits, rows))
            rows, starts = tf.gather(rows, sources), tf.gather(starts, sources)
            traits = self._traits(codes)
            order = _canonical_order(traits, rows)
            codes, traits = tf.gather(codes, order), tf.gather(traits, order)
            codes, traits, rows, starts = _keep(
                traits & _NONSPACING == 0, codes, traits, rows, starts
            )
        ends = _source_ends(strings, rows, starts)

        is_space, is_solo = traits & _SPACE != 0, traits & _SOLO != 0
        follows = (rows == _shift(rows, -1)) & (_shift(traits, _SPACE) & (_SPACE | _SOLO) == 0)
        begins = ~is_space & (is_solo | ~follows)
        codes, rows, starts, ends, begins = _keep(~is_space, codes, rows, starts, ends, begins)
        word_of_character = tf.cumsum(tf.cast(begins, tf.int64)) - 1
        spelled = tf.RaggedTensor.from_value_rowids(
            codes, word_of_character, nrows=tf.math.count_nonzero(begins), validate=False
        )
        return Words(
            words=tf.RaggedTensor.from_value_rowids(
                tf.strings.unicode_encode(spelled, "UTF-8"),
                tf.boolean_mask(rows, begins),
                nrows=tf.size(strings, tf.int64),
                validate=False,
            ),
            num_characters=spelled.row_lengths(),
            character_starts=tf.cumsum(_utf8_lengths(codes), exclusive=True),
            source_starts=starts,
            source_ends=ends,
        )

    def _traits(self, codes: tf.Tensor) -> tf.Tensor:
        """The trait bits of each code point."""
        return tf.gather(self._range_traits, upper_bound(self._range_firsts, codes) - 1)

    def _expand(self, codes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Lower-cases and decomposes code points: new ones, and where each comes from."""
        # The entry of the table with the largest key that is not above the code point.
        entries = upper_bound(self._lowered_keys, codes) - 1
        changes = tf.gather(self._lowered_keys, entries) == codes
        begins = tf.gather(self._lowered_splits, entries)
        lengths = tf.where(changes, tf.gather(self._lowered_splits, entries + 1) - begins, 1)
        ends = tf.cumsum(lengths)
        places = tf.range(tf.reduce_sum(lengths))
        sources = upper_bound(ends, places)
        within = places - tf.gather(ends - lengths, sources)
        # A code point that stays itself has an entry too, if not its own: what is read there for
        # it is not used, nor could it lie outside the table.
        lowered = tf.gather(self._lowered_codes, tf.gather(begins, sources) + within)
        new = tf.where(tf.gather(changes, sources), lowered, tf.gather(codes, sources))
        return new, sources


def upper_bound(keys: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """For each value how many of an ascending vector's keys are not above it, int32.

    ``tf.searchsorted(..., side="right")`` of vectors with a quarter of its nodes: they are most
    of what makes this graph slow to start.
    """
    bound = tf.raw_ops.UpperBound(
        sorted_inputs=tf.expand_dims(keys, 0), values=tf.expand_dims(values, 0)
    )
    return tf.squeeze(bound, 0)


def next_larger(keys: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """For each wanted key the first larger one of an ascending vector, int64's largest if none."""
    return tf.gather(tf.concat([keys, [tf.int64.max]], 0), upper_bound(keys, wanted))


def row_bases(lengths: tf.Tensor) -> tf.Tensor:
    """Where each string begins if byte offsets 0 to its length, all strings', stand in a line."""
    return tf.cumsum(lengths + 1, exclusive=True)


def _choose_sigmas(codes: tf.Tensor, traits: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Makes final the capital sigmas that end a word.

    The Unicode standard, section 3.13, Final_Sigma: a cased letter stands before it and none
    after it, looking through what is case-ignorable.
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
    """The permutation that sorts each run of marks by combining class (section 3.11)."""
    classes = tf.cast(traits // _CLASSES, tf.int64)
    begins_run = (classes == 0) | (rows != _shift(rows, -1))
    runs = tf.cumsum(tf.cast(begins_run, tf.int64))
    return tf.argsort(runs * 256 + classes, stable=True)


def _source_ends(strings: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
    """The byte offset at which the next character that is left begins, or the string's end."""
    lengths = tf.cast(tf.strings.length(strings), tf.int64)
    bases = tf.gather(row_bases(lengths), rows)
    following = next_larger(bases + starts, bases + starts)
    return tf.minimum(following - bases, tf.gather(lengths, rows))


def _keep(mask: tf.Tensor, *vectors: tf.Tensor) -> list[tf.Tensor]:
    """The elements of each vector where the mask is true."""
    places = tf.where(mask)[:, 0]
    return [tf.gather(vector, places) for vector in vectors]


def _shift(vector: tf.Tensor, first: int | bool) -> tf.Tensor:
    """Each element's predecessor; the first one's is given."""
    return tf.concat([tf.constant([first], vector.dtype), vector], 0)[: tf.size(vector)]


def _utf8_lengths(codes: tf.Tensor) -> tf.Tensor:
    """Number of bytes of each code point in UTF-8, int64."""
    return 1 + sum(tf.cast(codes >= first, tf.int64) for first in (0x80, 0x800, 0x10000))


@functools.cache
def _trait_ranges() -> tuple[np.ndarray, np.ndarray]:
    """The code points as runs of equal traits: each run's first, and its traits, int32."""
    table = code_points()
    bits = table.combining_class.astype(np.int32) * _CLASSES
    for bit, flags in (
        (_DROPPED, table.dropped),
        (_SPACE, table.space),
        (_SOLO, table.ideograph | table.punctuation),
        (_NONSPACING, table.nonspacing),
        (_CASED, table.cased),
        (_CASE_IGNORABLE, table.case_ignorable),
    ):
        bits |= np.where(flags, np.int32(bit), np.int32(0))
    firsts = np.flatnonzero(np.diff(bits, prepend=-1)).astype(np.int32)
    return firsts, bits[firsts]
