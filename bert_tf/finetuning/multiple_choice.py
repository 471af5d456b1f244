"""Multiple choice as a task of fine-tuning: which of K continuations follows a context."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.modeling import BertMultipleChoice
from bert_tf.modeling.base import TEMPERATURE
from bert_tf.pipelines import length_buckets
from bert_tf.pipelines.multiple_choice import multiple_choice_examples
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.tasks.calibration import of_classes
from bert_tf.tasks.examples import ChoiceExample
from bert_tf.tasks.judging import judge_choices
from bert_tf.tasks.multiple_choice import read_choices, read_codah, read_swag

from .losses import SmoothedCrossEntropy
from .prediction_outputs import Record
from .task import (
    Evaluation,
    ExampleSet,
    FormReader,
    Items,
    Task,
    Thresholds,
    calibrated,
    is_constant,
    log_softmax,
    temperature_of,
    worst_mistakes,
)
from .task_file import TaskFile


class ChoiceTask(Task):
    """Contexts with some continuations each, as SWAG's and CODAH's.

    Source: Devlin et al. 2019, section 4.4: the loss is the cross-entropy of a softmax over the
    choices.
    """

    model_class = BertMultipleChoice
    smoothed_loss = SmoothedCrossEntropy
    headline = "accuracy"
    read_table = staticmethod(read_choices)

    @staticmethod
    def own_form(name: str, columns: Mapping[str, Any]) -> FormReader | None:
        """SWAG's and CODAH's tables, for a model that was trained on them."""
        found = {"swag": _read_swag, "codah": _read_codah}.get(name)
        return FormReader(found, is_table=True) if found and not columns else None

    def _rows(
        self, tokenizer: BertTokenizer, items: Items, max_seq_length: int, *, labelled: bool
    ) -> length_buckets.Examples:
        """Rows (B, K, S) and labels (B,)."""
        return multiple_choice_examples(
            tokenizer,
            [item.context for item in items],
            [item.choices for item in items],
            labels=[item.label for item in items] if labelled else None,
            max_seq_length=max_seq_length,
        )

    def _judge(self, items: Items, outputs: Any, thresholds: Thresholds | None) -> Evaluation:
        log_probabilities = log_softmax(outputs)
        chosen = log_probabilities.argmax(1)
        labels = np.array([item.label for item in items])

        def show(at: int) -> tuple[Mapping[str, str], str, str]:
            choices = items[at].choices
            return self._shown_texts(items[at]), choices[labels[at]], choices[chosen[at]]

        losses = -log_probabilities[np.arange(len(items)), labels]
        judged = judge_choices(labels, chosen, losses)
        temperature = temperature_of(thresholds, outputs, labels)
        return Evaluation(
            thresholds={TEMPERATURE: temperature},
            calibrate=functools.partial(of_classes, outputs, labels, temperature),
            scores=self._scores(judged),
            judged=judged,
            constant=is_constant(labels, chosen),
            mistakes=worst_mistakes(items, losses, chosen != labels, show, log_probabilities),
        )

    def _shown_texts(self, item: ChoiceExample) -> dict[str, str]:
        return {"": item.context}

    def _records(
        self, items: Items, outputs: Any, thresholds: Thresholds
    ) -> Iterator[dict[str, Any]]:
        for row in np.exp(log_softmax(calibrated(outputs, thresholds))):
            probabilities = {str(choice): p for choice, p in enumerate(row.tolist())}
            yield {"prediction": int(row.argmax()), "probabilities": probabilities}

    @classmethod
    def record_columns(cls, labels: Sequence[str], first: Any, task: TaskFile) -> Record:
        """A probability for each choice, by its number."""
        choices = first.choices if first else task.columns.get("choice_columns", ())
        names = [str(number) for number in range(len(choices))]
        return super().record_columns(names, first, task)


def _read_swag(path: str, *, labelled: bool, skip_bad_rows: Any, **_: Any) -> ExampleSet:
    return read_swag(path, labelled=labelled, skip_bad_rows=skip_bad_rows)


def _read_codah(path: str, *, skip_bad_rows: Any, **_: Any) -> ExampleSet:
    return read_codah(path, skip_bad_rows=skip_bad_rows)
