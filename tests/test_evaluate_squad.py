"""``python -m bert_tf.evaluate_squad``: what it prints, writes and refuses."""

import json

import pytest

from bert_tf import evaluate_squad
from tests.anew import run_in_forks

ANSWERS = {"a": ["Rollo", "the Duke"], "b": ["Rouen"], "c": [], "d": []}
PREDICTIONS = {"a": "duke", "b": "in Rouen", "c": "Caen", "other": "x"}
ODDS = {"a": -2.0, "b": 0.5, "c": 1.25}


def _data(answers, **more):
    questions = [
        {"id": name, "answers": [{"text": text} for text in texts]}
        for name, texts in answers.items()
    ]
    return {"data": [{"paragraphs": [{"qas": questions}]}], **more}


@pytest.fixture
def files(tmp_path):
    for name, document in (
        ("data.json", _data(ANSWERS)),
        ("data_1.json", _data({"a": ANSWERS["a"], "b": ANSWERS["b"]}, version="1.1")),
        ("predictions.json", PREDICTIONS),
        ("odds.json", ODDS),
    ):
        (tmp_path / name).write_text(json.dumps(document))
    return tmp_path


def _evaluate(files, data="data.json", **more):
    evaluate_squad.evaluate(str(files / data), str(files / "predictions.json"), **more)


def test_the_table(files, capsys):
    _evaluate(files, null_odds=str(files / "odds.json"))
    assert capsys.readouterr().out == (
        "SQuAD 2.0            questions   exact      F1\n"
        "all                          4   25.00   41.67\n"
        "with an answer               2   50.00   83.33\n"
        "without an answer            2    0.00    0.00\n"
        "Best exact 50.00, with --null_threshold=-2.0.\n"
        "Best F1 66.67, with --null_threshold=0.5.\n"
        "1 question without a prediction scores 0: d\n"
        f"1 prediction is for a question that {files}/data.json does not hold.\n"
    )


def test_version_1_and_the_numbers_written(files, capsys):
    output = files / "new" / "metrics.json"
    _evaluate(files, "data_1.json", output=str(output))
    assert capsys.readouterr().out == (
        "SQuAD 1.1            questions   exact      F1\n"
        "all                          2   50.00   83.33\n"
        f"2 predictions are for questions that {files}/data_1.json does not hold.\n"
        f"Written: {output}\n"
    )
    numbers = {"exact_match": 50.0, "f1": pytest.approx(250 / 3), "total": 2, "missing": 0}
    assert json.loads(output.read_text()) == numbers


def test_a_threshold(files, capsys):
    _evaluate(files, null_odds=str(files / "odds.json"), null_threshold=0.5)
    assert capsys.readouterr().out.splitlines()[1:4] == [
        "all                          4   50.00   66.67",
        "with an answer               2   50.00   83.33",
        "without an answer            2   50.00   50.00",
    ]


def test_many_missing_predictions(files, capsys):
    (files / "data.json").write_text(json.dumps(_data({name: ["x"] for name in "abcdefgh"})))
    _evaluate(files)
    assert capsys.readouterr().out.splitlines()[2] == (
        "5 questions without a prediction score 0: d, e, f and 2 more"
    )


@pytest.mark.parametrize("name", ["data.json", "predictions.json", "odds.json"])
def test_no_file_that_is_read_is_written_over(files, name):
    before = (files / name).read_text()
    output = f"{files}/./{name}"
    with pytest.raises(ValueError) as caught:
        _evaluate(files, null_odds=str(files / "odds.json"), output=output)
    assert str(caught.value) == f"--output={output} is one of the files to read: name another."
    assert (files / name).read_text() == before


def test_the_command_without_tensorflow(files):
    line = ["bert_tf.evaluate_squad", "data.json", "predictions.json"]
    (done,) = run_in_forks(files, [*line, "--null_odds=odds.json", "--null_threshold=0.5"])
    assert done.returncode == 0
    assert done.stdout.splitlines()[1] == "all                          4   50.00   66.67"
    assert "bert_tf.metrics.squad_scores" in done.loaded and "tensorflow" not in done.loaded


def test_what_is_wrong_is_told_in_a_sentence(files):
    (files / "empty.json").write_text("")
    (files / "text.json").write_text("Rollo")
    sentences = {
        "data.json": "expected DATA PREDICTIONS, got data.json: python -m bert_tf.evaluate_squad "
        "DATA PREDICTIONS [--name=value ...] is the whole command.",
        "none.json predictions.json": "none.json cannot be read: No such file or directory.",
        "predictions.json data.json": "predictions.json is not in SQuAD's form: ",
        "data.json empty.json": "empty.json is empty: expected a JSON document.",
        "data.json text.json": "text.json is not JSON: Expecting value",
        "data.json predictions.json --null_threshold=1": "--null_threshold=1 needs --null_odds",
        "data_1.json predictions.json --null_odds=odds.json": "Null odds are for SQuAD 2",
    }
    ended = run_in_forks(files, *(f"bert_tf.evaluate_squad {line}".split() for line in sentences))
    for done, sentence in zip(ended, sentences.values(), strict=True):
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"Error: {sentence}") and done.stderr.count("\n") == 1
