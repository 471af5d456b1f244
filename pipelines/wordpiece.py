"""Text to WordPiece ids, identical to Google's ``FullTokenizer``, in-graph.

Most strings go through two operations of tensorflow-text: ``FastBertNormalize`` with the model of
``normalization``, and ``FastWordpieceTokenizeWithOffsets`` (Song et al., 2021,
arXiv:2012.15524). Two things are beyond them: a letter that changes with its neighbours, for which
the first puts a mark, and a word of 201 to 800 *bytes*, as Google counts 200 *characters*. Both
show in what the operations return anyway, and the strings with one are done again, by the
definition. TensorFlow Serving has both operations since 2.13.

Letters: N strings, W words, V vocabulary.

Source: google-research/bert ``tokenization.py``, ``FullTokenizer``.
"""

import functools
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text
from tensorflow_text.core.pybinds.pywrap_fast_wordpiece_tokenizer_model_builder import (
    build_fast_wordpiece_model,
)

from .bounded_memory import value_rows
from .normalization import (
    ASCII_PUNCTUATION,
    DOUBTFUL,
    WordSplitter,
    build_normalizer_model,
    next_larger,
    replacements,
    row_bases,
    upper_bound,
)
from .vocabulary import CONTINUATION_PREFIX, SPECIAL_TOKENS, load_vocabulary, validate_vocabulary

_MAX_BYTES_PER_PIECE = 256  # the op's


def _matchable_pieces(vocab: Sequence[str], do_lower_case: bool) -> list[str]:
    """The vocabulary with a stand-in for each piece that no text can produce: all different.

    Special tokens and their like could confuse the builder of the op's trie; stand-ins do not.
    """
    replaced = _replaced_characters(do_lower_case)
    pieces = []
    for index, piece in enumerate(vocab):
        body = piece.removeprefix(CONTINUATION_PREFIX)
        is_one_word = len(body) == 1 or ASCII_PUNCTUATION.isdisjoint(body)
        matchable = body and is_one_word and replaced.isdisjoint(body)
        if matchable and len(body.encode()) > _MAX_BYTES_PER_PIECE:
            raise ValueError(
                f"Piece {index} of the vocabulary, {piece[:20]!r}..., has {len(body.encode())} "
                f"bytes: expected at most {_MAX_BYTES_PER_PIECE}; remove it or shorten it."
            )
        pieces.append(piece if matchable else f"[{index}]")
    return pieces


@functools.cache
def _replaced_characters(do_lower_case: bool) -> frozenset[str]:
    """The characters that normalisation leaves in no word."""
    changed = replacements(do_lower_case).items()
    removed = (chr(code) for code, new in changed if new.strip() not in (chr(code), DOUBTFUL))
    return frozenset([" ", *removed])


def _wordpiece_operation(
    pieces: Sequence[str], unk_id: int, max_bytes_per_word: int
) -> tensorflow_text.FastWordpieceTokenizer:
    """The operation that splits words into pieces, int32 ids; longer words are [UNK]."""
    model = _wordpiece_model(tuple(pieces), pieces[unk_id], max_bytes_per_word)
    return tensorflow_text.FastWordpieceTokenizer(
        model_buffer=tf.constant(model), token_out_type=tf.int32
    )


@functools.lru_cache(maxsize=4)  # two a vocabulary; that of BERT-base has 2 MB
def _wordpiece_model(pieces: tuple[str, ...], unknown: str, max_bytes_per_word: int) -> np.ndarray:
    """The trie of a vocabulary, as tensorflow-text stores it: (bytes,) uint8."""
    built = build_fast_wordpiece_model(
        list(pieces), max_bytes_per_word, CONTINUATION_PREFIX, unknown, False, False
    )
    return np.frombuffer(built, np.uint8)


MAX_CHARACTERS_PER_WORD = 200
_MAX_BYTES_PER_CHARACTER = 4
# A word that no piece begins, and so [UNK]: cleaning removes control characters, and those of the
# vocabulary never reach the trie.
_UNKNOWN_WORD = "\x02"


