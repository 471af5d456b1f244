"""SQuAD 1.1 and 2.0: questions about paragraphs, answered by spans of them.

Sources: the layout of the published files; BERT (2018), sections 4.2 and 4.3. The files place an
answer by the number of its first character (code points, as Python counts them); here it is placed
by its first byte, as TensorFlow counts.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from bert_tf.untrusted import one_line, quote

from .examples import Answer, BadRowError, BadRows, Examples, QuestionExample
from .fields import filled_text, shown, spelled_number, whole_number
from .json_files import read_json_document


def read_squad(
    path: str, *, labelled: bool = True, skip_bad_rows: bool | BadRows = False
) -> Examples[QuestionExample]:
    """Reads a file of SQuAD's layout.

    A question is impossible where ``is_impossible`` says so and, where that is missing, if its list
    of answers is empty.

    Args:
        path: JSON, plain, gzip or zip; see ``json_files.read_json_document``.
        labelled: whether every question must have ``answers``; without, none is looked at.
        skip_bad_rows: leave out bad questions and list them, instead of an error at the first.

    Returns:
        The questions, in the order of the file.

    Raises:
        ValueError: the file is not JSON of this layout, or has no question; or a question has no
            text, no id or an earlier one's id, an answer does not stand in the context at its
            place, or the answers contradict ``is_impossible``.
        OSError: the file cannot be read.
    """
    path = str(path)
    document = read_json_document(path)
    if not isinstance(document, dict):
        raise ValueError(f"{path}: expected an object with a list 'data', got {shown(document)}.")
    bad = BadRows.of(path, skip_bad_rows)
    ids: set[str] = set()

    def make_example(row: tuple[str, Any, Any]) -> QuestionExample:
        title, context, question = row
        bad.begin(None, question.get("id", ""))
        question_id = filled_text(spelled_number(question.get("id")), "'id'")
        if question_id in ids:
            raise BadRowError("expected an id of its own for every question, got this id again")
        ids.add(question_id)
        if not labelled:
            return make_question(question_id, title, question.get("question"), context)
        if "answers" not in question:
            raise BadRowError("expected 'answers', got none (are the questions to be predicted?)")
        return make_question(
            question_id,
            title,
            question.get("question"),
            context,
            question["answers"],
            question.get("is_impossible"),
        )

    items = bad.collect(_questions(path, document), make_example)
    return Examples(items, (), bad.skipped)


def _questions(path: str, document: Any) -> Iterator[tuple[str, tuple[str, Any, Any]]]:
    """Gives each question's place, and its title, its context and the question itself."""
    for number, article in enumerate(_objects(document, "data", path)):
        where = f"{path}, article {number}"
        title = str(article.get("title", ""))
        for paragraph_number, paragraph in enumerate(_objects(article, "paragraphs", where)):
            inside = f"{where}, paragraph {paragraph_number}"
            for question in _objects(paragraph, "qas", inside):
                shown_id = one_line(str(question.get("id")))
                place = f"article {number} {quote(title)}, question {shown_id}"
                yield place, (title, paragraph.get("context"), question)


def _objects(value: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    found = value.get(key)
    if isinstance(found, list) and all(isinstance(item, dict) for item in found):
        return found
    raise ValueError(
        f"{where}: expected a list of objects under {key!r}, as SQuAD has it, got "
        f"{shown(found) if key in value else 'no such key'}."
    )


def make_question(
    question_id: str,
    title: str,
    question: Any,
    context: Any,
    answers: Any = (),
    is_impossible: Any = None,
    names: Sequence[str] = ("question", "context", "answers"),
) -> QuestionExample:
    """Makes an example of a question's parts, as the file has them.

    Args:
        question_id: the question's name.
        title: its article's.
        question: its text.
        context: the paragraph.
        answers: a list of objects with ``text`` and ``answer_start``, the number of the character
            of the context at which the text stands; () where they are not known.
        is_impossible: True, False, or None to go by whether the list of answers is empty.
        names: what the file calls the question, the context and the answers, for errors.

    Raises:
        BadRowError: one of them is not as described, or the last two contradict each other.
    """
    question = filled_text(question, repr(names[0]))
    context = filled_text(context, repr(names[1]))
    if answers == ():
        return QuestionExample(question_id, title, question, context, (), False)
    if not isinstance(answers, list):
        raise BadRowError(f"expected a list of answers in {names[2]!r}, got {shown(answers)}")
    if is_impossible is None:
        is_impossible = not answers
    if is_impossible is not (not answers):
        raise BadRowError(
            "expected 'is_impossible' to be true where there are no answers, and false elsewhere; "
            f"got {shown(is_impossible)} and {len(answers)} answers"
        )
    found = tuple(_find_answer(answer, context) for answer in answers)
    return QuestionExample(question_id, title, question, context, found, is_impossible)


def _find_answer(answer: Any, context: str) -> Answer:
    if not isinstance(answer, dict):
        raise BadRowError(f"expected an answer with 'text' and 'answer_start', got {shown(answer)}")
    wanted = filled_text(answer.get("text"), "an answer's 'text'")
    start = whole_number(answer.get("answer_start"), "'answer_start'", len(context))
    there = context[start : start + len(wanted)]
    if there != wanted:
        raise BadRowError(
            f"expected the answer {shown(wanted)} at character {start} of the context, got "
            f"{shown(there)}"
        )
    return Answer(wanted, start if context.isascii() else len(context[:start].encode()))


def split_by_article(
    items: Sequence[QuestionExample], held_out_articles: int, seed: int = 0
) -> tuple[list[QuestionExample], list[QuestionExample]]:
    """Splits questions in two, no article being in both parts.

    For files without a set of their own to evaluate on: paragraphs of one article share words, and
    questions of one paragraph share answers. Which articles are held out depends on their titles
    and the seed alone, not on their order.

    Args:
        items: questions with titles.
        held_out_articles: how many articles the second part has.
        seed: another seed holds out other articles.

    Returns:
        The questions to train on and those held out, each in the order of ``items``.

    Raises:
        ValueError: there are not more articles than are to be held out, or none is to be.
    """
    titles = {item.title for item in items}
    if not 0 < held_out_articles < len(titles):
        raise ValueError(
            f"held_out_articles is {held_out_articles}: expected 1 to {len(titles) - 1}, since the "
            f"questions are from {len(titles)} articles."
        )
    ranked = sorted(titles, key=lambda title: hashlib.sha256(f"{seed} {title}".encode()).digest())
    held_out = set(ranked[:held_out_articles])
    return (
        [item for item in items if item.title not in held_out],
        [item for item in items if item.title in held_out],
    )
