"""Tokenized questions and contexts: rows, labels, and answers from the outputs of windows.

Dimensions: N questions, W windows, B batch, S sequence length, K = ``n_best``.
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
from bert_tf.pipelines.tokenized_examples import (
    Examples,
    check_column,
    check_rows,
    packed_examples,
    string_column,
    tokenize_with_offsets,
)
from bert_tf.pipelines.wordpiece import BertTokenizer


def _find_tokens(
    tokens: QuestionTokens, byte_starts: tf.Tensor, byte_ends: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the first and last token in each context's byte range, (B,) int32, or -1 if empty.

    Google's ``_improve_answer_span`` searches the tokens of adjacent words for the text of the
    answer. Here, the offsets of the tokens determine which of them belong to the answer.
    """
    limits = tokens.context_starts + tokens.context_lengths
    index = tf.ragged.range(tokens.context_starts, limits)
    questions = value_rows(index.row_splits)

    def count(condition: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(
            tf.cast(condition, tf.int32), questions, tf.size(byte_starts)
        )

    first = count(tf.gather(tokens.byte_ends, index.values) <= tf.gather(byte_starts, questions))
    last = count(tf.gather(tokens.byte_starts, index.values) < tf.gather(byte_ends, questions)) - 1
    has_tokens = (byte_starts >= 0) & (first <= last)
    return tf.where(has_tokens, first, -1), tf.where(has_tokens, last, -1)


def _window_spans(
    windows: Windows, firsts: tf.Tensor, lasts: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the answer's first and last position in each window's row, (W,); 0 if incomplete."""
    first = tf.gather(firsts, windows.questions)
    last = tf.gather(lasts, windows.questions)
    is_in_window = (first >= windows.firsts) & (last < windows.firsts + windows.lengths)
    shift = context_columns(windows) - windows.firsts
    return tf.where(is_in_window, first + shift, 0), tf.where(is_in_window, last + shift, 0)


# Number of windows whose answers are combined at a time; a chunk takes about 100 MB.
_WINDOWS_CHUNK_SIZE = 512
_QUESTIONS_CHUNK_SIZE = 4096
_PADDED = -1e9  # a logit with probability 0


@dataclasses.dataclass(frozen=True, eq=False)
class QuestionExamples:
    """Tokenized questions and contexts, and answers from the outputs of a model.

    Attributes:
        examples: Rows of the windows (see ``tokenized_examples.Examples``). ``num_too_long`` is the
            number of questions with several windows, and ``num_lost`` that of ``lost_answers``.
        windows: W windows in the order of the questions.
        contexts: Contexts, (N,) string.
        lost_answers: Indices of questions, int64, whose answer has no tokens, such as a single
            accent, or does not fit into a window. These questions are trained as unanswerable.
    """

    examples: Examples
    windows: Windows
    contexts: tf.Tensor
    lost_answers: np.ndarray

    def predict_answers(
        self, model: Any, *, batch_size: int, n_best: int, max_answer_length: int
    ) -> tuple[Answers, np.ndarray]:
        """Runs a model on every window and returns the best answers of every question.

        The model is traced once for all batch sizes and lengths. Only the best spans of each batch
        are kept, so memory grows with W and K, not with S.

        Args:
            model: Model that returns ``start_logits`` and ``end_logits``, (B, S) each, like
                ``BertSpanPredictor``.
            batch_size: Number of windows per batch.
            n_best: Number of answers per question, K.
            max_answer_length: Maximum number of tokens per answer.

        Returns:
            The answers, NumPy arrays of shape (N, K) or (N,), and the losses of the windows, (W,)
            float32, which are 0 without labels. As in training, a loss is the mean of the
            cross-entropies of start and end.

        Raises:
            ValueError: If ``n_best`` or ``max_answer_length`` is below 1.
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
        """Returns the fields of ``BestColumns`` for all windows, and the windows' losses."""
        batches, spec = self.examples.sorted_batches(batch_size)
        step = get_traced_step(model, _best_spans, _with_labels(spec), n_best)
        collected: list[np.ndarray] = []
        for _, outputs in compute_batches(step, map(_with_labels, batches)):
            indices, *best = tf.nest.flatten(outputs)
            if not collected:
                collected = [
                    np.empty([len(self.examples), *column.shape[1:]], column.dtype.as_numpy_dtype)
                    for column in best
                ]
            for target, column in zip(collected, best, strict=True):
                target[indices.numpy()] = column.numpy()
        return collected

    def _chunks(self) -> Iterator[tuple[slice, slice]]:
        """Yields a slice of questions and the slice of their windows for each chunk."""
        num_questions = len(self.contexts)
        firsts = np.searchsorted(self.windows.questions.numpy(), np.arange(num_questions + 1))
        begin = 0
        while begin < num_questions:
            fitting = np.searchsorted(firsts, firsts[begin] + _WINDOWS_CHUNK_SIZE, side="right") - 1
            end = max(begin + 1, int(fitting))
            yield slice(begin, end), slice(int(firsts[begin]), int(firsts[end]))
            begin = end


def _with_labels(batch: Any) -> Any:
    """Returns the features of a batch, together with its labels, if any."""
    if not isinstance(batch, tuple):
        return batch
    rows, labels = batch
    return {**rows, **labels}


def best_of_windows(logits: Any, rows: Any, n_best: int) -> BestColumns:
    """Returns the columns of the best starts and ends, given a model's outputs for windows."""
    return best_columns(
        logits[features.START_LOGITS],
        logits[features.END_LOGITS],
        tf.reduce_sum(rows[features.INPUT_MASK], 1),
        n_best,
    )


def _best_spans(model: Any, rows: Any, n_best: int) -> tuple[tf.Tensor, BestColumns, tf.Tensor]:
    logits = model(rows, training=False)
    best = best_of_windows(logits, rows, n_best)
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
    """Tokenizes questions and contexts once and batches them for ``BertSpanPredictor``.

    A row is [CLS] question [SEP] window [SEP]; contexts that are too long for a row are split into
    several windows (``long_texts.context_windows``). The features are ``features.ENCODER_FEATURES``
    and ``example_index`` (B,) int32, the index of the window. With answers, a batch is ``(features,
    labels)``; the labels are ``start_logits`` and ``end_logits``, (B,) int32, the positions of the
    answer's first and last token. Both are 0, the position of [CLS], if the window does not contain
    the complete answer or there is no answer. Google's script trains on the mean of both losses::

            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(optimizer, loss=loss, loss_weights=0.5)
            model.fit(data.examples.training_batches(32))

    Args:
        tokenizer: Tokenizer.
        questions: Questions, (N,) string; truncated to ``max_query_length`` tokens.
        contexts: Contexts, (N,) string; equal contexts are tokenized once.
        answer_starts: First byte of each answer in its context, (N,) integers; -1 without an
            answer.
        answer_ends: Byte after the last one of each answer, (N,) integers; -1 without an answer.
        max_seq_length: Maximum number of tokens per row.
        doc_stride: Number of tokens between the starts of consecutive windows.
        max_query_length: Maximum number of tokens per question.

    Returns:
        The tokenized questions and contexts.

    Raises:
        ValueError: If a column is invalid or empty, columns differ in length, an answer is outside
            of its context, a length is below 1, or questions leave no room for contexts.

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
            f"max_seq_length={max_seq_length}: expected at least "
            f"{max_query_length + SPECIAL_TOKENS + 1}, because a row contains a question of up to "
            f"max_query_length={max_query_length} tokens, a token of the context, [CLS] and two "
            "[SEP]."
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
    """Validates the answers' offsets and returns them as int64."""
    start, end = (
        check_column(name, values, len(contexts), "integers of shape (N,)", "iu").astype(np.int64)
        for name, values in (("answer_starts", starts), ("answer_ends", ends))
    )
    sizes = tf.strings.length(contexts).numpy()
    good = ((start >= 0) & (start < end) & (end <= sizes)) | ((start == -1) & (end == -1))
    if not good.all():
        bad = int(np.argmin(good))
        raise ValueError(
            f"Answer {bad} has the bytes {start[bad]} to {end[bad]}: expected a non-empty range "
            f"within the {sizes[bad]} bytes of its context, or -1 and -1 for no answer."
        )
    return start, end


def _find_all_tokens(
    windows: Windows, byte_starts: np.ndarray, byte_ends: np.ndarray
) -> tuple[tf.Tensor, tf.Tensor]:
    """Calls ``_find_tokens`` on chunks of questions to limit memory use."""
    pieces = []
    for begin in range(0, len(byte_starts), _QUESTIONS_CHUNK_SIZE):
        part = slice(begin, begin + _QUESTIONS_CHUNK_SIZE)
        tokens = _cut_out(windows, part, slice(0, 0)).tokens
        pieces.append(_find_tokens(tokens, byte_starts[part], byte_ends[part]))
    firsts, lasts = zip(*pieces, strict=True)
    return tf.concat(firsts, 0), tf.concat(lasts, 0)


def _cut_out(windows: Windows, questions: slice, rows: slice) -> Windows:
    """Returns the windows of a slice of questions, indexed from 0; all tokens are retained."""
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
