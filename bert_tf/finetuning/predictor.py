"""A fine-tuned model's predictions, some examples at a time, by the kind of its task."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.modeling.base import BertModel
from bert_tf.tasks.examples import Examples

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
            items: examples of the task's kind, at least one.

        Yields:
            A record of each, in the items' order.
        """
        return self._task_on(items).predict(self._inference, _SET, self._thresholds)

    def _task_on(self, items: Sequence[Any]) -> Task:
        kind = self._task.kind
        sets: Any = (self._task.name, None, {}, {_SET: Examples(list(items), self._labels, [])})
        if kind == "tagging":
            return TaggingTask(*sets, labels=self._labels, **self._task.options)
        if kind == "multiple_choice":
            return ChoiceTask(*sets)
        if kind == "squad":
            options = {"with_null": bool(self._thresholds), **self._task.options}
            return QuestionTask(*sets, **options)
        return TextTask(*sets, kind=kind, labels=self._labels)  # type: ignore[arg-type]
