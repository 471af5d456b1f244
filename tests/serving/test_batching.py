"""Requests that are joined are answered as each would be alone."""

import concurrent.futures
import threading

import numpy as np
import pytest

from bert_tf.serving import model as served
from bert_tf.serving.batching import Batcher, is_batchable
from bert_tf.serving.rest import RestError, count_rows
from tests.saved_models.head_exports import exported


def objects(values):
    array = np.empty(np.shape(values), object)
    array[...] = values
    return array


def signature_of(shapes):
    return {
        side: {
            name: {"tensor_shape": {"dim": [{"size": str(size)} for size in sizes]}}
            for name, sizes in tensors.items()
        }
        for side, tensors in shapes.items()
    }


class Held:
    """A batcher, all of whose threads are held until ``free``; then ``runs`` has what is asked."""

    def __init__(self, run, signatures, *, largest=64, workers=1, max_seconds=60):
        self._run, self._gate, begun = run, threading.Event(), threading.Semaphore(0)
        self.runs = []

        def answer(signature, inputs, outputs):
            if signature == "held":
                begun.release()
                assert self._gate.wait(60)
                return {}
            self.runs.append((signature, inputs, outputs))
            return run(signature, inputs, outputs)

        signatures = {**signatures, "held": signature_of({"inputs": {}, "outputs": {"n": []}})}
        options = {"largest": largest, "workers": workers, "max_seconds": max_seconds}
        self.batcher = Batcher(answer, signatures, **options)
        holds = [{}, {"x": np.zeros(100)}]  # small, and large
        for inputs in holds * workers:
            self.batcher.submit("held", inputs)
            assert begun.acquire(timeout=60)

    def free(self):
        self._gate.set()

    def ends(self, *answers):
        """Frees the threads, and waits until these are answered; the rows of each run."""
        self.free()
        assert not concurrent.futures.wait(answers, 60).not_done
        return [count_rows(inputs) for _, inputs, _ in self.runs]


@pytest.fixture
def held():
    """Makes such batchers."""
    every = []

    def make(*arguments, **options):
        every.append(Held(*arguments, **options))
        return every[-1]

    yield make
    for each in every:
        each.free()
        each.batcher.close(60)


TEXTS = [["the cat sat on the mat.", "a dog"], ["un[MASK]able [MASK] the dogs [MASK]"], [], [""]]
REQUESTS = {
    ("text",): [{"text": texts} for texts in TEXTS],
    ("text", "text_pair"): [{"text": texts, "text_pair": texts[::-1]} for texts in TEXTS],
    ("first", "second"): [{"first": texts, "second": texts} for texts in TEXTS],
    ("words",): [{"words": [["the", "cat", ""]]}, {"words": [["a", "", ""], ["dog", "sat", "on"]]}],
    ("context", "question"): [{"question": texts, "context": texts} for texts in TEXTS],
    ("choices", "context"): [
        {"context": texts, "choices": [["the mat", "dogs sat", text] for text in texts]}
        for texts in TEXTS[:2]
    ],
}


SLOW = ("span_predictor", "multi_label", "token_classifier", "multiple_choice", "regressor")
HEADS = ["classifier", "pretrainer", *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)]


@pytest.mark.parametrize("head", HEADS)
def test_what_is_joined_or_parted_is_answered_as_alone(head, held, tmp_path_factory):
    model = served.load(exported(head, tmp_path_factory))
    asked = 0
    for name, signature in model.signatures.items():
        rows = REQUESTS.get(tuple(sorted(signature["inputs"])))
        if rows is None:
            continue
        assert is_batchable(signature)
        requests = [(name, {key: objects(row[key]) for key in row}) for row in rows]
        counts = [count_rows(inputs) for _, inputs in requests]
        joined = held(model.run, model.signatures)
        answers = [joined.batcher.submit(*request) for request in requests]
        assert joined.ends(*answers) == [sum(counts)]
        parted = held(model.run, model.signatures, largest=1)
        answers += [parted.batcher.submit(*request) for request in requests]
        runs = parted.ends(*answers[len(requests) :])
        assert max(runs) == 1 and sum(runs) == sum(counts)
        # One row by itself is multiplied by other code than several.
        tolerances = [1e-6] * len(requests) + [1e-5] * len(requests)
        for request, answer, most in zip(requests * 2, answers, tolerances, strict=True):
            found, expected = answer.result(60), model.run(*request)
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                assert found[key].shape == value.shape, (name, key)
                if value.dtype.kind == "f":
                    np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=most)
                else:
                    assert (found[key] == value).all(), (name, key)
        asked += 1
    assert asked


