"""Task type for extractive question answering, such as SQuAD."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf import features
from bert_tf.answering.export_options import QuestionOptions
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_fields import rule
from bert_tf.evaluation.metrics import LOSS, Comparison
from bert_tf.features import NULL_THRESHOLD
from bert_tf.readers.tables import TableFile
from bert_tf.tasks.task import ExampleSet, FormReader, Items, Task, outputs, tokenized

from .reader import read_questions, read_squad, squad_has_answers

if TYPE_CHECKING:
    from bert_tf.evaluation.evaluation import Evaluation, Inference, Thresholds
    from bert_tf.evaluation.prediction_files import Record
    from bert_tf.pipelines.tokenized_examples import Examples
    from bert_tf.pipelines.wordpiece import BertTokenizer
    from bert_tf.readers.examples import QuestionExample

    from .rows import QuestionExamples
    from .scores import SquadPredictions

# Two adjacent characters of Thai, Lao, Burmese, Khmer, Japanese or Chinese.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]{2}"
)
_OUTPUTS = (features.START_LOGITS, features.END_LOGITS)
_NO_ANSWER = "(no answer)"
# Fields of a record without an answer, in addition to the prediction "".
_NO_SPAN = {"score": None, "start": None, "end": None}
# Suffixes of the keys of ``score_predictions`` that are not scores.
_COUNTS = ("total", "thresh")


def _has_only_texts(path: str) -> bool:
    return QuestionTask.is_table_file(path) and not TableFile(path).has_typed_fields


_NEEDS_ANSWER_START = rule(
    lambda column, values: not column and _has_only_texts(values["train_file"]),
    "--task={task} requires --{flag}, the column of {train_file} with the index of the first "
    "character of the answer. A .jsonl file can contain SQuAD's lists of answers instead.",
)


@dataclasses.dataclass(frozen=True)
class _Options(QuestionOptions):
    answer_start_column: str | None = flag_fields.string(
        None,
        "squad: column with the index of the answer's first character in the context, from 0.",
        only="tables",
        rules=[_NEEDS_ANSWER_START],
        advanced=True,
    )
    title_column: str | None = flag_fields.string(
        None,
        "squad: column with the article's title; the held-out data then consist of whole articles.",
        only="tables",
        advanced=True,
    )
    null_score_diff_threshold: float | None = flag_fields.number(
        None,
        'squad: predict no answer ("") if its score exceeds that of the best answer by more than '
        "this value; by default tuned on the evaluated data.",
        advanced=True,
    )
    # Whether questions can have no answer; by default whether a labeled question has none.
    with_null: bool | None = flag_fields.from_data()


class QuestionTask(Task):
    """Extractive question answering, such as SQuAD 1.1, or 2.0 with unanswerable questions.

    The scores are those of the official evaluation, 0 to 100. With ``with_null``, the prediction is
    "no answer" if its score exceeds that of the best text by more than a threshold. An evaluation
    chooses the threshold that maximizes F1 on the evaluated data set, and returns the threshold as
    ``thresholds["null"]``. Written answers and all scores use this threshold, except that
    ``best_exact`` uses its own, and ``exact_at_0`` and ``f1_at_0`` use Google's default of 0.0. A
    given threshold, or ``null_score_diff_threshold``, replaces the tuned threshold.

    The loss is the mean of the cross-entropies of the start and the end over the row's positions.
    Questions are trained with their first answer. The headline is ``best_f1`` if the threshold is
    tuned, else ``f1``.

    Source: Devlin et al. 2019, sections 4.2 and 4.3; google-research/bert ``run_squad.py``.
    """

    kind = "squad"
    Options = _Options
    model = "BertSpanPredictor"
    text_form = "QUESTION,CONTEXT"
    num_texts = (2, 2)
    default_texts = ("question", "context")
    in_memory_columns = (("question", "context"),)
    default_label = "answers"
    reads_native_format = True
    max_seq_length = 384
    metrics = ("exact_match", "exact", "f1", "best_exact", "best_f1", LOSS)
    threshold = NULL_THRESHOLD
    unshared_text = "context"
    size_format = "{items:,} questions in {rows:,} windows"
    evaluates_with_labels = True
    truncation_note = (
        "The contexts of {count:,} of the training questions are split into several windows of "
        "{length} tokens (--max_seq_length)."
    )
    loss_weights = dict.fromkeys(_OUTPUTS, 0.5)
    output_suffixes = (*Task.output_suffixes, ".json")
    read = staticmethod(read_questions)

    @classmethod
    def grouping(cls, items: Items, fraction: float) -> tuple[Callable[[Any], Hashable], str]:
        """Groups questions by article or, without titles, by paragraph."""
        if len({item.title for item in items}) > 1:
            return (lambda item: item.title), "whole articles"
        return (lambda item: item.context), "whole paragraphs"

    @classmethod
    def native_reader(cls, name: str, columns: Mapping[str, Any]) -> FormReader | None:
        """Returns the reader for SQuAD's JSON files, with or without answers."""
        return FormReader(_read_squad, squad_has_answers)

    @property
    def logged_scores(self) -> Sequence[str]:
        """All scores; in version 2.0 also the scores of subsets and at the default threshold."""
        names = list(super().logged_scores)
        if self._with_null:
            scores = ("exact", "f1")
            names += [f"{part}_{name}" for part in ("HasAns", "NoAns") for name in scores]
            if self.default_metric == "best_f1":
                names += [f"{name}_at_0" for name in scores]
        return names

    def _apply(self, options: Any) -> None:
        with_null, threshold = options.with_null, options.null_score_diff_threshold
        if with_null is None:
            with_null = any(item.is_impossible for item in self._labelled)
        if threshold is not None and not with_null:
            raise ValueError(
                f"--null_score_diff_threshold={threshold:g} requires unanswerable questions, but "
                "every labeled question has an answer. Remove the flag."
            )
        self._with_null, self._null_threshold = with_null, threshold
        super()._apply(dataclasses.replace(options, with_null=with_null))

    def loss(self) -> dict[str, Any]:
        return {key: super(QuestionTask, self).loss() for key in _OUTPUTS}

    @property
    def default_metric(self) -> str:
        """F1, at the best threshold if it is tuned."""
        return "best_f1" if self._with_null and self._null_threshold is None else "f1"

    @property
    def unavailable_metrics(self) -> Sequence[str]:
        """Scores of the other version and, if the threshold is given, scores at a tuned one."""
        tuned = () if self.default_metric == "best_f1" else ("best_exact", "best_f1")
        return ("exact_match" if self._with_null else "exact", *tuned)

    @property
    def default_thresholds(self) -> Thresholds:
        """The given threshold, or Google's default."""
        return {NULL_THRESHOLD: self._get_threshold({})} if self._with_null else {}

    @classmethod
    def restore_options(cls, options: Mapping[str, Any], thresholds: Thresholds) -> Any:
        """Restores options; a model with a threshold supports unanswerable questions."""
        return super().restore_options(
            {"with_null": NULL_THRESHOLD in thresholds, **options}, thresholds
        )

    @classmethod
    def check_threshold(cls, value: float, options: Any, model_dir: str) -> str | None:
        """Rejects thresholds for models without unanswerable questions."""
        if options.with_null is False:
            return f"{model_dir} was trained only on questions with answers. Remove the threshold."
        return None

    @classmethod
    def record_columns(
        cls, labels: Sequence[str], items: Iterable[Any], columns: Mapping[str, Any], options: Any
    ) -> Record:
        """Adds the columns for the position and probability of the answer, and for null odds."""
        record = {**super().record_columns((), items, columns, options), **_NO_SPAN}
        return {**record, "null_odds": None} if options.with_null else record

    def training_examples(self, tokenizer: BertTokenizer, max_seq_length: int) -> Examples:
        """Returns the rows of all windows, with the positions of the answers."""
        items = self.training_items()
        rows: QuestionExamples = self.rows(tokenizer, items, max_seq_length, labelled=True)
        return rows.examples

    def training_summary(self, examples: Examples) -> list[str]:
        """Returns notes on the training set, such as on questions or answers that are too long."""
        items = self.training_items()
        lines = super().training_summary(examples)
        if examples.num_lost:
            lines.append(
                f"The answers to {examples.num_lost:,} of the training questions have no tokens "
                "or do not fit into a window (--max_seq_length, --doc_stride). These questions are "
                "trained as unanswerable."
            )
        answers = [item.answers[0].text for item in items if item.answers]
        questions = [item.question for item in items]
        for flag, texts, effect in (
            ("max_query_length", questions, "questions are truncated"),
            ("max_answer_length", answers, "answers are never predicted"),
        ):
            limit = getattr(self.options, flag)
            count = sum(len(text.split()) > limit for text in texts)
            if 50 * count > len(texts):
                lines.append(
                    f"{count:,} of the {effect}, because they are longer than --{flag}={limit}."
                )
        labelled = [item.answers[0].text for item in self._labelled if item.answers]
        count = sum(_UNSPACED.search(text) is not None for text in labelled)
        if 10 * count > len(labelled):
            lines.append(
                f"{count:,} of the answers are written without spaces, so f1 counts each as one "
                "word. Score predictions.json with the data set's own script, which compares "
                "characters."
            )
        return lines

    def describe_constant_targets(self) -> str:
        return "" if any(i.answers for i in self.training_items()) else "No question has an answer"

    def rows(
        self, tokenizer: BertTokenizer, items: Items, max_seq_length: int, *, labelled: bool
    ) -> QuestionExamples:
        from .rows import question_examples

        spans: dict[str, Any] = {}
        if labelled:
            answers = [item.answers[0] if item.answers else None for item in items]
            spans = {
                "answer_starts": [answer.start if answer else -1 for answer in answers],
                "answer_ends": [
                    answer.start + len(answer.text.encode()) if answer else -1 for answer in answers
                ],
            }
        return question_examples(
            tokenizer,
            [item.question for item in items],
            [item.context for item in items],
            max_seq_length=max_seq_length,
            doc_stride=self.options.doc_stride,
            max_query_length=self.options.max_query_length,
            **spans,
        )

    def score(self, items: Items, outputs: Any, thresholds: Thresholds | None) -> Evaluation:
        """Computes the official scores; a mistake is a question without an exact match.

        Mistakes and ``constant`` use the threshold that the result contains. The loss of a mistake
        is the negative log-likelihood of all correct n-best entries. If there are none, the least
        likely entry is used, which gives a lower bound.
        """
        from bert_tf.evaluation.evaluation import Evaluation, worst_mistakes

        from .scores import score_answer, score_predictions

        version = "2.0" if self._with_null else "1.1"
        outputs, window_losses = outputs
        gold = {item.id: tuple(answer.text for answer in item.answers) for item in items}
        score_at = functools.partial(
            score_predictions, gold, outputs.texts, version, outputs.null_odds
        )

        threshold = self._get_threshold(thresholds or {})
        scores = score_at(threshold)
        at_default = {}
        if thresholds is None and self._with_null and self._null_threshold is None:
            # Written predictions also use the tuned threshold.
            at_default = {f"{name}_at_0": scores[name] for name in ("exact", "f1")}
            threshold = scores["best_f1_thresh"]
            scores = score_at(threshold)
        scores = {name: value for name, value in scores.items() if not name.endswith(_COUNTS)}
        scores |= at_default
        if thresholds is not None:
            scores = {name: v for name, v in scores.items() if not name.startswith("best_")}
        answers = outputs.answers(threshold)
        is_wrong = np.array([score_answer(answers[n], gold[n], version).exact == 0 for n in gold])
        scores[LOSS] = float(window_losses.mean())
        losses = np.zeros(len(items))
        for index in np.flatnonzero(is_wrong).tolist():
            name = items[index].id
            losses[index] = _loss(outputs.n_best[name], gold[name], version)

        def show(index: int) -> tuple[dict[str, str], str, str]:
            item = items[index]
            expected = " | ".join(dict.fromkeys(gold[item.id])) or _NO_ANSWER
            return self.display_texts(item), expected, answers[item.id] or _NO_ANSWER

        return Evaluation(
            scores=scores,
            constant=len(items) > 1 and len(set(answers.values())) == 1 and bool(is_wrong.any()),
            mistakes=worst_mistakes(items, losses, is_wrong, show),
            thresholds={NULL_THRESHOLD: threshold} if self._with_null else {},
            comparison=Comparison(len(items), scores),
        )

    def answer(self, outputs: Any, thresholds: Thresholds) -> dict[str, Any]:
        from .answer import answer_questions

        return answer_questions(outputs, thresholds.get(NULL_THRESHOLD))

    def answers(
        self, items: Items, outputs: Any, thresholds: Thresholds
    ) -> Iterator[Mapping[str, Any]]:
        """Yields the answer to each question, as in prediction files."""
        predictions, _ = outputs
        answers = predictions.answers(self._get_threshold(thresholds))
        for item in items:
            answer = answers[item.id]
            start, end = predictions.byte_spans[item.id] if answer else (-1, -1)
            yield {
                "answer": answer,
                "probability": predictions.probability(item.id, answer),
                "byte_start": start,
                "byte_end": end,
                "null_odds": predictions.null_odds and predictions.null_odds[item.id],
            }

    def record(self, item: QuestionExample, answer: Mapping[str, Any]) -> dict[str, Any]:
        record = {"prediction": answer["answer"], **_NO_SPAN, "score": answer["probability"]}
        if answer["answer"]:
            context = item.context.encode()
            for key in ("start", "end"):  # in characters
                record[key] = len(context[: answer[f"byte_{key}"]].decode())
        return {**record, "null_odds": answer["null_odds"]} if self._with_null else record

    @staticmethod
    def display_texts(item: QuestionExample) -> dict[str, str]:
        return {"question": item.question, "context": item.context}

    def write_predictions(
        self, inference: Inference, set_name: str, folder: str, thresholds: Thresholds
    ) -> list[str]:
        """Writes ``predictions.json``, ``nbest_predictions.json`` and, in 2.0, ``null_odds.json``.

        Answers use the threshold ``thresholds["null"]``. For labeled data sets, ``SET.jsonl`` with
        the expected answers is also written.
        """
        from bert_tf.evaluation.prediction_files import write_file

        predictions, _ = outputs(self, inference, set_name)
        paths = predictions.write(folder, self._get_threshold(thresholds))
        if set_name in self.dev_sets:
            paths.append(os.path.join(folder, f"{set_name}.jsonl"))
            answers = predictions.answers(self._get_threshold(thresholds))
            write_file(
                paths[-1],
                (
                    {
                        "id": item.id,
                        "prediction": answers[item.id],
                        "expected": [answer.text for answer in item.answers],
                        "text": item.question,
                    }
                    for item in self.sets[set_name].items
                ),
            )
        return paths

    def _get_threshold(self, thresholds: Thresholds) -> float:
        return thresholds.get(NULL_THRESHOLD, self._null_threshold or 0.0)

    def _outputs(self, inference: Inference, set_name: str) -> tuple[SquadPredictions, np.ndarray]:
        """Returns the predictions and the loss of each window, which is 0 without labels."""
        from .scores import SquadPredictions, squad_predictions

        items = self.sets[set_name].items
        if not items:
            return SquadPredictions({}, {}, {} if self._with_null else None), np.zeros([0])
        answers, losses = tokenized(self, inference, set_name).predict_answers(
            inference.model,
            batch_size=inference.batch_size,
            n_best=self.options.n_best_size,
            max_answer_length=self.options.max_answer_length,
        )
        ids = [item.id for item in items]
        return squad_predictions(ids, answers, with_null=self._with_null), losses


def _loss(entries: Sequence[Mapping[str, Any]], gold: Sequence[str], version: str) -> float:
    from .scores import score_answer

    likelihoods = [
        entry["probability"]
        for entry in entries
        if score_answer(entry["text"], gold, version).exact
    ]
    likelihood = sum(likelihoods) or min(entry["probability"] for entry in entries)
    return -math.log(max(likelihood, np.finfo(np.float64).tiny))


def _read_squad(path: str, *, labelled: bool, skip_bad_rows: Any, **_: Any) -> ExampleSet:
    return read_squad(path, labelled=labelled, skip_bad_rows=skip_bad_rows)
