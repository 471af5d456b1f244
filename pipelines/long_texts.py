"""Texts of more tokens than a row holds: both of their ends, or windows over them; in-graph.

Core TensorFlow operations on flat vectors: fine-tuning's batches and an export's requests are cut
alike. ``room`` is how many tokens of a text a row holds, [CLS] and [SEP] left out.

A question's context that is too long for one row is read in several, each ``[CLS] question [SEP]
window [SEP]``. Windows begin every ``stride`` tokens, so that they overlap, and of the windows
that share a token one gives it the most context: in that one its logit counts. Source: Devlin et
al. 2019, section 4.2; google-research/bert, ``_check_is_max_context``.

A sentence of tagged words that is too long is read in windows likewise, and each of its words
tagged in one of them (``tag_windows``, which has letters of its own).

Letters: B texts or questions, W windows, C columns, S sequence length.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from .bounded_memory import value_rows
from .packing import Range

# The most windows of a text; of a longer one the rest is left out.
MAX_WINDOWS = 16


def head_and_tail(ids: tf.RaggedTensor, room: int) -> tf.RaggedTensor:
    """Leaves out the middle of each text of more than ``room`` tokens, [B, (tokens)] int32.

    A quarter of the row is the text's first tokens, as of 510 tokens 128, and the rest its last.
    Source: Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?", section 5.3.1.
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
    """The most tokens of a text that its windows read."""
    return (MAX_WINDOWS - 1) * _stride(room) + room


def cut_windows(lengths: tf.Tensor, room: int) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Begins and lengths, [B, (W)] each, of the windows over texts of (B,) tokens, one at least.

    Each but the last begins three quarters of ``room`` after the one before it, so that what is at
    an end of one is within another; the last is as long as the others, and ends with the text.
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
    """Each text's mean, (B, ...) float32, of what a model gives for its ``counts`` (B,) windows."""
    texts = tf.repeat(tf.range(tf.size(counts)), counts)
    return tf.math.unsorted_segment_mean(tf.cast(outputs, tf.float32), texts, tf.size(counts))


# === Contexts of questions ===

Tokenize = Callable[[tf.Tensor], tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]]

SPECIAL_TOKENS = 3  # [CLS] question [SEP] window [SEP]


class QuestionTokens(NamedTuple):
    """The tokens of B questions and their contexts. Questions may share a context's tokens."""

    ids: tf.Tensor  # int32, all tokens, one text after the other
    # int64, for each of `ids` the first byte that it comes from, and the byte behind the last
    byte_starts: tf.Tensor
    byte_ends: tf.Tensor
    question_starts: tf.Tensor  # (B,) int32: a question is ids[start:start + length]
    question_lengths: tf.Tensor
    context_starts: tf.Tensor  # (B,) int32: so is a context
    context_lengths: tf.Tensor


class Windows(NamedTuple):
    """The windows of B questions' contexts; every context has one at least."""

    tokens: QuestionTokens
    rooms: tf.Tensor  # (B,) int32, the most tokens that a window of the question's context has
    strides: tf.Tensor  # (B,) int32, how many tokens after a window the next one begins
    questions: tf.Tensor  # (W,) int32, ascending: which question a window is for
    firsts: tf.Tensor  # (W,) int32, the token of the context that it begins with
    lengths: tf.Tensor  # (W,) int32, its tokens


def tokenize_questions(
    tokenize: Tokenize, questions: tf.Tensor, contexts: tf.Tensor, max_query_length: int
) -> QuestionTokens:
    """Tokenises questions, cut to ``max_query_length``, and contexts, each once: (B,) string each.

    ``tokenize`` does what ``BertTokenizer.tokenize_with_offsets`` does.
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
    """Lays windows over contexts, in rows of at most ``max_seq_length`` tokens.

    A window begins ``stride`` tokens after the one before, or where that one ends if it has
    fewer. Google's script makes no window for a context without tokens; here it has one, without
    tokens, so that every question has a null score.
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
    """Says in which column of each window's row the context begins: (W,) int32."""
    return tf.gather(windows.tokens.question_lengths, windows.questions) + 2


def row_segments(windows: Windows) -> list[Range]:
    """Gives each row's question and window as ranges of ``tokens.ids``."""
    tokens, questions = windows.tokens, windows.questions
    question_lengths = tf.gather(tokens.question_lengths, questions)
    return [
        (tf.gather(tokens.question_starts, questions), question_lengths),
        (tf.gather(tokens.context_starts, questions) + windows.firsts, windows.lengths),
    ]


