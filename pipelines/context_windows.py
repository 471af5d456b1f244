"""Questions and the windows that their contexts are read through, in-graph.

A context too long for one row is read in several, each ``[CLS] question [SEP] window [SEP]``.
Windows begin every ``doc_stride`` tokens, so that they overlap, and of the windows that share a
token one gives it the most context: in that one its logit counts.

Core TensorFlow operations on flat vectors, beside the tokenizer's; nothing loops over tokens.

Source: Devlin et al. 2019, section 4.2; google-research/bert ``run_squad.py``,
``convert_examples_to_features`` and ``_check_is_max_context``.

Letters: B questions, W windows, C columns, S sequence length.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from .packing import Range, pack
from .pools import check_at_least
from .value_rows import value_rows
from .wordpiece import BertTokenizer

Tokenize = Callable[[tf.Tensor], tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]]

_SPECIAL_TOKENS = 3  # [CLS] question [SEP] window [SEP]


class QuestionTokens(NamedTuple):
    """The tokens of B questions and their contexts. Questions may share a context's tokens.

    Attributes:
        ids: int32, all tokens, one text after the other.
        byte_starts, byte_ends: int64, for each of ``ids`` the first byte that it comes from, and
            the byte behind the last (``BertTokenizer.tokenize_with_offsets``).
        question_starts, question_lengths: (B,) int32; a question is
            ``ids[question_starts:question_starts + question_lengths]``.
        context_starts, context_lengths: (B,) int32; so is a context.
    """

    ids: tf.Tensor
    byte_starts: tf.Tensor
    byte_ends: tf.Tensor
    question_starts: tf.Tensor
    question_lengths: tf.Tensor
    context_starts: tf.Tensor
    context_lengths: tf.Tensor


class Windows(NamedTuple):
    """The windows of B questions' contexts; every context has one at least.

    Attributes:
        tokens: what they are windows of.
        rooms: (B,) int32, the most tokens that a window of the question's context has.
        strides: (B,) int32, how many tokens after a window the next one begins.
        questions: (W,) int32, ascending: which question a window is for.
        firsts: (W,) int32, the token of the context that it begins with.
        lengths: (W,) int32, its tokens.
    """

    tokens: QuestionTokens
    rooms: tf.Tensor
    strides: tf.Tensor
    questions: tf.Tensor
    firsts: tf.Tensor
    lengths: tf.Tensor


def make_windows(
    tokenizer: BertTokenizer,
    questions: tf.Tensor | Sequence[str],
    contexts: tf.Tensor | Sequence[str],
    *,
    max_seq_length: int = 384,
    doc_stride: int = 128,
    max_query_length: int = 64,
) -> Windows:
    """Tokenises questions and contexts, and lays windows over the contexts.

    Args:
        tokenizer: the vocabulary's.
        questions: (B,) string, UTF-8; what has more than ``max_query_length`` tokens is cut.
        contexts: (B,) string, UTF-8; one that several questions ask about is tokenised once.
        max_seq_length: the most tokens of a window's row, [CLS], question and [SEP] included.
        doc_stride: how many tokens after a window the next one begins, if a window has as many.
        max_query_length: the most tokens of a question.

    Returns:
        The windows. Google's script makes none for a context without tokens; here it has one,
        without tokens, so that every question has a null score.

    Raises:
        ValueError: a length is out of its range, no context would fit beside the longest question,
            or the columns are not vectors of strings of one length.

    >>> vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "a", "b", "c", "d", "e"]
    >>> tokenizer = BertTokenizer(vocab)
    >>> windows = make_windows(tokenizer, ["Who?"], ["a b c d e"], max_seq_length=8, doc_stride=2,
    ...                        max_query_length=2)
    >>> windows.firsts.numpy(), windows.lengths.numpy()
    (array([0, 2], dtype=int32), array([3, 3], dtype=int32))
    >>> pack_windows(windows, tokenizer)["input_word_ids"].numpy()
    array([[ 2,  5,  1,  3,  6,  7,  8,  3],
           [ 2,  5,  1,  3,  8,  9, 10,  3]], dtype=int32)
    """
    check_window_lengths(max_seq_length, doc_stride, max_query_length)
    questions = tf.convert_to_tensor(questions, tf.string)
    contexts = tf.convert_to_tensor(contexts, tf.string)
    if not questions.shape.is_compatible_with(contexts.shape):
        raise ValueError(
            f"Expected a context for each question, got questions of shape {questions.shape} and "
            f"contexts of shape {contexts.shape}."
        )
    tokens = tokenize_questions(
        tokenizer.tokenize_with_offsets, questions, contexts, max_query_length
    )
    return cut_windows(tokens, max_seq_length, doc_stride)


def check_window_lengths(max_seq_length: int, doc_stride: int, max_query_length: int) -> None:
    """Checks that there is a way to lay windows.

    Raises:
        ValueError: a length is below 1, or the longest question leaves no room for a context.

    >>> check_window_lengths(67, 128, 64)
    Traceback (most recent call last):
    ...
    ValueError: max_seq_length is 67: expected at least 68, so that a question of max_query_length \
