"""What a SQuAD evaluation compares: gold answers, predictions and null odds, read and checked."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from bert_tf.untrusted import is_number, listed, one_line, quote

from .fields import shown, spelled_number
from .json_files import read_json_document

_KINDS: dict[type, str] = {list: "list", str: "string"}


@dataclasses.dataclass(frozen=True)
class SquadReferences:
    """The gold answers of a SQuAD file.

    Attributes:
        answers: by question id, in the file's order, the texts that count as right; an empty tuple
            where the paragraph does not answer the question.
        version: "1.1", or "2.0" where questions may have no answer.

    Raises:
        ValueError: no question, another version, or a question without answers in version 1.1.
    """

    answers: Mapping[str, tuple[str, ...]]
    version: str

    def __post_init__(self) -> None:
        if self.version not in ("1.1", "2.0"):
            raise ValueError(f"SQuAD's version is '1.1' or '2.0', got {self.version!r}.")
        if not self.answers:
            raise ValueError("The references hold no question: expected at least one to score.")
        empty = next((name for name, gold in self.answers.items() if not gold), None)
        if empty is not None and self.version == "1.1":
            raise ValueError(
                f"Question {empty} has no answer: in SQuAD 1.1 every question has; expected "
                "version '2.0' where some have none."
            )


def read_references(path: str) -> SquadReferences:
    """Reads the gold answers of a SQuAD file.

    The version is 2.0 where the file says so (``"version": "v2.0"``), where a question says whether
    it ``is_impossible``, or where one has no answers; else it is 1.1.

    Args:
        path: as ``read_json_document`` takes it.

    Raises:
        ValueError: no JSON, not SQuAD's structure (articles and paragraphs are counted from 0), no
            question, one id twice, or a question whose
            ``is_impossible`` contradicts its answers.
        OSError: the file cannot be read.
    """
    document = read_json_document(path)
    answers: dict[str, tuple[str, ...]] = {}
    unanswerable_allowed = False
    for article_number, article in enumerate(_field(document, "data", list, path)):
        where = f"{path}, article {article_number}"
        for number, paragraph in enumerate(_field(article, "paragraphs", list, where)):
            for question in _field(paragraph, "qas", list, f"{where}, paragraph {number}"):
                if isinstance(question, dict) and "id" in question:
                    question["id"] = spelled_number(question["id"])
                name = _field(question, "id", str, f"{where}, paragraph {number}, a question")
                place = f"{path}, question {one_line(name)}"
                if name in answers:
                    raise ValueError(
                        f"{place} occurs twice: expected ids that name one question each."
                    )
                answers[name] = _gold_answers(question, place)
                unanswerable_allowed |= "is_impossible" in question or not answers[name]
    if not answers:
        raise ValueError(f"{path} holds no question: expected a SQuAD file with some.")
    says_2 = str(document.get("version", "")).lstrip("v").startswith("2")
    return SquadReferences(answers, "2.0" if says_2 or unanswerable_allowed else "1.1")


def _gold_answers(question: Any, where: str) -> tuple[str, ...]:
    answers = tuple(
        _field(answer, "text", str, f"{where}, an answer")
        for answer in _field(question, "answers", list, where)
    )
    if question.get("is_impossible", not answers) != (not answers):
        raise ValueError(
            f"{where} says is_impossible={question['is_impossible']} and lists {len(answers)} "
            "answers: expected answers exactly where it is answerable."
        )
    return answers


def _field(value: Any, key: str, kind: type, where: str) -> Any:
    if not isinstance(value, dict):
        got = f"a {type(value).__name__}"
    elif key not in value:
        got = f"the keys {listed(map(quote, value), 4) if value else '(none)'}"
    elif not isinstance(value[key], kind):
        got = f"a {type(value[key]).__name__} there"
    else:
        return value[key]
    raise ValueError(
        f"{where} is not in SQuAD's form: expected an object with a {_KINDS[kind]} {key!r}, "
        f"got {got}."
    )


def read_predictions(path: str, references: SquadReferences) -> dict[str, str]:
    """Reads predicted answers: a JSON object from question ids to texts, "" for no answer.

    Args:
        path: as ``read_json_document`` takes it.
        references: what the predictions are for.

    Raises:
        ValueError: no JSON, not such an object, or no id is one of the references'.
        OSError: the file cannot be read.
    """
    predictions = _by_question(path, "question ids to answers")
    for name, answer in predictions.items():
        if not isinstance(answer, str):
            place = f"{path}, question {one_line(name)}"
            raise ValueError(f"{place}: expected the answer's text, got {shown(answer)}.")
    if not references.answers.keys() & predictions.keys():
        raise ValueError(
            f"{path} answers none of the data's {len(references.answers):,} questions: expected "
            f"ids such as {quote(next(iter(references.answers)))}, got "
            f"{next(map(quote, predictions), 'none')}."
        )
    return predictions


def read_null_odds(path: str, questions: Iterable[str]) -> dict[str, float]:
    """Reads null odds: a JSON object from question ids to numbers, high where no answer is likely.

    Args:
        path: as ``read_json_document`` takes it.
        questions: the ids of those that must have odds; others may.

    Raises:
        ValueError: no JSON, not such an object, a number that is not finite, or none for one of
            the questions.
        OSError: the file cannot be read.
    """
    odds = _by_question(path, "question ids to numbers")
    for name, number in odds.items():
        if not is_number(number):
            place = f"{path}, question {one_line(name)}"
            raise ValueError(f"{place}: expected a finite number, got {shown(number)}.")
    missing = next((name for name in questions if name not in odds), None)
    if missing is not None:
        raise ValueError(
            f"{path} has no number for question {one_line(missing)}: expected one for every "
            "question that is predicted."
        )
    return {name: float(number) for name, number in odds.items()}


def _by_question(path: str, what: str) -> dict[str, Any]:
    document = read_json_document(path)
    if not isinstance(document, dict):
        raise ValueError(
            f"{path}: expected a JSON object from {what}, got a {type(document).__name__}."
        )
    return document
