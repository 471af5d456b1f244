"""SQuAD's exact match and F1, versions 1.1 and 2.0, by the official evaluation's definition."""

import collections
import dataclasses
import re
import string
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


class SquadReferences(NamedTuple):
    """The gold answers of a set, whose version is "1.1" or "2.0".

    ``answers`` are, by question id, the texts that count as right: () where the paragraph does not
    answer the question, which version 2.0 allows and 1.1 does not.
    """

    answers: Mapping[str, tuple[str, ...]]
    version: str


@dataclasses.dataclass(frozen=True)
class AnswerScores:
    """Means over ``total`` questions: percent answered exactly, and the F1 of words in percent."""

    exact: float
    f1: float
    total: int


@dataclasses.dataclass(frozen=True)
class NullThresholds:
    """The thresholds of the null odds, in their own unit, that score best, and the scores.

    A question whose odds are *above* the threshold counts as predicted to have no answer.
    """

    best_exact: float
    best_exact_threshold: float
    best_f1: float
    best_f1_threshold: float


@dataclasses.dataclass(frozen=True)
class SquadScores:
    """An evaluation."""

    version: str  # "1.1" or "2.0"
    overall: AnswerScores
    # Over the answerable questions, and over the others; None where there is none, and for 1.1.
    has_answer: AnswerScores | None
    no_answer: AnswerScores | None
    thresholds: NullThresholds | None  # None without null odds

    def to_dict(self) -> dict[str, float]:
        """The numbers under the official evaluation's keys."""
        if self.version == "1.1":
            numbers: dict[str, float] = {
                "exact_match": self.overall.exact,
                "f1": self.overall.f1,
                "total": self.overall.total,
            }
        else:
            numbers = dataclasses.asdict(self.overall)
        for name, scores in (("HasAns", self.has_answer), ("NoAns", self.no_answer)):
            if scores:
                for key, value in dataclasses.asdict(scores).items():
                    numbers[f"{name}_{key}"] = value
        if self.thresholds:
            for key, value in dataclasses.asdict(self.thresholds).items():
                numbers[key.replace("threshold", "thresh")] = value
        return numbers


def normalize_answer(text: str) -> str:
    """Normalises an answer: lower-cased, without ASCII punctuation, articles, extra space.

    Punctuation goes before the articles, so that "the-end" is one word, and "(the)" an article.
    """
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split())


def _word_f1(prediction: str, answer: str) -> float:
    """F1 of normalised texts' words, each counted as often as both have it; 0.0 without words."""
    predicted, gold = prediction.split(), answer.split()
    shared = (collections.Counter(predicted) & collections.Counter(gold)).total()
    return 2 * shared / (len(predicted) + len(gold)) if shared else 0.0


def score_answer(
    prediction: str, answers: Sequence[str], version: str = "1.1"
) -> tuple[float, float]:
    """Exact match and F1 of one prediction, each the best over the gold answers.

    Version 2.0 differs for texts without words. Gold answers that have none ("The") are left out;
    where no other is left, as for an unanswerable question, a prediction without words scores 1.0
    and 1.0, any other 0.0 and 0.0.
    """
    predicted, gold = normalize_answer(prediction), [*map(normalize_answer, answers)]
    if version == "2.0":
        gold = [*filter(None, gold)]
        if not gold:
            silent = float(not predicted)
            return silent, silent
    return float(predicted in gold), max(_word_f1(predicted, answer) for answer in gold)


def score_predictions(
    references: SquadReferences,
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    null_threshold: float | None = None,
) -> SquadScores:
    """Scores predictions, by question id with "" for no answer, as the official evaluation does.

    Without a ``null_threshold`` the predictions are taken as they are, where the official
    evaluation takes 1.0, as for probabilities.

    ``null_odds`` are of version 2.0, by question id: the higher, the likelier there is no answer.
    If given, the best thresholds are searched. Predictions of questions whose odds are above
    ``null_threshold`` count as "".
    """
    judged = predictions
    if null_odds is not None and null_threshold is not None:
        judged = {
            name: "" if null_odds[name] > null_threshold else text
            for name, text in predictions.items()
        }
    scores = {
        name: score_answer(judged[name], answers, references.version)
        for name, answers in references.answers.items()
    }
    splits: dict[bool, AnswerScores] = {}
    if references.version == "2.0":
        for answerable in (True, False):
            part = [
                scores[name]
                for name, gold in references.answers.items()
                if bool(gold) == answerable
            ]
            if part:
                splits[answerable] = _mean(part)
    return SquadScores(
        version=references.version,
        overall=_mean(list(scores.values())),
        has_answer=splits.get(True),
        no_answer=splits.get(False),
        thresholds=(
            None if null_odds is None else tune_null_threshold(references, predictions, null_odds)
        ),
    )


def _mean(scores: Sequence[tuple[float, float]]) -> AnswerScores:
    exact, f1 = 100 * np.mean(np.array(scores, np.float64), axis=0)
    return AnswerScores(float(exact), float(f1), len(scores))


def tune_null_threshold(
    references: SquadReferences, predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> NullThresholds:
    """Finds the thresholds of the null odds at which predictions of version 2.0 score best.

    The threshold is the odds of the last question that keeps its answer, the lowest where several
    are as good. Questions of equal odds keep or lose their answers together (the official
    evaluation separates them, and so reports scores that no threshold has). Where no answer at all
    is best, it is 0.0 as there, or, where odds of 0.0 or less are among them, the lowest less 1.0.
    ``predictions`` are the best texts, also where "no answer" is likelier; a question without one
    scores 0 whatever the threshold.
    """
    names = sorted(
        (name for name in references.answers if name in predictions), key=null_odds.__getitem__
    )
    if not names:
        return NullThresholds(0.0, 0.0, 0.0, 0.0)
    odds = np.array([null_odds[name] for name in names], np.float64)
    answered = np.array(
        [score_answer(predictions[name], references.answers[name], "2.0") for name in names]
    )
    silent = np.array([score_answer("", references.answers[name], "2.0") for name in names])
    # Row k: the sum of scores when the first k questions keep their answers.
    sums = silent.sum(axis=0) + np.concatenate(
        [np.zeros((1, 2)), np.cumsum(answered - silent, axis=0)]
    )
    none_kept = 0.0 if odds[0] > 0 else odds[0] - 1.0
    thresholds = np.concatenate([[none_kept], odds])
    reachable = np.append(thresholds[1:] > thresholds[:-1], True)
    sums, thresholds = sums[reachable], thresholds[reachable]
    # Rounded, or of two equal sums the one added up in another order may look higher.
    exact, f1 = np.argmax(sums.round(9), axis=0)
    percent = 100 / len(references.answers)
    return NullThresholds(
        float(percent * sums[exact, 0]),
        float(thresholds[exact]),
        float(percent * sums[f1, 1]),
        float(thresholds[f1]),
    )
