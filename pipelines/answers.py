"""From the logits of windows to answers: the best spans of each context, as its own text, in-graph.

Of each window the ``n_best`` starts and the ``n_best`` ends with the greatest logits are paired;
the spans of all a question's windows are sorted by the sum of their two logits, and of those with
equal text only the best stays. The cost grows with the number of windows, and with the length of
the contexts, never with the product of the two.

Source: Devlin et al. 2019, sections 4.2 and 4.3; google-research/bert,
``write_predictions``. It differs in three points: padding never takes one of the ``n_best``
places, so that the answers do not depend on it; a text is cut from the context at the tokens'
bytes, where Google's ``get_final_text`` aligns two normalised texts and may fail; and there may be
no span, where Google's answer is the word "empty".

Letters: B questions, W windows, S sequence length, K = ``n_best``, P spans of all questions.
"""

from typing import NamedTuple

import tensorflow as tf

from .bounded_memory import map_blocks, value_rows
from .long_texts import Windows, context_columns, has_most_context, is_context, row_segments
from .normalization import row_bases, upper_bound

# Pairs of a start and an end that are looked at together: of 20 each those of 163 windows.
_PAIRS_CHUNK_SIZE = 1 << 16
# Removed characters count to the token before them: no answer ends in one.
_REMOVED_AT_END = r"(?s)(.)[\p{Cc}\p{Cf}\x{FFFD}]+$"


class Answers(NamedTuple):
    """The best spans of each question's context, best first; no two have the same text.

    A text is the span's bytes in the context, without those that are not UTF-8, and without removed
    characters at its end.
    """

    texts: tf.Tensor  # (B, K) string, UTF-8; "" where there are fewer spans
    byte_starts: tf.Tensor  # (B, K) int64, the first byte in the context; -1 where there are fewer
    byte_ends: tf.Tensor  # the byte behind the last
    start_logits: tf.Tensor  # (B, K) float32; 0 where there are fewer
    end_logits: tf.Tensor
    counts: tf.Tensor  # (B,) int32, how many spans there are; 0 where every pair was discarded
    null_start_logits: tf.Tensor  # (B,) float32, of [CLS] in the window where their sum is least
    null_end_logits: tf.Tensor

    @property
    def scores(self) -> tf.Tensor:
        """The spans' scores, (B, K): the sum of the two logits."""
        return self.start_logits + self.end_logits

    @property
    def null_scores(self) -> tf.Tensor:
        """The scores of "no answer", (B,); a text is the answer where it scores as much."""
        return self.null_start_logits + self.null_end_logits


def null_odds(answers: Answers) -> tf.Tensor:
    """The score of "no answer" less the best span's, (B,) float64; of no spans, that score."""
    null = answers.null_start_logits, answers.null_end_logits
    best = answers.start_logits[:, 0], answers.end_logits[:, 0]
    null_score, score = (
        tf.cast(start, tf.float64) + tf.cast(end, tf.float64) for start, end in (null, best)
    )
    return null_score - score


class BestColumns(NamedTuple):
    """The columns of each window's row with the greatest logits: all that answers depend on."""

    starts: tf.Tensor  # (W, K) int32, greatest logit first
    start_logits: tf.Tensor  # (W, K) float32; -inf behind a row's last column
    ends: tf.Tensor
    end_logits: tf.Tensor
    null_start_logits: tf.Tensor  # (W,) float32, those of [CLS]
    null_end_logits: tf.Tensor


def best_columns(
    start_logits: tf.Tensor, end_logits: tf.Tensor, lengths: tf.Tensor, n_best: int
) -> BestColumns:
    """Keeps the K greatest logits of each window's row, (W, S), perhaps shorter, of (W,) tokens."""

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
    """Finds the best answers of each question, whose ``contexts`` are (B,) string, dense."""
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

    # The best of all are among the best of each block.
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
    """Spans of several questions, (P,) each: their questions, ascending, and as in ``Answers``."""

    questions: tf.Tensor
    texts: tf.Tensor
    byte_starts: tf.Tensor
    byte_ends: tf.Tensor
    start_logits: tf.Tensor
    end_logits: tf.Tensor


