"""SQuAD's scores against published ones, literals and a twin written out word by word."""

import gzip
import json
import string

import numpy as np
import pytest

from bert_tf.evaluation.squad_scores import (
    NullThresholds,
    SquadReferences,
    normalize_answer,
    score_answer,
    score_predictions,
    tune_null_threshold,
)
from bert_tf.readers.squad import read_squad


def _words(text):
    """Normalises character by character and word by word."""
    kept = "".join(" " if c.isspace() else c for c in text.lower() if c not in string.punctuation)
    return [word for word in kept.split(" ") if word and word not in ("a", "an", "the")]


def _twin(prediction, answers, version):
    if version == "2.0":
        answers = [answer for answer in answers if _words(answer)] or [""]
    exact = max(float(_words(prediction) == _words(answer)) for answer in answers)
    f1 = 0.0
    for answer in answers:
        predicted, gold = _words(prediction), _words(answer)
        shared = 0
        for word in predicted:
            if word in gold:
                gold.remove(word)
                shared += 1
        if shared:
            precision, recall = shared / len(predicted), shared / len(_words(answer))
            f1 = max(f1, 2 * precision * recall / (precision + recall))
        elif version == "2.0" and not predicted and not gold:
            f1 = 1.0
    return exact, f1


@pytest.mark.parametrize(
    "text, normal",
    [
        ("The Denver Broncos!", "denver broncos"),
        ("the-end of a theatre", "theend of theatre"),
        ('"An" (apple), the\tA\n pear', "apple pear"),
        ("U.S.", "us"),
        ("“the” Straße—an Ünit", "“ ” straße— ünit"),
        ("THE", ""),
    ],
)
def test_normal_form(text, normal):
    assert normalize_answer(text) == normal


