"""The learning-rate curve, against literals and a float32 twin."""

import keras
import numpy as np
import pytest

from bert_tf.training.schedules import WarmupLinearDecay


def _twin(step, peak, warmup, total):
    """Google's formula, every operation rounded to float32."""
    step, peak = np.float32(step), np.float32(peak)
    if step < warmup:
        return peak * (step / np.float32(warmup))
    return peak * (np.float32(1) - min(step / np.float32(total), np.float32(1)))


def test_the_papers_curve_at_hand_computed_steps():
    schedule = WarmupLinearDecay(1e-4, warmup_steps=10_000, total_steps=1_000_000)
    rates = {step: float(schedule(step)) for step in (0, 1, 5_000, 9_999, 10_000, 500_000, 10**6)}
    expected = {
        0: 0.0, 1: 1e-8, 5_000: 5e-5, 9_999: 9.999e-5, 10_000: 9.9e-5, 500_000: 5e-5, 10**6: 0.0
    }  # fmt: skip
    assert rates == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("warmup", [0, 7, 23])
def test_every_step_equals_the_float32_twin_bit_for_bit(warmup):
    schedule = WarmupLinearDecay(3e-4, warmup, 23)
    for step in range(26):
        assert np.float32(schedule(step)) == _twin(step, 3e-4, warmup, 23), step


def test_the_curve_survives_serialisation():
    schedule = WarmupLinearDecay(2e-5, 3, 10)
    copy = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule))
    assert copy.get_config() == {"peak": 2e-5, "warmup_steps": 3, "total_steps": 10}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1, 2), "peak must be a positive learning rate, got 0.0."),
        ((1.0, 0, 0), "total_steps must be at least 1, got 0."),
        ((1.0, 5, 4), r"warmup_steps must be between 0 and total_steps \(4\), got 5."),
    ],
)
def test_numbers_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        WarmupLinearDecay(*arguments)