64 tokens leaves room for a token of the context beside [CLS] and two [SEP].
    """
    check_at_least("doc_stride", doc_stride, 1)
    check_at_least("max_query_length", max_query_length, 1)
    if max_seq_length <= max_query_length + _SPECIAL_TOKENS:
        raise ValueError(
            f"max_seq_length is {max_seq_length}: expected at least "
            f"{max_query_length + _SPECIAL_TOKENS + 1}, so that a question of max_query_length "
            f"{max_query_length} tokens leaves room for a token of the context beside [CLS] and "
            "two [SEP]."
        )


def tokenize_questions(
    tokenize: Tokenize, questions: tf.Tensor, contexts: tf.Tensor, max_query_length: int
) -> QuestionTokens:
    """Tokenises questions and contexts.

    Args:
        tokenize: ``BertTokenizer.tokenize_with_offsets``, or what does as it does.
        questions: (B,) string.
        contexts: (B,) string.
        max_query_length: the tokens that a question is cut to.

    Returns:
        Their tokens.
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


def cut_windows(tokens: QuestionTokens, max_seq_length: int, doc_stride: int) -> Windows:
    """Lays windows over contexts; the lengths are those of ``make_windows``."""
    rooms = max_seq_length - _SPECIAL_TOKENS - tokens.question_lengths
    strides = tf.minimum(rooms, doc_stride)
    numbers = tf.ragged.range(1 + _last_window(tokens.context_lengths, rooms, strides))
    questions = tf.cast(value_rows(numbers.row_splits), tf.int32)
    firsts = numbers.values * tf.gather(strides, questions)
    left = tf.gather(tokens.context_lengths, questions) - firsts
    lengths = tf.minimum(tf.gather(rooms, questions), left)
    return Windows(tokens, rooms, strides, questions, firsts, lengths)


def row_lengths(windows: Windows) -> tf.Tensor:
    """Counts the tokens of each window's row, [CLS], question and [SEP] included: (W,) int32."""
    return context_columns(windows) + windows.lengths + 1


def context_columns(windows: Windows) -> tf.Tensor:
    """Says in which column of each window's row the context begins: (W,) int32."""
    return tf.gather(windows.tokens.question_lengths, windows.questions) + 2


def pack_windows(
    windows: Windows, tokenizer: BertTokenizer, max_seq_length: int | tf.Tensor | None = None
) -> dict[str, tf.Tensor]:
    """Packs each window's row, [CLS] question [SEP] window [SEP]: the encoder's features, (W, S).

    S is ``max_seq_length``, by default the greatest of ``row_lengths``.
    """
    if max_seq_length is None:
        max_seq_length = tf.maximum(tf.reduce_max(row_lengths(windows)), _SPECIAL_TOKENS)
    return pack(windows.tokens.ids, row_segments(windows), max_seq_length, tokenizer)


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
    place = columns - context_columns(windows)[:, None]
    return (place >= 0) & (place < windows.lengths[:, None])


def has_most_context(windows: Windows, columns: tf.Tensor) -> tf.Tensor:
    """Says which columns hold tokens of the context that no other window gives more context.

    Each token of a context has one window where it is true, (W, C) bool. The context that a window
    gives a token is, as in ``_check_is_max_context``, the lesser of what is before and behind it in
    the window, and a hundredth of the window's length; of windows that give the same, the first has
    it.

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
