"""Gold answers, predictions and null odds are read, and what is none is named."""

import json

import pytest

from bert_tf.tasks.squad_references import (
    SquadReferences,
    read_null_odds,
    read_predictions,
    read_references,
)


def _question(name, *answers, **more):
    texts = [{"text": text, "answer_start": 0} for text in answers]
    return {"id": name, "question": "Who?", "answers": texts, **more}


def _document(*questions, **more):
    return {"data": [{"title": "t", "paragraphs": [{"context": "c", "qas": questions}]}], **more}


@pytest.fixture
def write(tmp_path):
    def written(document):
        path = tmp_path / "file.json"
        path.write_text(json.dumps(document))
        return str(path)

    return written


@pytest.mark.parametrize(
    "document, version",
    [
        (_document(_question("a", "x", "y"), _question("b", "z"), version="1.1"), "1.1"),
        (_document(_question("a", "x", "y"), _question("b", "z")), "1.1"),
        (_document(_question("a", "x", "y"), _question("b", "z"), version="v2.0"), "2.0"),
        (
            _document(_question("a", "x", "y"), _question("b", "z", is_impossible=False)),
            "2.0",
        ),
        (_document(_question("a", "x", "y"), _question("b"), version="1.1"), "2.0"),
        (_document(_question("a", "x", "y"), _question("b", is_impossible=True)), "2.0"),
    ],
)
def test_answers_and_version(write, document, version):
    references = read_references(write(document))
    assert references.version == version
    assert list(references.answers) == ["a", "b"]
    assert references.answers["a"] == ("x", "y") and references.answers["b"] in ((), ("z",))


FORM = "FILE is not in SQuAD's form: expected an object with a list 'data', got "


@pytest.mark.parametrize(
    "document, sentence",
    [
        ([], FORM + "a list."),
        ({"a": 1, "b": 2}, FORM + "the keys 'a', 'b'."),
        ({}, FORM + "the keys (none)."),
        ({"data": "x"}, FORM + "a str there."),
        (
            {"data": [{"paragraphs": []}, {"title": "t"}]},
            "FILE, article 1 is not in SQuAD's form: expected an object with a list 'paragraphs', "
            "got the keys 'title'.",
        ),
        (
            {"data": [{"paragraphs": [{"context": "c"}]}]},
            "FILE, article 0, paragraph 0 is not in SQuAD's form: expected an object with a list "
            "'qas', got the keys 'context'.",
        ),
        (
            _document({"id": 7.5, "answers": []}),
            "FILE, article 0, paragraph 0, a question is not in SQuAD's form: expected an object "
            "with a string 'id', got a float there.",
        ),
        (
            _document({"id": "q7"}),
            "FILE, question q7 is not in SQuAD's form: expected an object with a list 'answers', "
            "got the keys 'id'.",
        ),
        (
            _document({"id": "q7", "answers": ["x"]}),
            "FILE, question q7, an answer is not in SQuAD's form: expected an object with a string "
            "'text', got a str.",
        ),
        (_document(), "FILE holds no question: expected a SQuAD file with some."),
        ({"data": []}, "FILE holds no question: expected a SQuAD file with some."),
        (
            _document(_question("q7", "x"), _question("q7", "y")),
            "FILE, question q7 occurs twice: expected ids that name one question each.",
        ),
        (
            _document(_question("q7", "x", is_impossible=True)),
            "FILE, question q7 says is_impossible=True and lists 1 answers: expected answers "
            "exactly where it is answerable.",
        ),
        (
            _document(_question("q7", is_impossible=False)),
            "FILE, question q7 says is_impossible=False and lists 0 answers: expected answers "
            "exactly where it is answerable.",
        ),
    ],
)
def test_what_is_not_squad(write, document, sentence):
    path = write(document)
    with pytest.raises(ValueError) as caught:
        read_references(path)
    assert str(caught.value) == sentence.replace("FILE", path)


@pytest.mark.parametrize(
    "answers, version, sentence",
    [
        ({"a": ("x",)}, "2", "SQuAD's version is '1.1' or '2.0', got '2'."),
        ({}, "2.0", "The references hold no question: expected at least one to score."),
        (
            {"a": ("x",), "b": ()},
            "1.1",
            "Question b has no answer: in SQuAD 1.1 every question has; expected version '2.0' "
            "where some have none.",
        ),
    ],
)
def test_what_are_no_references(answers, version, sentence):
    with pytest.raises(ValueError) as caught:
        SquadReferences(answers, version)
    assert str(caught.value) == sentence


REFERENCES = SquadReferences({"a": ("x",), "b": ()}, "2.0")


def test_predictions_and_odds(write):
    assert read_predictions(write({"a": "x", "c": ""}), REFERENCES) == {"a": "x", "c": ""}
    assert read_null_odds(write({"a": 1, "b": -2.5}), ["a"]) == {"a": 1.0, "b": -2.5}


@pytest.mark.parametrize(
    "document, sentence",
    [
        (["x"], "FILE: expected a JSON object from question ids to answers, got a list."),
        ({"a": None}, "FILE, question a: expected the answer's text, got None."),
        (
            {"a": "x", "b": [{"text": "x", "probability": 0.5}]},
            "FILE, question b: expected the answer's text, got "
            "[{'probability': 0.5, 'text': 'x'}].",
        ),
        (
            {"c": "x", "d": "y"},
            "FILE answers none of the data's 2 questions: expected ids such as 'a', got 'c'.",
        ),
        ({}, "FILE answers none of the data's 2 questions: expected ids such as 'a', got none."),
    ],
)
def test_what_are_no_predictions(write, document, sentence):
    path = write(document)
    with pytest.raises(ValueError) as caught:
        read_predictions(path, REFERENCES)
    assert str(caught.value) == sentence.replace("FILE", path)


@pytest.mark.parametrize(
    "document, sentence",
    [
        (1.5, "FILE: expected a JSON object from question ids to numbers, got a float."),
        ({"a": "1.5"}, "FILE, question a: expected a finite number, got '1.5'."),
        ({"a": True}, "FILE, question a: expected a finite number, got True."),
        (
            {"a": 10**400},
            f"FILE, question a: expected a finite number, got 1{'0' * 27}...{'0' * 29}.",
        ),
        (
            {"x" * 10**5: 1},
            "FILE has no number for question a: expected one for every question that is predicted.",
        ),
        (
            {"x" * 10**5: "1"},
            f"FILE, question {'x' * 58}...{'x' * 59}: expected a finite number, got '1'.",
        ),
        ({"a": float("nan")}, "FILE, question a: expected a finite number, got nan."),
        (
            {"b": 1.0},
            "FILE has no number for question a: expected one for every question that is predicted.",
        ),
    ],
)
def test_what_are_no_null_odds(write, document, sentence):
    path = write(document)
    with pytest.raises(ValueError) as caught:
        read_null_odds(path, ["a"])
    assert str(caught.value) == sentence.replace("FILE", path)


def test_ids_may_be_whole_numbers(write):
    references = read_references(write(_document(_question(7, "x"), _question("8", "y"))))
    assert references.answers == {"7": ("x",), "8": ("y",)}
    with pytest.raises(ValueError, match="question 7 occurs twice"):
        read_references(write(_document(_question(7, "x"), _question("7", "y"))))
