"""The threshold of several classes, and the scores' definitions."""

import itertools

import numpy as np
import pytest

from bert_tf.finetuning.class_kinds import ClassKind, best_threshold
from bert_tf.tasks.classification_metrics import multilabel_f1
from bert_tf.tasks.examples import TextExample


def micro_f1(true, probabilities, threshold):
    return multilabel_f1(true, (probabilities >= threshold).astype(int), "micro")


@pytest.mark.parametrize("seed", range(5))
def test_no_other_threshold_is_better(seed):
    rng = np.random.default_rng(seed)
    true = (rng.random((30, 4)) < 0.3).astype(int)
    # Rounded, so that many are equal.
    probabilities = np.clip(0.3 * true + 0.7 * rng.random((30, 4)), 0, 1).round(1 + seed % 2)
    found = best_threshold(true, probabilities)
    tried = [micro_f1(true, probabilities, threshold) for threshold in np.linspace(0.001, 1, 1000)]
    assert micro_f1(true, probabilities, found) == pytest.approx(max(tried), abs=1e-12)


def test_the_nearest_to_a_half_of_equally_good_ones():
    true = np.array([[1, 0], [0, 1]])
    for spread in (0.1, 0.3):
        probabilities = np.array([[0.5 + spread, 0.1], [0.1, 0.5 + spread]])
        assert best_threshold(true, probabilities) == pytest.approx((0.5 + spread + 0.1) / 2)
    # 1 of 1 and 2 of 3 wrong or right: two cuts have F1 2/3.
    true, probabilities = np.array([[1, 0, 0, 1]]), np.array([[0.9, 0.8, 0.7, 0.6]])
    cuts = [0.85, 0.75, 0.65, 0.3]
    scores = [micro_f1(true, probabilities, cut) for cut in cuts]
    assert scores[0] == pytest.approx(scores[3])
    assert best_threshold(true, probabilities) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("true", "probabilities", "expected"),
    [
        ([[0, 0]], [[0.9, 0.1]], 0.5),
        ([[1, 1]], [[0.0, 0.0]], np.finfo(np.float64).tiny),
        ([[1, 1]], [[1.0, 1.0]], 0.5),
    ],
)
def test_extremes(true, probabilities, expected):
    found = best_threshold(np.array(true), np.array(probabilities))
    assert found == expected and 0 < found <= 1


@pytest.mark.parity
def test_scores_are_scikit_learns():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    labels = [str(number) for number in range(6)]
    kind = ClassKind(labels)
    for _, classes in itertools.product(range(3), (2, 4)):
        true = rng.integers(classes, size=20)
        outputs = rng.normal(size=(20, 6)) - 9.0 * (np.arange(6) >= classes)
        items = [TextExample("", "", None, labels[number]) for number in true]
        found = kind.evaluate(items, outputs.astype(np.float32)).scores
        predicted = outputs.argmax(1)
        assert found["macro_f1"] == pytest.approx(
            metrics.f1_score(true, predicted, average="macro")
        )
        assert found["accuracy"] == pytest.approx(metrics.accuracy_score(true, predicted))
        assert found["matthews_correlation"] == pytest.approx(
            metrics.matthews_corrcoef(true, predicted)
        )