@pytest.mark.parametrize(
    ("prediction", "answers", "version", "exact", "f1"),
    [
        # Words count as often as in both: to, be, to; precision 3 / 4, recall 3 / 6.
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
    """References of version 2.0, predictions for them, and null odds."""
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
    return SquadReferences(answers, "2.0"), predictions, odds


@pytest.mark.parametrize("threshold", [None, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_version_2_against_the_twin(seed, threshold):
    references, predictions, odds = _random_task(seed)
    scores = score_predictions(references, predictions, odds, threshold)
    judged = {
        name: "" if threshold is not None and odds[name] > threshold else text
        for name, text in predictions.items()
    }
    expected = {name: _twin(judged[name], gold, "2.0") for name, gold in references.answers.items()}
    for part, found in (
        (list(expected), scores.overall),
        ([name for name in expected if references.answers[name]], scores.has_answer),
        ([name for name in expected if not references.answers[name]], scores.no_answer),
    ):
        assert found.total == len(part) > 5
        assert found.exact == pytest.approx(100 * sum(expected[n][0] for n in part) / len(part))
        assert found.f1 == pytest.approx(100 * sum(expected[n][1] for n in part) / len(part))
    assert scores.overall.f1 > scores.overall.exact > 10


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("odds_step", [None, 0.5])  # 0.5: many questions of equal odds
def test_thresholds_are_the_best_there_are(seed, odds_step):
    references, predictions, odds = _random_task(seed, odds_step)
    best = tune_null_threshold(references, predictions, odds)
    tried = {}
    for threshold in [min(odds.values()) - 1, *sorted(odds[name] for name in predictions)]:
        judged = {n: "" if odds[n] > threshold else text for n, text in predictions.items()}
        tried[threshold] = score_predictions(references, judged).overall
    assert best.best_exact == pytest.approx(max(score.exact for score in tried.values()))
    assert best.best_f1 == pytest.approx(max(score.f1 for score in tried.values()))
    # What is reported is what the threshold gives, and no lower one gives as much.
    assert tried[best.best_exact_threshold].exact == pytest.approx(best.best_exact)
    assert tried[best.best_f1_threshold].f1 == pytest.approx(best.best_f1)
    assert all(
        score.f1 < best.best_f1 - 1e-9
        for threshold, score in tried.items()
        if threshold < best.best_f1_threshold
    )
    assert score_predictions(references, predictions, odds).thresholds == best
    assert best.best_exact > score_predictions(references, predictions).overall.exact


def test_of_two_equal_sums_the_lower_threshold():
    # F1 of 0.4, then a wrong answer costs 1 and 0.2 + 0.8 make up for it, exactly; added up in
    # binary they make a little more.
    answers = {"a": ("one x y z",), "b": (), "c": ("one p q r s",), "d": ("one two t",)}
    predictions = {"a": "one", "b": "one", "c": "one k l m n", "d": "one two"}
    best = tune_null_threshold(
        SquadReferences(answers, "2.0"), predictions, {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    )
    assert (best.best_f1, best.best_f1_threshold) == (pytest.approx(35.0), 1.0)


@pytest.mark.parametrize("lowest, threshold", [(0.25, 0.0), (0.0, -1.0), (-3.0, -4.0)])
def test_every_answer_null(lowest, threshold):
    references = SquadReferences({"a": ("Rollo",), "b": (), "c": ()}, "2.0")
    odds = {"a": 1.0, "b": lowest, "c": lowest}
    for predictions in ({"a": "", "b": "", "c": ""}, {"a": "x", "b": "y", "c": "z"}):
        best = tune_null_threshold(references, predictions, odds)
        assert best == NullThresholds(pytest.approx(200 / 3), threshold, best.best_exact, threshold)
        scores = score_predictions(references, predictions, odds, threshold)
        assert (scores.overall.exact, scores.no_answer.exact) == (pytest.approx(200 / 3), 100.0)
        parts = {key: n for key, n in scores.to_dict().items() if key.startswith("HasAns")}
        assert parts == {"HasAns_exact": 0.0, "HasAns_f1": 0.0, "HasAns_total": 1}


def test_one_kind_of_question_alone():
    none = SquadReferences({"a": (), "b": ()}, "2.0")
    scores = score_predictions(none, {"a": "", "b": "x"}, {"a": 0.0, "b": 1.0})
    assert scores.has_answer is None and scores.no_answer == scores.overall
    assert scores.to_dict() == {
        **{"exact": 50.0, "f1": 50.0, "total": 2},
        **{"NoAns_exact": 50.0, "NoAns_f1": 50.0, "NoAns_total": 2},
        **{"best_exact": 100.0, "best_exact_thresh": -1.0},
        **{"best_f1": 100.0, "best_f1_thresh": -1.0},
    }
    answered = SquadReferences({"a": ("Rollo",)}, "2.0")
    scores = score_predictions(answered, {"a": "Rollo"}, {"a": 3.0})
    assert scores.no_answer is None and scores.has_answer == scores.overall
    assert scores.thresholds == NullThresholds(100.0, 3.0, 100.0, 3.0)


@pytest.fixture(scope="module")
def published_references(unpacked):
    items = read_squad(str(unpacked("squad/dev-v1.1.json.zip") / "dev-v1.1.json")).items
    return SquadReferences({i.id: tuple(a.text for a in i.answers) for i in items}, "1.1")


@pytest.mark.parametrize(
    "system, exact, f1", [("bert-ensemble", 86.21, 92.20), ("logistic-regression", 40.14, 50.98)]
)
def test_published_predictions_have_their_published_scores(
    data_dir, published_references, system, exact, f1
):
    references = published_references
    path = data_dir / "squad" / "predictions-v1.1" / f"{system}.json.gz"
    predictions = json.loads(gzip.decompress(path.read_bytes()))
    # "" scores 0: one of the systems left questions out.
    scores = score_predictions(references, {**dict.fromkeys(references.answers, ""), **predictions})
    assert (round(scores.overall.exact, 2), round(scores.overall.f1, 2)) == (exact, f1)
    assert scores.overall.total == 10_570
