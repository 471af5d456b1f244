"""Every score, and those of each class, against scikit-learn, seqeval and plain loops."""

import functools

import numpy as np
import pytest

from bert_tf.evaluation.formulas import ClassScore, rank
from bert_tf.evaluation.judging import (
    Judged,
    judge_choices,
    judge_classes,
    judge_entities,
    judge_numbers,
    judge_several,
    judge_tags,
)

near = functools.partial(pytest.approx, abs=1e-12)
LABELS = ["neg", "mid", "pos"]


def random_ids(seed=0, count=20, size=3):
    rng = np.random.default_rng(seed)
    true = rng.integers(0, size, count)
    return true, np.where(rng.random(count) < 0.6, true, rng.integers(0, size, count))


def random_tags(seed, tags, count=20):
    rng = np.random.default_rng(seed)
    true = [rng.choice(tags, rng.integers(1, 9)).tolist() for _ in range(count)]
    return true, [
        [tag if rng.random() < 0.6 else str(rng.choice(tags)) for tag in row] for row in true
    ]


@pytest.mark.parity
def test_classes_equal_scikit_learn():
    theirs = pytest.importorskip("sklearn.metrics")
    true, predicted = random_ids()
    judged = judge_classes(true, predicted, LABELS)
    given = true, predicted
    assert judged.metrics["accuracy"] == near(theirs.accuracy_score(*given))
    assert judged.metrics["macro_f1"] == near(theirs.f1_score(*given, average="macro"))
    assert judged.metrics["matthews_correlation"] == near(theirs.matthews_corrcoef(*given))
    for number, label in enumerate(LABELS):
        for name, function in (
            ("precision", theirs.precision_score),
            ("recall", theirs.recall_score),
            ("f1", theirs.f1_score),
        ):
            (expected,) = function(*given, labels=[number], average=None, zero_division=0)
            key = f"{name}_{label}"
            assert judged.scores([key]) == {key: near(expected)}
    true, predicted = random_ids(size=2)
    two = judge_classes(true, predicted, ["a", "b"])
    assert two.metrics["f1"] == near(theirs.f1_score(true, predicted))


@pytest.mark.parity
def test_several_classes_equal_scikit_learn():
    theirs = pytest.importorskip("sklearn.metrics")
    true, predicted = (ids.reshape(20, 5) for ids in random_ids(1, 100, 2))
    true[:, 2] = predicted[:, 2] = 0  # a class that nobody has counts 0.0 in the macro mean
    judged = judge_several(true, predicted, list("abcde"))
    given = true, predicted
    for average in ("micro", "macro"):
        expected = theirs.f1_score(*given, average=average, zero_division=0)
        assert judged.metrics[f"{average}_f1"] == near(expected)
    expected = theirs.recall_score(*given, average=None, zero_division=0)
    assert [judged.classes[name].recall for name in "abcde"] == near(expected.tolist())


@pytest.mark.parity
def test_entities_equal_seqeval_and_tags_scikit_learn():
    seqeval = pytest.importorskip("seqeval.metrics")
    theirs = pytest.importorskip("sklearn.metrics")
    true, predicted = random_tags(2, ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"])
    losses = np.arange(20.0)
    judged = judge_entities(true, predicted, losses)
    given = [true, predicted]
    for name in ("f1", "precision", "recall"):
        expected = getattr(seqeval, f"{name}_score")(*given)
        assert judged.metrics[name] == near(expected)
    by_type = seqeval.classification_report(*given, output_dict=True)
    for kind in ("LOC", "PER"):
        assert judged.metrics[f"f1_{kind}"] == near(by_type[kind]["f1-score"])
        assert judged.classes[kind].precision == near(by_type[kind]["precision"])
    flat = [[tag for row in column for tag in row] for column in given]
    assert judged.metrics["accuracy"] == near(theirs.accuracy_score(*flat))
    assert judged.metrics["loss"] == near(losses.sum() / len(flat[0]))
    plain = judge_tags(true, predicted)
    assert plain.metrics["macro_f1"] == near(theirs.f1_score(*flat, average="macro"))
    assert plain.metrics["accuracy"] == near(theirs.accuracy_score(*flat))
    (expected,) = theirs.recall_score(*flat, labels=["B-PER"], average=None)
    assert plain.classes["B-PER"].recall == near(expected)


def test_a_sentence_is_right_where_its_entities_are():
    true = [["B-LOC", "O"], ["O", "O"], ["odd", "O"]]
    predicted = [["I-LOC", "O"], ["O", "S-PER"], ["O", "O"]]
    judged = judge_entities(true, predicted, odd_tags={"odd"})
    assert judged.right.tolist() == [True, False, True]
    assert judged.classes == {"LOC": ClassScore(1, 1, 1), "PER": ClassScore(0, 1, 0)}
    assert judge_tags(true, predicted).right.tolist() == [False, False, False]


def test_losses_numbers_and_choices():
    true, predicted = np.array([1.0, 2.0, 2.0, 4.0]), np.array([1.0, 4.0, 4.0, 3.0])
    found = judge_numbers(true, predicted, (true - predicted) ** 2).metrics
    assert found["mean_absolute_error"] == near(5 / 4)
    assert found["loss"] == found["mean_squared_error"] == 9 / 4
    judged = judge_choices(np.array([0, 1, 1]), np.array([0, 1, 0]), np.array([1.0, 2.0, 6.0]))
    assert judged.scores(["accuracy", "loss", "macro_f1"]) == {"accuracy": 2 / 3, "loss": 3.0}


def test_a_name_that_is_no_score():
    judged = judge_classes(*random_ids(), LABELS)
    assert judged.scores(["f1_other", "size_neg", "f1", "f1_"]) == {}
    assert Judged(3, {}).scores(["f1_neg"]) == {}
    assert rank("loss", 0.5) < rank("loss", 0.4) and rank("f1", 0.5) > rank("f1", 0.4)
