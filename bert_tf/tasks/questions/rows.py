"""Questions about contexts, and the answers in them: rows, labels, and predictions put together.

Letters: N questions, W windows, B batch, S sequence length, K = ``n_best``.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.pipelines.answers import Answers, BestColumns, answers_from_columns, best_columns
from bert_tf.pipelines.bounded_memory import value_rows
from bert_tf.pipelines.columns import check_column, check_rows, string_column, tokenize_with_offsets
from bert_tf.pipelines.long_texts import (
    SPECIAL_TOKENS,
    QuestionTokens,
    Windows,
    context_columns,
    context_windows,
    row_segments,
    tokenize_questions,
)
from bert_tf.pipelines.packing import check_at_least
from bert_tf.pipelines.replicas import compute_batches, get_traced_step
from bert_tf.pipelines.tokenized_examples import Examples, packed_examples
from bert_tf.pipelines.wordpiece import BertTokenizer


def _find_tokens(
    tokens: QuestionTokens, byte_starts: tf.Tensor, byte_ends: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The first and last token that a range of each context's bytes overlaps, (B,) int32, or -1.

    Google's ``_improve_answer_span`` looks for the answer's text among the pieces of the words
    around it; here the tokens' offsets say which of them the answer's bytes belong to.
    """
    limits = tokens.context_starts + tokens.context_lengths
    positions = tf.ragged.range(tokens.context_starts, limits)
    questions = value_rows(positions.row_splits)

    def count(condition: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(
            tf.cast(condition, tf.int32), questions, tf.size(byte_starts)
        )

    first = count(
        tf.gather(tokens.byte_ends, positions.values) <= tf.gather(byte_starts, questions)
    )
    last = (
        count(tf.gather(tokens.byte_starts, positions.values) < tf.gather(byte_ends, questions)) - 1
    )
    has_tokens = (byte_starts >= 0) & (first <= last)
    return tf.where(has_tokens, first, -1), tf.where(has_tokens, last, -1)


def _window_spans(
    windows: Windows, firsts: tf.Tensor, lasts: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The answer's columns in each window's row, (W,) int32; 0 where it is not wholly in it."""
    first = tf.gather(firsts, windows.questions)
    last = tf.gather(lasts, windows.questions)
    is_in_window = (first >= windows.firsts) & (last < windows.firsts + windows.lengths)
    shift = context_columns(windows) - windows.firsts
    return tf.where(is_in_window, first + shift, 0), tf.where(is_in_window, last + shift, 0)


# Answers are put together for this many windows at once: some 100 MB.
_WINDOWS_CHUNK_SIZE = 512
_QUESTIONS_CHUNK_SIZE = 4096
_PADDED = -1e9  # a logit whose exponential is 0


@dataclasses.dataclass(frozen=True, eq=False)
class QuestionExamples:
    """Tokenised questions and contexts, ready to be put into batches, and answers from logits.

    Attributes:
        examples: the windows' rows; see ``tokenized_examples.Examples`` for their batches.
            ``num_too_long`` counts the questions whose context is read in several windows,
            ``num_lost`` those of ``lost_answers``.
        windows: W of them, in the questions' order.
        contexts: (N,) string.
        lost_answers: the numbers of the questions, int64, that have an answer of which no token
            comes, as where it is an accent alone, or that no window holds whole; they are trained
            as unanswerable.
    """

    examples: Examples
    windows: Windows
    contexts: tf.Tensor
    lost_answers: np.ndarray

    def predict_answers(
        self, model: Any, *, batch_size: int, n_best: int, max_answer_length: int
    ) -> tuple[Answers, np.ndarray]:
        """Runs a model on every window, and finds the best answers of every question.

        The model is traced once, for batches of any size and length and for later calls. Of a batch
        only the best columns of its rows are kept, so that the memory grows with W and K, not S.

        ``model`` takes features and ``training=False``, and returns ``start_logits`` and
        ``end_logits``, (B, S) each, as ``BertSpanPredictor`` does; it reads ``batch_size`` windows
        at once. ``n_best``, K, answers of ``max_answer_length`` tokens at most are kept for each
        question. Returned are the answers, NumPy arrays, (N, K) or (N,), and the windows' losses,
        (W,) float32: the mean of the cross-entropies of the answer's start and end, as in training;
        0 for examples without answers. An argument below 1 is a ``ValueError``.
        """
        check_at_least("n_best", n_best, 1)
        check_at_least("max_answer_length", max_answer_length, 1)
        *best, losses = self._run(model, batch_size, n_best)
        pieces = []
        for questions, rows in self._chunks():
            windows = _cut_out(self.windows, questions, rows)
            columns = BestColumns(*(tf.constant(column[rows]) for column in best))
            with tf.device("CPU:0"):
                answers = answers_from_columns(
                    columns, windows, self.contexts[questions], max_answer_length=max_answer_length
                )
            pieces.append([values.numpy() for values in answers])
        answers = Answers(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))
        return answers, losses

    def _run(self, model: Any, batch_size: int, n_best: int) -> list[np.ndarray]:
        """The fields of ``BestColumns`` for all windows, and their losses."""
        dataset = self.examples.evaluation_batches(batch_size, longest_first=True)
        if isinstance(dataset.element_spec, tuple):
            dataset = dataset.map(lambda rows, labels: {**rows, **labels})
        step = get_traced_step(model, _best_row_columns, dataset.element_spec, n_best)
        collected: list[np.ndarray] = []
        for _, outputs in compute_batches(step, dataset):
            indices, *best = tf.nest.flatten(outputs)
            if not collected:
                collected = [
                    np.empty([len(self.examples), *column.shape[1:]], column.dtype.as_numpy_dtype)
                    for column in best
                ]
            for collected_column, column in zip(collected, best, strict=True):
                collected_column[indices.numpy()] = column.numpy()
        return collected

    def _chunks(self) -> Iterator[tuple[slice, slice]]:
        """Slices of the questions, and of their windows, some hundred windows each."""
        num_questions = len(self.contexts)
        firsts = np.searchsorted(self.windows.questions.numpy(), np.arange(num_questions + 1))
        begin = 0
        while begin < num_questions:
            fitting = np.searchsorted(firsts, firsts[begin] + _WINDOWS_CHUNK_SIZE, side="right") - 1
            end = max(begin + 1, int(fitting))
            yield slice(begin, end), slice(int(firsts[begin]), int(firsts[end]))
            begin = end


def _best_row_columns(
    model: Any, rows: Any, n_best: int
) -> tuple[tf.Tensor, BestColumns, tf.Tensor]:
    logits = model(rows, training=False)
    best = best_columns(
        logits[features.START_LOGITS],
        logits[features.END_LOGITS],
        tf.reduce_sum(rows[features.INPUT_MASK], 1),
        n_best,
    )
    losses = [
        tf.nn.sparse_softmax_cross_entropy_with_logits(
            rows[key], tf.where(rows[features.INPUT_MASK] > 0, logits[key], _PADDED)
        )
        for key in (features.START_LOGITS, features.END_LOGITS)
        if key in rows
    ]
    zeros = tf.zeros(tf.shape(rows[features.EXAMPLE_INDEX]))
    return rows[features.EXAMPLE_INDEX], best, sum(losses, zeros) / max(len(losses), 1)


def question_examples(
    tokenizer: BertTokenizer,
    questions: Any,
    contexts: Any,
    *,
    answer_starts: Any = None,
    answer_ends: Any = None,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
) -> QuestionExamples:
    """Tokenises questions and contexts once, to be put into batches for ``BertSpanPredictor``.

    A row is [CLS] question [SEP] window [SEP]; a context too long for one row is read in several
    windows (``long_texts.context_windows``). The features are ``features.ENCODER_FEATURES`` and
    ``example_index`` (B,) int32: the number of the window. With answers, a batch is
    ``(features, labels)``; the labels are ``start_logits`` and ``end_logits``, (B,) int32: the
    columns of the answer's first and last token. Where the answer is not wholly in the window, or
    there is none, both are 0, the column of [CLS]. To train as Google's script does, which takes
    the mean of the two losses::

        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss=loss, loss_weights=0.5)
        model.fit(data.examples.training_batches(32))

    Args:
        tokenizer: the vocabulary's.
        questions: (N,) string; what has more than ``max_query_length`` tokens is cut at its end.
        contexts: (N,) string; one that several questions ask about is tokenised once.
        answer_starts: (N,) integers, the first byte of each answer in its context; -1 where the
            context has none.
        answer_ends: (N,) integers, the byte behind the last; -1 where the context has none.
        max_seq_length: the most tokens of a row.
        doc_stride: how many tokens after a window the next one begins, if a window has as many.
        max_query_length: the most tokens of a question.

    Raises:
        ValueError: a column is not a vector of its dtype, or is empty; columns differ in length;
            an answer is not within its context; a length is below 1, or the longest question leaves
            no room for a context.

    >>> vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "?", "rollo", "led", "them"]
    >>> data = question_examples(BertTokenizer(vocab), ["Who?"], ["Rollo led them"],
    ...                          answer_starts=[0], answer_ends=[5], max_seq_length=384,
    ...                          doc_stride=128, max_query_length=64)
    >>> batch, labels = next(iter(data.examples.evaluation_batches(1)))
    >>> batch["input_word_ids"].numpy()
    array([[2, 5, 6, 3, 7, 8, 9, 3]], dtype=int32)
    >>> labels["start_logits"].numpy(), labels["end_logits"].numpy()
    (array([4], dtype=int32), array([4], dtype=int32))
    """
    check_at_least("doc_stride", doc_stride, 1)
    check_at_least("max_query_length", max_query_length, 1)
    if max_seq_length <= max_query_length + SPECIAL_TOKENS:
        raise ValueError(
            f"max_seq_length is {max_seq_length}: expected at least "
            f"{max_query_length + SPECIAL_TOKENS + 1}, so that a question of max_query_length "
            f"{max_query_length} tokens leaves room for a token of the context beside [CLS] and "
            "two [SEP]."
        )
    questions = string_column(questions, "questions")
    contexts = string_column(contexts, "contexts")
    check_rows("contexts", len(contexts), len(questions))
    tokenize = functools.partial(tokenize_with_offsets, tokenizer)
    with tf.device("CPU:0"):
        tokens = tokenize_questions(tokenize, questions, contexts, max_query_length)
        windows = context_windows(tokens, max_seq_length, doc_stride)
        targets = []
        lost = np.zeros([0], np.int64)
        if answer_starts is not None or answer_ends is not None:
            byte_starts, byte_ends = _answer_columns(answer_starts, answer_ends, contexts)
            firsts, lasts = _find_all_tokens(windows, byte_starts, byte_ends)
            spans = _window_spans(windows, firsts, lasts)
            first_columns, _ = spans
            in_a_window = windows.questions.numpy()[first_columns.numpy() > 0]
            lost = np.setdiff1d(np.flatnonzero(byte_starts >= 0), in_a_window)
            targets = [dict(zip((features.START_LOGITS, features.END_LOGITS), spans, strict=True))]
        segments = row_segments(windows)
    too_long = int(np.sum(tokens.context_lengths.numpy() > windows.rooms.numpy()))
    examples = packed_examples(
        tokenizer,
        *(tokens.ids, segments, max_seq_length, targets),
        num_too_long=too_long,
        num_lost=len(lost),
    )
    return QuestionExamples(examples, windows, contexts, lost)


def _answer_columns(starts: Any, ends: Any, contexts: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The two columns as int64, or a ValueError."""
    start, end = (
        check_column(name, values, len(contexts), "integers of shape (N,)", "iu").astype(np.int64)
        for name, values in (("answer_starts", starts), ("answer_ends", ends))
    )
    sizes = tf.strings.length(contexts).numpy()
    good = ((start >= 0) & (start < end) & (end <= sizes)) | ((start == -1) & (end == -1))
    if not good.all():
        bad = int(np.argmin(good))
        raise ValueError(
            f"Answer {bad} is bytes {start[bad]} to {end[bad]}: expected a range within its "
            f"context's {sizes[bad]} bytes, not empty, or -1 and -1 for no answer."
        )
    return start, end


def _find_all_tokens(
    windows: Windows, byte_starts: np.ndarray, byte_ends: np.ndarray
) -> tuple[tf.Tensor, tf.Tensor]:
    """Calls ``_find_tokens`` for some thousand questions at a time."""
    pieces = []
    for begin in range(0, len(byte_starts), _QUESTIONS_CHUNK_SIZE):
        part = slice(begin, begin + _QUESTIONS_CHUNK_SIZE)
        tokens = _cut_out(windows, part, slice(0, 0)).tokens
        pieces.append(_find_tokens(tokens, byte_starts[part], byte_ends[part]))
    firsts, lasts = zip(*pieces, strict=True)
    return tf.concat(firsts, 0), tf.concat(lasts, 0)


def _cut_out(windows: Windows, questions: slice, rows: slice) -> Windows:
    """The windows of some questions, these counted from 0; the tokens stay all."""
    columns = ("question_starts", "question_lengths", "context_starts", "context_lengths")
    tokens = windows.tokens
    return Windows(
        tokens._replace(**{name: getattr(tokens, name)[questions] for name in columns}),
        windows.rooms[questions],
        windows.strides[questions],
        windows.questions[rows] - questions.start,
        windows.firsts[rows],
        windows.lengths[rows],
    )
