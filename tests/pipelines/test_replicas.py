"""Batch computation on one device; ``tests/test_two_devices.py`` tests two devices."""

import threading

import pytest
import tensorflow as tf

from bert_tf.pipelines.replicas import compute_batches, get_traced_step


class Model:
    """Model that counts its traces."""

    def __init__(self, factor):
        self.factor = tf.Variable(factor)
        self.traces = 0

    def __call__(self, rows):
        self.traces += 1
        return rows["x"] * self.factor


def compute(model, rows, shift):
    return model(rows) + shift


def outputs(model, batches, shift):
    step = get_traced_step(model, compute, batches.element_spec, shift)
    return [step(batch).numpy().tolist() for batch in batches]


def test_model_is_traced_once_per_element_spec_and_arguments():
    model, other = Model(10.0), Model(7.0)
    rows = tf.data.Dataset.from_tensor_slices({"x": [1.0, 2.0, 3.0]})
    assert outputs(model, rows.batch(2), 1.0) == [[11.0, 21.0], [31.0]]
    model.factor.assign(20.0)
    assert outputs(model, rows.batch(3), 1.0) == [[21.0, 41.0, 61.0]]
    assert model.traces == 1
    labeled = rows.map(lambda row: (row, 5))
    for batches, traces in ((rows, 2), (labeled, 3)):
        assert outputs(model, batches.batch(3), 2.0) == [[22.0, 42.0, 62.0]]
        assert model.traces == traces
    assert outputs(other, rows.batch(3), 1.0) == [[8.0, 15.0, 22.0]]


def test_two_batches_run_in_parallel_and_results_keep_order():
    taken, barrier = [], threading.Barrier(2, timeout=20)

    def batches():
        for number in range(6):
            taken.append(number)
            yield number

    def step(number):
        barrier.wait()  # passes only if two batches run in parallel
        return -number

    got = compute_batches(step, batches())
    assert next(got) == (0, 0) and len(taken) <= 3  # at most three batches are in memory
    assert list(got) == [(number, -number) for number in range(1, 6)]


def test_batch_error_is_raised_after_earlier_results():
    got = compute_batches(lambda number: 1 // number, iter([2, 1, 0, 5]))
    assert [next(got), next(got)] == [(2, 0), (1, 1)]
    with pytest.raises(ZeroDivisionError):
        next(got)
