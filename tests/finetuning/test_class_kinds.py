"""Scores and mistakes of classes, one or several, and the threshold of several."""

import itertools
import math

import numpy as np
import pytest

from bert_tf.finetuning.text import best_threshold
from bert_tf.tasks.examples import TextExample
from bert_tf.tasks.metrics import multilabel_f1

from .small_tasks import by_first_word, examples_of, inference, items_of, text_task

LABELS = ("x", "y", "z")


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


def test_classes_are_scored_by_hand(tmp_path):
    items = items_of({"a0": "x", "a1": "x", "a2": "y", "a3": "z", "a4": "y"})
    data = examples_of(items, LABELS)
    task = text_task("own", None, {"dev": data}, {})
    big, small = math.log(8), math.log(2)
    model = by_first_word(
        {"a0": [big, 0, 0], "a1": [0, small, 0], "a2": [0, big, 0], "a3": [big, 0, 0],
         "a4": [0, big, 0]}
    )  # fmt: skip
    found = task.evaluate(inference(model), "dev")
    # x: 1 of 2 found, 1 wrong besides; y: 2 of 2, 1 wrong besides; z never.
    assert found.scores["accuracy"] == pytest.approx(3 / 5)
    assert found.scores["macro_f1"] == pytest.approx((1 / 2 + 4 / 5 + 0) / 3)
    # (3 * 5 - (2*2 + 2*3 + 1*0)) / sqrt((25 - 9) * (25 - 13))
    assert found.scores["matthews_correlation"] == pytest.approx(5 / math.sqrt(16 * 12))
    assert list(found.scores) == ["accuracy", "macro_f1", "matthews_correlation"]
    assert found.confusion.tolist() == [[1, 1, 0], [0, 2, 0], [1, 0, 0]]
    assert not found.constant
    # The loss of z is log(10), that of x log(4).
    assert [(m.id, m.expected, m.predicted) for m in found.mistakes] == [
        ("id3", "z", "x"),
        ("id1", "x", "y"),
    ]
    assert [m.loss for m in found.mistakes] == pytest.approx([math.log(10), math.log(4)], rel=1e-5)
    assert found.mistakes[0].text == items[3].text_a
    paths = task.write_predictions(inference(model), "dev", str(tmp_path / "new"), {})
    assert paths == [str(tmp_path / "new" / "dev.tsv")]
    assert (tmp_path / "new" / "dev.tsv").read_text().splitlines() == [
        "id\tprediction\texpected\tprobability_x\tprobability_y\tprobability_z",
        "id0\tx\tx\t0.8\t0.1\t0.1",
        "id1\ty\tx\t0.25\t0.5\t0.25",
        "id2\ty\ty\t0.1\t0.8\t0.1",
        "id3\tx\tz\t0.8\t0.1\t0.1",
        "id4\ty\ty\t0.1\t0.8\t0.1",
    ]


def test_classes_that_do_not_occur_do_not_count_in_macro_f1():
    data = examples_of(items_of({"a0": "x", "a1": "y"}), LABELS)
    model = by_first_word({"a0": [1, 0, 0], "a1": [0, 1, 0]})
    scores = text_task("own", None, {"dev": data}, {}).evaluate(inference(model), "dev").scores
    assert scores["macro_f1"] == 1.0


