"""Extracts the best answer spans from the logits of context windows, in the graph.

In each window, the ``n_best`` start positions with the highest logits are paired with the
``n_best`` end positions. The spans of all windows of a question are sorted by the sum of their
logits, and spans with a duplicate text are dropped. The cost is linear in the number of windows and
in the length of the contexts.

Source: Devlin et al. 2019, sections 4.2 and 4.3; google-research/bert, ``write_predictions``, with
three differences. Padding is excluded from the ``n_best`` positions. Texts are slices of the
context; Google's ``get_final_text`` aligns two normalized texts, which may fail. If no span is
valid, there is no answer; Google's script returns "empty".

Letters: B questions, W windows, S sequence length, K = ``n_best``, P spans of all questions,
C characters.
"""

from typing import NamedTuple

import tensorflow as tf

from .bounded_memory import map_blocks, value_rows
from .long_texts import Windows, context_columns, has_most_context, is_context, row_segments
from .normalization import row_bases, upper_bound

# Number of pairs of a start and an end to process at a time: 163 windows with n_best=20.
_PAIRS_CHUNK_SIZE = 1 << 16
# Characters that the tokenizer removes belong to the preceding token, but do not end an answer.
_REMOVED_AT_END = r"(?s)(.)[\p{Cc}\p{Cf}\x{FFFD}]+$"


class Answers(NamedTuple):
    """Best spans of each question's context, best first, without duplicate texts.

    Texts are slices of the context, without invalid UTF-8 and without trailing characters that
    the tokenizer removes.
    """

    texts: tf.Tensor  # (B, K) string, UTF-8, padded with ""
    byte_starts: tf.Tensor  # (B, K) int64, first byte in the context, padded with -1
    byte_ends: tf.Tensor  # (B, K) int64, end in the context (exclusive), padded with -1
    start_logits: tf.Tensor  # (B, K) float32, padded with 0
    end_logits: tf.Tensor
    counts: tf.Tensor  # (B,) int32, number of spans
    null_start_logits: tf.Tensor  # (B,) float32, of [CLS] in the window with the lowest null score
    null_end_logits: tf.Tensor

    @property
    def scores(self) -> tf.Tensor:
        """Sum of the two logits per span, (B, K)."""
        return self.start_logits + self.end_logits

    @property
    def null_scores(self) -> tf.Tensor:
        """Score of "no answer" per question, (B,), which a span must reach to be the answer."""
        return self.null_start_logits + self.null_end_logits


def null_odds(answers: Answers) -> tf.Tensor:
    """Returns the "no answer" score minus the best span's score, (B,) float64."""
    null = answers.null_start_logits, answers.null_end_logits
    best = answers.start_logits[:, 0], answers.end_logits[:, 0]
    null_score, score = (
        tf.cast(start, tf.float64) + tf.cast(end, tf.float64) for start, end in (null, best)
    )
    return null_score - score


class BestColumns(NamedTuple):
    """Columns with the highest logits per window, from which answers are computed."""

    starts: tf.Tensor  # (W, K) int32, highest logit first
    start_logits: tf.Tensor  # (W, K) float32; -inf for columns of padding
    ends: tf.Tensor
    end_logits: tf.Tensor
    null_start_logits: tf.Tensor  # (W,) float32, logit of [CLS]
    null_end_logits: tf.Tensor


