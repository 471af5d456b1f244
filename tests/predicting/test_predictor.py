"""``bert_tf.Predictor``: what a call gives is what ``predict`` writes of the same rows."""

import pytest

import bert_tf

from .prediction_models import (
    CLASSES,
    LABELS,
    TEXTS,
    text_task,
    write_model,
)


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
        ([{"other": "so"}], "data has the columns other, and none is known to be the text"),
        (7, "data is a int: expected a path, a list of examples,"),
    ):
        with pytest.raises(ValueError, match=sentence):
            predictor(data)
    write_model(tmp_path, "BertClassifier", CLASSES, text_task("multilabel"), labels=LABELS,
                multi_label=True)  # fmt: skip
    for option, value in (("top_k", 1), ("reject_below", 0.5)):
        with pytest.raises(ValueError, match=f"--{option} is for one class each, and .* is of mul"):
            bert_tf.Predictor(tmp_path, **{option: value})
