"""Tokenized sentences of tagged words: rows, and labels at the first token of each word.

Dimensions: N sentences, W words of all sentences, T tokens of all sentences, B batch, S sequence
length.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.pipelines.long_texts import TagWindows, tag_windows
from bert_tf.pipelines.packing import check_at_least, pack_from_table, token_table
from bert_tf.pipelines.tokenized_examples import (
    Examples,
    check_rows,
    flat_column,
    tokenize_column,
)
from bert_tf.pipelines.wordpiece import BertTokenizer


def _tag_rows(
    first_tokens: np.ndarray, bounds: np.ndarray, max_tokens: int, documents: np.ndarray | None
) -> TagWindows:
    """Returns the ``tag_windows`` of words, extended by the context in their documents.

    Each side gets half of a row's remaining tokens; tokens that one side does not need go to the
    other side.
    """
    sentence = np.searchsorted(bounds, first_tokens, "right") - 1
    with tf.device("CPU:0"):
        first, text, ends = (
            tf.constant(values, tf.int32) for values in (first_tokens, sentence, bounds)
        )
        windows = tag_windows(first, text, ends, max_tokens)
        if documents is None:
            return windows
        before, after = (
            tf.gather(tf.constant(tokens, tf.int32), windows.sentences)
            for tokens in _context(bounds, documents, max_tokens)
        )
        return windows._replace(
            starts=windows.starts - before, lengths=windows.lengths + before + after
        )


def _context(
    bounds: np.ndarray, documents: np.ndarray, max_tokens: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the number of context tokens before and after each sentence, shape (N,) each."""
    begins = np.flatnonzero(np.diff(documents, prepend=documents[0] - 1))
    document = np.searchsorted(begins, np.arange(len(documents)), "right") - 1
    max_before = bounds[:-1] - bounds[begins][document]
    max_after = bounds[np.append(begins[1:], len(documents))][document] - bounds[1:]
    left = np.maximum(max_tokens - np.diff(bounds), 0)
    before = np.minimum(max_before, np.maximum(left // 2, left - max_after))
    return before, np.minimum(max_after, left - before)


_NO_WORD = -1


def tagging_examples(
    tokenizer: BertTokenizer,
    words: Any,
    *,
    tags: Any = None,
    documents: Any = None,
    max_seq_length: int = 128,
) -> Examples:
    """Tokenizes sentences once and batches them for ``BertTokenClassifier``.

    Words are tokenized separately and tagged at their first token (the paper's section 5.3). Words
    without tokens, such as control characters, are read as [UNK]. A row is [CLS] sentence [SEP].
    Sentences that are too long for a row are split (``tag_windows``), and each word is tagged in
    the row with the most context; ``num_too_long`` is the number of these sentences. Sentences
    without words are skipped.

    With ``documents``, rows are filled with untagged tokens from before and after the sentence in
    its document ("the maximal document context provided by the data", section 5.3).

    A batch is ``features`` or, with tags, ``(features, labels)``. The features are
    ``features.ENCODER_FEATURES``; ``example_index``, (B,) int32, the index of the sentence; and
    ``word_index``, (B, S) int32, the index within the sentence of the word tagged at each position.
    The labels, (B, S) int32, are the tag ids of these words. Labels and ``word_index`` are -1 at
    positions where no word is tagged.

    Args:
        tokenizer: Tokenizer.
        words: Words of each sentence, [N, (words)] string, as a list of lists or a ragged tensor.
        tags: Ids of the tags, [N, (words)] integers.
        documents: Documents of the sentences, (N,) strings or integers; adjacent sentences with
            equal values belong to the same document. ``None`` means no context.
        max_seq_length: Maximum number of tokens per row, at least 5.

    Returns:
        The tokenized sentences.

    Raises:
        ValueError: If a column is invalid, there are no words, columns differ in length, a tag is
            negative, or ``max_seq_length`` is too small.

    >>> vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "in", "par", "##is"]
    >>> tokenizer = BertTokenizer(vocab)
    >>> examples = tagging_examples(tokenizer, [["in", "Paris", "in"]], tags=[[0, 1, 0]])
    >>> batch, labels = next(iter(examples.evaluation_batches(32)))
    >>> for rows in (batch["input_word_ids"], batch["word_index"], labels):
    ...     print(rows.numpy())
    [[2 5 6 7 5 3 0 0]]
    [[-1  0  1 -1  2 -1 -1 -1]]
    [[-1  0  1 -1  0 -1 -1 -1]]
    """
    check_at_least("max_seq_length", max_seq_length, 5)
    flat_words, words_per_sentence = flat_column(words, "words")
    pieces = _never_empty(tokenize_column(tokenizer, flat_words, "words"), tokenizer.unk_id)
    flat_tags = None if tags is None else _tag_column(tags, words_per_sentence)
    numbers = None
    if documents is not None:
        check_rows("documents", len(documents), len(words_per_sentence))
        _, numbers = np.unique(np.asarray(documents), return_inverse=True)
    # (W,) and (N + 1,)
    first_pieces = pieces.row_starts().numpy()
    word_splits = np.concatenate([[0], np.cumsum(words_per_sentence)])
    bounds = np.append(first_pieces, len(pieces.values))[word_splits]
    windows = _tag_rows(first_pieces, bounds, max_seq_length - 2, numbers)
    # (T,): index of the word that starts at a token, else -1.
    word_of_piece = np.full(len(pieces.values), _NO_WORD, np.int32)
    word_of_piece[first_pieces] = np.arange(len(first_pieces))

    with tf.device("CPU:0"):
        table = token_table(pieces.values, tokenizer)
        word_at_token = tf.constant(word_of_piece)
        sentence_begins = tf.constant(word_splits[:-1], tf.int32)
        tag_ids = None if flat_tags is None else tf.constant(flat_tags)

    def make_batch(indices: tf.Tensor, width: tf.Tensor) -> Any:
        sentences, starts, lengths = (tf.gather(field, indices) for field in windows[:3])
        # (B, S): index of the token; [CLS] is at position 0.
        position = tf.range(width)[None, :] - 1
        is_token = (position >= 0) & (position < lengths[:, None])
        word = tf.gather(word_at_token, tf.where(is_token, starts[:, None] + position, 0))
        row = tf.gather(windows.rows, tf.maximum(word, 0))
        tagged = is_token & (word >= 0) & (row == indices[:, None])
        begins = tf.gather(sentence_begins, sentences)[:, None]
        batch = pack_from_table(table, [(starts, lengths)], width)
        batch[features.EXAMPLE_INDEX] = sentences
        batch[features.WORD_INDEX] = tf.where(tagged, word - begins, _NO_WORD)
        if tag_ids is None:
            return batch
        return batch, tf.where(
            tagged, tf.gather(tag_ids, tf.where(tagged, word, 0)), features.NO_LABEL
        )

    num_too_long = int(np.sum(np.diff(bounds) > max_seq_length - 2))
    return Examples(windows.lengths.numpy() + 2, max_seq_length, make_batch, num_too_long)


def _never_empty(pieces: tf.RaggedTensor, unk_id: int) -> tf.RaggedTensor:
    """Adds the token [UNK] to words without tokens."""
    lengths = pieces.row_lengths().numpy()
    values = np.insert(pieces.values.numpy(), pieces.row_starts().numpy()[lengths == 0], unk_id)
    with tf.device("CPU:0"):
        return tf.RaggedTensor.from_row_lengths(values, np.maximum(lengths, 1))


def _tag_column(tags: Any, words_per_sentence: np.ndarray) -> np.ndarray:
    """Validates the tags of all words, and returns them as (W,) int32."""
    flat_tags, tags_per_sentence = flat_column(tags, "tags")
    check_rows("tags", len(tags_per_sentence), len(words_per_sentence))
    different = np.flatnonzero(tags_per_sentence != words_per_sentence)
    if different.size:
        index = different[0]
        raise ValueError(
            f"tags[{index}] has {tags_per_sentence[index]} tags: expected "
            f"{words_per_sentence[index]}, one per word."
        )
    values = np.asarray(flat_tags)
    if values.dtype.kind not in "iu":
        raise ValueError(f"tags: expected integer ids, got dtype {values.dtype}.")
    if values.min() < 0:
        position = np.flatnonzero(values < 0)[0]
        ends = np.cumsum(words_per_sentence)
        index = np.searchsorted(ends, position, "right")
        word = position - ends[index] + words_per_sentence[index]
        raise ValueError(f"tags[{index}][{word}] is {values[position]}: expected 0 or more.")
    return values.astype(np.int32)
