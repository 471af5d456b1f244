"""SQuAD's files: answers by byte, and what contradicts itself."""

import collections
import gzip
import json
import re

import pytest

from bert_tf.tasks.examples import Answer, QuestionExample
from bert_tf.tasks.squad import read_squad, split_by_article

# A letter of two bytes, an ideograph of three, a symbol beyond 16 bits of four.
CONTEXT = "Ünder 東 😀 the moon, Ann sang."


def question(name, **fields):
    return {"id": name, "question": "Who?", **fields}


def answer(text, start):
    return {"text": text, "answer_start": start}


@pytest.fixture
def write(tmp_path):
    def write_file(questions, context=CONTEXT, title="Moon"):
        path = tmp_path / "dev.json"
        paragraph = {"context": context, "qas": questions}
        document = {"version": "1.1", "data": [{"title": title, "paragraphs": [paragraph]}]}
        path.write_text(json.dumps(document))
        return str(path)

    return write_file


def test_answers_are_placed_by_byte(write):
    start = CONTEXT.index("Ann")
    path = write([question("q1", answers=[answer("Ann", start), answer("Ü", 0), answer("😀", 8)])])
    (found,) = read_squad(path).items
    assert start == 20
    assert found == QuestionExample(
        "q1", "Moon", "Who?", CONTEXT, (Answer("Ann", 26), Answer("Ü", 0), Answer("😀", 11)), False
    )
    for place in found.answers:
        size = len(place.text.encode())
        assert CONTEXT.encode()[place.start : place.start + size].decode() == place.text


def test_versions_and_containers(write, tmp_path):
    path = write(
        [
            question("q1", answers=[answer("moon", 14)], is_impossible=False),
            question("q2", answers=[], is_impossible=True, plausible_answers=[answer("x", 0)]),
            question("q3", answers=[answer("Ann", 20)]),
            question("q4", answers=[]),
        ]
    )
    examples = read_squad(path)
    assert [item.is_impossible for item in examples.items] == [False, True, False, True]
    assert [len(item.answers) for item in examples.items] == [1, 0, 1, 0]
    assert (examples.labels, examples.skipped) == ((), [])
    packed = tmp_path / "dev.json.gz"
    with open(path, "rb") as file:
        packed.write_bytes(gzip.compress(file.read()))
    assert read_squad(packed) == examples


def test_questions_to_be_predicted(write):
    path = write([question("q1"), question("q2", answers="not looked at", is_impossible=True)])
    items = read_squad(path, labelled=False).items
    assert [(item.id, item.answers, item.is_impossible) for item in items] == [
        ("q1", (), False),
        ("q2", (), False),
    ]
    with pytest.raises(ValueError, match=r"question q1: expected 'answers', got none \(are the qu"):
        read_squad(path)


GOOD = [answer("Ann", 20)]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (question("q2", answers=[answer("Ann", 21)]), "expected the answer 'Ann' at character 21 "
         "of the context, got 'nn '"),
        (question("q2", answers=[answer("Ann", 26)]), "at character 26 of the context, got 'ng.'"),
        (question("q2", answers=[answer("sang..", 24)]), "at character 24 of the context, got 's"),
        (question("q2", answers=[answer("Ann", -5)]), "expected a whole number from 0 to 29 in"),
        (question("q2", answers=[answer("Ann", 30)]), "in 'answer_start', got 30"),
        (question("q2", answers=[answer("", 3)]), "expected text in an answer's 'text', got ''"),
        (question("q2", answers=["Ann"]), "expected an answer with 'text' and 'answer_start'"),
        (question("q2", answers={"text": "Ann"}), "expected a list of answers in 'answers', got {"),
        (question("q2", answers=GOOD, is_impossible=True), "expected 'is_impossible' to be true "
         "where there are no answers, and false elsewhere; got True and 1 answers"),
        (question("q2", answers=[], is_impossible=False), "got False and 0 answers"),
        (question("q2", answers=GOOD, is_impossible=0), "got 0 and 1 answers"),
        (question("q1", answers=GOOD), "expected an id of its own for every question, got this id"),
        (question(7.5, answers=GOOD), "expected text in 'id', got 7.5"),
        (question(True, answers=GOOD), "expected text in 'id', got True"),
        ({"question": "Who?", "answers": GOOD}, "expected text in 'id', got None"),
        ({"id": "q2", "answers": GOOD}, "expected text in 'question', got None"),
        ({"id": "q2", "question": " ", "answers": GOOD}, "expected text in 'question', got ' '"),
    ],
)  # fmt: skip
def test_bad_questions(write, bad, message):
    path = write([question("q1", answers=GOOD), bad, question("q3", answers=GOOD)])
    place = f"{path}, article 0 'Moon', question {bad.get('id')}: "
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        read_squad(path)
    assert str(raised.value).startswith(place)
    examples = read_squad(path, skip_bad_rows=True)
    assert [item.id for item in examples.items] == ["q1", "q3"]
    assert len(examples.skipped) == 1 and message in examples.skipped[0]


