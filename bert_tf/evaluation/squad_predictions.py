"""SQuAD's prediction files: the answers, the n-best lists, the odds of "no answer".

Source: google-research/bert ``run_squad.py``, ``write_predictions``, whose files these are. Where
no span of a context can be an answer, its script stops or answers "empty"; here the answer is "".
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.files import write_json
from bert_tf.pipelines.answers import Answers
from bert_tf.pipelines.answers import null_odds as null_odds_of

PREDICTIONS = "predictions.json"
N_BEST_PREDICTIONS = "nbest_predictions.json"
NULL_ODDS = "null_odds.json"

# The odds of "no answer" where there is no other: above every threshold, and finite, as JSON has
# no infinity. (Google's script takes the same number for the score of a null not yet seen.)
CERTAINLY_NULL = 1e6


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
    places: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)

    def probability(self, name: str, answer: str) -> float:
        """Of a question's answer, among the entries of its n-best list."""
        entries = self.n_best[name]
        found: float = next(entry["probability"] for entry in entries if entry["text"] == answer)
        return found

    def answers(self, null_threshold: float = 0.0) -> dict[str, str]:
        """By question id the answer: "" where the odds are above the threshold (2.0 alone)."""
        odds = self.null_odds
        if odds is None:
            return dict(self.texts)
        return {
            name: "" if odds[name] > null_threshold else text for name, text in self.texts.items()
        }

    def write(self, folder: str, null_threshold: float = 0.0) -> None:
        """Writes ``predictions.json``, ``nbest_predictions.json``, in 2.0 ``null_odds.json``.

        Each file appears whole or not at all, and replaces one of its name; the folder, on any file
        system that TensorFlow writes, is made if it is missing.
        """
        write_json(os.path.join(folder, PREDICTIONS), self.answers(null_threshold))
        write_json(os.path.join(folder, N_BEST_PREDICTIONS), self.n_best)
        if self.null_odds is not None:
            write_json(os.path.join(folder, NULL_ODDS), self.null_odds)


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
    places: dict[str, tuple[int, int]] = {}
    for row, name in enumerate(ids):
        if name in texts:
            raise ValueError(f"Two questions have the id {name}: expected ids that name one each.")
        spans = _spans(columns, row)
        texts[name] = spans[0][0] if spans else ""
        if spans:
            places[name] = int(columns.byte_starts[row, 0]), int(columns.byte_ends[row, 0])
        if with_null:
            null = ("", float(columns.null_start_logits[row]), float(columns.null_end_logits[row]))
            null_odds[name] = odds[row] if spans else CERTAINLY_NULL
            spans = _with_null(spans, null, columns.texts.shape[1])
        n_best[name] = _entries(spans or [("", 0.0, 0.0)])
    return SquadPredictions(texts, n_best, null_odds if with_null else None, places)


_Span = tuple[str, float, float]


def _spans(answers: Answers, row: int) -> list[_Span]:
    """A question's spans: text and two logits."""
    kept = slice(int(answers.counts[row]))
    texts = [text.decode() for text in answers.texts[row, kept]]
    starts, ends = answers.start_logits[row, kept], answers.end_logits[row, kept]
    return list(zip(texts, starts.tolist(), ends.tolist(), strict=True))


def _with_null(spans: list[_Span], null: _Span, most: int) -> list[_Span]:
    """Puts "no answer" after the spans that score as much; it is never left out."""
    place = sum(_score(span) >= _score(null) for span in spans)
    return [*spans[:place], null, *spans[place:]][: max(most, place + 1, 2)]


def _entries(spans: list[_Span]) -> list[dict[str, Any]]:
    scores = np.array([_score(span) for span in spans])
    odds = np.exp(scores - scores.max())
    return [
        {"text": text, "probability": probability, "start_logit": start, "end_logit": end}
        for (text, start, end), probability in zip(spans, (odds / odds.sum()).tolist(), strict=True)
    ]


def _score(span: _Span) -> float:
    return span[1] + span[2]