def best_columns(
    start_logits: tf.Tensor, end_logits: tf.Tensor, lengths: tf.Tensor, n_best: int
) -> BestColumns:
    """Selects the K highest logits per window from (W, S) logits of (W,) tokens."""

    def greatest(logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        columns = tf.shape(logits)[1]
        real = tf.range(columns)[None, :] < lengths[:, None]
        masked = tf.where(real, tf.cast(logits, tf.float32), float("-inf"))
        wide = tf.pad(
            masked, [[0, 0], [0, tf.maximum(n_best - columns, 0)]], constant_values=float("-inf")
        )
        values, indices = tf.math.top_k(wide, n_best)
        return indices, values

    return BestColumns(
        *greatest(start_logits),
        *greatest(end_logits),
        tf.cast(start_logits[:, 0], tf.float32),
        tf.cast(end_logits[:, 0], tf.float32),
    )


def answers_from_columns(
    best: BestColumns, windows: Windows, contexts: tf.Tensor, *, max_answer_length: int
) -> Answers:
    """Finds the best answers in the ``contexts``, (B,) string."""
    num_questions, n_best = tf.size(contexts), best.starts.shape[1]
    characters = decode_characters(contexts)
    chunk_size = max(_PAIRS_CHUNK_SIZE // n_best**2, 1)

    def step(begin: tf.Tensor) -> tuple[tf.Tensor, _Spans]:
        part = slice(begin, begin + chunk_size)
        chunk = windows._replace(
            questions=windows.questions[part],
            firsts=windows.firsts[part],
            lengths=windows.lengths[part],
        )
        columns = BestColumns(*(values[part] for values in best))
        spans = _valid_spans(columns, chunk, characters, max_answer_length)
        return begin + chunk_size, _best_spans(spans, n_best)

    # The overall best spans are among the best spans of each block.
    spans = _best_spans(map_blocks(tf.size(windows.lengths), step), n_best)
    rows = tf.RaggedTensor.from_value_rowids(
        tf.range(tf.size(spans.questions)),
        spans.questions,
        tf.cast(num_questions, tf.int32),
        validate=False,
    )

    def dense(values: tf.Tensor, padding: str | float) -> tf.Tensor:
        return rows.with_values(values).to_tensor(padding, shape=[None, n_best])

    null = _min_null_window(best, windows, num_questions)
    return Answers(
        dense(spans.texts, ""),
        dense(spans.byte_starts, -1),
        dense(spans.byte_ends, -1),
        dense(spans.start_logits, 0.0),
        dense(spans.end_logits, 0.0),
        tf.cast(rows.row_lengths(), tf.int32),
        tf.gather(best.null_start_logits, null),
        tf.gather(best.null_end_logits, null),
    )


class _Spans(NamedTuple):
    """Spans of several questions, (P,) each, sorted by question, with the fields of ``Answers``."""

    questions: tf.Tensor
    texts: tf.Tensor
    byte_starts: tf.Tensor
    byte_ends: tf.Tensor
    start_logits: tf.Tensor
    end_logits: tf.Tensor


def _valid_spans(
    best: BestColumns, windows: Windows, characters: "_Characters", max_answer_length: int
) -> _Spans:
    """Returns the valid spans, in the order of the windows."""
    length = best.ends[:, None, :] - best.starts[:, :, None] + 1
    # (W, K, K)
    valid = (
        has_most_context(windows, best.starts)[:, :, None]
        & is_context(windows, best.ends)[:, None, :]
        & (length >= 1)
        & (length <= max_answer_length)
    )
    window, start, end = tf.unstack(tf.cast(tf.where(valid), tf.int32), num=3, axis=1)
    start_index, end_index = tf.stack([window, start], 1), tf.stack([window, end], 1)
    questions = tf.gather(windows.questions, window)
    _, (window_starts, _) = row_segments(windows)
    # Index that the token in column 0 would have if the window extended to the left.
    shift = tf.gather(window_starts - context_columns(windows), window)
    texts, byte_starts, byte_ends = span_texts(
        characters,
        questions,
        tf.gather(windows.tokens.byte_starts, shift + tf.gather_nd(best.starts, start_index)),
        tf.gather(windows.tokens.byte_ends, shift + tf.gather_nd(best.ends, end_index)),
    )
    return _Spans(
        questions,
        texts,
        byte_starts,
        byte_ends,
        tf.gather_nd(best.start_logits, start_index),
        tf.gather_nd(best.end_logits, end_index),
    )


def _best_spans(spans: _Spans, n_best: int) -> _Spans:
    """Selects the ``n_best`` spans with distinct texts per question, best first."""
    # Sums are float64, as in Python; float32 would round different sums to the same value.
    score = tf.cast(spans.start_logits, tf.float64) + tf.cast(spans.end_logits, tf.float64)
    order = tf.argsort(score, direction="DESCENDING", stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(spans.questions, order), stable=True))
    # tf.unique numbers values by their first occurrence, which is the best one.
    texts, questions = tf.gather(spans.texts, order), tf.gather(spans.questions, order)
    distinct, which = tf.unique(tf.strings.join([tf.strings.as_string(questions), texts], " "))
    first = tf.math.unsorted_segment_min(tf.range(tf.size(which)), which, tf.size(distinct))
    questions = tf.gather(questions, first)
    rank = tf.range(tf.size(first)) - upper_bound(questions, questions - 1)
    best = tf.gather(order, tf.boolean_mask(first, rank < n_best))
    return _Spans(*(tf.gather(values, best) for values in spans))


def character_offsets(contexts: tf.Tensor, byte_offsets: tf.Tensor) -> tf.Tensor:
    """Converts byte offsets to offsets in characters, as in Python strings.

    Invalid UTF-8 bytes do not count as characters. An offset of -1 is returned unchanged.

    Args:
        contexts: Texts.
            Shape `(B,)`, string.
        byte_offsets: Offsets in bytes, from 0 to the length of the text, or -1.
            Shape `(B, K)`, int64.

    Returns:
        Offsets in characters.
            Shape `(B, K)`, int64.
    """
    characters = decode_characters(contexts)
    starts = tf.broadcast_to(characters.text_starts[:, None], tf.shape(byte_offsets))
    indices = tf.reshape(tf.stack([starts, starts + byte_offsets]), [-1])
    counts = upper_bound(characters.starts, indices - 1)
    counts = tf.reshape(counts, tf.concat([[2], tf.shape(byte_offsets)], 0))
    return tf.where(byte_offsets < 0, byte_offsets, tf.cast(counts[1] - counts[0], tf.int64))


class _Characters(NamedTuple):
    """Characters of all distinct texts."""

    codes: tf.Tensor  # (C,) int32, code points
    starts: tf.Tensor  # (C,) int64, ascending: first byte in the concatenated texts
    text_starts: tf.Tensor  # (B,) int64, first byte of each text in the concatenated texts


def decode_characters(contexts: tf.Tensor) -> _Characters:
    """Decodes (B,) texts, omitting invalid UTF-8; decodes each distinct text only once."""
    distinct, which = tf.unique(contexts)
    codes, starts = tf.strings.unicode_decode_with_offsets(distinct, "UTF-8", errors="ignore")
    text_starts = row_bases(tf.cast(tf.strings.length(distinct), tf.int64))
    all_starts = starts.values + tf.gather(text_starts, value_rows(starts.row_splits))
    return _Characters(codes.values, all_starts, tf.gather(text_starts, which))


def span_texts(
    characters: _Characters, rows: tf.Tensor, byte_starts: tf.Tensor, byte_ends: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the texts, byte starts and byte ends of token spans, (P,) each.

    Omits invalid UTF-8, and trailing characters that the tokenizer removes. ``rows`` contains the
    index of each span's text.
    """
    text_starts, starts = tf.gather(characters.text_starts, rows), characters.starts
    # The number of characters before the span is the index of the span's first character.
    first = upper_bound(starts, text_starts + byte_starts - 1)
    indices = tf.ragged.range(first, upper_bound(starts, text_starts + byte_ends - 1))
    texts = _encode(characters, indices)
    texts = tf.strings.regex_replace(texts, _REMOVED_AT_END, r"\1")
    last = first + tf.strings.length(texts, unit="UTF8_CHAR") - 1
    last_bytes = tf.strings.length(_encode(characters, tf.ragged.range(last, last + 1)))
    ends = tf.gather(starts, last) - text_starts + tf.cast(last_bytes, tf.int64)
    return texts, byte_starts, ends


def _encode(characters: _Characters, indices: tf.RaggedTensor) -> tf.Tensor:
    """Encodes [P, (characters)] indices of characters as (P,) strings."""
    codes = indices.with_values(tf.gather(characters.codes, indices.values))
    return tf.strings.unicode_encode(codes, "UTF-8", errors="ignore")


def _min_null_window(best: BestColumns, windows: Windows, num_questions: tf.Tensor) -> tf.Tensor:
    """Returns the first window with the lowest null score per question, (B,) int32."""
    score = tf.cast(best.null_start_logits, tf.float64) + tf.cast(best.null_end_logits, tf.float64)
    minimum = tf.math.unsorted_segment_min(score, windows.questions, num_questions)
    number = tf.range(tf.size(score))
    candidates = tf.where(score > tf.gather(minimum, windows.questions), tf.size(score), number)
    return tf.math.unsorted_segment_min(candidates, windows.questions, num_questions)