def is_context(windows: Windows, columns: tf.Tensor) -> tf.Tensor:
    """Says which columns, (W, C) int32, of the rows hold tokens of the context: (W, C) bool."""
    position = columns - context_columns(windows)[:, None]
    return (position >= 0) & (position < windows.lengths[:, None])


def has_most_context(windows: Windows, columns: tf.Tensor) -> tf.Tensor:
    """Says which columns, (W, C), hold tokens of the context to which no window gives more: bool.

    Each token of a context has one window where it is true. The context that a window gives a token
    is, as in ``_check_is_max_context``, the lesser of what is before and behind it in the window,
    and a hundredth of the window's length; of windows that give the same, the first has it.

    All windows of a context but the last are of equal length, and of these the best is the one
    whose middle is nearest: only that and the last need comparing.
    """
    # (W, 1)
    room, stride, length = (
        tf.gather(values, windows.questions)[:, None]
        for values in (windows.rooms, windows.strides, windows.tokens.context_lengths)
    )
    # (W, C): the token's number in its context.
    token = (windows.firsts - context_columns(windows))[:, None] + columns
    last = _last_window(length, room, stride)
    nearest = _ceil_divide(2 * token - (room - 1) - stride, 2 * stride)
    nearest = tf.clip_by_value(nearest, 0, tf.maximum(last - 1, 0))

    def context_in(window: tf.Tensor) -> tf.Tensor:
        window_length = tf.minimum(room, length - window * stride)
        before = token - window * stride
        lesser = tf.minimum(before, window_length - 1 - before)
        # In float64, as Python computes: where the hundredths of two lengths differ by a whole
        # number, rounding decides.
        context = tf.cast(lesser, tf.float64) + 0.01 * tf.cast(window_length, tf.float64)
        return tf.where(lesser >= 0, context, -1.0)

    best = tf.where(context_in(last) > context_in(nearest), last, nearest)
    return is_context(windows, columns) & (best * stride == windows.firsts[:, None])


def _last_window(lengths: tf.Tensor, rooms: tf.Tensor, strides: tf.Tensor) -> tf.Tensor:
    """The number of the first window, counted from 0, that reaches the context's end."""
    return tf.maximum(_ceil_divide(lengths - rooms, strides), 0)


def _ceil_divide(dividend: tf.Tensor, divisor: tf.Tensor) -> tf.Tensor:
    return -(-dividend // divisor)


# === Tagged words: N sentences, W words of all of them, R rows ===


class TagWindows(NamedTuple):
    """Rows as ranges of the sentences' tokens, in the sentences' order; int32 vectors."""

    sentences: tf.Tensor  # (R,) which sentence each row is of
    starts: tf.Tensor  # (R,) each row's first token, counted over all sentences
    lengths: tf.Tensor  # (R,) its tokens, without [CLS] and [SEP]
    rows: tf.Tensor  # (W,) the row in which each word is tagged


def tag_windows(
    first_tokens: tf.Tensor, sentence: tf.Tensor, bounds: tf.Tensor, room: int
) -> TagWindows:
    """Lays out rows of at most ``room`` tokens: which of them tags which words; in-graph.

    Training's batches and an export's requests are cut alike. ``first_tokens`` and ``sentence``,
    (W,), are each word's first token and its sentence, both ascending, and the tokens of sentence n
    are ``bounds[n]`` to before ``bounds[n + 1]``, (N + 1,); int32.

    A sentence of at most ``room`` tokens is one row. A longer one becomes windows of ``room``
    tokens; each begins half of them after the one before, and the last ends with the sentence. A
    word is tagged in the window where the smaller of the numbers of tokens before and behind its
    first is greatest, and of two such in the earlier (google-research/bert,
    ``_check_is_max_context``, for windows of one size). So it has a quarter of the room on each
    side, or all that the sentence has there. A window that tags no word is left out.
    """
    stride = max(1, room // 2)
    sizes = bounds[1:] - bounds[:-1]
    excess = tf.maximum(sizes - room, 0)
    # (N,): the windows of each sentence, and how many are before its first.
    counts = 1 - (-excess // stride)
    before = tf.cumsum(counts, exclusive=True)

    # === Rows ===
    sentences = tf.repeat(tf.range(tf.size(sizes)), counts)
    number = tf.range(tf.size(sentences)) - tf.gather(before, sentences)
    starts = tf.gather(bounds, sentences)
    starts += tf.minimum(number * stride, tf.gather(excess, sentences))
    lengths = tf.gather(tf.minimum(sizes, room), sentences)

    # === Words ===
    # Twice the start of the window that has a word's first token in its middle.
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
