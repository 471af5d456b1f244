"""Answers and signatures for question answering on contexts of any length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from bert_tf.answering.rows import Rows, check_equally_many, run_rows, truncate_texts
from bert_tf.answering.served import Outputs, Served
from bert_tf.answering.signatures import (
    BEYOND_ASCII,
    NOT_UTF8,
    STRINGS,
    Requests,
    Signature,
    Signatures,
    id_signature,
    long_text,
)
from bert_tf.pipelines.answers import (
    Answers,
    BestColumns,
    answers_from_columns,
    character_offsets,
    null_odds,
)
from bert_tf.pipelines.long_texts import (
    SPECIAL_TOKENS,
    context_windows,
    row_segments,
    tokenize_questions,
)

from .rows import best_of_windows

if TYPE_CHECKING:
    from bert_tf.tasks.task import Task

_CONTEXT = (
    "The city library of Oslo opened in 1931. Its architect, Ada Brandt, had come from Lisbon two "
    "years before, and the reading room that she drew has 240 seats."
)
_QUESTIONS = [
    "Who drew the reading room?",
    "When did the library open?",
    "How many seats are there?",
]


def signatures(served: Served, task: Task) -> Signatures:
    """Returns the signatures of a ``BertSpanPredictor``."""

    def answer(served: Served, question: tf.Tensor, context: tf.Tensor) -> Outputs:
        question, context = check_equally_many(question, context)
        answers, truncated = _answers(served, question, context)
        result = task.answer(answers, served.model.thresholds)
        return {**_with_characters(result, context), "truncated": truncated}

    answers = Signature(
        answer,
        {"question": STRINGS, "context": STRINGS},
        _requests(served),
        "Answers a question with a span of its context, which may have any length. `byte_start` "
        "and `byte_end` are offsets in bytes; `start` and `end` are offsets in characters (code "
        "points). End offsets are exclusive.",
    )
    tokens = id_signature(served)
    return {"serving_default": answers, "tokens": tokens}


def _requests(served: Served) -> Requests:
    odd: list[tuple[Any, Any]] = [
        ("", _CONTEXT),
        ("Wer zahlt in Zürich?", BEYOND_ASCII),
        (b"What is \xff open?", NOT_UTF8),
        (_QUESTIONS[0], f"{long_text(served)} {_CONTEXT}"),
        (_QUESTIONS[0], ""),
        (long_text(served), _CONTEXT),
    ]
    questions, contexts = map(list, zip(*odd, strict=True))
    return (
        {"question": _QUESTIONS, "context": [_CONTEXT] * len(_QUESTIONS)},
        {"question": questions, "context": contexts},
    )


def answer_questions(answers: Answers, threshold: float | None) -> Outputs:
    """Converts the best spans of each question to answers.

    With a ``threshold``, "no answer" is possible and included in the softmax of the probabilities.

    Returns:
        For each question, shape (B,): ``answer``, "" for no answer; ``byte_start`` and ``byte_end``
        in the context; ``score``, the sum of the two logits; ``null_score``, the minimum over all
        windows; and ``counts``, the number of spans. For the K best spans of each question, shape
        (B, K): ``answers``, ``byte_starts``, ``byte_ends``, ``scores`` and ``probabilities``.

    Source: Devlin et al. 2019, sections 4.2 and 4.3; google-research/bert ``run_squad.py``.
    """
    is_answered = answers.counts > 0
    if threshold is not None:
        is_answered &= null_odds(answers) <= threshold
    return {
        "answer": tf.where(is_answered, answers.texts[:, 0], ""),
        "byte_start": tf.where(is_answered, answers.byte_starts[:, 0], -1),
        "byte_end": tf.where(is_answered, answers.byte_ends[:, 0], -1),
        "score": tf.where(is_answered, answers.scores[:, 0], answers.null_scores),
        "answers": answers.texts,
        "byte_starts": answers.byte_starts,
        "byte_ends": answers.byte_ends,
        "scores": answers.scores,
        "probabilities": _probabilities(answers, with_null=threshold is not None),
        "counts": answers.counts,
        "null_score": answers.null_scores,
    }


def _with_characters(answers: Outputs, context: tf.Tensor) -> Outputs:
    """Adds offsets in characters: ``start`` and ``end``, (B,); ``starts`` and ``ends``, (B, K)."""
    positions = character_offsets(
        context, tf.concat([answers["byte_starts"], answers["byte_ends"]], 1)
    )
    starts, ends = tf.split(positions, 2, 1)
    is_answered = answers["byte_start"] >= 0
    start, end = (tf.where(is_answered, values[:, 0], -1) for values in (starts, ends))
    return {**answers, "start": start, "end": end, "starts": starts, "ends": ends}


def _answers(served: Served, question: tf.Tensor, context: tf.Tensor) -> tuple[Answers, tf.Tensor]:
    """Returns the best spans of contexts, (B,), and whether questions were truncated, (B,)."""
    limit = question_length(served)
    question = truncate_texts(served, question, limit)
    tokens = tokenize_questions(
        served.tokenizer.tokenize_with_offsets, question, context, tf.int32.max
    )
    truncated = tokens.question_lengths > limit
    tokens = tokens._replace(question_lengths=tf.minimum(tokens.question_lengths, limit))
    windows = context_windows(tokens, served.max_seq_length, served.options.doc_stride)

    def head(served: Served, inputs: Outputs) -> BestColumns:
        return best_of_windows(served.call(inputs), inputs, served.options.n_best_size)

    answers = answers_from_columns(
        run_rows(served, Rows(windows.tokens.ids, row_segments(windows)), head),
        windows,
        context,
        max_answer_length=served.options.max_answer_length,
    )
    return answers, truncated


def question_length(served: Served) -> int:
    """Returns ``max_query_length``, or half a row if it would leave no room for the context."""
    max_tokens = served.max_seq_length - SPECIAL_TOKENS
    limit = served.options.max_query_length
    return limit if limit < max_tokens else max_tokens // 2


def _probabilities(answers: Answers, with_null: bool) -> tf.Tensor:
    """Returns the softmax of the span scores, (B, K), which can include "no answer"."""
    is_span = tf.sequence_mask(answers.counts, answers.scores.shape[1])
    scores = tf.where(is_span, answers.scores, float("-inf"))
    null = answers.null_scores
    if not with_null:
        null = tf.fill(tf.shape(null), float("-inf"))
    entries = tf.concat([scores, null[:, None]], 1)
    greatest = tf.reduce_max(entries, 1, keepdims=True)
    odds = tf.where(entries > float("-inf"), tf.exp(entries - greatest), 0.0)
    return tf.math.divide_no_nan(odds, tf.reduce_sum(odds, 1, keepdims=True))[:, :-1]
