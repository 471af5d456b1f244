"""SQuAD files and custom tables of questions: byte offsets, bad questions and errors."""

import functools
import gzip
import json
import re

import pytest

from bert_tf.readers.examples import Answer, QuestionExample
from bert_tf.tasks.questions.reader import read_questions, read_squad
from tests.readers.test_bad_rows import CONTEXT as PARAGRAPH

# A letter of two bytes in UTF-8, an ideograph of three, and an emoji of four.
CONTEXT = "Ünder 東 😀 the moon, Ann sang."


def question(name, **fields):
    return {"id": name, "question": "Who?", **fields}


def answer(text, start):
    return {"text": text, "answer_start": start}


@pytest.fixture
def write_json(write):
    return lambda document: write("dev.json", json.dumps(document))


@pytest.fixture
def write_questions(write_json):
    def write(questions, context=CONTEXT):
        paragraph = {"context": context, "qas": questions}
        data = [{"title": "Moon", "paragraphs": [paragraph]}]
        return write_json({"version": "1.1", "data": data})

    return write


def test_answers_have_byte_offsets(write_questions):
    start = CONTEXT.index("Ann")
    path = write_questions(
        [question("q1", answers=[answer("Ann", start), answer("Ü", 0), answer("😀", 8)])]
    )
    (found,) = read_squad(path).items
    assert start == 20
    assert found == QuestionExample(
        "q1", "Moon", "Who?", CONTEXT, (Answer("Ann", 26), Answer("Ü", 0), Answer("😀", 11)), False
    )
    for location in found.answers:
        size = len(location.text.encode())
        assert CONTEXT.encode()[location.start : location.start + size].decode() == location.text


def test_both_versions_and_gzip(write_questions, tmp_path):
    path = write_questions(
        [
            question("q1", answers=[answer("moon", 14)], is_impossible=False),
            question("q2", answers=[], is_impossible=True, plausible_answers=[answer("x", 0)]),
            question("q3", answers=[answer("Ann", 20)]),
            question(4, answers=[]),
        ]
    )
    examples = read_squad(path)
    assert [item.id for item in examples.items] == ["q1", "q2", "q3", "4"]
    assert [item.is_impossible for item in examples.items] == [False, True, False, True]
    assert [len(item.answers) for item in examples.items] == [1, 0, 1, 0]
    assert (examples.labels, examples.skipped) == ((), [])
    packed = tmp_path / "dev.json.gz"
    with open(path, "rb") as file:
        packed.write_bytes(gzip.compress(file.read()))
    assert read_squad(packed) == examples


def test_questions_without_answers_are_read_for_prediction(write_questions):
    path = write_questions(
        [question("q1"), question("q2", answers="not looked at", is_impossible=True)]
    )
    items = read_squad(path, labelled=False).items
    assert [(item.id, item.answers, item.is_impossible) for item in items] == [
        ("q1", (), False),
        ("q2", (), False),
    ]
    message = "question q1: expected 'answers', got none (use files without answers only for"
    with pytest.raises(ValueError, match=re.escape(message)):
        read_squad(path)
    with pytest.raises(ValueError, match="question q1: expected a string in 'context', got None"):
        read_squad(write_questions([question("q1", answers=[])], context=None))


GOOD = [answer("Ann", 20)]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (question("q2", answers=[answer("Ann", 21)]), "expected the answer 'Ann' at character 21 "
         "of the context, got 'nn '"),
        (question("q2", answers=[answer("sang..", 24)]), "expected the answer 'sang..' at "
         "character 24 of the context, got 'sang.'"),
        (question("q2", answers=[answer("Ann", -5)]), "expected an integer from 0 to 29 in "
         "'answer_start', got -5"),
        (question("q2", answers=[answer("", 3)]), "expected non-empty text in an answer's 'text', "
            "got ''"),
        (question("q2", answers=["Ann"]), "expected an answer with 'text' and 'answer_start', "
         "got 'Ann'"),
        (question("q2", answers=GOOD, is_impossible=True), "expected 'is_impossible' to be true "
         "only for questions without answers, got True and 1 answers"),
        (question("q2", answers=[], is_impossible=False), "expected 'is_impossible' to be true "
         "only for questions without answers, got False and 0 answers"),
        (question("q1", answers=GOOD), "expected a unique id per row, got 'q1' again"),
        (question(True, answers=GOOD), "expected a string in 'id', got True"),
        ({"question": "Who?", "answers": GOOD}, "expected a string in 'id', got None"),
        ({"id": "q2", "question": " ", "answers": GOOD}, "expected non-empty text in 'question', "
            "got ' '"),
    ],
)  # fmt: skip
def test_bad_questions_raise_error_or_are_skipped(write_questions, bad, message):
    path = write_questions([question("q1", answers=GOOD), bad, question("q3", answers=GOOD)])
    location = f"{path}, article 0 'Moon', question {bad.get('id')}: "
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        read_squad(path)
    assert str(raised.value).startswith(location)
    examples = read_squad(path, skip_bad_rows=True)
    assert [item.id for item in examples.items] == ["q1", "q3"]
    assert len(examples.skipped) == 1 and message in examples.skipped[0]


