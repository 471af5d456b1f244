"""``bert_tf.Predictor``: what a call gives is what ``predict`` writes of the same rows."""

import json

import pytest

import bert_tf
from bert_tf.tasks.task_file import TaskFile

from .prediction_models import (
    CLASSES,
    LABELS,
    TEXTS,
    predict,
    read_lines,
    text_task,
    write_model,
)

# Of each kind: its model's class, its options and labels, and examples by their columns' names.
KINDS = {
    "classification": ("BertClassifier", CLASSES, LABELS, [{"text": text} for text in TEXTS]),
    "multilabel": ("BertClassifier", CLASSES, LABELS, [{"text": text} for text in TEXTS]),
    "regression": ("BertRegressor", {}, (), [{"text": text} for text in TEXTS]),
    "tagging": ("BertTokenClassifier", CLASSES, ("O", "B-X", "I-X"),
                [{"words": ["so", "good"]}, {"words": ["the", "film"]}]),
    "multiple_choice": ("BertMultipleChoice", {}, (),
                        [{"context": "the plot", "choices": ["was bad", "is fine"]}]),
    "squad": ("BertSpanPredictor", {}, (),
              [{"question": "what film", "context": "a good film"}] * 2),
}  # fmt: skip
COLUMNS = {"tagging": ["words"], "multiple_choice": ["context", "choices"],
           "squad": ["question", "context"]}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_gives_what_predict_writes(kind, tmp_path, capsys):
    class_name, arguments, labels, examples = KINDS[kind]
    more = {"multi_label": True} if kind == "multilabel" else {}
    folder, table = tmp_path / "model", tmp_path / "in.jsonl"
    options = {"max_query_length": 8, "doc_stride": 8} if kind == "squad" else {}
    task = TaskFile(kind, "own", 32, {}, options)
    write_model(folder, class_name, arguments, task, labels=labels, **more)
    table.write_text("".join(f"{json.dumps(example)}\n" for example in examples))
    columns = COLUMNS.get(kind, ["text"])
    predict(folder, table, tmp_path / "out.jsonl", text_columns=columns)
    expected = read_lines(tmp_path / "out.jsonl")
    capsys.readouterr()
    predictor = bert_tf.Predictor(folder)
    records = predictor(examples)
    one = predictor("so good" if kind == "tagging" else examples[0])
    assert capsys.readouterr() == ("", "")
    assert len(records) == len(examples) and one["id"] == "0"
    for found, row in zip([*records, one], [*expected, expected[0]], strict=True):
        assert found.keys() == row.keys()
        assert json.loads(json.dumps(found)) == _about(row)


def _about(value):
    """What is equal to a value whose numbers have six digits in all."""
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-5, abs=1e-6)
    if isinstance(value, dict):
        return {key: _about(item) for key, item in value.items()}
    return [_about(item) for item in value] if isinstance(value, list) else value


def test_texts_of_every_form_are_answered_alike(classifier):
    predictor = bert_tf.Predictor(classifier[0])
    expected = predictor(TEXTS)
    assert [record["id"] for record in expected] == list("012345")
    assert predictor({"text": TEXTS}) == expected
    assert predictor(TEXTS[0]).keys() == expected[0].keys()
    (kept,) = predictor([{"text": "so", "n": 7, "note": "x"}], keep_columns=True)
    assert list(kept) == ["text", "n", "note", "prediction", "probabilities"]
    bad = predictor(["so", ""])[1]
    assert bad["prediction"] is None and bad["error"].startswith("<data>, row 1: expected text in")


def test_it_is_traced_once(classifier):
    predictor = bert_tf.Predictor(bert_tf.load(classifier[0]), top_k=2)
    for data in (TEXTS[0], TEXTS, TEXTS[:3], "so " * 9):
        predictor(data)
    (step,) = predictor._loaded()._traced_steps.values()
    assert predictor(TEXTS[0])["prediction"] in LABELS
    assert [*predictor._loaded()._traced_steps.values()] == [step]


def test_what_cannot_be_is_told_in_a_sentence(classifier, tmp_path):
    predictor = bert_tf.Predictor(classifier[0])
    for data, sentence in (
        ([], "data is empty: expected at least one example"),
        ([{"other": "so"}], "data has the columns other, and none is said to be the text"),
        (7, "data is a int: expected a path, a list of examples,"),
    ):
        with pytest.raises(ValueError, match=sentence):
            predictor(data)
    write_model(tmp_path, "BertClassifier", CLASSES, text_task("multilabel"), labels=LABELS,
                multi_label=True)  # fmt: skip
    for option, value in (("top_k", 1), ("reject_below", 0.5)):
        with pytest.raises(ValueError, match=f"--{option} is for one class each, and .* is of mul"):
            bert_tf.Predictor(tmp_path, **{option: value})
