"""Truncates long texts, or splits them into windows, in the graph.

Training batches and serving requests use these functions. ``room`` is the number of text tokens
that fit into a row, without [CLS] and [SEP].

A long context of a question is split into rows ``[CLS] question [SEP] window [SEP]``. Windows start
every ``stride`` tokens and may overlap. A token's logit is used only in the window where the token
has the most context. Source: Devlin et al. 2019, section 4.2; google-research/bert,
``_check_is_max_context``.

A long sentence of tagged words is also split into windows, and each word is tagged in one window
(``tag_windows``, whose letters differ).

Letters: B texts or questions, W windows, C columns, S sequence length.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from .bounded_memory import value_rows
from .packing import Range

# Maximum number of windows per text; the remaining tokens are ignored.
MAX_WINDOWS = 16


def head_and_tail(ids: tf.RaggedTensor, room: int) -> tf.RaggedTensor:
    """Removes the middle of texts with more than ``room`` tokens, [B, (tokens)] int32.

    Keeps 128/510 of ``room`` tokens at the beginning, and the rest at the end. Source: Sun et al.
    2019, "How to Fine-Tune BERT for Text Classification?", section 5.3.1.
    """
    head = max(room * 128 // 510, 1)
    lengths = ids.row_lengths()
    length = tf.gather(lengths, value_rows(ids.row_splits))
    position = tf.ragged.range(lengths).values
    is_read = (position < head) | (position >= length - (room - head)) | (length <= room)
    return tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(ids.values, is_read), tf.minimum(lengths, room), validate=False
    )


def _stride(room: int) -> int:
    return max(room * 3 // 4, 1)


def max_window_tokens(room: int) -> int:
    """Returns the maximum number of tokens per text that windows can contain."""
    return (MAX_WINDOWS - 1) * _stride(room) + room


def cut_windows(lengths: tf.Tensor, room: int) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Returns the starts and lengths, [B, (W)] each, of windows over texts of (B,) tokens.

    Windows start every ``room * 3 / 4`` tokens, so that tokens at the end of one window are inside
    the next. The last window has the same length and ends with the text.
    """
    stride = _stride(room)
    left = tf.maximum(lengths - room, 0)
    counts = tf.minimum(-(-left // stride) + 1, MAX_WINDOWS)
    rows = tf.RaggedTensor.from_row_lengths(
        tf.repeat(tf.range(tf.size(lengths)), counts), counts, validate=False
    )
    indices = tf.cast(tf.ragged.range(counts).values, lengths.dtype)
    begins = tf.minimum(indices * stride, tf.gather(left, rows.values))
    sizes = tf.gather(tf.minimum(lengths, room), rows.values)
    return rows.with_values(begins), rows.with_values(sizes)


def mean_of_windows(outputs: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Returns the mean output of each text's ``counts`` (B,) windows, (B, ...) float32."""
    texts = tf.repeat(tf.range(tf.size(counts)), counts)
    return tf.math.unsorted_segment_mean(tf.cast(outputs, tf.float32), texts, tf.size(counts))


# === Contexts of questions ===

Tokenize = Callable[[tf.Tensor], tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]]

SPECIAL_TOKENS = 3  # [CLS] question [SEP] window [SEP]


class QuestionTokens(NamedTuple):
    """Tokens of B questions and their contexts; questions may share a context."""

    ids: tf.Tensor  # int32, all tokens, concatenated
    # int64: start and end (exclusive) of each token's source bytes
    byte_starts: tf.Tensor
    byte_ends: tf.Tensor
    question_starts: tf.Tensor  # (B,) int32: a question is ids[start:start + length]
    question_lengths: tf.Tensor
    context_starts: tf.Tensor  # (B,) int32: a context is ids[start:start + length]
    context_lengths: tf.Tensor


class Windows(NamedTuple):
    """Windows of B questions' contexts; every context has at least one."""

    tokens: QuestionTokens
    rooms: tf.Tensor  # (B,) int32, maximum number of tokens per window
    strides: tf.Tensor  # (B,) int32, number of tokens between the starts of windows
    questions: tf.Tensor  # (W,) int32, ascending: index of the question
    firsts: tf.Tensor  # (W,) int32, index of the first token in the context
    lengths: tf.Tensor  # (W,) int32, number of tokens


def tokenize_questions(
    tokenize: Tokenize, questions: tf.Tensor, contexts: tf.Tensor, max_query_length: int
) -> QuestionTokens:
    """Tokenizes (B,) questions and contexts; truncates questions to ``max_query_length``.

    ``tokenize`` has the signature of ``BertTokenizer.tokenize_with_offsets``.
    """
    distinct, which = tf.unique(contexts)
    ids, byte_starts, byte_ends = tokenize(tf.concat([distinct, questions], 0))
    row_starts = tf.cast(ids.row_starts(), tf.int32)
    row_lengths = tf.cast(ids.row_lengths(), tf.int32)
    num_contexts = tf.size(distinct)
    return QuestionTokens(
        ids.values,
        byte_starts.values,
        byte_ends.values,
        question_starts=row_starts[num_contexts:],
        question_lengths=tf.minimum(row_lengths[num_contexts:], max_query_length),
        context_starts=tf.gather(row_starts, which),
        context_lengths=tf.gather(row_lengths, which),
    )


def context_windows(tokens: QuestionTokens, max_seq_length: int, stride: int) -> Windows:
    """Splits contexts into windows for rows of up to ``max_seq_length`` tokens.

    Windows start every ``stride`` tokens, or directly follow each other if shorter. Unlike in
    Google's script, an empty context has an empty window, so that every question has a null score.
    """
    rooms = max_seq_length - SPECIAL_TOKENS - tokens.question_lengths
    strides = tf.minimum(rooms, stride)
    numbers = tf.ragged.range(1 + _last_window(tokens.context_lengths, rooms, strides))
    questions = tf.cast(value_rows(numbers.row_splits), tf.int32)
    firsts = numbers.values * tf.gather(strides, questions)
    left = tf.gather(tokens.context_lengths, questions) - firsts
    lengths = tf.minimum(tf.gather(rooms, questions), left)
    return Windows(tokens, rooms, strides, questions, firsts, lengths)


def context_columns(windows: Windows) -> tf.Tensor:
    """Returns the column at which each row's context starts, (W,) int32."""
    return tf.gather(windows.tokens.question_lengths, windows.questions) + 2


def row_segments(windows: Windows) -> list[Range]:
    """Returns each row's question and window as ranges of ``tokens.ids``."""
    tokens, questions = windows.tokens, windows.questions
    question_lengths = tf.gather(tokens.question_lengths, questions)
    return [
        (tf.gather(tokens.question_starts, questions), question_lengths),
        (tf.gather(tokens.context_starts, questions) + windows.firsts, windows.lengths),
    ]


def is_context(windows: Windows, columns: tf.Tensor) -> tf.Tensor:
    """Returns whether columns, (W, C) int32, contain context tokens, (W, C) bool."""
    position = columns - context_columns(windows)[:, None]
    return (position >= 0) & (position < windows.lengths[:, None])


def has_most_context(windows: Windows, columns: tf.Tensor) -> tf.Tensor:
    """Returns which columns, (W, C), contain context tokens with the most context in this window.

    Each context token has exactly one such window. As in ``_check_is_max_context``, the context is
    the smaller of the numbers of tokens before and after the token in the window, plus a hundredth
    of the window's length; the first window wins ties.

    All windows except the last have the same length, and the best of them is the one with the
    nearest middle. Only this window and the last one need to be compared.
    """
    # (W, 1)
    room, stride, length = (
        tf.gather(values, windows.questions)[:, None]
        for values in (windows.rooms, windows.strides, windows.tokens.context_lengths)
    )
    # (W, C): index of the token in its context.
    token = (windows.firsts - context_columns(windows))[:, None] + columns
    last = _last_window(length, room, stride)
    nearest = -((stride + (room - 1) - 2 * token) // (2 * stride))  # rounded up
    nearest = tf.clip_by_value(nearest, 0, tf.maximum(last - 1, 0))

    def context_in(window: tf.Tensor) -> tf.Tensor:
        window_length = tf.minimum(room, length - window * stride)
        before = token - window * stride
        lesser = tf.minimum(before, window_length - 1 - before)
        # In float64, as in Python: rounding decides if the hundredths of two lengths differ by
        # an integer.
        context = tf.cast(lesser, tf.float64) + 0.01 * tf.cast(window_length, tf.float64)
        return tf.where(lesser >= 0, context, -1.0)

    best = tf.where(context_in(last) > context_in(nearest), last, nearest)
    return is_context(windows, columns) & (best * stride == windows.firsts[:, None])


def _last_window(lengths: tf.Tensor, rooms: tf.Tensor, strides: tf.Tensor) -> tf.Tensor:
    """Returns the index of the first window that reaches the end of the context."""
    return tf.maximum(-((rooms - lengths) // strides), 0)  # rounded up


# === Tagged words: N sentences, W words of all of them, R rows ===


class TagWindows(NamedTuple):
    """Rows as ranges of the sentences' tokens, in the order of the sentences; int32 vectors."""

    sentences: tf.Tensor  # (R,) sentence index of each row
    starts: tf.Tensor  # (R,) first token of each row, counted over all sentences
    lengths: tf.Tensor  # (R,) number of tokens, without [CLS] and [SEP]
    rows: tf.Tensor  # (W,) row in which each word is tagged


def tag_windows(
    first_tokens: tf.Tensor, sentence: tf.Tensor, bounds: tf.Tensor, room: int
) -> TagWindows:
    """Splits sentences into rows of up to ``room`` tokens, and assigns each word to a row.

    Longer sentences become windows of ``room`` tokens that start every ``room / 2`` tokens; the
    last window ends with the sentence. A word is tagged in the window with the most context (the
    smaller of the numbers of tokens before and after the word's first token); the first window wins
    ties. A word therefore has a quarter of ``room``, or all of the sentence, on each side. Windows
    without assigned words are dropped. Source: google-research/bert, ``_check_is_max_context``.

    Args:
        first_tokens: First token of each word, ascending.
            Shape `(W,)`, int32.
        sentence: Sentence index of each word, ascending.
            Shape `(W,)`, int32.
        bounds: Start of each sentence's tokens, followed by the total number of tokens.
            Shape `(N + 1,)`, int32.
        room: Maximum number of tokens per row, without [CLS] and [SEP].

    Returns:
        The ``TagWindows``.
    """
    stride = max(1, room // 2)
    sizes = bounds[1:] - bounds[:-1]
    excess = tf.maximum(sizes - room, 0)
    # (N,): number of windows per sentence, and number of windows before the sentence's first.
    counts = 1 - (-excess // stride)
    before = tf.cumsum(counts, exclusive=True)

    # === Rows ===
    sentences = tf.repeat(tf.range(tf.size(sizes)), counts)
    number = tf.range(tf.size(sentences)) - tf.gather(before, sentences)
    starts = tf.gather(bounds, sentences)
    starts += tf.minimum(number * stride, tf.gather(excess, sentences))
    lengths = tf.gather(tf.minimum(sizes, room), sentences)

    # === Words ===
    # Twice the start of a window whose middle is the word's first token.
    twice_start = 2 * (first_tokens - tf.gather(bounds, sentence)) + 1 - room
    last, max_start = tf.gather(counts, sentence) - 1, tf.gather(excess, sentence)
    earlier = tf.clip_by_value(twice_start // (2 * stride), 0, last)
    later = tf.minimum(earlier + 1, last)
    earlier_gap, later_gap = (
        2 * tf.minimum(choice * stride, max_start) - twice_start for choice in (earlier, later)
    )
    is_later = tf.maximum(later_gap, -later_gap) < tf.maximum(earlier_gap, -earlier_gap)
    rows = tf.gather(before, sentence) + tf.where(is_later, later, earlier)

    tags = tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, tf.size(sentences)) > 0
    renumbered = tf.cumsum(tf.cast(tags, tf.int32)) - 1
    sentences, starts, lengths = (
        tf.boolean_mask(values, tags) for values in (sentences, starts, lengths)
    )
    return TagWindows(sentences, starts, lengths, tf.gather(renumbered, rows))