def two(text, ids):
    return "two", {"text": objects(text), "ids": np.array(ids, np.int32)}


def test_a_request_that_fails_fails_alone(half_model, held):
    good, bad = two(["a"], [[1, 2]]), two(["b"], [[-1, 0]])
    batcher = held(half_model.run, half_model.signatures)
    answers = [batcher.batcher.submit(*request) for request in (good, bad, good)]
    assert batcher.ends(*answers) == [3, 1, 1, 1]
    assert [answer.exception(60) is None for answer in answers] == [True, False, True]
    with pytest.raises(RestError, match=r"^assertion failed: \[No: -1\.\]$"):
        answers[1].result()


def test_batches_keep_to_the_most_rows_and_to_one_signature(half_model, held):
    odd = ("odd", {"flags": np.array([True])})
    one, three = two(["a"], [[1, 2]]), two(["b"] * 3, [[3, 4]] * 3)
    batcher = held(half_model.run, half_model.signatures, largest=4)
    answers = [batcher.batcher.submit(*request) for request in (three, odd, three, one, one)]
    assert batcher.ends(*answers) == [4, 1, 4]
    sums = [answer.result(60).get("sum", np.array([])).tolist() for answer in answers]
    assert sums == [[7, 7, 7], [], [7, 7, 7], [3], [3]]


def test_what_has_no_rows_is_joined_with_nothing(half_model, held):
    signature, batcher = "serving_default", held(half_model.run, half_model.signatures)
    assert not is_batchable(half_model.signatures[signature])
    values = [np.zeros(0, np.float32)] * 2 + [np.array(2.0, np.float32)] * 2
    answers = [batcher.batcher.submit(signature, {"x": value}) for value in values]
    assert batcher.ends(*answers) == [0, 0, 1, 1]
    assert [answer.result(0)["y"].tolist() for answer in answers] == [[], [], 3.0, 3.0]


# === With a model that is none ===

# A text's words, padded, and its number.
TEXT = {"inputs": {"text": [-1]}, "outputs": {"words": [-1, -1], "counts": [-1], "size": [-1]}}


SIGNATURES = {"words": signature_of(TEXT), "whole": signature_of({**TEXT, "outputs": {"n": []}})}


def words(signature, inputs, outputs):
    """What such a model answers, the outputs that are wanted."""
    texts = inputs["text"]
    if b"fails" in texts:
        raise ValueError("It fails.")
    if signature == "whole":
        return {"n": np.array(len(texts))}
    rows = [text.split() for text in texts]
    counts = np.array([len(row) for row in rows], np.int32)
    width = max([1, *counts])
    padded = [row + [b""] * (width - len(row)) for row in rows]
    found = {
        "words": objects(padded).reshape(-1, width),
        "counts": counts,
        "size": np.array([len(text) for text in texts]),
    }
    return {name: found[name] for name in found if outputs is None or name in outputs}


def texts(*values):
    return {"text": objects([value.encode() for value in values])}


def asked(batcher):
    """The texts of each run."""
    return [b" ".join(inputs["text"]).decode() for _, inputs, _ in batcher.runs]


def test_each_answer_has_the_outputs_that_it_asked_for(held):
    wanted = [frozenset({"size"}), frozenset({"words"}), frozenset({"size", "words"})]
    for several, names in ((wanted[:1], {"size"}), (wanted, {"size", "words", "counts"})):
        batcher = held(words, SIGNATURES)
        answers = [batcher.batcher.submit("words", texts("a b", "c"), each) for each in several]
        assert batcher.ends(*answers) == [2 * len(several)]
        assert batcher.runs[0][2] == names
        assert [answer.result(0).keys() for answer in answers] == several
    batcher = held(words, SIGNATURES)
    answers = [batcher.batcher.submit("words", texts("a b"), each) for each in (*wanted, None)]
    batcher.ends(*answers)
    assert batcher.runs[0][2] is None
    assert [answer.result(0).keys() for answer in answers] == [*wanted, {"words", "counts", "size"}]


def test_work_that_nobody_waits_for_is_dropped_before_it_runs(held):
    batcher = held(words, SIGNATURES, largest=2)
    left = [batcher.batcher.submit("words", texts("left", "left", "left")) for _ in range(150)]
    left += [batcher.batcher.submit("words", texts("left")) for _ in range(150)]
    last = batcher.batcher.submit("words", texts("last"))
    assert all(answer.cancel() for answer in left)
    batcher.ends(last)
    assert asked(batcher) == ["last"]