class BertTokenizer:
    """Splits text into WordPiece ids.

    Ids equal those of Google's ``FullTokenizer`` for every UTF-8 string of characters that
    Unicode 14 assigns, under any locale and Python version. What it does not assign is an
    ordinary letter without case (but for the few that tensorflow-text, which knows a later Unicode,
    calls punctuation); a byte that is not UTF-8 is passed over. No special token but [UNK] ever
    comes out, whatever the text: ``"[MASK]"`` is three words.

    Works eagerly, in ``Dataset.map`` and in a SavedModel. Give it batches: a thousand strings at
    once are tokenised several times as fast as one by one.

    Args:
        vocab: the path of a vocabulary file, or the pieces in the order of their ids.
        do_lower_case: whether to lower the case and strip accents ("uncased").

    Attributes:
        vocab: list of the pieces; ``vocab_size``, V, is their number.
        pad_id, unk_id, cls_id, sep_id, mask_id: the ids of [PAD], [UNK], [CLS], [SEP], [MASK].
        continuation: (V,) bool array; whether the piece continues a word (it begins with ``##``).

    Raises:
        ValueError: the vocabulary is not one (see ``vocabulary.validate_vocabulary``), or has a
            piece of more than 256 bytes.

    >>> vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", "!"]
    >>> tokenizer = BertTokenizer(vocab)
    >>> tokenizer.tokenize(["UNAFFABLE!", "", "Ünaff ö"])
    <tf.RaggedTensor [[5, 6, 7, 8], [], [5, 6, 1]]>
    """

    def __init__(self, vocab: str | os.PathLike[str] | Sequence[str], do_lower_case: bool = True):
        if isinstance(vocab, (str, os.PathLike)):
            self.vocab = load_vocabulary(os.fspath(vocab))
        else:
            self.vocab = list(vocab)
            validate_vocabulary(self.vocab, "given as a list")
        self.vocab_size = len(self.vocab)
        self.do_lower_case = bool(do_lower_case)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = map(
            self.vocab.index, SPECIAL_TOKENS
        )
        self.continuation = np.array(
            [piece.startswith(CONTINUATION_PREFIX) for piece in self.vocab]
        )

        pieces = [*_matchable_pieces(self.vocab, self.do_lower_case), DOUBTFUL]
        with tf.init_scope(), tf.device("CPU:0"):
            self._normalizer = tensorflow_text.FastBertNormalizer(
                model_buffer=tf.constant(build_normalizer_model(self.do_lower_case))
            )
            self._wordpiece = _wordpiece_operation(pieces, self.unk_id, MAX_CHARACTERS_PER_WORD)
            self._wordpiece_for_long_words = _wordpiece_operation(
                pieces, self.unk_id, MAX_CHARACTERS_PER_WORD * _MAX_BYTES_PER_CHARACTER
            )
        self._split_words = WordSplitter(self.do_lower_case)

    def tokenize(self, strings: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
        """Splits strings, (N,) string, UTF-8, into ids: [N, (tokens)] int32.

        What is no vector of strings is a ``ValueError``.
        """
        (ids,) = self._tokenize(strings, with_offsets=False)
        return ids

    def tokenize_with_offsets(
        self, strings: tf.Tensor | Sequence[str]
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Splits strings into ids, and says which bytes each token comes from.

        A token covers all of every character that it has a part of (a Hangul syllable is three
        letters to an uncased tokenizer, and may be three tokens with the same offsets), and the
        removed characters behind it: accents, control characters, bytes that are not UTF-8.
        Where canonical ordering swaps two marks, they keep their places.

        Returns ``(ids, starts, ends)``, each [N, (tokens)]: int32 ids; int64 offsets of the first
        byte and of the byte behind the last, in the string as it was given.

        >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "e", "##t"])
        >>> ids, starts, ends = tokenizer.tokenize_with_offsets([" Ét é"])
        >>> starts.to_list(), ends.to_list()
        ([[1, 3, 5]], [[3, 4, 7]])
        """
        ids, starts, ends = self._tokenize(strings, with_offsets=True)
        return ids, starts, ends

    def _tokenize(
        self, strings: tf.Tensor | Sequence[str], with_offsets: bool
    ) -> list[tf.RaggedTensor]:
        """Ids, and offsets if wanted, all with the same row splits."""
        strings = _as_vector(strings)
        with tf.device("CPU:0"):
            outputs, is_doubtful = self._tokenize_fast(strings, with_offsets)
            row_splits, *values = tf.cond(
                tf.reduce_any(is_doubtful),
                lambda: self._replace_doubtful(strings, outputs, is_doubtful),
                lambda: [outputs[0].row_splits, *(output.values for output in outputs)],
            )
            row_splits = tf.ensure_shape(row_splits, outputs[0].row_splits.shape)
            return [_ragged(value, row_splits) for value in values]

    def _tokenize_fast(
        self, strings: tf.Tensor, with_offsets: bool
    ) -> tuple[list[tf.RaggedTensor], tf.Tensor]:
        """Ids (and offsets), and for each token whether its string must be done again."""
        if with_offsets:
            normalized, offsets = self._normalizer.normalize_with_offsets(strings)
        else:
            normalized = self._normalizer.normalize(strings)
        ids, starts, ends = self._wordpiece.tokenize_with_offsets(normalized)
        # A word of more than 200 bytes came out as [UNK]. It may have fewer characters, but not if
        # it has more than four times as many bytes.
        size = ends.values - starts.values
        may_be_short = size <= MAX_CHARACTERS_PER_WORD * _MAX_BYTES_PER_CHARACTER
        is_doubtful = (ids.values >= self.vocab_size) | (
            (size > MAX_CHARACTERS_PER_WORD) & may_be_short
        )
        if not with_offsets:
            return [ids], is_doubtful
        bases = row_bases(tf.cast(tf.strings.length(strings), tf.int64))
        keys = offsets.values + tf.gather(bases, value_rows(offsets.row_splits))
        rows = value_rows(ids.row_splits)
        first_bytes = tf.gather(offsets.row_splits, rows)
        token_bases = tf.gather(bases, rows)
        first = tf.gather(keys, first_bytes + tf.cast(starts.values, tf.int64))
        last = tf.gather(keys, first_bytes + tf.cast(ends.values, tf.int64) - 1)
        ends_at = next_larger(keys, last)
        return [
            ids,
            _ragged(first - token_bases, ids.row_splits),
            _ragged(ends_at - token_bases, ids.row_splits),
        ], is_doubtful

    def _replace_doubtful(
        self, strings: tf.Tensor, outputs: list[tf.RaggedTensor], is_doubtful: tf.Tensor
    ) -> list[tf.Tensor]:
        """Does the strings with a doubtful token again; row splits, then values of each output."""
        rows, _ = tf.unique(tf.boolean_mask(value_rows(outputs[0].row_splits), is_doubtful))
        exact = self._tokenize_by_definition(tf.gather(strings, rows))
        num_strings = outputs[0].nrows()
        choice = tf.tensor_scatter_nd_update(
            tf.range(num_strings), rows[:, None], num_strings + tf.range(tf.size(rows, tf.int64))
        )
        merged = [
            tf.gather(tf.concat([fast, slow], axis=0), choice)
            for fast, slow in zip(outputs, exact, strict=False)
        ]
        return [merged[0].row_splits, *(output.values for output in merged)]

    def _tokenize_by_definition(self, strings: tf.Tensor) -> list[tf.RaggedTensor]:
        """Ids and offsets, through the words that the definition makes of the strings."""
        split = self._split_words(strings)
        is_long = split.num_characters > MAX_CHARACTERS_PER_WORD
        words = tf.where(is_long, _UNKNOWN_WORD, split.words.values)
        ids, starts, ends = self._wordpiece_for_long_words.tokenize_with_offsets(words)
        # (W,) bytes; an unknown word's only token ends where the word does.
        lengths = tf.cast(tf.strings.length(split.words.values), tf.int64)
        word = value_rows(ids.row_splits)
        word_starts = tf.gather(tf.cumsum(lengths, exclusive=True), word)
        token_ends = tf.where(
            tf.gather(is_long, word), tf.gather(lengths, word), tf.cast(ends.values, tf.int64)
        )
        first_bytes = word_starts + tf.cast(starts.values, tf.int64)
        last_bytes = word_starts + token_ends - 1
        first = upper_bound(split.character_starts, first_bytes)
        last = upper_bound(split.character_starts, last_bytes)
        # Tokens of words of strings to tokens of strings.
        row_splits = tf.gather(ids.row_splits, split.words.row_splits)
        values = [
            ids.values,
            tf.gather(split.source_starts, first - 1),
            tf.gather(split.source_ends, last - 1),
        ]
        return [_ragged(value, row_splits) for value in values]


def _ragged(values: tf.Tensor, row_splits: tf.Tensor) -> tf.RaggedTensor:
    """A ragged tensor without the checks, which splits that an operation made do not need."""
    return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)


def _as_vector(strings: tf.Tensor | Sequence[str]) -> tf.Tensor:
    """The strings as a tensor of shape (N,), or a ValueError."""
    try:
        tensor = tf.convert_to_tensor(strings, tf.string)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"The tokenizer takes a vector of strings, shape (N,), but got {strings!r:.80}."
        ) from error
    if tensor.shape.rank != 1:
        raise ValueError(
            f"The tokenizer takes a vector of strings, shape (N,), but got shape {tensor.shape}; "
            "reshape what has more dimensions to a vector, put a single string into a list."
        )
    return tensor
