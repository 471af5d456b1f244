"""A user's own tables of questions and contexts, in SQuAD's sense.

The tables are .csv, .tsv or JSON lines: see ``tables``. Files of SQuAD's own layout are for
``squad.read_squad``.
"""

from typing import Any

from bert_tf.untrusted import quote

from .examples import BadRowError, BadRows, Examples, QuestionExample
from .fields import row_id, shown
from .squad import make_question
from .tables import Row, read_columns


def read_questions(
    path: str,
    *,
    question_column: str = "question",
    context_column: str = "context",
    answers_column: str | None = "answers",
    answer_start_column: str | None = None,
    id_column: str | None = None,
    title_column: str | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> Examples[QuestionExample]:
    r"""Reads questions with their contexts, a row each.

    A question without answers is impossible, as in SQuAD 2.0.

    Args:
        path: a table; see ``tables.read_columns``.
        question_column: the column of the question.
        context_column: the column of the paragraph.
        answers_column: with an ``answer_start_column``, the column of the one answer's text, empty
            where there is none. Without, a column of JSON lines: a list of objects with ``text``
            and ``answer_start``, as SQuAD has it, or an object with a list of each. None where the
            answers are to be predicted.
        answer_start_column: the number of the context's character at which the answer begins.
        id_column: the column of the questions' ids; None to count the rows from 0.
        title_column: the column of the articles' titles; None for "".
        skip_bad_rows: leave out bad rows and list them, instead of an error at the first.

    Returns:
        The questions, in the order of the file.

    Raises:
        ValueError: see ``tables.read_columns``; or a row has no question, no context, an earlier
            row's id, or an answer that does not stand in the context at its place.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "questions.tsv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("question\tcontext\tanswer\tat\nWho?\tÄh, Ann did.\tAnn\t4\n")
    >>> examples = read_questions(path, answers_column="answer", answer_start_column="at")
    >>> examples.items[0].answers
    (Answer(text='Ann', start=5),)
    """
    bad = BadRows.of(str(path), skip_bad_rows)
    ids: set[str] = set()

    def make_example(row: Row) -> QuestionExample:
        question_id, title, question, context, answers, start = row.values
        question_id = row_id(question_id, row.number)
        if question_id in ids:
            raise BadRowError(
                f"expected an id of its own for every row, got {quote(question_id)} again"
            )
        ids.add(question_id)
        if answers_column is None:
            answers = ()
        elif answer_start_column is not None:
            nothing = answers in ("", None)
            answers = [] if nothing else [{"text": answers, "answer_start": start}]
        elif isinstance(answers, dict):
            answers = _pairs(answers)
        return make_question(
            question_id,
            "" if title is None else str(title),
            question,
            context,
            answers,
            names=(question_column, context_column, answers_column or ""),
        )

    columns = [
        id_column,
        title_column,
        question_column,
        context_column,
        answers_column,
        answer_start_column if answers_column is not None else None,
    ]
    items = bad.collect(read_columns(str(path), columns, bad), make_example)
    return Examples(items, (), bad.skipped)


def _pairs(answers: dict[str, Any]) -> list[dict[str, Any]]:
    texts, starts = answers.get("text"), answers.get("answer_start")
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        raise BadRowError(
            "expected lists of one length under 'text' and 'answer_start' of the answers, got "
            f"{shown(answers)}"
        )
    return [
        {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
    ]
