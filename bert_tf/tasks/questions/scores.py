"""SQuAD's files of predictions, and their scores, versions 1.1 and 2.0.

Sources: google-research/bert ``run_squad.py``, ``write_predictions``, whose files these are (where
no span of a context can be an answer, its script stops or answers "empty"; here the answer is "");
the official evaluation, whose definitions of exact match and F1 these are.
"""

import collections
import dataclasses
import math
import os
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.io.files import write_json
from bert_tf.pipelines.answers import Answers
from bert_tf.pipelines.answers import null_odds as null_odds_of

PREDICTIONS = "predictions.json"
N_BEST_PREDICTIONS = "nbest_predictions.json"
NULL_ODDS = "null_odds.json"

# The odds of "no answer" where there is no other: above every threshold, and finite, as JSON has
# no infinity. (Google's script takes the same number for the score of a null not yet seen.)
_CERTAINLY_NULL = 1e6
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


# === Predictions ===


def apply_threshold(
    texts: Mapping[str, str], null_odds: Mapping[str, float] | None, threshold: float
) -> dict[str, str]:
    """Texts by question id, "" where the odds of "no answer" are above the threshold."""
    odds = null_odds or {}
    return {
        name: "" if odds.get(name, -math.inf) > threshold else text for name, text in texts.items()
    }


@dataclasses.dataclass(frozen=True)
class SquadPredictions:
    """Answers of a model, by question id."""

    # The best text, also where "no answer" is likelier; "" where no span can be an answer.
    texts: Mapping[str, str]
    # The best entries, the likeliest first: text, probability (of these), start and end logit.
    n_best: Mapping[str, list[dict[str, Any]]]
    # The score of "no answer" less that of the best text; None in version 1.1.
    null_odds: Mapping[str, float] | None
    # The first byte of the best text in its context, and the one after its last; none for "".
    byte_spans: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)

    def probability(self, name: str, answer: str) -> float:
        """Probability of a question's answer, among the entries of its n-best list."""
        entries = self.n_best[name]
        share: float = next(entry["probability"] for entry in entries if entry["text"] == answer)
        return share

    def answers(self, null_threshold: float = 0.0) -> dict[str, str]:
        """The answer by question id: "" where the odds are above the threshold (2.0 alone)."""
        return apply_threshold(self.texts, self.null_odds, null_threshold)

    def write(self, folder: str, null_threshold: float = 0.0) -> list[str]:
        """Writes ``predictions.json``, ``nbest_predictions.json``, in 2.0 ``null_odds.json``."""
        files: dict[str, Any] = {
            PREDICTIONS: self.answers(null_threshold),
            N_BEST_PREDICTIONS: self.n_best,
        }
        if self.null_odds is not None:
            files[NULL_ODDS] = self.null_odds
        for name, content in files.items():
            write_json(os.path.join(folder, name), content)
        return [os.path.join(folder, name) for name in files]


def squad_predictions(ids: Sequence[str], answers: Answers, *, with_null: bool) -> SquadPredictions:
    """Makes predictions of the best spans, in the order of the questions' ``ids``, (N,).

    ``answers`` are (N, K) and (N,) arrays or tensors. ``with_null`` says whether a question may
    have no answer, as in version 2.0: its entry, the text "", is then where its score puts it among
    the best K, or last.
    """
    columns = Answers(*map(np.asarray, answers))
    odds = np.asarray(null_odds_of(columns)).tolist()
    if len(ids) != len(columns.counts):
        raise ValueError(
            f"Expected answers for {len(ids)} questions, one row for each id; got "
            f"{len(columns.counts)} rows."
        )
    texts: dict[str, str] = {}
    n_best: dict[str, list[dict[str, Any]]] = {}
    null_odds: dict[str, float] = {}
    byte_spans: dict[str, tuple[int, int]] = {}
    for row, name in enumerate(ids):
        if name in texts:
            raise ValueError(f"Two questions have the id {name}: expected ids that name one each.")
        spans = _spans(columns, row)
        texts[name] = spans[0].text if spans else ""
        if spans:
            byte_spans[name] = int(columns.byte_starts[row, 0]), int(columns.byte_ends[row, 0])
        if with_null:
            null = columns.null_start_logits[row], columns.null_end_logits[row]
            null_odds[name] = odds[row] if spans else _CERTAINLY_NULL
            spans = _with_null(spans, _Span("", *map(float, null)), columns.texts.shape[1])
        n_best[name] = _entries(spans or [_Span("", 0.0, 0.0)])
    return SquadPredictions(texts, n_best, null_odds if with_null else None, byte_spans)


class _Span(NamedTuple):
    text: str
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        return self.start_logit + self.end_logit


def _spans(answers: Answers, row: int) -> list[_Span]:
    first = slice(int(answers.counts[row]))
    texts = [text.decode() for text in answers.texts[row, first]]
    starts, ends = answers.start_logits[row, first], answers.end_logits[row, first]
    return list(map(_Span, texts, starts.tolist(), ends.tolist()))


