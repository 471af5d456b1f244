"""What a training says of its speed."""

import os
import time

import pytest
import tensorflow as tf

from bert_tf.training.loop import StepResults
from tests.anew import run_python

from .conftest import batches_dataset, make_loop, small_model


def test_figures_in_all_and_for_each_device():
    counted = {"tokens": 3000, "examples": 60, "devices": 4}
    made = StepResults(1, None, [], 0.0, 0.0, (), 0.5)
    expected = {
        "tokens_per_second": 1500.0,
        "device_tokens_per_second": 375.0,
        "examples_per_second": 30.0,
        "device_examples_per_second": 7.5,
        "input_wait_share": 0.25,
    }
    assert made.speed(seconds=2.0, **counted) == expected
    assert made._replace(waited=2.5).speed(seconds=2.0, **counted)["input_wait_share"] == 1.0
    del expected["input_wait_share"]
    assert made._replace(waited=None).speed(seconds=2.0, **counted) == expected
    one = made.speed(seconds=2.0, tokens=3000, examples=60, devices=1)
    assert list(one) == ["tokens_per_second", "examples_per_second", "input_wait_share"]


def test_the_loop_counts_the_time_without_a_batch():
    """Nothing can hold up a batch longer than this dataset, whose clock is the same."""
    loop, spent = make_loop(small_model()), []

    def wait(index):
        began = time.time()
        time.sleep(0.5 * (index >= 2))
        spent.append(time.time() - began)
        return index

    def delay(index, batch):
        index = tf.numpy_function(wait, [index], tf.int64)
        with tf.control_dependencies([index]):
            return {key: tf.identity(value) for key, value in batch.items()}

    # Made when asked for: the whole delay is waited for, but for what overlaps the step before.
    ready = batches_dataset(1, rows=1 << 12).repeat()
    iterator = loop.distribute(ready.enumerate().map(delay))
    began = time.time()
    first, then = loop.make(iterator, 2), loop.make(iterator, 2)
    took = time.time() - began
    assert first.waited >= 0 and 0.2 < then.waited <= took
    assert sum(spent[2:]) >= 1.0
    # The time of a step itself, behind its loss too, is none that a batch is waited for.
    iterator = loop.distribute(ready)
    loop.make(iterator, 1)
    shares = []
    for _ in range(3):  # the least, as other work on the machine may take its time from any
        began = time.time()
        waited = loop.make(iterator, 5).waited
        shares.append(waited / (time.time() - began))
    assert min(shares) < 0.3


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="os.sched_setaffinity is missing")
def test_on_one_core_a_step_is_no_time_without_a_batch():
    code = (
        "import os, sys, pytest; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); "
        "sys.exit(pytest.main(['-q', '-n0', sys.argv[1]]))"
    )
    test = f"{__file__}::{test_the_loop_counts_the_time_without_a_batch.__name__}"
    run = run_python(code, test)
    assert run.returncode == 0, run.stdout
