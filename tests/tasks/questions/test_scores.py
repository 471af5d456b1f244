"""SQuAD's answer normalization, scores and predictions equal literals and published scores."""

import gzip
import json
import math

import numpy as np
import pytest

from bert_tf.pipelines.answers import Answers
from bert_tf.tasks.questions.reader import read_squad
from bert_tf.tasks.questions.scores import (
    normalize_answer,
    score_answer,
    score_predictions,
    squad_predictions,
    tune_null_threshold,
)


@pytest.mark.parametrize(
    "text, normalized",
    [
        ("The Denver Broncos!", "denver broncos"),
        ("the-end of a theatre", "theend of theatre"),
        ('"An" (apple), the\tA\n pear', "apple pear"),
        ("U.S.", "us"),
        ("“the” Straße—an Ünit", "“ ” straße— ünit"),
        ("THE", ""),
    ],
)
def test_answer_normalization(text, normalized):
    assert normalize_answer(text) == normalized


@pytest.mark.parametrize(
    ("prediction", "answers", "version", "exact", "f1"),
    [
        # Common words, with multiplicity: to, be, to; precision 3 / 4, recall 3 / 6.
        ("to be to to", ["to be or not to be"], "1.1", 0.0, 0.6),
        ("", ["word"], "1.1", 0.0, 0.0),
        ("word", [""], "1.1", 0.0, 0.0),
        # The best gold answer counts.
        ("the Norman Conquest", ["conquest", "norman conquest of", "x"], "1.1", 0.0, 0.8),
        ("Conquest.", ["norman conquest", "the conquest"], "1.1", 1.0, 1.0),
        # Texts without words.
        ("The", ["the", "A"], "1.1", 1.0, 0.0),
        ("The", ["the", "A"], "2.0", 1.0, 1.0),
        ("The", ["the", "Rollo"], "2.0", 0.0, 0.0),
        ("", [], "2.0", 1.0, 1.0),
        ("Rollo", [], "2.0", 0.0, 0.0),
        ("", ["Rollo"], "2.0", 0.0, 0.0),
    ],
)
def test_scores_of_one_answer(prediction, answers, version, exact, f1):
    assert score_answer(prediction, answers, version) == (exact, pytest.approx(f1))


def _random_task(seed, odds_step=None):
    """Returns random gold answers of version 2.0, predictions and null odds."""
    rng = np.random.default_rng(seed)
    vocabulary = ["the", "Norman", "conquest,", "of", "A", "England", "in", "1066.", "Rollo", "..."]

    def text():
        return " ".join(rng.choice(vocabulary, rng.integers(1, 6)))

    answers, predictions, odds = {}, {}, {}
    for number in range(60):
        name = f"q{number}"
        answers[name] = tuple(text() for _ in range(rng.integers(0, 4)))
        known = answers[name] and rng.random() < 0.7
        predictions[name] = rng.choice(answers[name]) if known else text()
        if rng.random() < 0.2:
            predictions[name] = ""
        value = rng.normal(0.0 if answers[name] else 1.0)
        odds[name] = float(round(value / odds_step) * odds_step if odds_step else value)
    return answers, predictions, odds


