"""All scores equal literals, scikit-learn, SciPy and seqeval."""

import functools
import json
import math

import numpy as np
import pytest

from bert_tf.evaluation.metrics import (
    CHOICE_SCORES,
    NUMBER_SCORES,
    ClassScore,
    Comparison,
    compare,
    compare_classes,
    compare_entities,
    compare_tags,
    count_confusions,
    f1,
    json_scores,
    macro_f1,
    matthews_correlation,
    pearson_correlation,
    r2_score,
    rank,
    score_text,
    spearman_correlation,
)
from bert_tf.tasks.tagging.entities import find_all

near = functools.partial(pytest.approx, abs=1e-12)
LABELS = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
PREDICTIONS = [1, 1, 1, 0, 1, 1, 0, 0, 0, 0]  # 3 TP, 1 FN, 2 FP, 4 TN


def random_ids(seed=0, size=3, count=57):
    rng = np.random.default_rng(seed)
    true = rng.integers(0, size, count)
    return true, np.where(rng.random(count) < 0.6, true, rng.integers(0, size, count))


# === Classes ===


def test_class_scores_equal_literals():
    assert f1(LABELS, PREDICTIONS) == pytest.approx(6 / 9)
    assert matthews_correlation(LABELS, PREDICTIONS) == pytest.approx(10 / math.sqrt(600))
    matrix = count_confusions(LABELS, PREDICTIONS).matrix(3)
    assert matrix.tolist() == [[4, 2, 0], [1, 3, 0], [0, 0, 0]]
    comparison = compare_classes(np.array(LABELS), np.array(PREDICTIONS), ["no", "yes"])
    assert comparison.classes == {"no": ClassScore(6, 5, 4), "yes": ClassScore(4, 5, 3)}
    assert comparison.select(["accuracy", "recall_yes"]) == {"accuracy": 0.7, "recall_yes": 0.75}


def test_matthews_correlation_of_many_examples_does_not_overflow():
    labels = np.arange(200_000) % 2
    predictions = (np.arange(200_000) % 20 == 0) ^ labels  # every twentieth is wrong
    predictions = predictions.astype(np.int32)
    # 0 is predicted as 1 ten thousand times, 1 never as 0; 9.9e19 exceeds an int64.
    expected = (9e4 * 1e5) / math.sqrt(1.1e5 * 1e5 * 1e5 * 9e4)
    assert matthews_correlation(labels, predictions) == pytest.approx(expected)


def test_macro_f1_covers_the_classes_that_occur():
    # 0: one of two found; 3: found, and one false positive; 9: only predicted.
    assert macro_f1([0, 0, 3], [0, 3, 3]) == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert macro_f1([0, 0, 3], [0, 9, 3]) == pytest.approx((2 / 3 + 1 + 0) / 3)


def test_scores_of_a_constant_class():
    assert matthews_correlation([0, 1, 0, 1], [0] * 4) == 0.0
    assert f1([0] * 4, [0, 1, 0, 1]) == f1([0, 1, 0, 1], [0] * 4) == f1([0, 0], [0, 0]) == 0.0
    for predictions in ([0, 1, 0, 1], [2] * 4):
        assert math.isnan(matthews_correlation([2] * 4, predictions))


@pytest.mark.parity
@pytest.mark.parametrize("seed", range(5))
def test_class_scores_equal_scikit_learn(seed):
    theirs = pytest.importorskip("sklearn.metrics")
    for size in (2, 3, 6):
        given = random_ids(seed, size)
        names = [f"class {number}" for number in range(size)]
        comparison = compare_classes(*given, names)
        expected = {
            "accuracy": theirs.accuracy_score(*given),
            "macro_f1": theirs.f1_score(*given, average="macro"),
            "matthews_correlation": theirs.matthews_corrcoef(*given),
            **({"f1": theirs.f1_score(*given)} if size == 2 else {}),
        }
        assert comparison.scores == near(expected)
        for metric in ("precision", "recall", "f1"):
            values = getattr(theirs, f"{metric}_score")(*given, average=None)
            keys = [f"{metric}_{name}" for name in names]
            assert comparison.select(keys) == near(dict(zip(keys, values, strict=True)))
        np.testing.assert_array_equal(
            count_confusions(*given).matrix(size),
            theirs.confusion_matrix(*given, labels=range(size)),
        )
        # The ids of the classes do not matter.
        renamed = matthews_correlation(*(7 - 3 * ids for ids in given))
        assert renamed == near(expected["matthews_correlation"])
    for given in (([0, 0, 1], [0, 0, 0]), ([0, 0], [0, 0]), ([1, 1], [0, 1])):
        # scikit-learn returns 0.0 if all labels are equal, which no predictions could change.
        assert np.nan_to_num(matthews_correlation(*given)) == theirs.matthews_corrcoef(*given)
        assert f1(*given) == pytest.approx(theirs.f1_score(*given, zero_division=0))


