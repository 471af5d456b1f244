"""Readers of questions with contexts: SQuAD 1.1 and 2.0, and user tables.

Offsets of answers are in characters (code points) in SQuAD, but in bytes in the examples, as in
TensorFlow.

Sources: the published files; BERT (2018), sections 4.2 and 4.3.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf.io.messages import listed, one_line, quote
from bert_tf.readers import examples as read
from bert_tf.readers.examples import Answer, BadRowError, BadRows, ExampleSet, QuestionExample
from bert_tf.readers.table_formats import read_json_document
from bert_tf.readers.tables import Row, TableFile, read_columns

_KINDS: dict[type, str] = {list: "list", str: "string"}


class _Question(NamedTuple):
    """Question in SQuAD's layout, whose ``fields`` are not validated."""

    location: str
    title: str
    context: Any
    fields: dict[str, Any]


def _questions(path: str, document: Any) -> Iterator[_Question]:
    """Yields the questions of a file in SQuAD's layout."""
    for number, article in enumerate(_required_field(document, "data", list, path)):
        source = f"{path}, article {number}"
        for index, paragraph in enumerate(_required_field(article, "paragraphs", list, source)):
            part = f"{source}, paragraph {index}"
            for fields in _required_field(paragraph, "qas", list, part):
                if not isinstance(fields, dict):
                    _required_field(fields, "id", str, f"{part}, a question")  # raises an error
                if type(fields.get("id")) is int:
                    fields["id"] = str(fields["id"])
                title = str(article.get("title", ""))
                name = one_line(str(fields.get("id")))
                location = f"article {number} {quote(title)}, question {name}"
                yield _Question(location, title, paragraph.get("context"), fields)


def _required_field(value: Any, key: str, kind: type, location: str) -> Any:
    if not isinstance(value, dict):
        got = f"a {type(value).__name__}"
    elif key not in value:
        got = f"the keys {listed(map(quote, value), 4) if value else '(none)'}"
    elif not isinstance(value[key], kind):
        got = f"a {type(value[key]).__name__} in {key!r}"
    else:
        return value[key]
    raise ValueError(
        f"{location} is not in SQuAD's format: expected an object with the {_KINDS[kind]} {key!r}, "
        f"got {got}."
    )


def read_squad(
    path: str, *, labelled: bool = True, skip_bad_rows: bool | BadRows = False
) -> ExampleSet[QuestionExample]:
    """Reads a file in SQuAD's layout, in any encoding that ``read_json_document`` supports.

    Without ``is_impossible``, questions with an empty list of answers are impossible. If the
    questions are not ``labelled``, answers are ignored; otherwise ``answers`` is required.
    """
    path = str(path)
    document = read_json_document(path)
    bad = BadRows.from_option(path, skip_bad_rows)
    ids: set[str] = set()

    def make_example(question: _Question) -> QuestionExample:
        fields = question.fields
        bad.begin(None, fields.get("id", ""))
        question_id = read.non_empty_text(fields.get("id"), "'id'")
        _check_new(question_id, ids)
        if labelled and "answers" not in fields:
            raise BadRowError(
                "expected 'answers', got none (use files without answers only for prediction)"
            )
        return _make_question(
            question_id,
            question.title,
            fields.get("question"),
            question.context,
            fields["answers"] if labelled else (),
            fields.get("is_impossible"),
        )

    rows = ((question.location, question) for question in _questions(path, document))
    return ExampleSet(bad.collect(rows, make_example), (), bad.skipped)


def squad_has_answers(path: str) -> bool:
    """Returns whether the questions of a file in SQuAD's layout have answers."""
    return any(
        "answers" in question.fields for question in _questions(path, read_json_document(path))
    )


def read_questions(
    path: str | TableFile,
    *,
    text_columns: Sequence[str] = ("question", "context"),
    label_column: str | None = "answers",
    answer_start_column: str | None = None,
    id_column: str | None = None,
    title_column: str | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[QuestionExample]:
    """Reads a user table with one question and context per row.

    Questions without answers are impossible, as in SQuAD 2.0. With ``answer_start_column``, which
    contains the index of the first character of the answer in the context, ``label_column``
    contains the text of a single answer. Without it, ``label_column`` contains a list of objects
    with ``text`` and ``answer_start``, as in SQuAD, or an object with a list for each.
    """
    bad = BadRows.from_option(str(path), skip_bad_rows)
    ids: set[str] = set()

    def make_example(row: Row) -> QuestionExample:
        question_id, title, question, context, answers, start = row.values
        question_id = read.row_id(question_id, row.number)
        _check_new(question_id, ids)
        if label_column is None:
            answers = ()
        elif answer_start_column is not None:
            nothing = answers in ("", None)
            answers = [] if nothing else [{"text": answers, "answer_start": start}]
        elif isinstance(answers, dict):
            answers = _pair_answers(answers)
        return _make_question(
            question_id,
            "" if title is None else str(title),
            question,
            context,
            answers,
            names=(*text_columns, label_column or ""),
        )

    if label_column is None:  # prediction requires only texts
        title_column = answer_start_column = None
    columns = [id_column, title_column, *text_columns, label_column, answer_start_column]
    items = bad.collect(read_columns(path, columns, bad), make_example)
    return ExampleSet(items, (), bad.skipped)


def _check_new(question_id: str, ids: set[str]) -> None:
    if question_id in ids:
        raise BadRowError(f"expected a unique id per row, got {quote(question_id)} again")
    ids.add(question_id)


def _pair_answers(answers: dict[str, Any]) -> list[dict[str, Any]]:
    texts, starts = answers.get("text"), answers.get("answer_start")
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        raise BadRowError(
            "expected lists of equal length in 'text' and 'answer_start' of the answers, got "
            f"{read.quoted(answers)}"
        )
    return [
        {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
    ]


def _make_question(
    question_id: str,
    title: str,
    question: Any,
    context: Any,
    answers: Any,
    is_impossible: Any = None,
    names: Sequence[str] = ("question", "context", "answers"),
) -> QuestionExample:
    """Builds an example from the fields of a question.

    Unknown answers are (). ``names`` are the names of the fields in error messages.
    """
    question = read.non_empty_text(question, repr(names[0]))
    context = read.non_empty_text(context, repr(names[1]))
    if answers == ():
        return QuestionExample(question_id, title, question, context, (), False)
    if not isinstance(answers, list):
        raise BadRowError(f"expected a list of answers in {names[2]!r}, got {read.quoted(answers)}")
    if is_impossible is None:
        is_impossible = not answers
    if is_impossible is not (not answers):
        raise BadRowError(
            "expected 'is_impossible' to be true only for questions without answers, got "
            f"{read.quoted(is_impossible)} and {len(answers)} answers"
        )
    spans = tuple(_find_answer(answer, context) for answer in answers)
    return QuestionExample(question_id, title, question, context, spans, is_impossible)


def _find_answer(answer: Any, context: str) -> Answer:
    if not isinstance(answer, dict):
        raise BadRowError(
            f"expected an answer with 'text' and 'answer_start', got {read.quoted(answer)}"
        )
    text = read.non_empty_text(answer.get("text"), "an answer's 'text'")
    start = read.integer(answer.get("answer_start"), "'answer_start'", len(context))
    actual = context[start : start + len(text)]
    if actual != text:
        raise BadRowError(
            f"expected the answer {read.quoted(text)} at character {start} of the context, got "
            f"{read.quoted(actual)}"
        )
    return Answer(text, start if context.isascii() else len(context[:start].encode()))
