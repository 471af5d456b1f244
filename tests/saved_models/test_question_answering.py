"""Question answering signatures equal fine-tuning and literals."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertSpanPredictor
from bert_tf.tasks.questions.answer import question_length
from bert_tf.tasks.questions.rows import question_examples
from bert_tf.tasks.questions.scores import squad_predictions

from .conftest import ask, make, serve, texts_of

OPTIONS = {"doc_stride": 3, "max_query_length": 4, "n_best_size": 5, "max_answer_length": 4}
# All windows differ, because rounding would decide between equal spans.
LONG = "The cat  sat on the mat. A dog, unable, sat! On dogs the mats un[the] cat a dog sat . a on!"
QUESTIONS = ["The cat?", "", "the mat on the dog", "the mat on a", "Un\u0301able", "sat"]
ODD = "\u200b\U0001f600 The Càt\u0301 sat [on] the mats."
OFFSETS = ("byte_start", "byte_end", "start", "end")
CONTEXTS = [LONG, "The cat sat.", "Cat dog mat sat", "", ODD, LONG]


@pytest.fixture
def predictor():
    return make(BertSpanPredictor)


@pytest.fixture(scope="module")
def examples(tokenizer):
    return question_examples(
        tokenizer, QUESTIONS, CONTEXTS, max_seq_length=12, doc_stride=3, max_query_length=4
    )


def thresholds(null):
    """Returns thresholds as tuned by fine-tuning."""
    return {} if null is None else {"null": null}


def predictions(found, with_null):
    names = [str(number) for number in range(len(QUESTIONS))]
    return squad_predictions(names, found, with_null=with_null)


def test_answers_equal_fine_tuning(predictor, examples):
    found, _ = examples.predict_answers(predictor, batch_size=3, n_best=5, max_answer_length=4)
    assert len(examples.windows.firsts) > len(QUESTIONS) and found.counts.min() == 0
    served = serve(predictor, 12, **OPTIONS)
    for threshold in (None, 0.0):
        predictor.thresholds = thresholds(threshold)
        outputs = ask("serving_default", served, question=QUESTIONS, context=CONTEXTS)
        answers = predictions(found, threshold is not None).answers(threshold or 0.0)
        assert texts_of(outputs["answer"]) == list(answers.values())
        np.testing.assert_array_equal(outputs["answers"], found.texts)
        for key in ("byte_starts", "byte_ends", "counts"):
            np.testing.assert_array_equal(outputs[key], getattr(found, key))
        for row, context in enumerate(CONTEXTS):
            # Offsets count characters, as in Python slices.
            spans = zip(outputs["starts"][row], outputs["ends"][row], strict=True)
            slices = [context[start:end] if start >= 0 else "" for start, end in spans]
            assert slices == texts_of(outputs["answers"])[row]
        np.testing.assert_allclose(outputs["scores"], found.scores, atol=1e-5)
        np.testing.assert_allclose(outputs["null_score"], found.null_scores, atol=1e-5)
        for row, text in enumerate(answers.values()):
            received = [outputs[key][row] for key in (*OFFSETS, "score")]
            if text:
                assert received == [outputs[f"{key}s"][row, 0] for key in (*OFFSETS, "score")]
            else:
                assert received == [-1, -1, -1, -1, outputs["null_score"][row]]
        assert outputs["truncated"].tolist() == [False, False, True, False, False, False]
        if threshold is None:  # otherwise the list includes "no answer"
            for row, entries in enumerate(predictions(found, False).n_best.values()):
                odds = [entry["probability"] for entry in entries if entry["text"]]
                odds += [0] * (OPTIONS["n_best_size"] - len(odds))
                np.testing.assert_allclose(outputs["probabilities"][row], odds, atol=1e-6)
        if threshold == 0.0:
            assert len({bool(text) for text in answers.values()}) == 2


# [CLS] a [SEP] the cat sat [SEP]
GOLDEN_STARTS = [1.0, 0, 0, 3, 0, 0, 0]
GOLDEN_ENDS = [0.5, 0, 0, 0, 2, 1, 0]


@pytest.mark.parametrize(
    "threshold, expected", [(None, b"The  c\xffat"), (-3.5, b"The  c\xffat"), (-3.6, b"")]
)
def test_answers_equal_literals(predictor, threshold, expected):
    predictor.thresholds = thresholds(threshold)
    logits = {
        "start_logits": tf.constant([GOLDEN_STARTS]),
        "end_logits": tf.constant([GOLDEN_ENDS]),
    }
    served = serve(predictor, call=lambda rows: logits, n_best_size=2)
    context = b"\xc3\xff The  c\xffat\xff sat"
    outputs = ask("serving_default", served, question=["a"], context=[context])
    start, end = outputs["byte_starts"][0, 0], outputs["byte_ends"][0, 0]
    assert context[start:end] == b"The  c\xffat" and (start, end) == (3, 12)
    assert texts_of(outputs["answers"]) == [["The  cat", "The  cat sat"]]
    found = {key: outputs[key].tolist() for key in ("answer", *OFFSETS, "score")}
    assert found == {
        "answer": [expected.replace(b"\xff", b"")],
        "byte_start": [3 if expected else -1],
        "byte_end": [12 if expected else -1],
        # Character offsets exclude invalid UTF-8.
        "start": [1 if expected else -1],
        "end": [9 if expected else -1],
        "score": [5.0 if expected else 1.5],
    }
    assert outputs["scores"].tolist() == [[5.0, 4.0]] and outputs["null_score"].tolist() == [1.5]
    odds = np.exp([5.0, 4.0] + ([] if threshold is None else [1.5]))
    np.testing.assert_allclose(outputs["probabilities"], [odds[:2] / odds.sum()], atol=1e-6)


def test_question_length_leaves_room_for_the_context(predictor):
    rows = [(512, 64, 64), (68, 64, 64), (67, 64, 32), (24, 64, 10), (5, 1, 1), (5, 2, 1)]
    for max_seq_length, max_query_length, expected in rows:
        assert (
            question_length(serve(predictor, max_seq_length, max_query_length=max_query_length))
            == expected
        )


def test_shortest_rows(predictor):
    served = serve(predictor, 5)
    outputs = ask("serving_default", served, question=["the cat"], context=["sat on a mat"])
    assert outputs["truncated"].tolist() == [True]
    # Each window has one token, so no span is longer.
    assert set(texts_of(outputs["answers"])[0][: outputs["counts"][0]]) == {"sat", "on", "a", "mat"}