# === Numbers ===


def test_correlations_equal_literals():
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0], [5.0, 6.0, 7.0, 8.0, 7.0]
    assert pearson_correlation(x, y) == pytest.approx(6 / math.sqrt(52))
    # Ranks 1, 2, 3.5, 5, 3.5: the two sevens share ranks 3 and 4.
    assert spearman_correlation(x, y) == pytest.approx(8 / math.sqrt(95))
    assert pearson_correlation(x, [-3 * value for value in x]) == pytest.approx(-1.0)
    assert spearman_correlation(x, [math.exp(-value) for value in x]) == pytest.approx(-1.0)


def test_r2_equals_literals():
    assert r2_score([1.0, 2.0, 3.0, 6.0], [2.0, 2.0, 2.0, 2.0]) == pytest.approx(-4 / 14)
    assert r2_score([1.0, 3.0], [2.0, 2.0]) == 0.0
    assert r2_score([1.0, 3.0], [1.0, 3.0]) == 1.0
    assert math.isnan(r2_score([5.0, 5.0], [5.0, 4.0]))


def test_float32_inputs_are_computed_in_float64():
    # In float32 the offset would absorb the differences.
    labels = np.arange(100, dtype=np.float32)
    predictions = labels + np.float32(1e6)
    assert pearson_correlation(labels, predictions) == pytest.approx(1.0, abs=1e-13)
    assert -1.0 <= pearson_correlation(labels, -labels) <= 1.0


@pytest.mark.parametrize("score", [pearson_correlation, spearman_correlation])
def test_correlations_with_a_constant(score):
    # The mean of these values differs from them in the last digit.
    constant = [0.1] * 7
    assert np.mean(constant) != 0.1 or np.std(constant) != 0
    varied = [0.3, 1.0, 2.0, 0.5, 0.7, 4.0, 5.0]
    assert score(varied, constant) == 0.0
    assert math.isnan(score(constant, varied)) and math.isnan(score([2.5], [1.0]))


@pytest.mark.parity
@pytest.mark.parametrize("seed", range(5))
def test_correlations_equal_scipy(seed):
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 26, 83) / 5  # STS-B's steps, and so ties
    given = labels, (labels + rng.normal(size=83)).round(1)
    pearson, spearman = stats.pearsonr(*given).statistic, stats.spearmanr(*given).statistic
    assert pearson_correlation(*given) == near(pearson)
    assert spearman_correlation(*given) == near(spearman)
    assert len(set(given[1])) < len(given[1]) and abs(pearson - spearman) > 1e-4
    constant = np.full(83, 0.1), given[1]
    for ours, name in ((pearson_correlation, "pearsonr"), (spearman_correlation, "spearmanr")):
        with pytest.warns(stats.ConstantInputWarning):
            assert math.isnan(getattr(stats, name)(*constant).statistic)
        assert math.isnan(ours(*constant))


def test_scores_of_losses_numbers_and_choices():
    true, predicted = np.array([1.0, 2.0, 2.0, 4.0]), np.array([1.0, 4.0, 4.0, 3.0])
    scores = compare(NUMBER_SCORES, true, predicted, (true - predicted) ** 2).scores
    assert scores["mean_absolute_error"] == near(5 / 4)
    assert scores["root_mean_squared_error"] == near(3 / 2)
    assert scores["loss"] == scores["mean_squared_error"] == 9 / 4
    choices = np.array([0, 1, 1]), np.array([0, 1, 0])
    comparison = compare(CHOICE_SCORES, *choices, np.array([1.0, 2.0, 6.0]))
    assert comparison.scores == {"accuracy": 2 / 3, "loss": 3.0}


