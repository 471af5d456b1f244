"""WordPiece tokenizer in the graph, with the ids of Google's or Hugging Face's tokenizer.

Most strings only pass through two operations of tensorflow-text: ``FastBertNormalize`` with the
model of ``normalization``, and ``FastWordpieceTokenizeWithOffsets`` (Song et al., 2021,
arXiv:2012.15524). These operations cannot process three cases: letters that change with their
neighbors, which the first operation marks; words of 201 to 800 bytes, because Google's limit is 200
characters; and added tokens. The results reveal the first two cases, and added tokens that contain
punctuation, such as ``[SEP]``. Strings with such a case are tokenized again by the exact
definition. TensorFlow Serving supports both operations since 2.13.

Letters: N strings, W words, V vocabulary.

Source: google-research/bert, ``tokenization.py``, ``FullTokenizer``.
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
    code_points,
    next_larger,
    replacements,
    row_bases,
    upper_bound,
)
from .text_rules import AS_GOOGLE, GOOGLE, AddedToken, TextRules, escape
from .vocabulary import CONTINUATION_PREFIX, SPECIAL_TOKENS, load_vocabulary, validate_vocabulary

_MAX_BYTES_PER_PIECE = 256  # limit of the operation


def _matchable_pieces(
    vocab: Sequence[str], normalization: Normalization, added: Sequence[AddedToken]
) -> list[str]:
    """Replaces pieces that no text can produce with distinct placeholders.

    Special tokens and similar pieces could confuse the builder of the operation's trie.
    """
    changed, dropped = replacements(normalization), code_points(normalization.characters).dropped
    characters = {*"".join(vocab)}
    replaced = {c for c in characters if changed.get(ord(c), c).strip() not in (c, AMBIGUOUS)}
    replaced |= {c for c in characters if dropped[ord(c)]}
    excluded_ids = {token.id for token in added if not token.is_piece}
    pieces = []
    for index, piece in enumerate(vocab):
        body = piece.removeprefix(CONTINUATION_PREFIX)
        is_one_word = len(body) == 1 or ASCII_PUNCTUATION.isdisjoint(body)
        matchable = body and is_one_word and replaced.isdisjoint(body) and index not in excluded_ids
        if matchable and len(body.encode()) > _MAX_BYTES_PER_PIECE:
            raise ValueError(
                f"Piece {index} of the vocabulary, {piece[:20]!r}...: expected at most "
                f"{_MAX_BYTES_PER_PIECE} bytes, got {len(body.encode())}. Remove or shorten it."
            )
        pieces.append(piece if matchable else f"[{index}]")
    return pieces


@functools.lru_cache(maxsize=4)  # two per vocabulary, with 2 MB for BERT-base
def _wordpiece_model(
    pieces: tuple[str, ...], unk_id: int, max_bytes_per_word: int, takes_words: bool
) -> np.ndarray:
    """Builds the model of the operation that splits words into ids, (bytes,) uint8.

    Long words are [UNK]. Unless ``takes_words`` is set, the operation also splits texts into words.
    """
    built = build_fast_wordpiece_model(
        list(pieces), max_bytes_per_word, CONTINUATION_PREFIX, pieces[unk_id], takes_words, False
    )
    return np.frombuffer(built, np.uint8)


_MAX_BYTES_PER_CHARACTER = 4
# A word that becomes [UNK]: cleaning removes control characters, and pieces with control characters
# are not in the trie.
_UNKNOWN_WORD = "\x02"


class BertTokenizer:
    """Splits text into WordPiece ids.

    The ids equal those of Google's ``FullTokenizer`` for every UTF-8 string of characters in
    Unicode 14, regardless of the locale and the Python version. Characters of later versions are
    caseless letters, except the few that tensorflow-text treats as punctuation. Invalid UTF-8 is
    ignored. Texts never produce special tokens except [UNK]: ``"[MASK]"`` is split into three
    words. The ``rules`` of a Hugging Face directory reproduce that directory's tokenizer, including
    added tokens.

    Works eagerly, in ``Dataset.map`` and in a SavedModel. Batches of about 1,000 strings are
    several times as fast as single strings.

    Args:
        vocab: Path to a vocabulary file, or list of pieces in the order of their ids.
        do_lower_case: Whether to lower-case the text and strip accents ("uncased").
        rules: Further tokenization rules; by default the rules of google-research/bert.

    Attributes:
        vocab: List of pieces.
        vocab_size: Number of pieces, V.
        pad_id, unk_id, cls_id, sep_id, mask_id: Ids of [PAD], [UNK], [CLS], [SEP] and [MASK].
        second_type: Type id of the second text of a pair: 1, or 0 without pair types.
        odd_to_longer: Option for truncating pairs; see ``packing.longest_first``.
        continuation: Whether each piece continues a word, that is, starts with ``##``.
            Shape `(V,)`, bool.

    Raises:
        ValueError: If the vocabulary is invalid, or has a piece of more than 256 bytes.

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
        pieces = (*known, AMBIGUOUS)
        models = [
            _wordpiece_model(pieces, self.unk_id, limit, False),
            _wordpiece_model(pieces, self.unk_id, limit * _MAX_BYTES_PER_CHARACTER, True),
        ]
        with tf.init_scope(), tf.device("CPU:0"):
            self._normalizer = tensorflow_text.FastBertNormalizer(
                model_buffer=tf.constant(build_normalizer_model(normalization))
            )
            self._wordpiece, self._word_tokenizer = (
                tensorflow_text.FastWordpieceTokenizer(
                    model_buffer=tf.constant(model), token_out_type=tf.int32
                )
                for model in models
            )
        self._split_words = WordSplitter(self.do_lower_case, rules)
        # Signs that a string contains an added token: the id of a punctuation mark in the token,
        # which is always a separate word, or else the normalized token itself.
        self._mark_ids, unmarked = set(), []
        for token in rules.added_tokens:
            mark = next((c for c in token.content if c in ASCII_PUNCTUATION), None)
            if mark is None:
                unmarked.append(token.content)
            else:
                self._mark_ids.add(known.index(mark) if mark in known else self.unk_id)
        self._unmarked_pattern = unmarked and _match_any(self._normalizer, unmarked)

    def tokenize(self, strings: tf.Tensor | Sequence[str]) -> tf.RaggedTensor:
        """Splits strings into ids.

        Args:
            strings: UTF-8 strings.
                Shape `(N,)`, string.

        Returns:
            Ids of shape `[N, (tokens)]`, int32.

        Raises:
            ValueError: If ``strings`` is not a vector of strings.
        """
        (ids,) = self._tokenize(strings, with_offsets=False)
        return ids

    def tokenize_with_offsets(
        self, strings: tf.Tensor | Sequence[str]
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Splits strings into ids, with the source bytes of each token.

        The offsets include each character completely, even if the token contains only part of it:
        an uncased tokenizer decomposes a Hangul syllable into three letters, which may become three
        tokens with the same offsets. The offsets also include removed characters that follow, such
        as accents, control characters and invalid UTF-8. Marks that canonical ordering swaps keep
        their positions.

        Args:
            strings: UTF-8 strings.
                Shape `(N,)`, string.

        Returns:
            Ids, int32, and the start and end (exclusive) of each token in bytes, int64.
                Shape `[N, (tokens)]` each.

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
        """Returns ids, and optionally offsets, with the same row splits."""
        strings = _as_vector(strings)
        with tf.device("CPU:0"):
            outputs, ambiguous = self._tokenize_fast(strings, with_offsets)
            row_splits, *values = tf.cond(
                tf.reduce_any([tf.reduce_any(mask) for mask in ambiguous]),
                lambda: self._replace_ambiguous(strings, outputs, ambiguous),
                lambda: [outputs[0].row_splits, *(output.values for output in outputs)],
            )
            row_splits = tf.ensure_shape(row_splits, outputs[0].row_splits.shape)
            return [_ragged(value, row_splits) for value in values]

    def _tokenize_fast(
        self, strings: tf.Tensor, with_offsets: bool
    ) -> tuple[list[tf.RaggedTensor], list[tf.Tensor]]:
        """Returns ids (and offsets), and masks of ambiguous tokens and strings."""
        if with_offsets:
            normalized, offsets = self._normalizer.normalize_with_offsets(strings)
        else:
            normalized = self._normalizer.normalize(strings)
        ids, starts, ends = self._wordpiece.tokenize_with_offsets(normalized)
        # Words of more than 200 bytes became [UNK], but may have only 200 characters or fewer.
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
        """Tokenizes ambiguous strings again; returns row splits and the values of each output."""
        is_ambiguous, *are_ambiguous = ambiguous
        rows = tf.boolean_mask(value_rows(outputs[0].row_splits), is_ambiguous)
        rows, _ = tf.unique(tf.concat([rows, *(tf.where(mask)[:, 0] for mask in are_ambiguous)], 0))
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
        """Returns ids and offsets, by splitting strings into words first."""
        split = self._split_words(strings)
        is_long = split.num_characters > self.rules.max_word_length
        is_single = is_long | (split.token_ids >= 0)
        words = tf.where(is_single, _UNKNOWN_WORD, split.words.values)
        ids, starts, ends = self._word_tokenizer.tokenize_with_offsets(words)
        # (W,) bytes; the only token of an unknown word ends with the word.
        lengths = tf.cast(tf.strings.length(split.words.values), tf.int64)
        word = value_rows(ids.row_splits)
        word_starts = tf.gather(tf.cumsum(lengths, exclusive=True), word)
        token_ends = tf.where(
            tf.gather(is_single, word), tf.gather(lengths, word), tf.cast(ends.values, tf.int64)
        )
        first_bytes = word_starts + tf.cast(starts.values, tf.int64)
        last_bytes = word_starts + token_ends - 1
        first = upper_bound(split.character_starts, first_bytes)
        last = upper_bound(split.character_starts, last_bytes)
        # Converts row splits of words to row splits of strings.
        row_splits = tf.gather(ids.row_splits, split.words.row_splits)
        added = tf.gather(split.token_ids, word)
        values = [
            tf.where(added >= 0, added, ids.values),
            tf.gather(split.source_starts, first - 1),
            tf.gather(split.source_ends, last - 1),
        ]
        return [_ragged(value, row_splits) for value in values]


def _match_any(normalizer: tensorflow_text.FastBertNormalizer, contents: Sequence[str]) -> str:
    """Returns a regular expression that matches normalized strings with any of ``contents``."""
    with tf.init_scope(), tf.device("CPU:0"):
        normalized = normalizer.normalize(tf.constant(contents)).numpy()
    return f"(?s).*({'|'.join(escape(text.decode()) for text in normalized)}).*"


def _ragged(values: tf.Tensor, row_splits: tf.Tensor) -> tf.RaggedTensor:
    """Creates a ragged tensor without validation, for row splits computed by an operation."""
    return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)


def _as_vector(strings: tf.Tensor | Sequence[str]) -> tf.Tensor:
    """Converts strings to a tensor of shape (N,), or raises a ValueError."""
    try:
        tensor = tf.convert_to_tensor(strings, tf.string)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Expected a vector of strings, shape (N,), got {strings!r:.80}."
        ) from error
    if tensor.shape.rank != 1:
        raise ValueError(
            f"Expected a vector of strings, shape (N,), got shape {tensor.shape}. Reshape it to a "
            "vector; put a single string into a list."
        )
    return tensor
