"""Losses with label smoothing and class weights equal plain NumPy."""

import keras
import numpy as np
import pytest

from bert_tf import features
from bert_tf.tasks.losses import SmoothedClasses, SmoothedCrossEntropy

WEIGHTS = [0.5, 1.0, 3.0]


def _log_softmax(logits):
    logits = logits.astype(np.float64)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("shape", [(5,), (4, 6)])
def test_smoothed_cross_entropy_equals_plain_numpy(smoothing, weights, shape):
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(*shape, 3)).astype(np.float32)
    labels = rng.integers(0 if len(shape) == 1 else features.NO_LABEL, 3, shape)
    total, count = 0.0, 0
    for index in np.ndindex(shape):
        if labels[index] == features.NO_LABEL:
            continue
        targets = np.full(3, smoothing / 3)
        targets[labels[index]] += 1 - smoothing
        loss = -(targets * _log_softmax(logits[index])).sum()
        total += loss * (weights[labels[index]] if weights else 1.0)
        count += 1
    found = float(SmoothedCrossEntropy(smoothing, weights)(labels, logits))
    assert found == pytest.approx(total / count, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_smoothed_classes_equal_plain_numpy(smoothing, weights):
    rng = np.random.default_rng(4)
    logits, labels = rng.normal(size=(6, 3)).astype(np.float32), rng.integers(0, 2, (6, 3))
    targets = labels * (1 - smoothing) + smoothing / 2
    probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
    losses = -(targets * np.log(probabilities) + (1 - targets) * np.log(1 - probabilities))
    factor = np.where(labels == 1, weights, 1.0) if weights else 1.0
    found = float(SmoothedClasses(smoothing, weights)(labels, logits))
    assert found == pytest.approx((losses * factor).mean(), rel=1e-5)


def test_default_loss_equals_keras_and_config_roundtrip():
    rng = np.random.default_rng(5)
    logits, labels = rng.normal(size=(4, 6, 3)).astype(np.float32), rng.integers(-1, 3, (4, 6))
    keras_own = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    assert float(SmoothedCrossEntropy()(labels, logits)) == pytest.approx(
        float(keras_own(labels, logits)), rel=1e-6
    )
    loss = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(SmoothedCrossEntropy(0.1, WEIGHTS))
    )
    assert (loss.smoothing, loss.class_weights) == (0.1, WEIGHTS)
