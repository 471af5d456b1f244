"""Added tokens are found in texts before these are split into words, as ``tokenizers`` does it.

A text is searched once from left to right, at each place for the longest token. A token that is
``special`` and to be parted, or that is a ``single_word`` and has a letter beside it, is found and
then passed over, with what it covers.

Regular expressions put marks round what is found; all operations are core ones, which every
TensorFlow Serving has.

Letters: N texts, C characters of all texts together, K tokens found.

Source: huggingface/tokenizers ``added_vocabulary.rs``, ``AddedVocabulary.find_matches``.
"""

import re
from collections.abc import Iterable, Sequence

import tensorflow as tf

from .text_rules import AddedToken

# What a text has of these itself becomes ``SEPARATOR``: in no token, and neither letter nor digit.
_OPEN, _CLOSE, _PAD, SEPARATOR = range(1, 5)
_O, _C, _P = map(chr, (_OPEN, _CLOSE, _PAD))
# The regex crate's \w by RE2's classes: letters, marks, digits, connectors, joiners, and the signs
# that are alphabetic.
_WORD = (
    r"[\pL\pM\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}"
    r"\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}]"
)
_BUCKETS = (1 << 63) - 1


class TokenFinder:
    """Finds tokens in texts.

    Args:
        contents: what to find, of each token; of equal ones the first counts.
        tokens: whose ids and flags these are.
        split_special: whether tokens that are special are passed over.
        ideographs: the ranges of characters that are words by themselves.
    """

    def __init__(
        self,
        contents: Sequence[str],
        tokens: Sequence[AddedToken],
        split_special: bool,
        ideographs: Iterable[tuple[int, int]] = (),
    ):
        found: dict[str, AddedToken] = {}
        for content, token in zip(contents, tokens, strict=True):
            found.setdefault(content, token)
        single = [content for content, token in found.items() if token.single_word]
        special = [content for content, token in found.items() if token.special]
        # A word by itself is no neighbour of a single word, so it stands between pads.
        alone = "".join(f"{chr(a)}-{chr(b)}" for a, b in ideographs if single)
        pads = [(f"([{alone}])", rf"{_P}\1{_P}")] if alone else []

        def any_of(texts: Iterable[str]) -> str:
            patterns = sorted(texts, key=lambda text: len(text.encode()), reverse=True)
            expression = "|".join(map(escape, patterns))
            for pattern, rewrite in pads:
                expression = re.sub(pattern, rewrite, expression)
            return expression

        steps = [*pads, (f"({any_of(found)})", rf"{_O}\1{_C}")]
        if special and split_special:
            steps += [(f"{_O}({any_of(special)}){_C}", r"\1")]
        if single:
            # Twice: a letter that one match has read cannot be read by the next.
            steps += 2 * [(f"({_WORD}{_C}?){_O}({any_of(single)}){_C}", r"\1\2")]
            steps += 2 * [(f"{_O}({any_of(single)}){_C}({_O}?{_WORD})", r"\1\2")]
        self._steps = steps
        with tf.init_scope(), tf.device("CPU:0"):
            keys = tf.strings.to_hash_bucket_fast([*found], _BUCKETS)
            order = tf.argsort(keys)
            self._keys = tf.gather(keys, order)
            self._ids = tf.gather(tf.constant([token.id for token in found.values()]), order)

    def __call__(
        self, codes: tf.Tensor, rows: tf.Tensor, num_rows: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Finds the tokens in texts of code points, (C,) int32, whose rows are (C,) int64.

        Returns for each character the number of the found token that it is of, counted from 1, or
        0, (C,) int64; and the found tokens' ids, (K,) int32.
        """
        codes = tf.where(codes < SEPARATOR, SEPARATOR, codes)
        texts = _encode(codes, rows, num_rows)
        for pattern, rewrite in self._steps:
            texts = tf.strings.regex_replace(texts, pattern, rewrite)
        marked = tf.strings.unicode_decode(texts, "UTF-8").values
        begun = tf.cumsum(tf.cast(marked == _OPEN, tf.int64))
        ended = tf.cumsum(tf.cast(marked == _CLOSE, tf.int64))
        numbers = tf.boolean_mask(tf.where(begun > ended, begun, 0), marked >= SEPARATOR)
        inside = numbers > 0
        contents = _encode(
            tf.boolean_mask(codes, inside),
            tf.boolean_mask(numbers, inside) - 1,
            tf.reduce_max(tf.concat([numbers, [0]], 0)),
        )
        keys = tf.strings.to_hash_bucket_fast(contents, _BUCKETS)
        return numbers, tf.gather(self._ids, tf.searchsorted(self._keys, keys))


def escape(text: str) -> str:
    """The regular expression of RE2 that finds a text."""
    return re.sub(r"([][\\.+*?(){}^$|])", r"\\\1", text)


def _encode(codes: tf.Tensor, rows: tf.Tensor, num_rows: tf.Tensor) -> tf.Tensor:
    """Code points as a string for each row."""
    texts = tf.RaggedTensor.from_value_rowids(codes, rows, num_rows, validate=False)
    return tf.strings.unicode_encode(texts, "UTF-8")
