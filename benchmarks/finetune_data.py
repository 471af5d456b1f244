"""Data and metrics of ``benchmarks.finetune``, the same for both libraries."""

import hashlib
import os
from typing import Any

from bert_tf.evaluation.metrics import BINARY_SCORES, CLASS_SCORES, NUMBER_SCORES
from bert_tf.readers.glue import GLUE_TASKS, read_glue
from bert_tf.tasks.questions.reader import read_squad
from bert_tf.tasks.questions.scores import score_predictions

from .finetune_tasks import COMPARISONS, Run, text_columns

_DEV_ARTICLES = 8
_SCORES = {**CLASS_SCORES, **BINARY_SCORES, **NUMBER_SCORES}


def read_examples(run: Run, folder: str) -> tuple[list[Any], list[Any]]:
    """Returns the training and dev examples of a run, ``TextExample`` or ``QuestionExample``."""
    comparison = COMPARISONS[run.task]
    train: list[Any]
    dev: list[Any]
    if comparison.glue:
        directory = os.path.join(folder, "glue")
        train = read_glue(comparison.glue, directory, "train").items
        dev = read_glue(comparison.glue, directory, "dev").items
    else:
        train, dev = read_squad_articles(folder)
    return train[: run.rows or comparison.rows or None], dev[: run.dev_rows or None]


def read_squad_articles(folder: str) -> tuple[list[Any], list[Any]]:
    """Returns the questions of SQuAD, split into training and held-out articles.

    The split is by article, because paragraphs of an article share words, and questions about a
    paragraph share answers.
    """
    questions = read_squad(os.path.join(folder, "squad", "dev-v1.1.json")).items
    titles = {question.title for question in questions}
    ranked = sorted(titles, key=lambda title: hashlib.sha256(f"0 {title}".encode()).digest())
    held_out = set(ranked[:_DEV_ARTICLES])
    return (
        [question for question in questions if question.title not in held_out],
        [question for question in questions if question.title in held_out],
    )


def score(run: Run, items: list[Any], predictions: list[Any]) -> dict[str, float]:
    """Returns the metrics of the task in percent, or {} without predictions."""
    if not predictions:
        return {}
    comparison = COMPARISONS[run.task]
    if comparison.glue:
        labels = text_columns(items)[2]
        return {
            name: 100 * _SCORES[name](labels, predictions)
            for name in GLUE_TASKS[comparison.glue].metrics
        }
    gold = {item.id: tuple(answer.text for answer in item.answers) for item in items}
    answers = {item.id: answer for item, answer in zip(items, predictions, strict=True)}
    scores = score_predictions(gold, answers, "1.1")
    return {name: scores[name] for name in ("f1", "exact_match")}
