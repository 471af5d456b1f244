"""Batched requests have the same answers as separate ones."""

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


class BlockedBatcher:
    """A batcher whose threads are blocked until ``free``; ``runs`` records later batches."""

    def __init__(self, run, signatures, *, largest=64, workers=1, max_seconds=60):
        self._run, self._gate, started = run, threading.Event(), threading.Semaphore(0)
        self.runs = []

        def answer(signature, inputs, outputs):
            if signature == "held":
                started.release()
                assert self._gate.wait(60)
                return {}
            self.runs.append((signature, inputs, outputs))
            return run(signature, inputs, outputs)

        signatures = {**signatures, "held": signature_of({"inputs": {}, "outputs": {"n": []}})}
        options = {"largest": largest, "workers": workers, "max_seconds": max_seconds}
        self.batcher = Batcher(answer, signatures, **options)
        # One blocks the threads for small requests, one those for large requests.
        blocking_inputs = [{}, {"x": np.zeros(100)}]
        for inputs in blocking_inputs * workers:
            self.batcher.submit("held", inputs)
            assert started.acquire(timeout=60)

    def free(self):
        self._gate.set()

    def wait_for(self, *answers):
        """Frees the threads, waits for the answers, and returns the number of rows per run."""
        self.free()
        assert not concurrent.futures.wait(answers, 60).not_done
        return [count_rows(inputs) for _, inputs, _ in self.runs]


@pytest.fixture
def make_blocked():
    """Creates blocked batchers."""
    batchers = []

    def make(*arguments, **options):
        batchers.append(BlockedBatcher(*arguments, **options))
        return batchers[-1]

    yield make
    for each in batchers:
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
def test_batched_and_split_requests_have_separate_answers(head, make_blocked, tmp_path_factory):
    model = served.load(exported(head, tmp_path_factory))
    num_batchable = 0
    for name, signature in model.signatures.items():
        rows = REQUESTS.get(tuple(sorted(signature["inputs"])))
        if rows is None:
            continue
        assert is_batchable(signature)
        requests = [(name, {key: objects(row[key]) for key in row}) for row in rows]
        counts = [count_rows(inputs) for _, inputs in requests]
        batched = make_blocked(model.run, model.signatures)
        answers = [batched.batcher.submit(*request) for request in requests]
        assert batched.wait_for(*answers) == [sum(counts)]
        split = make_blocked(model.run, model.signatures, largest=1)
        answers += [split.batcher.submit(*request) for request in requests]
        runs = split.wait_for(*answers[len(requests) :])
        assert max(runs) == 1 and sum(runs) == sum(counts)
        # TensorFlow multiplies single rows by different code.
        tolerances = [3e-6] * len(requests) + [1e-5] * len(requests)
        for request, answer, tolerance in zip(requests * 2, answers, tolerances, strict=True):
            found, expected = answer.result(60), model.run(*request)
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                assert found[key].shape == value.shape, (name, key)
                if value.dtype.kind == "f":
                    np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=tolerance)
                else:
                    assert (found[key] == value).all(), (name, key)
        num_batchable += 1
    assert num_batchable


def two(text, ids):
    return "two", {"text": objects(text), "ids": np.array(ids, np.int32)}


def test_failing_request_does_not_affect_its_batch(half_model, make_blocked):
    good, bad = two(["a"], [[1, 2]]), two(["b"], [[-1, 0]])
    batcher = make_blocked(half_model.run, half_model.signatures)
    answers = [batcher.batcher.submit(*request) for request in (good, bad, good)]
    assert batcher.wait_for(*answers) == [3, 1, 1, 1]
    assert [answer.exception(60) is None for answer in answers] == [True, False, True]
    with pytest.raises(RestError, match=r"^assertion failed: \[No: -1\.\]$"):
        answers[1].result()


