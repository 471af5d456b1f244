"""Text to WordPiece ids, identical to Google's ``FullTokenizer`` or Hugging Face's, in-graph.

Most strings go through two operations of tensorflow-text: ``FastBertNormalize`` with the model of
``normalization``, and ``FastWordpieceTokenizeWithOffsets`` (Song et al., 2021,
arXiv:2012.15524). Three things are beyond them: a letter that changes with its neighbours, for
which the first puts a mark; a word of 201 to 800 *bytes*, as Google counts 200 *characters*; and an
added token. The first two show in what the operations return anyway, and so does the third where
the token has punctuation, as ``[SEP]`` has; the strings with one are done again, by the definition.
TensorFlow Serving has both operations since 2.13.

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
    AMBIGUOUS,
    ASCII_PUNCTUATION,
    Normalization,
    WordSplitter,
    build_normalizer_model,
    next_larger,
    replacements,
    row_bases,
    upper_bound,
)
from .text_rules import AS_GOOGLE, GOOGLE, AddedToken, TextRules, escape
from .vocabulary import CONTINUATION_PREFIX, SPECIAL_TOKENS, load_vocabulary, validate_vocabulary

_MAX_BYTES_PER_PIECE = 256  # the op's


def _matchable_pieces(
    vocab: Sequence[str], normalization: Normalization, added: Sequence[AddedToken]
) -> list[str]:
    """The vocabulary with a stand-in for each piece that no text can produce: all different.

    Special tokens and their like could confuse the builder of the op's trie; stand-ins do not.
    """
    replaced = _replaced_characters(normalization)
    excluded_ids = {token.id for token in added if not token.is_piece}
    pieces = []
    for index, piece in enumerate(vocab):
        body = piece.removeprefix(CONTINUATION_PREFIX)
        is_one_word = len(body) == 1 or ASCII_PUNCTUATION.isdisjoint(body)
        matchable = body and is_one_word and replaced.isdisjoint(body) and index not in excluded_ids
        if matchable and len(body.encode()) > _MAX_BYTES_PER_PIECE:
            raise ValueError(
                f"Piece {index} of the vocabulary, {piece[:20]!r}..., has {len(body.encode())} "
                f"bytes: expected at most {_MAX_BYTES_PER_PIECE}; remove it or shorten it."
            )
        pieces.append(piece if matchable else f"[{index}]")
    return pieces


@functools.cache
def _replaced_characters(normalization: Normalization) -> frozenset[str]:
    """The characters that normalisation leaves in no word."""
    changed = replacements(normalization).items()
    removed = (chr(code) for code, new in changed if new.strip() not in (chr(code), AMBIGUOUS))
    return frozenset([" ", *removed])


def _wordpiece_operation(
    pieces: Sequence[str], unk_id: int, max_bytes_per_word: int, takes_words: bool = False
) -> tensorflow_text.FastWordpieceTokenizer:
    """The operation that splits words into pieces, int32 ids; longer words are [UNK].

    It splits text into words first, unless it is given words.
    """
    model = _wordpiece_model(tuple(pieces), pieces[unk_id], max_bytes_per_word, takes_words)
    return tensorflow_text.FastWordpieceTokenizer(
        model_buffer=tf.constant(model), token_out_type=tf.int32
    )


@functools.lru_cache(maxsize=4)  # two a vocabulary; that of BERT-base has 2 MB
def _wordpiece_model(
    pieces: tuple[str, ...], unknown: str, max_bytes_per_word: int, takes_words: bool
) -> np.ndarray:
    """The trie of a vocabulary, as tensorflow-text stores it: (bytes,) uint8."""
    built = build_fast_wordpiece_model(
        list(pieces), max_bytes_per_word, CONTINUATION_PREFIX, unknown, takes_words, False
    )
    return np.frombuffer(built, np.uint8)


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
    comes out, whatever the text: ``"[MASK]"`` is three words. ``rules`` may say otherwise: those of
    a Hugging Face directory give the ids of its own tokenizer, with its added tokens.

    Works eagerly, in ``Dataset.map`` and in a SavedModel. Give it batches: a thousand strings at
    once are tokenised several times as fast as one by one.

    Args:
        vocab: the path of a vocabulary file, or the pieces in the order of their ids.
        do_lower_case: whether to lower the case and strip accents ("uncased").
        rules: how text is read besides, ``TextRules``; by default as Google's code does it.

    Attributes:
        vocab: list of the pieces; ``vocab_size``, V, is their number.
        pad_id, unk_id, cls_id, sep_id, mask_id: the ids of [PAD], [UNK], [CLS], [SEP], [MASK].
        second_type: the type of a pair's second text, 1 unless the rules have no types of pairs.
        odd_to_longer: how a pair is cut, see ``packing.longest_first``.
        continuation: (V,) bool array; whether the piece continues a word (it begins with ``##``).

    Raises:
        ValueError: the vocabulary is not one (see ``vocabulary.validate_vocabulary``), or has a
            piece of more than 256 bytes.

    >>> vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", "!"]
    >>> tokenizer = BertTokenizer(vocab)
    >>> tokenizer.tokenize(["UNAFFABLE!", "", "Ünaff ö"])
    <tf.RaggedTensor [[5, 6, 7, 8], [], [5, 6, 1]]>
    """

    def __init__(
        self,
        vocab: str | os.PathLike[str] | Sequence[str],
        do_lower_case: bool = True,
        rules: TextRules = AS_GOOGLE,
    ):
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

        self.rules = rules
        self.second_type = int(rules.pair_types)
        self.odd_to_longer = rules.characters != GOOGLE
        normalization = Normalization.from_rules(self.do_lower_case, rules)
        limit = rules.max_word_length
        known = _matchable_pieces(self.vocab, normalization, rules.added_tokens)
        pieces = [*known, AMBIGUOUS]
        with tf.init_scope(), tf.device("CPU:0"):
            self._normalizer = tensorflow_text.FastBertNormalizer(
                model_buffer=tf.constant(build_normalizer_model(normalization))
            )
            self._wordpiece = _wordpiece_operation(pieces, self.unk_id, limit)
            self._word_tokenizer = _wordpiece_operation(
                pieces, self.unk_id, limit * _MAX_BYTES_PER_CHARACTER, takes_words=True
            )
        self._split_words = WordSplitter(self.do_lower_case, rules)
        # What shows that a string may have an added token: the id of a mark that is in the token,
        # and so always a word; else the token itself in what the normalizer makes of the string.
        self._mark_ids, unmarked_contents = set(), []
        for token in rules.added_tokens:
            mark = next((each for each in token.content if each in ASCII_PUNCTUATION), None)
            if mark is None:
                unmarked_contents.append(token.content)
            else:
                self._mark_ids.add(known.index(mark) if mark in known else self.unk_id)
        self._unmarked_pattern = unmarked_contents and _match_any(
            self._normalizer, unmarked_contents
        )

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
            outputs, ambiguous = self._tokenize_fast(strings, with_offsets)
            row_splits, *values = tf.cond(
                tf.reduce_any([tf.reduce_any(each) for each in ambiguous]),
                lambda: self._replace_ambiguous(strings, outputs, ambiguous),
                lambda: [outputs[0].row_splits, *(output.values for output in outputs)],
            )
            row_splits = tf.ensure_shape(row_splits, outputs[0].row_splits.shape)
            return [_ragged(value, row_splits) for value in values]

    def _tokenize_fast(
        self, strings: tf.Tensor, with_offsets: bool
    ) -> tuple[list[tf.RaggedTensor], list[tf.Tensor]]:
        """Ids (and offsets), and of which tokens, and of which strings, a string is done again."""
        if with_offsets:
            normalized, offsets = self._normalizer.normalize_with_offsets(strings)
        else:
            normalized = self._normalizer.normalize(strings)
        ids, starts, ends = self._wordpiece.tokenize_with_offsets(normalized)
        # A word of more than 200 bytes came out as [UNK]. It may have fewer characters, but not if
        # it has more than four times as many bytes.
        size, limit = ends.values - starts.values, self.rules.max_word_length
        may_be_short = size <= limit * _MAX_BYTES_PER_CHARACTER
        is_ambiguous = (ids.values >= self.vocab_size) | ((size > limit) & may_be_short)
        for mark in self._mark_ids:
            is_ambiguous |= ids.values == mark
        ambiguous = [is_ambiguous]
        if self._unmarked_pattern:
            ambiguous.append(tf.strings.regex_full_match(normalized, self._unmarked_pattern))
        if not with_offsets:
            return [ids], ambiguous
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
        ], ambiguous

    def _replace_ambiguous(
        self, strings: tf.Tensor, outputs: list[tf.RaggedTensor], ambiguous: list[tf.Tensor]
    ) -> list[tf.Tensor]:
        """Does doubtful strings again; row splits, then values of each output."""
        is_ambiguous, *are_ambiguous = ambiguous
        rows = tf.boolean_mask(value_rows(outputs[0].row_splits), is_ambiguous)
        rows, _ = tf.unique(tf.concat([rows, *(tf.where(each)[:, 0] for each in are_ambiguous)], 0))
        exact = self._tokenize_exactly(tf.gather(strings, rows))
        num_strings = outputs[0].nrows()
        choice = tf.tensor_scatter_nd_update(
            tf.range(num_strings), rows[:, None], num_strings + tf.range(tf.size(rows, tf.int64))
        )
        merged = [
            tf.gather(tf.concat([fast, slow], axis=0), choice)
            for fast, slow in zip(outputs, exact, strict=False)
        ]
        return [merged[0].row_splits, *(output.values for output in merged)]

    def _tokenize_exactly(self, strings: tf.Tensor) -> list[tf.RaggedTensor]:
        """Ids and offsets, through the words that the definition makes of the strings."""
        split = self._split_words(strings)
        is_long = split.num_characters > self.rules.max_word_length
        is_single_token = is_long | (split.token_ids >= 0)
        words = tf.where(is_single_token, _UNKNOWN_WORD, split.words.values)
        ids, starts, ends = self._word_tokenizer.tokenize_with_offsets(words)
        # (W,) bytes; an unknown word's only token ends where the word does.
        lengths = tf.cast(tf.strings.length(split.words.values), tf.int64)
        word = value_rows(ids.row_splits)
        word_starts = tf.gather(tf.cumsum(lengths, exclusive=True), word)
        token_ends = tf.where(
            tf.gather(is_single_token, word),
            tf.gather(lengths, word),
            tf.cast(ends.values, tf.int64),
        )
        first_bytes = word_starts + tf.cast(starts.values, tf.int64)
        last_bytes = word_starts + token_ends - 1
        first = upper_bound(split.character_starts, first_bytes)
        last = upper_bound(split.character_starts, last_bytes)
        # Tokens of words of strings to tokens of strings.
        row_splits = tf.gather(ids.row_splits, split.words.row_splits)
        added = tf.gather(split.token_ids, word)
        values = [
            tf.where(added >= 0, added, ids.values),
            tf.gather(split.source_starts, first - 1),
            tf.gather(split.source_ends, last - 1),
        ]
        return [_ragged(value, row_splits) for value in values]


def _match_any(normalizer: tensorflow_text.FastBertNormalizer, contents: Sequence[str]) -> str:
    """The regular expression of normalised strings that have one of some contents."""
    with tf.init_scope(), tf.device("CPU:0"):
        normalized = normalizer.normalize(tf.constant(contents)).numpy()
    return f"(?s).*({'|'.join(escape(text.decode()) for text in normalized)}).*"


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
