"""SQuAD prediction files and scores, versions 1.1 and 2.0.

Sources: ``write_predictions`` in google-research/bert's ``run_squad.py`` for the files, and the
official evaluation for exact match and F1. If no span can be an answer, Google's script stops or
answers "empty"; here, the answer is "".
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

# Null odds if there is no other answer. They exceed all thresholds and are finite, because JSON has
# no infinity. Google's script uses the same number for missing null scores.
_CERTAINLY_NULL = 1e6
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


# === Predictions ===


def apply_threshold(
    texts: Mapping[str, str], null_odds: Mapping[str, float] | None, threshold: float
) -> dict[str, str]:
    """Returns the answers by question id, "" if the odds of "no answer" exceed the threshold."""
    odds = null_odds or {}
    return {
        name: "" if odds.get(name, -math.inf) > threshold else text for name, text in texts.items()
    }


@dataclasses.dataclass(frozen=True)
class SquadPredictions:
    """Predicted answers by question id."""

    # Most likely text, even if "no answer" is more likely; "" if no span can be an answer.
    texts: Mapping[str, str]
    # Most likely entries: text, probability (among these), start and end logits.
    n_best: Mapping[str, list[dict[str, Any]]]
    # Score of "no answer" minus that of the most likely text; None in version 1.1.
    null_odds: Mapping[str, float] | None
    # Start and end byte (exclusive) of the most likely text in the context; missing for "".
    byte_spans: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)

    def probability(self, name: str, answer: str) -> float:
        """Returns the probability of an answer among the n-best entries of a question."""
        entries = self.n_best[name]
        return float(next(e["probability"] for e in entries if e["text"] == answer))

    def answers(self, null_threshold: float = 0.0) -> dict[str, str]:
        """Returns the answers by question id; in 2.0, "" if the null odds exceed the threshold."""
        return apply_threshold(self.texts, self.null_odds, null_threshold)

    def write(self, folder: str, null_threshold: float = 0.0) -> list[str]:
        """Writes ``predictions.json``, ``nbest_predictions.json`` and, in 2.0, null odds."""
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
    """Converts the best spans to predictions.

    Args:
        ids: Ids of the questions, N of them.
        answers: Arrays or tensors of shape (N, K) or (N,).
        with_null: Whether questions can have no answer, as in version 2.0. If so, an entry with the
            text "" is ranked by its score among the best K or, with a low score, is the last one.

    Returns:
        The predictions, in the order of the ids.
    """
    columns = Answers(*map(np.asarray, answers))
    odds = np.asarray(null_odds_of(columns)).tolist()
    if len(ids) != len(columns.counts):
        raise ValueError(
            f"Expected answers for {len(ids)} questions, one row per id, got "
            f"{len(columns.counts)} rows."
        )
    texts: dict[str, str] = {}
    n_best: dict[str, list[dict[str, Any]]] = {}
    null_odds: dict[str, float] = {}
    byte_spans: dict[str, tuple[int, int]] = {}
    for row, name in enumerate(ids):
        if name in texts:
            raise ValueError(f"Two questions have the id {name}. Use unique ids.")
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
    """Inserts "no answer" after all spans with at least its score, even beyond the limit."""
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

# Correct texts by question id; () for unanswerable questions, which only version 2.0 has.
Gold = Mapping[str, tuple[str, ...]]


def normalize_answer(text: str) -> str:
    """Converts an answer to lower case without ASCII punctuation, articles and extra spaces.

    Punctuation is removed before articles, so that "the-end" is one word and "(the)" an article.
    """
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split())


def _word_f1(prediction: str, answer: str) -> float:
    """Returns the F1 of the words of two normalized texts, or 0.0 if they share no words."""
    predicted, gold = prediction.split(), answer.split()
    shared = (collections.Counter(predicted) & collections.Counter(gold)).total()
    return 2 * shared / (len(predicted) + len(gold)) if shared else 0.0


class AnswerScore(NamedTuple):
    """Exact match and F1 of an answer, between 0.0 and 1.0."""

    exact: float
    f1: float


def score_answer(prediction: str, answers: Sequence[str], version: str = "1.1") -> AnswerScore:
    """Returns a prediction's highest exact match and highest F1 over the true answers.

    In version 2.0, true answers without words ("The") are ignored. If there are no others, as for
    unanswerable questions, a prediction without words scores 1.0 and any other 0.0.
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
    """Scores predictions like the official evaluation.

    Predictions are given by question id, with "" for no answer. If a question's null odds exceed
    ``null_threshold``, the prediction is replaced by "". (The official evaluation's default
    threshold is 1.0, which suits probabilities.)

    Returns:
        The means under the keys of the official evaluation: ``exact`` (in version 1.1
        ``exact_match``), the percentage of exact matches, ``f1`` in percent, and ``total``, the
        number of questions. For version 2.0, also the means over answerable (``HasAns_``) and
        unanswerable (``NoAns_``) questions and, with ``null_odds``, the best thresholds.
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
    """Tunes the threshold of the null odds for predictions of version 2.0.

    The threshold is the null odds of the last question that keeps its answer; of equally good
    thresholds, the lowest is used. Questions with equal odds are treated alike. (The official
    evaluation separates them and therefore reports scores that no threshold reaches.) If the score
    is best without any answers, the threshold is 0.0 or, if any odds are at most 0.0, the lowest
    odds minus 1.0. Questions without a prediction score 0.

    Args:
        gold: True answers by question id.
        predictions: Most likely texts by question id, even if "no answer" is more likely.
        null_odds: Null odds by question id.

    Returns:
        ``best_exact`` and ``best_f1``, each with its threshold (``best_f1_thresh``).
    """
    names = sorted((name for name in gold if name in predictions), key=null_odds.__getitem__)
    if not names:
        return dict.fromkeys(("best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"), 0.0)
    odds = np.array([null_odds[name] for name in names], np.float64)
    answered, silent = (
        np.array([score_answer(texts[name], gold[name], "2.0") for name in names])
        for texts in (predictions, dict.fromkeys(names, ""))
    )
    # Row k: sum of the scores if the first k questions keep their answers.
    sums = silent.sum(axis=0) + np.concatenate(
        [np.zeros((1, 2)), np.cumsum(answered - silent, axis=0)]
    )
    no_answer_threshold = 0.0 if odds[0] > 0 else odds[0] - 1.0
    thresholds = np.concatenate([[no_answer_threshold], odds])
    reachable = np.append(thresholds[1:] > thresholds[:-1], True)
    sums, thresholds = sums[reachable], thresholds[reachable]
    best = {}
    for column, name in enumerate(("best_exact", "best_f1")):
        # Rounding makes equal sums equal regardless of the order of addition.
        index = sums[:, column].round(9).argmax()
        best[name] = float(100 * sums[index, column] / len(gold))
        best[f"{name}_thresh"] = float(thresholds[index])
    return best