def test_batches_have_at_most_largest_rows_of_one_signature(half_model, make_blocked):
    odd = ("odd", {"flags": np.array([True])})
    one, three = two(["a"], [[1, 2]]), two(["b"] * 3, [[3, 4]] * 3)
    batcher = make_blocked(half_model.run, half_model.signatures, largest=4)
    answers = [batcher.batcher.submit(*request) for request in (three, odd, three, one, one)]
    assert batcher.wait_for(*answers) == [4, 1, 4]
    sums = [answer.result(60).get("sum", np.array([])).tolist() for answer in answers]
    assert sums == [[7, 7, 7], [], [7, 7, 7], [3], [3]]


def test_inputs_without_batch_dimension_are_not_batched(half_model, make_blocked):
    signature, batcher = "serving_default", make_blocked(half_model.run, half_model.signatures)
    assert not is_batchable(half_model.signatures[signature])
    values = [np.zeros(0, np.float32)] * 2 + [np.array(2.0, np.float32)] * 2
    answers = [batcher.batcher.submit(signature, {"x": value}) for value in values]
    assert batcher.wait_for(*answers) == [0, 0, 1, 1]
    assert [answer.result(0)["y"].tolist() for answer in answers] == [[], [], 3.0, 3.0]


# === With a stub model ===

# The padded words of a text, their number, and the length of the text.
TEXT = {"inputs": {"text": [-1]}, "outputs": {"words": [-1, -1], "counts": [-1], "size": [-1]}}


SIGNATURES = {"words": signature_of(TEXT), "whole": signature_of({**TEXT, "outputs": {"n": []}})}


def run_stub(signature, inputs, outputs):
    """Returns the requested outputs of the stub model."""
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


def texts_of_runs(batcher):
    """Returns the texts of each run."""
    return [b" ".join(inputs["text"]).decode() for _, inputs, _ in batcher.runs]


def test_answers_have_the_requested_outputs(make_blocked):
    wanted = [frozenset({"size"}), frozenset({"words"}), frozenset({"size", "words"})]
    for several, names in ((wanted[:1], {"size"}), (wanted, {"size", "words", "counts"})):
        batcher = make_blocked(run_stub, SIGNATURES)
        answers = [batcher.batcher.submit("words", texts("a b", "c"), each) for each in several]
        assert batcher.wait_for(*answers) == [2 * len(several)]
        assert batcher.runs[0][2] == names
        assert [answer.result(0).keys() for answer in answers] == several
    batcher = make_blocked(run_stub, SIGNATURES)
    answers = [batcher.batcher.submit("words", texts("a b"), each) for each in (*wanted, None)]
    batcher.wait_for(*answers)
    assert batcher.runs[0][2] is None
    assert [answer.result(0).keys() for answer in answers] == [*wanted, {"words", "counts", "size"}]


def test_cancelled_requests_are_not_run(make_blocked):
    batcher = make_blocked(run_stub, SIGNATURES, largest=2)
    abandoned = [batcher.batcher.submit("words", texts("left", "left", "left")) for _ in range(150)]
    abandoned += [batcher.batcher.submit("words", texts("left")) for _ in range(150)]
    last = batcher.batcher.submit("words", texts("last"))
    assert all(answer.cancel() for answer in abandoned)
    batcher.wait_for(last)
    assert texts_of_runs(batcher) == ["last"]


def test_cancelled_large_request_stops_after_the_current_part(make_blocked):
    abandoned = threading.Event()

    def run(signature, inputs, outputs):
        if inputs["text"] == b"leaves" and large.cancel():
            abandoned.set()
        return run_stub(signature, inputs, outputs)

    batcher = make_blocked(run, SIGNATURES, largest=1)
    large = batcher.batcher.submit("words", texts("a", "b", "leaves", "longest"))
    batcher.free()
    assert abandoned.wait(60)
    batcher.wait_for(batcher.batcher.submit("words", texts("x", "y")))
    assert texts_of_runs(batcher) == ["longest", "leaves", "y", "x"]


def test_requests_expire_while_all_threads_are_busy(make_blocked):
    batcher = make_blocked(run_stub, SIGNATURES, max_seconds=0.1)
    answers = [batcher.batcher.submit("words", texts(*"ab")) for _ in range(2)]
    for answer in answers:
        message = r"^The request waited 0\.1 seconds \(--max_wait_seconds\)"
        with pytest.raises(RestError, match=message) as error:
            answer.result(60)
        assert (error.value.status, error.value.retry_after) == (503, 1)
    assert batcher.wait_for() == []