def test_no_context(write):
    with pytest.raises(ValueError, match="question q1: expected text in 'context', got None"):
        read_squad(write([question("q1", answers=GOOD)], context=None))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], r"a.json: expected an object with a list 'data', got \[\]"),
        (
            {"answers": {}},
            "a.json: expected a list of objects under 'data', as SQuAD has it, got no",
        ),
        ({"data": [[]]}, r"under 'data', as SQuAD has it, got \[\[\]\]"),
        ({"data": [{}]}, "a.json, article 0: expected a list of objects under 'paragraphs'"),
        (
            {"data": [{"paragraphs": [{"qas": 3}]}]},
            "article 0, paragraph 0: expected .*'qas'.*got 3",
        ),
        ({"data": []}, "a.json has no rows"),
    ],
)
def test_what_is_not_squad(tmp_path, document, message):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=message):
        read_squad(str(path))


def test_split_by_article():
    items = [
        QuestionExample(f"{title}{i}", title, "Who?", "Ann.", (), False)
        for i in range(3)
        for title in "abcdef"
    ]
    train, held_out = split_by_article(items, 2)
    assert sorted(train + held_out, key=items.index) == items
    titles = {item.title for item in held_out}
    assert len(titles) == 2 and titles.isdisjoint(item.title for item in train)
    assert [item.id[1] for item in held_out] == ["0", "0", "1", "1", "2", "2"]
    # The same whatever the order; every article is held out by some seed.
    assert {item.title for item in split_by_article(items[::-1], 2)[1]} == titles
    counts = collections.Counter(
        item.title for seed in range(60) for item in split_by_article(items, 2, seed)[1]
    )
    # Each by a third of the seeds: 3 questions times 20, give or take 4 standard deviations.
    assert set(counts) == set("abcdef")
    assert all(60 - 3 * 15 < count < 60 + 3 * 15 for count in counts.values())
    for number in (0, 6):
        with pytest.raises(ValueError, match=f"held_out_articles is {number}: expected 1 to 5"):
            split_by_article(items, number)


@pytest.mark.parametrize(
    ("name", "questions", "articles", "impossible"),
    [("dev-v1.1.json.zip", 10570, 48, 0), ("half-dev-v2.0.json.gz", 6078, 16, 3168)],
)
def test_real_files(data_dir, name, questions, articles, impossible):
    examples = read_squad(str(data_dir / "squad" / name))
    assert len(examples.items) == questions
    assert len({item.title for item in examples.items}) == articles
    assert sum(item.is_impossible for item in examples.items) == impossible
    moved = 0
    for item in examples.items:
        context = item.context.encode()
        assert bool(item.answers) is not item.is_impossible
        for found in item.answers:
            text = found.text.encode()
            assert context[found.start : found.start + len(text)] == text
            moved += item.context[found.start : found.start + len(found.text)] != found.text
    assert moved > 1000  # answers whose place by character is another


def test_ids_may_be_whole_numbers(write):
    path = write([question(7, answers=GOOD), question("8", answers=GOOD)])
    assert [item.id for item in read_squad(path).items] == ["7", "8"]
