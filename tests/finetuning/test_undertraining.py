"""A training that ended too early is told, and one that did not is not."""

import dataclasses
import types

import numpy as np
import pytest

from bert_tf.finetuning.stages import _undertraining
from bert_tf.metrics.calibration import fit_temperature, of_classes
from bert_tf.metrics.judging import judge_classes
from bert_tf.tasks.evaluation import Evaluation

ENOUGH = types.SimpleNamespace(label_smoothing=0.0, few_shot=False)


def evaluation(sharpness, count=200):
    """Three classes, the last of which is never predicted; right in nine of ten rows."""
    true = np.arange(count) % 10 // 4  # 4, 4 and 2 of ten
    predicted = np.where(true == 2, 0, true)
    logits = sharpness * np.eye(3)[predicted]
    temperature = fit_temperature(logits, true)
    judged = judge_classes(true, predicted, ("a", "b", "c"), np.zeros(count))
    found = of_classes(logits, true, temperature)
    return Evaluation(scores={}, constant=False, judged=judged, calibrate=lambda: found)


def test_a_model_that_is_less_sure_than_right():
    assert _undertraining(ENOUGH, "dev", evaluation(0.5)) == (
        "on dev its answers are right more often than their probabilities say (temperature 0.24), "
        "and 1 of 3 classes are never predicted"
    )
    everything = dataclasses.replace(evaluation(0.5), judged=None)
    assert _undertraining(ENOUGH, "dev", everything).endswith("say (temperature 0.24)")


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (ENOUGH, evaluation(4.0)),
        (ENOUGH, evaluation(0.5, count=90)),  # few to tell
        (ENOUGH, None),
        (ENOUGH, Evaluation(scores={}, constant=False)),
        (types.SimpleNamespace(label_smoothing=0.1, few_shot=False), evaluation(0.5)),
        (types.SimpleNamespace(label_smoothing=0.0, few_shot=True), evaluation(0.5)),
    ],
)
def test_nothing_is_said(settings, found):
    assert _undertraining(settings, "dev", found) is None
