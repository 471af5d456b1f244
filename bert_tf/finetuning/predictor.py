"""A fine-tuned model's predictions, some examples at a time, by the kind of its task."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_tf.modeling.base import BertModel
from bert_tf.tasks.examples import BadRow, Examples

from .multiple_choice import ChoiceTask
from .prediction_files import Record
from .question_answering import QuestionTask
from .tagging import TaggingTask
from .task import Inference, Task
from .task_file import TaskFile
from .text_tasks import TextTask

_SET = "input"


class Predictor:
    """Makes records of examples, as ``Task.predict``.

    Args:
        task: what the model was trained for.
        model: with its preprocessor.
        labels: the classes' names in the order of their ids; () without classes.
        thresholds: as ``Evaluation.thresholds``; {} where nothing was decided.
        batch_size: examples at once.
    """

    def __init__(
        self,
        task: TaskFile,
        model: BertModel,
        labels: Sequence[str],
        thresholds: Mapping[str, float],
        batch_size: int,
    ) -> None:
        self._task = task
        self._labels = tuple(labels)
        self._thresholds = thresholds
        self._inference = Inference(
            model, model.preprocessor.tokenizer, task.max_seq_length, batch_size
        )

    def records(self, items: Sequence[Any]) -> Iterator[Record]:
        """Predicts.

        Args:
            items: examples of the task's kind, bad rows (``BadRow``) among them.

        Yields:
            A record of each, in the items' order; that of a bad row has an ``error``.
        """
        good = [item for item in items if not isinstance(item, BadRow)]
        found: Iterator[Record] = iter(())
        if good:
            found = self._task_on(good).predict(self._inference, _SET, self._thresholds)
        for item in items:
            if isinstance(item, BadRow):
                yield {**self._nothing(item.words), "id": item.id, "error": item.reason}
            else:
                yield next(found)

    def columns(self, items: Iterable[Any], has_errors: bool) -> Record:
        """A record that has every key of all.

        Args:
            items: all examples; as many as it takes are looked at.
            has_errors: whether there are bad rows.
        """
        names: Sequence[str] = self._labels
        if self._task.kind == "multiple_choice":
            first = next((item for item in items if not isinstance(item, BadRow)), None)
            choices = first.choices if first else self._task.columns.get("choice_columns", ())
            names = [str(number) for number in range(len(choices))]
        columns = dict(self._nothing())
        if names and self._task.kind != "tagging":
            columns["probabilities"] = dict.fromkeys(names)
        if self._task.kind == "squad" and self._with_null():
            columns["null_odds"] = None
        return {**columns, "error": None} if has_errors else columns

    def _nothing(self, words: Sequence[str] = ()) -> Record:
        if self._task.kind == "tagging":
            return {"id": "", "words": tuple(words), "tags": ()}
        return {"id": "", "prediction": None}

    def _with_null(self) -> bool:
        return bool(self._task.options.get("with_null", bool(self._thresholds)))

    def _task_on(self, items: Sequence[Any]) -> Task:
        kind = self._task.kind
        sets: Any = (self._task.name, None, {}, {_SET: Examples(list(items), self._labels, [])})
        if kind == "tagging":
            return TaggingTask(*sets, labels=self._labels, **self._task.options)
        if kind == "multiple_choice":
            return ChoiceTask(*sets)
        if kind == "squad":
            options = {**self._task.options, "with_null": self._with_null()}
            return QuestionTask(*sets, **options)
        return TextTask(*sets, kind=kind, labels=self._labels)  # type: ignore[arg-type]