# === Tags ===


def entities_of(true, predicted):
    return [*zip(find_all(true), find_all(predicted), strict=True)]


@pytest.mark.parity
def test_entity_scores_equal_seqeval_and_tag_scores_scikit_learn():
    seqeval = pytest.importorskip("seqeval.metrics")
    theirs = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(2)
    tags = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    true = [rng.choice(tags, rng.integers(1, 9)).tolist() for _ in range(20)]
    predicted = [
        [tag if rng.random() < 0.6 else str(rng.choice(tags)) for tag in row] for row in true
    ]
    given, losses = [true, predicted], np.arange(20.0)
    comparison = compare_entities(*given, entities_of(*given), losses)
    for name in ("f1", "precision", "recall"):
        assert comparison.scores[name] == near(getattr(seqeval, f"{name}_score")(*given))
    by_type = seqeval.classification_report(*given, output_dict=True)
    for kind in ("LOC", "PER"):
        assert comparison.scores[f"f1_{kind}"] == near(by_type[kind]["f1-score"])
        assert comparison.classes[kind].precision == near(by_type[kind]["precision"])
    flat = [[tag for row in column for tag in row] for column in given]
    assert comparison.scores["accuracy"] == near(theirs.accuracy_score(*flat))
    assert comparison.scores["loss"] == near(losses.sum() / len(flat[0]))
    plain = compare_tags(*given)
    expected = theirs.accuracy_score(*flat), theirs.f1_score(*flat, average="macro")
    assert [plain.scores[name] for name in ("accuracy", "macro_f1")] == near([*expected])
    (expected,) = theirs.recall_score(*flat, labels=["B-PER"], average=None)
    assert plain.classes["B-PER"].recall == near(expected)


def test_sentence_is_correct_if_its_entities_are():
    true = [["B-LOC", "O"], ["O", "O"]]
    predicted = [["I-LOC", "O"], ["O", "S-PER"]]
    comparison = compare_entities(true, predicted, entities_of(true, predicted))
    assert comparison.is_correct.tolist() == [True, False]
    assert comparison.classes == {"LOC": ClassScore(1, 1, 1), "PER": ClassScore(0, 1, 0)}
    assert compare_tags(true, predicted).is_correct.tolist() == [False, False]
    assert compare_tags(true, predicted).scores == {"accuracy": 0.5, "macro_f1": near(0.2)}


def test_unknown_score_names_are_ignored():
    comparison = compare_classes(*random_ids(), ["neg", "mid", "pos"])
    assert comparison.select(["f1_other", "size_neg", "f1", "f1_"]) == {}
    assert Comparison(3, {}).select(["f1_neg"]) == {}


@pytest.mark.parametrize(
    ("name", "better", "worse"),
    [
        ("f1", {"f1": 0.5, "loss": 9.0}, {"f1": 0.4, "loss": 1.0}),
        ("f1", {"f1": 0.5, "loss": 1.0}, {"f1": 0.5, "loss": 2.0}),
        ("loss", {"f1": 0.1, "loss": 0.4}, {"f1": 0.9, "loss": 0.5}),
        ("mean_squared_error", {"mean_squared_error": 1.0}, {"mean_squared_error": 1.5}),
        ("pearson", {"pearson": -0.9, "loss": 5.0}, {"pearson": None, "loss": 0.1}),
        ("pearson", {"pearson": None, "loss": 0.1}, {"pearson": None, "loss": 0.2}),
    ],
)
def test_rank_orders_by_score_then_by_loss(name, better, worse):
    assert rank(name, better) > rank(name, worse)
    assert rank(name, better) == rank(name, dict(better))


def test_undefined_scores_are_null_in_json():
    scores = json_scores({"r2": np.float64("nan"), "loss": np.float32(0.5)})
    assert json.dumps(scores, allow_nan=False) == '{"r2": null, "loss": 0.5}'
    for value in (math.nan, None):
        assert (
            score_text("r2", value, scores) == score_text("loss", value, ["exact"]) == "undefined"
        )