def _with_null(spans: list[_Span], null: _Span, limit: int) -> list[_Span]:
    """Puts "no answer" after the spans that score as much; it is never left out."""
    index = sum(span.score >= null.score for span in spans)
    return [*spans[:index], null, *spans[index:]][: max(limit, index + 1, 2)]


def _entries(spans: list[_Span]) -> list[dict[str, Any]]:
    scores = np.array([span.score for span in spans])
    odds = np.exp(scores - scores.max())
    return [
        {"text": text, "probability": probability, "start_logit": start, "end_logit": end}
        for (text, start, end), probability in zip(spans, (odds / odds.sum()).tolist(), strict=True)
    ]


# === Scores ===


# By question id, the texts that count as right: () where the paragraph does not answer the
# question, which version 2.0 allows and 1.1 does not.
Gold = Mapping[str, tuple[str, ...]]


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


class AnswerScore(NamedTuple):
    """Exact match and F1 of one answer, each 0.0 to 1.0."""

    exact: float
    f1: float


def score_answer(prediction: str, answers: Sequence[str], version: str = "1.1") -> AnswerScore:
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
            return AnswerScore(silent, silent)
    f1 = max(_word_f1(predicted, answer) for answer in gold)
    return AnswerScore(float(predicted in gold), f1)


def score_predictions(
    gold: Gold,
    predictions: Mapping[str, str],
    version: str,
    null_odds: Mapping[str, float] | None = None,
    null_threshold: float = math.inf,
) -> dict[str, float]:
    """Scores predictions, by question id with "" for no answer, as the official evaluation does.

    Means over ``total`` questions, under the official evaluation's keys: the percentage that is
    answered exactly (``exact``; of version 1.1 ``exact_match``), and ``f1`` of words in percent. Of
    version 2.0 also over the answerable questions (``HasAns_``) and over the others (``NoAns_``)
    where there are such, and with ``null_odds``, by question id, the best thresholds of these.

    Predictions of questions whose odds are above ``null_threshold`` count as ""; without it they
    are taken as they are, where the official evaluation takes 1.0, as for probabilities.
    """
    answers = apply_threshold(predictions, null_odds, null_threshold)
    by_name = {name: score_answer(answers[name], texts, version) for name, texts in gold.items()}
    if version == "1.1":
        return _means([*by_name.values()], exact_name="exact_match")
    scores = _means([*by_name.values()])
    for prefix, answerable in (("HasAns_", True), ("NoAns_", False)):
        part = [by_name[name] for name, texts in gold.items() if bool(texts) == answerable]
        if part:
            scores |= {f"{prefix}{name}": value for name, value in _means(part).items()}
    if null_odds is not None:
        scores |= tune_null_threshold(gold, predictions, null_odds)
    return scores


def _means(scores: Sequence[AnswerScore], exact_name: str = "exact") -> dict[str, float]:
    exact, f1 = (100 * np.mean(np.array(scores, np.float64), axis=0)).tolist()
    return {exact_name: exact, "f1": f1, "total": len(scores)}


def tune_null_threshold(
    gold: Gold, predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> dict[str, float]:
    """Finds the thresholds of the null odds at which predictions of version 2.0 score best.

    Returns ``best_exact`` and ``best_f1``, each with its threshold (``best_f1_thresh``) in the
    odds' own unit. The threshold is the odds of the last question that keeps its answer, the lowest
    where several are as good. Questions of equal odds keep or lose their answers together (the
    official evaluation separates them, and so reports scores that no threshold has). Where no
    answer at all is best, it is 0.0 as there, or, where odds of 0.0 or less are among them, the
    lowest less 1.0. ``predictions`` are the best texts, also where "no answer" is likelier; a
    question without one scores 0 whatever the threshold.
    """
    names = sorted((name for name in gold if name in predictions), key=null_odds.__getitem__)
    if not names:
        return dict.fromkeys(("best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"), 0.0)
    odds = np.array([null_odds[name] for name in names], np.float64)
    answered, silent = (
        np.array([score_answer(texts[name], gold[name], "2.0") for name in names])
        for texts in (predictions, dict.fromkeys(names, ""))
    )
    # Row k: the sum of scores when the first k questions keep their answers.
    sums = silent.sum(axis=0) + np.concatenate(
        [np.zeros((1, 2)), np.cumsum(answered - silent, axis=0)]
    )
    no_answer_threshold = 0.0 if odds[0] > 0 else odds[0] - 1.0
    thresholds = np.concatenate([[no_answer_threshold], odds])
    reachable = np.append(thresholds[1:] > thresholds[:-1], True)
    sums, thresholds = sums[reachable], thresholds[reachable]
    best = {}
    for column, name in enumerate(("best_exact", "best_f1")):
        # Rounded, or of two equal sums the one added up in another order may look higher.
        index = sums[:, column].round(9).argmax()
        best[name] = float(100 * sums[index, column] / len(gold))
        best[f"{name}_thresh"] = float(thresholds[index])
    return best