def test_several_classes_are_scored_by_hand(tmp_path):
    data = examples_of(items_of({"a0": ("x", "z"), "a1": ("x",), "a2": ()}), LABELS)
    task = text_task("own", None, {"dev": data}, {"test": data}, kind="multilabel")
    assert task.multi_label and task.model_arguments == {"num_classes": 3}
    third, ninth = -math.log(2), -math.log(8)  # the logits of 1/3 and of 1/9
    model = by_first_word(
        {"a0": [0, ninth, third], "a1": [third, ninth, ninth], "a2": [ninth, ninth, ninth]}
    )
    found = task.evaluate(inference(model), "dev")
    # What holds is 1/2, 1/3, 1/3, and all else 1/9.
    assert found.thresholds == {"probability": pytest.approx((1 / 3 + 1 / 9) / 2)}
    assert found.scores == {
        "micro_f1": 1.0,
        "macro_f1": pytest.approx(2 / 3),  # y neither holds nor is predicted
        "micro_f1_at_0.5": pytest.approx(2 / (2 + 2)),
        "macro_f1_at_0.5": pytest.approx((2 / 3) / 3),
    }
    assert found.confusion is None and found.mistakes == [] and not found.constant
    # Decided elsewhere, or by default, a threshold is kept to.
    given = task.evaluate(inference(model), "dev", {"probability": 0.4})
    assert given.thresholds == {"probability": 0.4}
    assert given.scores["micro_f1"] == found.scores["micro_f1_at_0.5"]
    assert [mistake.id for mistake in given.mistakes] == ["id0", "id1"]
    assert task.evaluate(inference(model), "dev", {}).thresholds == {"probability": 0.5}
    for thresholds, lines in (
        (found.thresholds, ["id0\tx,z", "id1\tx", "id2\t"]),
        ({}, ["id0\tx", "id1\t", "id2\t"]),
    ):
        task.write_predictions(inference(model), "test", str(tmp_path), thresholds)
        rows = (tmp_path / "test.tsv").read_text().splitlines()
        assert rows[0] == "id\tprediction\tprobability_x\tprobability_y\tprobability_z"
        assert ["\t".join(row.split("\t")[:2]) for row in rows[1:]] == lines
    assert rows[1].split("\t")[2:] == ["0.5", "0.111111", "0.333333"]


def test_mistakes_of_several_classes():
    data = examples_of(items_of({"a0": ("x", "y"), "a1": ("y",), "a2": ()}), LABELS)
    task = text_task("own", None, {"dev": data}, {}, kind="multilabel")
    model = by_first_word({"a0": [-1, 3, -9], "a1": [2, 3, -9], "a2": [-9, -9, -9]})
    found = task.evaluate(inference(model), "dev")
    # With y alone F1 is 2 * 2 / (2 + 3), with x's 2 as well less, with the -1 too 2 * 3 / (4 + 3).
    assert found.scores["micro_f1"] == pytest.approx(6 / 7)
    assert [(m.id, m.expected, m.predicted) for m in found.mistakes] == [("id1", "y", "x, y")]
    by_loop = sum(
        -math.log(1 / (1 + math.exp(-logit if holds else logit)))
        for logit, holds in ((2, False), (3, True), (-9, False))
    )
    assert found.mistakes[0].loss == pytest.approx(by_loop, rel=1e-5)
    model = by_first_word({"a0": [3, 3, -9], "a1": [3, -9, -9], "a2": [-9, -9, -9]})
    (mistake,) = task.evaluate(inference(model), "dev").mistakes
    assert (mistake.expected, mistake.predicted) == ("y", "x")
    model = by_first_word({"a0": [3, 3, -9], "a1": [-9, -9, -9], "a2": [-9, -9, -9]})
    (mistake,) = task.evaluate(inference(model), "dev").mistakes
    assert (mistake.expected, mistake.predicted) == ("y", "(none)")


@pytest.mark.parity
def test_scores_are_scikit_learns():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    labels = [str(number) for number in range(6)]
    kind = text_task("own", None, {}, {}, labels=labels)
    for _, classes in itertools.product(range(3), (2, 4)):
        true = rng.integers(classes, size=20)
        outputs = rng.normal(size=(20, 6)) - 9.0 * (np.arange(6) >= classes)
        items = [TextExample("", "", None, labels[number]) for number in true]
        found = kind._judge(items, outputs.astype(np.float32), None).scores
        predicted = outputs.argmax(1)
        assert found["macro_f1"] == pytest.approx(
            metrics.f1_score(true, predicted, average="macro")
        )
        assert found["accuracy"] == pytest.approx(metrics.accuracy_score(true, predicted))
        assert found["matthews_correlation"] == pytest.approx(
            metrics.matthews_corrcoef(true, predicted)
        )
