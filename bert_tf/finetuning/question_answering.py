"""Question answering as a task of fine-tuning: the span of a context that answers a question."""

import functools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf import features
from bert_tf.modeling import BertSpanPredictor
from bert_tf.modeling.base import NULL_THRESHOLD
from bert_tf.pipelines import length_buckets
from bert_tf.pipelines.question_answering import QuestionExamples, question_examples
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.tasks.examples import Examples, QuestionExample
from bert_tf.tasks.squad import SquadReferences
from bert_tf.tasks.squad_metrics import SquadScores, score_answer, score_predictions
from bert_tf.tasks.squad_predictions import (
    N_BEST_PREDICTIONS,
    NULL_ODDS,
    PREDICTIONS,
    SquadPredictions,
    squad_predictions,
)
from bert_tf.untrusted import one_line

from .data_sets import DataSets
from .prediction_files import Record
from .task import Evaluation, Inference, Mistake, Task, worst_first

_NO_ANSWER = "(no answer)"
# The keys of ``SquadScores.to_dict`` that are no scores.
_COUNTS = ("total", "missing", "thresh")


class QuestionTask(Task):
    """Questions about contexts, as SQuAD's, of version 1.1, or 2.0 where some have no answer.

    The scores are the official evaluation's, 0 to 100. With ``with_null`` a question has no answer
    where the score of "no answer" exceeds the best text's by more than a threshold. The one that
    is best for F1 on a set is its evaluation's ``thresholds["null"]``: by it are the answers that
    are written, and ``exact``, ``f1`` and all else but ``best_exact``, and ``exact_at_0`` and
    ``f1_at_0``, which are by Google's default, 0.0. Where an evaluation is given its threshold, or
    there is a ``null_threshold``, the scores are by that one.

    Source: Devlin et al. 2019, sections 4.2 and 4.3; google-research/bert ``run_squad.py``. The
    loss is the mean of the cross-entropies of start and end, each a softmax over the row.

    Args:
        name: for messages.
        train: questions with answers; each is trained with its first. ``None`` where there is
            nothing to train on.
        dev: by the set's name, questions with answers, to evaluate on.
        test: by the set's name, questions to answer. A set may be empty.
        doc_stride: how many tokens after a window of a context the next one begins.
        max_query_length: the most tokens of a question.
        n_best_size: the answers that are kept for each question.
        max_answer_length: the most tokens of an answer.
        with_null: whether a question may have no answer.
        null_threshold: a threshold to keep instead of the best one; with it ``f1`` is the headline,
            and without ``best_f1``.

    Raises:
        ValueError: as ``DataSets``; a question to train or evaluate on has no answer, and is not
            known to be impossible or must not be; or there is a threshold and no null.
    """

    model_class = BertSpanPredictor
    model_arguments: Mapping[str, Any] = {}

    def __init__(
        self,
        name: str,
        train: Examples[QuestionExample] | None,
        dev: Mapping[str, Examples[QuestionExample]],
        test: Mapping[str, Examples[QuestionExample]],
        *,
        doc_stride: int = 128,
        max_query_length: int = 64,
        n_best_size: int = 20,
        max_answer_length: int = 30,
        with_null: bool,
        null_threshold: float | None = None,
    ) -> None:
        if null_threshold is not None and not with_null:
            raise ValueError(
                f"{name}: a null threshold of {null_threshold} was given, and every question has "
                "an answer: leave it out."
            )
        self.name = name
        self.dev_sets, self.test_sets = tuple(dev), tuple(test)
        self.headline = "best_f1" if with_null and null_threshold is None else "f1"
        self._data = DataSets(name, train, dev, test)
        self._with_null = with_null
        self._data.check_labelled(self._find_fault)
        self._window_lengths = {"doc_stride": doc_stride, "max_query_length": max_query_length}
        self._n_best_size = n_best_size
        self._max_answer_length = max_answer_length
        self._null_threshold = null_threshold
        self._tokenized = functools.cache(self._tokenize)

    def training_examples(
        self, tokenizer: BertTokenizer, max_seq_length: int
    ) -> length_buckets.Examples:
        """The windows' rows, with the columns of the answers' first and last tokens.

        Raises:
            ValueError: there is no training set; or as ``question_examples``.
        """
        items = self._data.training_items()
        answers = [item.answers[0] if item.answers else None for item in items]
        return question_examples(
            tokenizer,
            [item.question for item in items],
            [item.context for item in items],
            answer_starts=[answer.start if answer else -1 for answer in answers],
            answer_ends=[
                answer.start + len(answer.text.encode()) if answer else -1 for answer in answers
            ],
            max_seq_length=max_seq_length,
            **self._window_lengths,
        ).examples

    def training_lines(self, examples: length_buckets.Examples) -> list[str]:
        """Counts questions and windows, and the answers that cannot be learned."""
        lines = [f"{len(self._data.training_items()):,} questions in {len(examples):,} windows"]
        if examples.num_too_long:
            lines.append(
                f"The contexts of {examples.num_too_long:,} of the training questions are read in "
                f"several windows of {examples.max_seq_length} tokens (--max_seq_length)."
            )
        if examples.num_lost:
            lines.append(
                f"The answers to {examples.num_lost:,} of the training questions have no token, "
                "as an accent alone: they are trained as if there were none."
            )
        return lines

    def compile_arguments(self) -> dict[str, Any]:
        """Half the cross-entropy of the start and half that of the end."""
        outputs = (features.START_LOGITS, features.END_LOGITS)
        return {
            "loss": {
                key: keras.losses.SparseCategoricalCrossentropy(from_logits=True) for key in outputs
            },
            "loss_weights": dict.fromkeys(outputs, 0.5),
        }

    def evaluate(
        self,
        inference: Inference,
        set_name: str,
        thresholds: Mapping[str, float] | None = None,
    ) -> Evaluation:
        """The official scores; a mistake is a question whose answer is not an exact match.

        Mistakes and ``constant`` are of the answers by the threshold that ``thresholds`` gives. A
        mistake's loss is the negative log-likelihood of all right entries of the n-best list; where
        none is right, that of its unlikeliest entry, which is less than that of a right one.
        """
        items = self._data.items(set_name)
        version = "2.0" if self._with_null else "1.1"
        references = SquadReferences(
            {item.id: tuple(answer.text for answer in item.answers) for item in items}, version
        )
        found = inference.once(set_name, lambda: self._predict(inference, set_name))

        def judged_by(threshold: float) -> SquadScores:
            return score_predictions(
                references, found.texts, found.null_odds, threshold if self._with_null else None
            )

        threshold = self._threshold_of(thresholds or {})
        judged = judged_by(threshold)
        at_default = {}
        if thresholds is None and judged.thresholds and self._null_threshold is None:
            # What is written is by the tuned threshold: so are the scores.
            at_default = {"exact_at_0": judged.overall.exact, "f1_at_0": judged.overall.f1}
            threshold = judged.thresholds.best_f1_threshold
            judged = judged_by(threshold)
        scores = {
            name: value for name, value in judged.to_dict().items() if not name.endswith(_COUNTS)
        }
        scores |= at_default
        if thresholds is not None:
            scores = {name: v for name, v in scores.items() if not name.startswith("best_")}
        answers = found.answers(threshold)
        gold = references.answers
        wrong = np.array(
            [not score_answer(answers[name], gold[name], version)[0] for name in gold], bool
        )
        losses = np.zeros(len(items))
        for index in np.flatnonzero(wrong):
            name = items[index].id
            losses[index] = _loss(found.n_best[name], gold[name], version)
        return Evaluation(
            scores=scores,
            constant=len(items) > 1 and len(set(answers.values())) == 1 and bool(wrong.any()),
            mistakes=[
                Mistake(
                    items[index].id,
                    f"{items[index].question}\n{items[index].context}",
                    " | ".join(dict.fromkeys(gold[items[index].id])) or _NO_ANSWER,
                    answers[items[index].id] or _NO_ANSWER,
                    float(losses[index]),
                )
                for index in worst_first(losses, wrong)
            ],
            thresholds={NULL_THRESHOLD: threshold} if self._with_null else {},
        )

    def predict(
        self, inference: Inference, set_name: str, thresholds: Mapping[str, float]
    ) -> Iterator[Record]:
        """The answers; ``thresholds["null"]`` as for ``write_predictions``."""
        found = inference.once(set_name, lambda: self._predict(inference, set_name))
        for name, answer in found.answers(self._threshold_of(thresholds)).items():
            record: dict[str, Any] = {"id": name, "prediction": answer}
            if found.null_odds is not None:
                record["null_odds"] = found.null_odds[name]
            yield record

    def write_predictions(
        self, inference: Inference, set_name: str, folder: str, thresholds: Mapping[str, float]
    ) -> list[str]:
        """Writes ``predictions.json``, ``nbest_predictions.json``, with null ``null_odds.json``.

        ``thresholds["null"]`` decides where there is no answer; without it, ``null_threshold``.
        """
        found = inference.once(set_name, lambda: self._predict(inference, set_name))
        found.write(folder, self._threshold_of(thresholds))
        names = [PREDICTIONS, N_BEST_PREDICTIONS, *([NULL_ODDS] if self._with_null else [])]
        return [os.path.join(folder, name) for name in names]

    def _threshold_of(self, thresholds: Mapping[str, float]) -> float:
        return thresholds.get(NULL_THRESHOLD, self._null_threshold or 0.0)

    def _find_fault(self, item: QuestionExample) -> str | None:
        if item.answers or (item.is_impossible and self._with_null):
            return None
        question = f"the question {one_line(item.id)}"
        if item.is_impossible:
            return f"{question} has no answer: expected with_null for such questions"
        return f"{question} has no answers and is not known to be impossible: expected either"

    def _tokenize(
        self, tokenizer: BertTokenizer, set_name: str, max_seq_length: int
    ) -> QuestionExamples:
        items = self._data.items(set_name)
        return question_examples(
            tokenizer,
            [item.question for item in items],
            [item.context for item in items],
            max_seq_length=max_seq_length,
            **self._window_lengths,
        )

    def _predict(self, inference: Inference, set_name: str) -> SquadPredictions:
        items = self._data.items(set_name)
        if not items:
            return SquadPredictions({}, {}, {} if self._with_null else None)
        examples = self._tokenized(inference.tokenizer, set_name, inference.max_seq_length)
        answers = examples.predict_answers(
            inference.model,
            batch_size=inference.batch_size,
            n_best=self._n_best_size,
            max_answer_length=self._max_answer_length,
        )
        return squad_predictions([item.id for item in items], answers, with_null=self._with_null)


def _loss(entries: Sequence[Mapping[str, Any]], gold: Sequence[str], version: str) -> float:
    right = [
        entry["probability"] for entry in entries if score_answer(entry["text"], gold, version)[0]
    ]
    likelihood = sum(right) or min(entry["probability"] for entry in entries)
    return -math.log(max(likelihood, np.finfo(np.float64).tiny))