@pytest.mark.parametrize(
    ("name", "questions", "articles", "impossible"),
    [("dev-v1.1.json", 10570, 48, 0), ("half-dev-v2.0.json.gz", 6078, 16, 3168)],
)
def test_published_files_are_read(data_dir, unpacked, name, questions, articles, impossible):
    folder = data_dir / "squad" if name.endswith(".gz") else unpacked(f"squad/{name}.zip")
    examples = read_squad(str(folder / name))
    assert len(examples.items) == questions
    assert len({item.title for item in examples.items}) == articles
    assert sum(item.is_impossible for item in examples.items) == impossible
    num_moved = 0
    for item in examples.items:
        context = item.context.encode()
        assert bool(item.answers) is not item.is_impossible
        for found in item.answers:
            text = found.text.encode()
            assert context[found.start : found.start + len(text)] == text
            num_moved += item.context[found.start : found.start + len(found.text)] != found.text
    assert num_moved > 1000  # answers with different character and byte offsets


# === Custom tables ===


def test_answers_in_lists(write):
    pairs = [{"text": "Ann", "answer_start": 4}, {"text": "Bo", "answer_start": 16}]
    lists = {"text": ["Ann", "Bo"], "answer_start": [4, 16]}
    none = {"text": [], "answer_start": []}
    questions = [("x", "T", pairs), ("y", None, lists), ("z", "", none)]
    row = {"question": "Who?", "context": PARAGRAPH}
    path = write("a.jsonl", [{**row, "id": i, "title": t, "answers": a} for i, t, a in questions])
    answers = (Answer("Ann", 5), Answer("Bo", 18))
    assert read_questions(path, id_column="id", title_column="title").items == [
        QuestionExample("x", "T", "Who?", PARAGRAPH, answers, False),
        QuestionExample("y", "", "Who?", PARAGRAPH, answers, False),
        QuestionExample("z", "", "Who?", PARAGRAPH, (), True),
    ]


def test_single_answer_in_columns(write):
    path = write("a.csv", ["q,c,a,s", f'Who?,"{PARAGRAPH}",Bo,16', f'Why?,"{PARAGRAPH}",,'])
    read = functools.partial(read_questions, path, text_columns=["q", "c"])
    examples = read(label_column="a", answer_start_column="s")
    assert examples.items == [
        QuestionExample("0", "", "Who?", PARAGRAPH, (Answer("Bo", 18),), False),
        QuestionExample("1", "", "Why?", PARAGRAPH, (), True),
    ]
    unlabeled = read(label_column=None)
    assert [(item.answers, item.is_impossible) for item in unlabeled.items] == [((), False)] * 2


# === Files in other formats ===

LIST = "is not in SQuAD's format: expected an object with the list"
STRING = "is not in SQuAD's format: expected an object with the string"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], f"FILE {LIST} 'data', got a list."),
        ({"a": 1, "b": 2}, f"FILE {LIST} 'data', got the keys 'a', 'b'."),
        ({"data": "x"}, f"FILE {LIST} 'data', got a str in 'data'."),
        ({"data": []}, "FILE has no rows. Use a file with at least one example."),
        ({"data": [[]]}, f"FILE, article 0 {LIST} 'paragraphs', got a list."),
        ({"data": [{"paragraphs": []}, {"title": "t"}]},
         f"FILE, article 1 {LIST} 'paragraphs', got the keys 'title'."),
        ({"data": [{"paragraphs": [{"context": "c"}]}]},
         f"FILE, article 0, paragraph 0 {LIST} 'qas', got the keys 'context'."),
        ({"data": [{"paragraphs": [{"context": "c", "qas": ["q7"]}]}]},
         f"FILE, article 0, paragraph 0, a question {STRING} 'id', got a str."),
    ],
)  # fmt: skip
def test_other_formats_raise_error(write_json, content, message):
    path = write_json(content)
    with pytest.raises(ValueError) as caught:
        read_squad(path)
    assert str(caught.value) == message.replace("FILE", path)