def test_the_rest_of_a_large_request_is_dropped_when_nobody_waits_any_more(held):
    left = threading.Event()

    def run(signature, inputs, outputs):
        if inputs["text"] == b"leaves" and large.cancel():
            left.set()
        return words(signature, inputs, outputs)

    batcher = held(run, SIGNATURES, largest=1)
    large = batcher.batcher.submit("words", texts("a", "b", "leaves", "longest"))
    batcher.free()
    assert left.wait(60)
    batcher.ends(batcher.batcher.submit("words", texts("x", "y")))
    assert asked(batcher) == ["longest", "leaves", "y", "x"]


def test_what_waits_too_long_ends_though_no_thread_is_free(held):
    batcher = held(words, SIGNATURES, max_seconds=0.1)
    answers = [batcher.batcher.submit("words", texts(*"ab")) for _ in range(2)]
    for answer in answers:
        message = r"^The request waited 0\.1 seconds \(--max_wait_seconds\)"
        with pytest.raises(RestError, match=message) as error:
            answer.result(60)
        assert (error.value.status, error.value.retry_after) == (503, 1)
    assert batcher.ends() == []


def test_large_requests_take_turns(held):
    batcher = held(words, SIGNATURES, largest=2)
    batcher.ends(*(batcher.batcher.submit("words", texts(*[name] * 6)) for name in "ABC"))
    assert asked(batcher) == ["A A", "B B", "C C"] * 3


def test_no_small_request_waits_for_large_ones(held):
    gate = threading.Event()

    def run(signature, inputs, outputs):
        assert b"large" not in inputs["text"] or gate.wait(60)
        return words(signature, inputs, outputs)

    batcher = held(run, SIGNATURES, largest=2)
    large = [batcher.batcher.submit(name, texts(*["large"] * 6)) for name in SIGNATURES]
    batcher.ends(*(batcher.batcher.submit("words", texts("small")) for _ in range(3)))
    assert not any(answer.done() for answer in large)
    gate.set()
    batcher.ends(*large)
    assert not any(answer.exception(0) for answer in large)


def test_parts_of_a_large_request_run_beside_each_other(held):
    together = threading.Barrier(2, timeout=60)

    def run(*arguments):
        together.wait()
        return words(*arguments)

    batcher = held(run, SIGNATURES, largest=1, workers=2)
    inputs = texts("a b", "a", "a b c", "a")
    for _ in range(2):  # the second time both threads have nothing to do
        answer = batcher.batcher.submit("words", inputs)
        batcher.ends(answer)
        for name, value in words("words", inputs, None).items():
            assert answer.result(0)[name].tolist() == value.tolist()


def test_rows_of_a_part_are_of_about_one_size_and_few_where_they_are_long(held):
    batcher = held(words, SIGNATURES)
    sizes = [5000, 10, 20_000, 3000, 4000, 4000, 20]
    answer = batcher.batcher.submit("words", texts(*("x" * size for size in sizes)))
    batcher.ends(answer)
    assert [[len(text) for text in inputs["text"]] for _, inputs, _ in batcher.runs] == [
        *([20_000], [5000], [4000], [10, 20, 3000, 4000])
    ]
    assert answer.result(0)["size"].tolist() == sizes
    several = held(words, SIGNATURES)
    answers = [several.batcher.submit("words", texts("x" * 3000)) for _ in range(3)]
    assert several.ends(*answers) == [2, 1]


def test_a_part_that_fails_ends_its_request(held):
    batcher = held(words, SIGNATURES, largest=1)
    answer = batcher.batcher.submit("words", texts("a", "fails", "b", "c"))
    batcher.ends(answer, batcher.batcher.submit("words", texts("x", "y")))
    assert sorted(asked(batcher)) == ["fails", "x", "y"]
    with pytest.raises(ValueError, match=r"^It fails\.$"):
        answer.result(0)


def test_what_is_in_hand_is_answered_before_the_end(held):
    batcher = held(words, SIGNATURES, largest=1)
    answers = [batcher.batcher.submit("words", texts("a", f"{number}")) for number in range(20)]
    batcher.free()
    batcher.batcher.close(60)
    assert [answer.result(0)["size"].tolist() for answer in answers] == [
        [1, 1 + (n > 9)] for n in range(20)
    ]


def test_what_does_not_end_in_time_is_refused(held):
    batcher = held(words, SIGNATURES, largest=1)
    answers = [batcher.batcher.submit(*each) for each in (("words", texts("a", "b")), ("held", {}))]
    batcher.batcher.close(0.01)
    answers.append(batcher.batcher.submit("words", texts("late")))
    for answer in answers:
        with pytest.raises(RestError, match=r"^The server is shutting down\.$") as error:
            answer.result(0)
        assert error.value.status == 503
    assert batcher.ends() == []