def _valid_spans(
    best: BestColumns, windows: Windows, characters: "_Characters", max_answer_length: int
) -> _Spans:
    """The spans of some windows that count, in the order of their windows."""
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
    # Place of the row's first column among the tokens, if the window went on to its left.
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
    """The ``n_best`` of each question with different texts, best first; the first of equal ones."""
    # In float64, as Python adds: what float32 rounds to equal sums would stay in another order.
    score = tf.cast(spans.start_logits, tf.float64) + tf.cast(spans.end_logits, tf.float64)
    order = tf.argsort(score, direction="DESCENDING", stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(spans.questions, order), stable=True))
    # tf.unique numbers what it finds in the order of its first occurrence, and so best first.
    texts, questions = tf.gather(spans.texts, order), tf.gather(spans.questions, order)
    distinct, which = tf.unique(tf.strings.join([tf.strings.as_string(questions), texts], " "))
    first = tf.math.unsorted_segment_min(tf.range(tf.size(which)), which, tf.size(distinct))
    questions = tf.gather(questions, first)
    rank = tf.range(tf.size(first)) - upper_bound(questions, questions - 1)
    best = tf.gather(order, tf.boolean_mask(first, rank < n_best))
    return _Spans(*(tf.gather(values, best) for values in spans))


def character_offsets(contexts: tf.Tensor, byte_offsets: tf.Tensor) -> tf.Tensor:
    """Numbers of characters that begin before given bytes of texts: places in Python's strings.

    ``contexts`` (B,) string; ``byte_offsets`` (B, K) int64, 0 to a text's length, or -1, which
    stays; bytes that are not UTF-8 are no characters. Returns (B, K) int64.
    """
    characters = decode_characters(contexts)
    starts = tf.broadcast_to(characters.text_starts[:, None], tf.shape(byte_offsets))
    indices = tf.reshape(tf.stack([starts, starts + byte_offsets]), [-1])
    counts = upper_bound(characters.global_starts, indices - 1)
    counts = tf.reshape(counts, tf.concat([[2], tf.shape(byte_offsets)], 0))
    return tf.where(byte_offsets < 0, byte_offsets, tf.cast(counts[1] - counts[0], tf.int64))


class _Characters(NamedTuple):
    """The characters of all different texts."""

    codes: tf.Tensor  # (C,) int32, code points
    starts: tf.Tensor  # (C,) int64, their first bytes in their texts
    global_starts: tf.Tensor  # (C,) int64, ascending: those if all texts were in a line
    text_starts: tf.Tensor  # (B,) int64, where each text would begin there


def decode_characters(contexts: tf.Tensor) -> _Characters:
    """Decodes (B,) texts, each different one once, without bytes that are not UTF-8."""
    distinct, which = tf.unique(contexts)
    codes, starts = tf.strings.unicode_decode_with_offsets(distinct, "UTF-8", errors="ignore")
    text_starts = row_bases(tf.cast(tf.strings.length(distinct), tf.int64))
    global_starts = starts.values + tf.gather(text_starts, value_rows(starts.row_splits))
    return _Characters(codes.values, starts.values, global_starts, tf.gather(text_starts, which))


def span_texts(
    characters: _Characters, rows: tf.Tensor, byte_starts: tf.Tensor, byte_ends: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Cuts spans of tokens out of the texts ``rows``; (P,) each, as are the results.

    Returns the spans' texts, their starts and their ends, in bytes of the whole text. Invalid
    UTF-8, and what the tokenizer removes at the end of a text, are left out.
    """
    text_starts, starts = tf.gather(characters.text_starts, rows), characters.global_starts
    # upper_bound counts the characters that begin before the span: the index of its first one.
    first = upper_bound(starts, text_starts + byte_starts - 1)
    indices = tf.ragged.range(first, upper_bound(starts, text_starts + byte_ends - 1))
    texts = _encode(characters, indices)
    texts = tf.strings.regex_replace(texts, _REMOVED_AT_END, r"\1")
    last = first + tf.strings.length(texts, unit="UTF8_CHAR") - 1
    last_bytes = tf.strings.length(_encode(characters, tf.ragged.range(last, last + 1)))
    ends = tf.gather(characters.starts, last) + tf.cast(last_bytes, tf.int64)
    return texts, byte_starts, ends


def _encode(characters: _Characters, indices: tf.RaggedTensor) -> tf.Tensor:
    """The texts of [P, (characters)] places, (P,) string."""
    codes = indices.with_values(tf.gather(characters.codes, indices.values))
    return tf.strings.unicode_encode(codes, "UTF-8", errors="ignore")


def _min_null_window(best: BestColumns, windows: Windows, num_questions: tf.Tensor) -> tf.Tensor:
    """Each question's first window of those where [CLS] scores least, (B,) int32."""
    score = tf.cast(best.null_start_logits, tf.float64) + tf.cast(best.null_end_logits, tf.float64)
    minimum = tf.math.unsorted_segment_min(score, windows.questions, num_questions)
    number = tf.range(tf.size(score))
    candidates = tf.where(score > tf.gather(minimum, windows.questions), tf.size(score), number)
    return tf.math.unsorted_segment_min(candidates, windows.questions, num_questions)