@pytest.mark.parametrize("threshold", [math.inf, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_version_2_scores_are_means_over_all_and_each_question_type(seed, threshold):
    gold, predictions, odds = _random_task(seed)
    scores = score_predictions(gold, predictions, "2.0", odds, threshold)
    thresholded = {
        name: "" if odds[name] > threshold else text for name, text in predictions.items()
    }
    expected = {name: score_answer(thresholded[name], texts, "2.0") for name, texts in gold.items()}
    for prefix, names in (
        ("", list(expected)),
        ("HasAns_", [name for name in expected if gold[name]]),
        ("NoAns_", [name for name in expected if not gold[name]]),
    ):
        assert scores[f"{prefix}total"] == len(names) > 5
        for column, name in enumerate(("exact", "f1")):
            mean = 100 * sum(expected[n][column] for n in names) / len(names)
            assert scores[prefix + name] == pytest.approx(mean)
    assert scores["f1"] > scores["exact"] > 10


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("odds_step", [None, 0.5])  # 0.5: many questions have equal odds
def test_tuned_thresholds_are_optimal(seed, odds_step):
    gold, predictions, odds = _random_task(seed, odds_step)
    best = tune_null_threshold(gold, predictions, odds)
    scores_by_threshold = {}
    for threshold in [min(odds.values()) - 1, *sorted(odds[name] for name in predictions)]:
        thresholded = {n: "" if odds[n] > threshold else text for n, text in predictions.items()}
        scores_by_threshold[threshold] = score_predictions(gold, thresholded, "2.0")
    for name in ("exact", "f1"):
        score, threshold = best[f"best_{name}"], best[f"best_{name}_thresh"]
        assert score == pytest.approx(max(scores[name] for scores in scores_by_threshold.values()))
        # The threshold yields the reported score, and all lower ones yield less.
        assert scores_by_threshold[threshold][name] == pytest.approx(score)
        lower = [scores[name] for other, scores in scores_by_threshold.items() if other < threshold]
        assert all(other < score - 1e-9 for other in lower)
    assert score_predictions(gold, predictions, "2.0", odds).items() >= best.items()
    assert best["best_exact"] > score_predictions(gold, predictions, "2.0")["exact"]


def test_lower_threshold_wins_ties():
    # After an F1 of 0.4, a wrong answer costs 1, and 0.2 + 0.8 compensate exactly; their binary sum
    # is slightly larger.
    answers = {"a": ("one x y z",), "b": (), "c": ("one p q r s",), "d": ("one two t",)}
    predictions = {"a": "one", "b": "one", "c": "one k l m n", "d": "one two"}
    best = tune_null_threshold(answers, predictions, {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0})
    assert (best["best_f1"], best["best_f1_thresh"]) == (pytest.approx(35.0), 1.0)


@pytest.mark.parametrize("lowest, threshold", [(0.25, 0.0), (0.0, -1.0), (-3.0, -4.0)])
def test_threshold_when_all_answers_are_null(lowest, threshold):
    gold, odds = {"a": ("Rollo",), "b": (), "c": ()}, {"a": 1.0, "b": lowest, "c": lowest}
    for predictions in (dict.fromkeys("abc", ""), {"a": "x", "b": "y", "c": "z"}):
        scores = score_predictions(gold, predictions, "2.0", odds, threshold)
        assert (scores["HasAns_f1"], scores["NoAns_f1"]) == (0.0, 100.0)
        assert [scores["f1"], scores["best_f1"]] == pytest.approx([200 / 3] * 2)
        assert scores["best_exact_thresh"] == scores["best_f1_thresh"] == threshold


def test_only_one_type_of_question():
    null = score_predictions({"a": (), "b": ()}, {"a": "", "b": "x"}, "2.0", {"a": 0.0, "b": 1.0})
    assert (null["exact"], null["NoAns_exact"], null["NoAns_total"]) == (50.0, 50.0, 2)
    assert (null["best_exact"], null["best_exact_thresh"]) == (100.0, -1.0)
    answerable = score_predictions({"a": ("Rollo",)}, {"a": "Rollo"}, "2.0", {"a": 3.0})
    assert (answerable["HasAns_f1"], answerable["best_f1_thresh"]) == (100.0, 3.0)
    assert "HasAns_f1" not in null and "NoAns_f1" not in answerable


@pytest.fixture(scope="module")
def published_references(unpacked):
    items = read_squad(str(unpacked("squad/dev-v1.1.json.zip") / "dev-v1.1.json")).items
    return {i.id: tuple(a.text for a in i.answers) for i in items}


@pytest.mark.parametrize(
    "system, exact, f1", [("bert-ensemble", 86.21, 92.20), ("logistic-regression", 40.14, 50.98)]
)
def test_scores_of_published_predictions(data_dir, published_references, system, exact, f1):
    gold = published_references
    path = data_dir / "squad" / "predictions-v1.1" / f"{system}.json.gz"
    predictions = json.loads(gzip.decompress(path.read_bytes()))
    # "" scores 0; one of the systems omits some questions.
    scores = score_predictions(gold, {**dict.fromkeys(gold, ""), **predictions}, "1.1")
    scores = {name: round(value, 2) for name, value in scores.items()}
    assert scores == {"exact_match": exact, "f1": f1, "total": 10_570}


# === Predictions ===


def answers_of(spans, null, max_spans):
    """Returns ``Answers`` of one question with the spans' scores and the null score."""
    padded = [*spans.items(), *[("", 0.0)] * (max_spans - len(spans))]
    texts, scores = (np.array([column]) for column in zip(*padded, strict=True))
    starts, half = np.where(np.char.str_len(texts) > 0, 0, -1), scores / 2
    counts, nulls = np.array([len(spans)]), np.array([null / 2])
    return Answers(np.char.encode(texts), starts, starts, half, half, counts, nulls, nulls)


@pytest.mark.parametrize(
    ("spans", "null", "max_spans", "listed"),
    [
        ({"é": 3.0, "b": 1.0}, 4.0, 2, ["", "é"]),
        ({"é": 3.0, "b": 1.0}, 3.0, 2, ["é", ""]),  # after an entry of equal score
        ({"é": 3.0, "b": 1.0}, 2.0, 3, ["é", "", "b"]),
        ({"é": 3.0, "b": 1.0}, 0.0, 2, ["é", "b", ""]),  # always listed
        ({"é": 2.0}, 2.5, 1, ["", "é"]),  # the best span as well
        ({}, 1.0, 2, [""]),
    ],
)
def test_no_answer_is_ranked_by_its_score_as_in_google_bert(spans, null, max_spans, listed):
    found = squad_predictions(["q"], answers_of(spans, null, max_spans), with_null=True)
    scores = {**spans, "": null}
    assert [entry["text"] for entry in found.n_best["q"]] == listed
    for entry in found.n_best["q"]:
        assert entry["start_logit"] == entry["end_logit"] == scores[entry["text"]] / 2
    odds = np.exp([scores[text] for text in listed])
    probabilities = [found.probability("q", text) for text in listed]
    np.testing.assert_allclose(probabilities, odds / odds.sum())
    best = next(iter(spans), "")
    assert found.null_odds == {"q": null - spans[best] if spans else 1e6}
    assert found.texts == found.answers(found.null_odds["q"]) == {"q": best}
    assert found.answers(found.null_odds["q"] - 0.25) == {"q": ""}


def test_mismatched_or_duplicate_ids_raise_error():
    answers = Answers(*np.zeros([5, 2, 1]), *np.zeros([3, 2]))
    message = "Expected answers for 1 questions, one row per id, got 2 rows"
    with pytest.raises(ValueError, match=message):
        squad_predictions(["a"], answers, with_null=True)
    message = "Two questions have the id a. Use unique ids"
    with pytest.raises(ValueError, match=message):
        squad_predictions(["a", "a"], answers, with_null=True)