def test_large_requests_take_turns(make_blocked):
    batcher = make_blocked(run_stub, SIGNATURES, largest=2)
    batcher.wait_for(*(batcher.batcher.submit("words", texts(*[name] * 6)) for name in "ABC"))
    assert texts_of_runs(batcher) == ["A A", "B B", "C C"] * 3


def test_small_requests_do_not_wait_for_large_ones(make_blocked):
    gate = threading.Event()

    def run(signature, inputs, outputs):
        assert b"large" not in inputs["text"] or gate.wait(60)
        return run_stub(signature, inputs, outputs)

    batcher = make_blocked(run, SIGNATURES, largest=2)
    large = [batcher.batcher.submit(name, texts(*["large"] * 6)) for name in SIGNATURES]
    batcher.wait_for(*(batcher.batcher.submit("words", texts("small")) for _ in range(3)))
    assert not any(answer.done() for answer in large)
    gate.set()
    batcher.wait_for(*large)
    assert not any(answer.exception(0) for answer in large)


def test_parts_of_a_large_request_run_in_parallel(make_blocked):
    together = threading.Barrier(2, timeout=60)

    def run(*arguments):
        together.wait()
        return run_stub(*arguments)

    batcher = make_blocked(run, SIGNATURES, largest=1, workers=2)
    inputs = texts("a b", "a", "a b c", "a")
    for _ in range(2):  # in the second round both threads are idle
        answer = batcher.batcher.submit("words", inputs)
        batcher.wait_for(answer)
        for name, value in run_stub("words", inputs, None).items():
            assert answer.result(0)[name].tolist() == value.tolist()


def test_parts_group_rows_by_size_and_limit_long_ones(make_blocked):
    batcher = make_blocked(run_stub, SIGNATURES)
    sizes = [5000, 10, 20_000, 3000, 4000, 4000, 20]
    answer = batcher.batcher.submit("words", texts(*("x" * size for size in sizes)))
    batcher.wait_for(answer)
    assert [[len(text) for text in inputs["text"]] for _, inputs, _ in batcher.runs] == [
        *([20_000], [5000], [4000], [10, 20, 3000, 4000])
    ]
    assert answer.result(0)["size"].tolist() == sizes
    several = make_blocked(run_stub, SIGNATURES)
    answers = [several.batcher.submit("words", texts("x" * 3000)) for _ in range(3)]
    assert several.wait_for(*answers) == [2, 1]


def test_failing_part_ends_its_request(make_blocked):
    batcher = make_blocked(run_stub, SIGNATURES, largest=1)
    answer = batcher.batcher.submit("words", texts("a", "fails", "b", "c"))
    batcher.wait_for(answer, batcher.batcher.submit("words", texts("x", "y")))
    assert sorted(texts_of_runs(batcher)) == ["fails", "x", "y"]
    with pytest.raises(ValueError, match=r"^It fails\.$"):
        answer.result(0)


def test_pending_requests_are_answered_before_close(make_blocked):
    batcher = make_blocked(run_stub, SIGNATURES, largest=1)
    answers = [batcher.batcher.submit("words", texts("a", f"{number}")) for number in range(20)]
    batcher.free()
    batcher.batcher.close(60)
    assert [answer.result(0)["size"].tolist() for answer in answers] == [
        [1, 1 + (n > 9)] for n in range(20)
    ]


def test_requests_fail_if_close_times_out(make_blocked):
    batcher = make_blocked(run_stub, SIGNATURES, largest=1)
    answers = [batcher.batcher.submit(*each) for each in (("words", texts("a", "b")), ("held", {}))]
    batcher.batcher.close(0.01)
    answers.append(batcher.batcher.submit("words", texts("late")))
    for answer in answers:
        with pytest.raises(RestError, match=r"^The server is shutting down\.$") as error:
            answer.result(0)
        assert error.value.status == 503
    assert batcher.wait_for() == []
