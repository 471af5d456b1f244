"""One's own tables of questions, with answers in three forms."""

import json
import re

import pytest

from bert_tf.tasks.examples import Answer, QuestionExample
from bert_tf.tasks.question_tables import read_questions

CONTEXT = "Äh, Ann and Äh, Bo did."


@pytest.fixture
def write(tmp_path):
    def write_file(name, *lines):
        path = tmp_path / name
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        return str(path)

    return write_file


def row(**fields):
    return {"question": "Who?", "context": CONTEXT, **fields}


def test_lists_of_answers(write):
    pairs = [{"text": "Ann", "answer_start": 4}, {"text": "Bo", "answer_start": 16}]
    lists = {"text": ["Ann", "Bo"], "answer_start": [4, 16]}
    path = write(
        "a.jsonl",
        row(id="x", title="T", answers=pairs),
        row(id="y", title=None, answers=lists),
        row(id="z", title="", answers={"text": [], "answer_start": []}),
    )
    answers = (Answer("Ann", 5), Answer("Bo", 18))
    assert read_questions(path, id_column="id", title_column="title").items == [
        QuestionExample("x", "T", "Who?", CONTEXT, answers, False),
        QuestionExample("y", "", "Who?", CONTEXT, answers, False),
        QuestionExample("z", "", "Who?", CONTEXT, (), True),
    ]


def test_one_answer_in_columns(write):
    path = write("a.csv", "q,c,a,s", f'Who?,"{CONTEXT}",Bo,16', f'Why?,"{CONTEXT}",,')
    columns = {"question_column": "q", "context_column": "c"}
    examples = read_questions(path, **columns, answers_column="a", answer_start_column="s")
    assert examples.items == [
        QuestionExample("0", "", "Who?", CONTEXT, (Answer("Bo", 18),), False),
        QuestionExample("1", "", "Why?", CONTEXT, (), True),
    ]
    unlabelled = read_questions(path, **columns, answers_column=None)
    assert [(item.answers, item.is_impossible) for item in unlabelled.items] == [((), False)] * 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"answers": {"text": ["Ann"], "answer_start": [3]}},
            "expected the answer 'Ann' at charac",
        ),
        ({"answers": {"text": ["Ann"], "answer_start": []}}, "expected lists of one length under"),
        ({"answers": {"text": "Ann", "answer_start": 4}}, "expected lists of one length under"),
        ({"answers": "Ann"}, "expected a list of answers in 'answers', got 'Ann'"),
        ({"answers": None}, "expected a list of answers in 'answers', got None"),
        ({"answers": [], "question": ""}, "expected text in 'question', got ''"),
        ({"answers": [], "context": None}, "expected text in 'context', got None"),
        ({"answers": [], "id": 0}, "expected an id of its own for every row, got '0' again"),
        ({}, "expected the key 'answers', got question, context, id"),
    ],
)
def test_bad_rows(write, fields, message):
    path = write("a.jsonl", row(id="0", answers=[]), row(**{"id": "1", **fields}))
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 2: {message}")):
        read_questions(path, id_column="id")
    assert len(read_questions(path, id_column="id", skip_bad_rows=True).items) == 1
