"""Which rows tag which words: one row for a sentence, or several where it is too long.

Letters: N sentences, W words of all sentences, T tokens of all sentences, R rows.
"""

from typing import NamedTuple

import numpy as np


class TagWindows(NamedTuple):
    """Rows as ranges of tokens and of words, in the sentences' order; (R,) int32 each.

    Attributes:
        sentences: the sentence that the row is of.
        starts: the row's first token.
        lengths: its tokens, without [CLS] and [SEP].
        first_words: the first word that is tagged here.
        end_words: the word behind the last that is.
    """

    sentences: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    first_words: np.ndarray
    end_words: np.ndarray


def tag_windows(
    tokens_per_word: np.ndarray,
    words_per_sentence: np.ndarray,
    room: int,
    documents: np.ndarray | None = None,
) -> TagWindows:
    """Lays out the rows.

    A sentence of at most ``room`` tokens is one row. A longer one becomes windows of ``room``
    tokens; each begins half of them after the one before, and the last ends with the sentence.
    A word is tagged in the window where the smaller of the numbers of tokens before and behind
    its first is greatest, and of two such in the earlier. (The definition is that of
    google-research/bert's ``run_squad.py``, ``_check_is_max_context``, for windows of one size.)
    So it has a quarter of the room on each side, or all that the sentence has there. A window
    that tags no word is left out.

    Args:
        tokens_per_word: (W,) integers of 1 or more.
        words_per_sentence: (N,) integers whose sum is W.
        room: the tokens that a row has room for.
        documents: (N,) integers. Neighbouring sentences of the same value share their tokens: what
            of its room a sentence leaves is halved between those before and those behind it; a
            half that its document does not fill falls to the other.

    Returns:
        The rows.

    >>> rows = tag_windows(np.ones(7, int), np.array([5, 2]), room=4)
    >>> rows.sentences, rows.starts, rows.lengths
    (array([0, 0, 1], dtype=int32), array([0, 1, 5], dtype=int32), array([4, 4, 2], dtype=int32))
    >>> rows.first_words, rows.end_words
    (array([0, 3, 5], dtype=int32), array([3, 5, 7], dtype=int32))
    """
    # (W + 1,), (N + 1,), (N + 1,)
    token_splits = _splits(tokens_per_word)
    word_splits = _splits(words_per_sentence)
    bounds = token_splits[word_splits]
    sizes = np.diff(bounds)

    # === Rows ===
    stride = max(1, room // 2)
    excess = np.maximum(sizes - room, 0)
    rows_per_sentence = 1 - (-excess // stride)
    row_splits = _splits(rows_per_sentence)
    sentences = np.repeat(np.arange(len(sizes)), rows_per_sentence)
    number = np.arange(row_splits[-1]) - row_splits[sentences]
    starts = bounds[sentences] + np.minimum(number * stride, excess[sentences])
    ends = starts + np.minimum(sizes, room)[sentences]
    if documents is not None:
        before, behind = _context(bounds, documents, room)
        starts -= before[sentences]
        ends += behind[sentences]

    # === Words ===
    sentence = np.repeat(np.arange(len(sizes)), words_per_sentence)
    # Twice the start of the window that has a word's first token in its middle.
    wanted = 2 * (token_splits[:-1] - bounds[sentence]) + 1 - room
    last = rows_per_sentence[sentence] - 1
    earlier = np.clip(wanted // (2 * stride), 0, last)
    later = np.minimum(earlier + 1, last)
    earlier_gap, later_gap = (
        np.abs(2 * np.minimum(choice * stride, excess[sentence]) - wanted)
        for choice in (earlier, later)
    )
    rows = row_splits[sentence] + np.where(later_gap < earlier_gap, later, earlier)
    every = np.arange(row_splits[-1])
    first_words, end_words = np.searchsorted(rows, every), np.searchsorted(rows, every, "right")

    fields = (sentences, starts, ends - starts, first_words, end_words)
    used = end_words > first_words
    return TagWindows(*(field[used].astype(np.int32) for field in fields))


def _context(bounds: np.ndarray, documents: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """How many tokens of its document each sentence gets before and behind it: (N,) twice."""
    begins = np.flatnonzero(np.diff(documents, prepend=documents[0] - 1))
    document = np.searchsorted(begins, np.arange(len(documents)), "right") - 1
    most_before = bounds[:-1] - bounds[begins][document]
    most_behind = bounds[np.append(begins[1:], len(documents))][document] - bounds[1:]
    left = np.maximum(room - np.diff(bounds), 0)
    before = np.minimum(most_before, np.maximum(left // 2, left - most_behind))
    return before, np.minimum(most_behind, left - before)


def _splits(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)])
