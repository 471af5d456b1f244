"""Bad steps: found in the compiled loop, named with their data, skipped as if they had not been."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.training import bad_steps
from bert_tf.training.bad_steps import BadStepError, Trend

from .conftest import make_loop, random_batch, small_model, starting_over

# A share of the loss that is not a number; and weights that nearly cancel out, so that the mean of
# the loss, and with it the gradient, is a hundred times as large.
POISONS = {"nan": [[np.nan, 1.0, 1.0]], "spike": [[1.0, -0.99, 0.0]]}


@functools.cache
def _loop(**options):
    """A loop that is traced once for all who ask for the same, and what puts it back."""
    loop = make_loop(small_model(dropout=0.5), **options)
    return loop, starting_over(loop)


SKIPPING = {"spike_factor": 3.0, "skip_bad_steps": True, "most_bad_steps": 2}
# Beyond its twenty steps the rate is 0.
RUINOUS = {"spike_factor": 3.0, "peak": 1e30}


@pytest.fixture
def three_steps_window(monkeypatch):
    monkeypatch.setattr(bad_steps, "_WINDOW", 3)


def _train(loop, batches, calls=None):
    """Trains on batches, good ones by number and poisoned ones by name, in one or more calls."""
    made = []
    for name in batches:
        batch = random_batch(9 if name in POISONS else name)
        if name in POISONS:
            batch[features.MASKED_LM_WEIGHTS] = np.zeros((8, 3), np.float32)
            batch[features.MASKED_LM_WEIGHTS][:1] = POISONS[name]
        made.append(batch)
    dataset = tf.data.Dataset.from_tensor_slices(
        {key: np.stack([batch[key] for batch in made]) for key in made[0]}
    )
    iterator = loop.distribute(dataset)
    return [loop.train(iterator, steps) for steps in calls or [len(batches)]]


def _state(loop):
    return {name: variable.numpy() for name, variable in loop.state().items()}


def test_a_skipped_batch_leaves_no_trace(three_steps_window):
    loop, again = _loop(**SKIPPING)
    again()
    *_, expected = _train(loop, [0, 1, 2, 3, 4, 5])
    clean, trend = _state(loop), loop.trend
    assert trend.steps == 3
    for poison, calls in (("nan", (7,)), ("spike", (4, 1, 2))):
        again()
        results = _train(loop, [0, 1, 2, 3, poison, 4, 5], calls)
        (bad,) = [bad for result in results for bad in result.skipped]
        assert bad[:2] == (4, ((0, 9, 7),))
        for name, value in _state(loop).items():
            np.testing.assert_array_equal(value, clean[name], err_msg=name)
        assert loop.trend == trend
        if len(calls) == 1:  # its sums are in no mean either
            assert results[0]._replace(skipped=(), waited=expected.waited) == expected
    again()  # spikes are not looked for before there is a trend
    assert _train(loop, [0, 1, "spike"])[0].skipped == ()


def test_a_bad_step_is_named_with_its_data(three_steps_window):
    loop, again = _loop(**RUINOUS)
    for poison, what in (("nan", "became infinite or not a number"), ("spike", "spiked")):
        again()
        loop.optimizer.iterations.assign(20)
        with pytest.raises(BadStepError) as raised:
            _train(loop, [0, 1, 2, poison, 4])
        assert str(raised.value).startswith(f"The loss or its gradient {what} at step 23 (loss ")
        assert str(raised.value).endswith(
            "), on the batch that ends with row 7 of pool 9 in epoch 0: lower the learning rate or "
            "lengthen the warm-up, and go on from the checkpoint before."
        )
        assert raised.value.bad.cursors == ((0, 9, 7),)


def test_weights_beyond_use_are_a_bad_step(three_steps_window):
    """The steps' own losses are numbers: the last update ruined what the next would be made of."""
    loop, again = _loop(**RUINOUS)
    again()
    with pytest.raises(BadStepError, match="norm of the weights became infinite or not a number a"):
        _train(loop, [0, 1])  # the first step's rate is 0


def test_only_so_many_in_a_row_are_skipped(three_steps_window):
    loop, again = _loop(**SKIPPING)
    again()
    results = _train(loop, ["nan", "nan", 0, "nan", "nan"], (1, 4))
    assert [len(result.skipped) for result in results] == [1, 3]
    assert results[0].step == 0 and results[0].loss == 0.0 and results[0].gradient_norm == 0.0
    with pytest.raises(BadStepError, match="not a number at step 1 "):
        _train(loop, ["nan"])


def test_the_trend_is_the_mean_and_then_an_exponential_one():
    values = np.random.default_rng(0).uniform(1, 2, 250).astype(np.float32)
    trend, mean, window = Trend(*map(tf.constant, Trend())), 0.0, 100
    for number, value in enumerate(values, 1):
        trend = trend.after(tf.constant(value), tf.constant(2 * value), tf.constant(True))
        trend = trend.after(tf.constant(np.nan), tf.constant(np.inf), tf.constant(False))
        if number <= window:
            mean = float(values[:number].mean())
        else:
            mean = 0.99 * mean + 0.01 * float(value)
    assert [float(part) for part in trend] == pytest.approx([window, mean, 2 * mean], rel=1e-5)


@pytest.mark.parametrize(
    ("steps", "loss", "norm", "factor", "expected"),
    [
        (100, 2.9, 5.9, 3.0, True),
        (100, 3.1, 5.9, 3.0, False),
        (100, 2.9, 6.1, 3.0, False),
        (99, 3.1, 6.1, 3.0, True),
        (100, 3.1, 6.1, 0.0, True),
        (0, np.nan, 1.0, 0.0, False),
        (0, 1.0, np.inf, 3.0, False),
    ],
)
def test_what_is_good(steps, loss, norm, factor, expected):
    trend = Trend(tf.constant(float(steps)), tf.constant(1.0), tf.constant(2.0))
    assert bool(trend.is_good(tf.constant(loss), tf.constant(norm), factor)) == expected
