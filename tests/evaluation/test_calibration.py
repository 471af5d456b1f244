"""Temperatures equal SciPy's minimum; calibrated probabilities and errors."""

import math

import numpy as np
import pytest

from bert_tf.evaluation import calibration
from bert_tf.evaluation.calibration import (
    as_two_classes,
    calibrate_classes,
    calibrate_multilabel,
    fit_temperature,
    reliability,
)
from bert_tf.evaluation.evaluation import predict_classes
from bert_tf.features import TEMPERATURE


def sampled(seed, count, size, factor):
    """Returns logits multiplied by a factor, and labels sampled from the original logits."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=[count, size])
    # The maximum of logits plus Gumbel noise is a sample from their softmax.
    return factor * logits, (logits + rng.gumbel(size=logits.shape)).argmax(1)


@pytest.mark.parity
@pytest.mark.parametrize(
    "given", [(0, 500, 3, 3.0), (1, 20, 2, 5.0), (2, 2000, 5, 0.3), (3, 8, 2, 1.0)]
)
def test_temperature_equals_scipy_minimum(given):
    optimize = pytest.importorskip("scipy.optimize")
    special = pytest.importorskip("scipy.special")
    logits, labels = sampled(*given)

    def loss(x):
        logs = special.log_softmax(logits / np.exp(x), 1)
        return -logs[np.arange(len(labels)), labels].sum() + x**2 / 2

    expected = optimize.minimize_scalar(
        loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-10}
    )
    assert fit_temperature(logits, labels) == pytest.approx(math.exp(expected.x), rel=1e-6)


def test_temperature_recovers_the_factor_of_the_logits():
    for factor in (0.3, 1.0, 4.0):
        assert fit_temperature(*sampled(7, 20_000, 3, factor)) == pytest.approx(factor, rel=0.05)


def test_block_size_does_not_change_results(monkeypatch):
    given = sampled(5, 400, 3, 3.0)
    temperature, found = fit_temperature(*given), calibrate_classes(*given, 3.0)
    *columns, _ = predict_classes(*given, {TEMPERATURE: 3.0})
    monkeypatch.setattr(calibration, "_MAX_BLOCK", 90)
    assert fit_temperature(*given) == pytest.approx(temperature, rel=1e-12)
    assert calibrate_classes(*given, 3.0) == found
    *in_blocks, _ = predict_classes(*given, {TEMPERATURE: 3.0})
    for column, expected in zip(in_blocks, columns, strict=True):
        np.testing.assert_allclose(column, expected, rtol=1e-12)


def test_temperature_stays_finite_for_few_or_separable_rows():
    logits, right = np.tile([[5.0, 0.0]], [1000, 1]), np.zeros(1000, int)
    assert 0.4 < fit_temperature(logits, right) < 0.6
    assert 0.8 < fit_temperature(logits[:10], right[:10]) < 1
    assert fit_temperature(logits, 1 - right) == pytest.approx(20)  # always wrong
    assert fit_temperature(0 * logits, right) == pytest.approx(1)  # uninformative logits
    assert fit_temperature(1e4 * logits, right) == pytest.approx(1, abs=0.01)


def test_errors_and_bins_equal_a_plain_loop():
    logits, labels = sampled(5, 400, 3, 3.0)
    found = calibrate_classes(logits, labels, 3.0)
    for side, temperature in ((found.raw, 1.0), (found.calibrated, 3.0)):
        odds = np.exp(logits / temperature)
        probabilities = odds / odds.sum(1, keepdims=True)
        bins = {}
        for row, label in zip(probabilities, labels, strict=True):
            bin_index = min(int(10 * row.max()), 9)
            bins.setdefault(bin_index, []).append((row.max(), row.argmax() == label))
        error = sum(
            abs(sum(sure for sure, _ in rows) - sum(right for _, right in rows))
            for rows in bins.values()
        )
        assert side.error == pytest.approx(error / 400)
        assert [one.decisions for one in side.bins] == [len(bins[key]) for key in sorted(bins)]
        assert side.loss == pytest.approx(-np.log(probabilities[np.arange(400), labels]).mean())
    assert found.calibrated.error < found.raw.error and found.calibrated.loss < found.raw.loss
    values = found.to_dict()
    assert values["decisions"] == 400 and values["calibrated"]["loss"] == found.calibrated.loss
    assert reliability(np.array([1.0, 0.0]), np.array([True, False]), 0.0).error == 0.0


def test_multilabel_calibration_treats_classes_as_binary():
    rng = np.random.default_rng(8)
    logits = rng.normal(size=[3000, 4])
    targets = (rng.random([3000, 4]) < 1 / (1 + np.exp(-logits))).astype(int)
    temperature = fit_temperature(as_two_classes(2.5 * logits), targets.ravel())
    assert temperature == pytest.approx(2.5, rel=0.05)
    found = calibrate_multilabel(2.5 * logits, targets, temperature)
    assert found.count == 12_000
    assert found.calibrated.error < 0.02 < found.raw.error
    probabilities = 1 / (1 + np.exp(-2.5 * logits / temperature))
    expected = -np.log(np.where(targets == 1, probabilities, 1 - probabilities)).mean()
    assert found.calibrated.loss == pytest.approx(expected)
