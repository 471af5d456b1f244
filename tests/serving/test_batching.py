"""Requests that are joined are answered as each would be alone."""

import threading

import numpy as np
import pytest

from bert_tf.serving import model as served
from bert_tf.serving.batching import Batcher, joins
from bert_tf.serving.rest import RestError, rows_of
from tests.saved_models.head_exports import exported


def objects(values):
    array = np.empty(np.shape(values), object)
    array[...] = values
    return array


@pytest.fixture
def joined():
    """Has a batcher answer requests that wait while its worker is busy; the batches' rows, too."""
    batchers = []

    def ask(model, requests, largest=64):
        begun, gate, rows = threading.Event(), threading.Event(), []

        def run(signature, inputs):
            if not begun.is_set():
                begun.set()
                gate.wait(60)
                return {}
            rows.append(len(next(iter(inputs.values()))))
            return model.run(signature, inputs)

        batcher = Batcher(run, model.signatures, largest=largest, workers=1)
        batchers.append(batcher)
        batcher.ask(*requests[0])
        assert begun.wait(60)
        asked = [batcher.ask(*request) for request in requests]
        gate.set()
        for answer in asked:
            answer.exception(60)
        return asked, rows

    yield ask
    for batcher in batchers:
        batcher.close()


TEXTS = [["the cat sat on the mat.", "a dog"], ["un[MASK]able [MASK] the dogs [MASK]"], [], [""]]
REQUESTS = {
    ("text",): [{"text": texts} for texts in TEXTS],
    ("text", "text_pair"): [{"text": texts, "text_pair": texts[::-1]} for texts in TEXTS],
    ("first", "second"): [{"first": texts, "second": texts} for texts in TEXTS],
    ("words",): [{"words": [["the", "cat", ""]]}, {"words": [["a", "", ""], ["dog", "sat", "on"]]}],
    ("context", "question"): [{"question": texts, "context": texts} for texts in TEXTS],
    ("choices", "context"): [
        {"context": texts, "choices": [["the mat", "a dog", text] for text in texts]}
        for texts in TEXTS[:2]
    ],
}


SLOW = ("span_predictor", "multi_label", "token_classifier", "multiple_choice", "regressor")
HEADS = ["classifier", "pretrainer", *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)]


@pytest.mark.parametrize("head", HEADS)
def test_what_is_joined_is_answered_as_alone(head, joined, tmp_path_factory):
    model = served.load(exported(head, tmp_path_factory))
    asked = 0
    for name, signature in model.signatures.items():
        rows = REQUESTS.get(tuple(sorted(signature["inputs"])))
        if rows is None:
            continue
        requests = [(name, {key: objects(row[key]) for key in row}) for row in rows]
        answers, batches = joined(model, requests)
        assert joins(signature) and batches == [sum(rows_of(inputs) for _, inputs in requests)]
        for request, answer in zip(requests, answers, strict=True):
            found, expected = answer.result(60), model.run(*request)
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                assert found[key].shape == value.shape, (name, key)
                if value.dtype.kind == "f":
                    np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6)
                else:
                    assert (found[key] == value).all(), (name, key)
        asked += 1
    assert asked


def two(text, ids):
    return "two", {"text": objects(text), "ids": np.array(ids, np.int32)}


def test_a_request_that_fails_fails_alone(half_model, joined):
    good, bad = two(["a"], [[1, 2]]), two(["b"], [[-1, 0]])
    answers, batches = joined(half_model, [good, bad, good])
    assert batches == [3, 1, 1, 1]
    assert [answer.exception(60) is None for answer in answers] == [True, False, True]
    with pytest.raises(RestError, match=r"^assertion failed: \[No: -1\.\]$"):
        answers[1].result()


def test_batches_keep_to_the_most_rows_and_to_one_signature(half_model, joined):
    odd = ("odd", {"flags": np.array([True])})
    one, three = two(["a"], [[1, 2]]), two(["b"] * 3, [[3, 4]] * 3)
    answers, batches = joined(half_model, [three, odd, three, one, one], largest=4)
    assert batches == [4, 1, 4]
    sums = [answer.result(60).get("sum", np.array([])).tolist() for answer in answers]
    assert sums == [[7, 7, 7], [], [7, 7, 7], [3], [3]]


def test_what_has_no_rows_is_joined_with_nothing(half_model, joined):
    scalar = ("serving_default", {"x": np.array(2.0, np.float32)})
    _, batches = joined(half_model, [("serving_default", {"x": np.zeros(0, np.float32)})] * 2)
    assert batches == [0, 0] and not joins(half_model.signatures["serving_default"])
    batcher = Batcher(half_model.run, half_model.signatures, largest=8, workers=2)
    assert [batcher.ask(*scalar).result(60)["y"] for _ in range(3)] == [3.0, 3.0, 3.0]
    batcher.close()


def test_no_small_request_waits_for_several_large_ones(half_model):
    gate = threading.Event()

    def run(signature, inputs):
        assert len(inputs["text"]) <= 4 or gate.wait(60)
        return half_model.run(signature, inputs)

    batcher = Batcher(run, half_model.signatures, largest=4, workers=2)
    large = [batcher.ask(*two(["a"] * 5, [[1, 2]] * 5)) for _ in range(3)]
    assert batcher.ask(*two(["a"], [[1, 2]])).result(60)["sum"].tolist() == [3]
    assert not any(answer.done() for answer in large)
    gate.set()
    batcher.close()
    assert [answer.result(0)["sum"].tolist() for answer in large] == [[3] * 5] * 3


def test_what_waits_is_answered_before_the_end(half_model):
    batcher = Batcher(half_model.run, half_model.signatures, largest=1, workers=1)
    answers = [batcher.ask(*two(["a"], [[1, number]])) for number in range(20)]
    batcher.close()
    assert [answer.result(0)["sum"][0] for answer in answers] == [1 + n for n in range(20)]
