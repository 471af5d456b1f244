"""Registry of the library's task types and of the task types that a program registers."""

from typing import TypeVar

from bert_tf.tasks.questions.task import QuestionTask
from bert_tf.tasks.similarity.task import SimilarityTask
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.tasks.texts.classification import ClassificationTask
from bert_tf.tasks.texts.multilabel import MultiLabelTask
from bert_tf.tasks.texts.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.texts.regression import RegressionTask

from .task import Task

KindT = TypeVar("KindT", bound=type[Task])

#: Task types by name, the value of ``kind`` in ``task.json`` and of ``--task`` for user data.
KINDS: dict[str, type[Task]] = {}


def register(kind: KindT) -> KindT:
    """Registers a task type for all commands in this process.

    Args:
        kind: Class derived from ``Task``.

    Returns:
        The class, so that ``register`` can be used as a decorator.

    Raises:
        ValueError: If another task type or published task has the same name.
    """
    for name in (kind.kind, *kind.published):
        if name in tasks():
            raise ValueError(
                f"The task type {name} is already registered. Give {kind.__name__} another name."
            )
    KINDS[kind.kind] = kind
    return kind


def tasks() -> dict[str, type[Task]]:
    """Returns task types by value of ``--task``: published tasks, then the types for user data."""
    published = {name: kind for kind in KINDS.values() for name in kind.published}
    return {**published, **KINDS}


for _kind in (
    *(ClassificationTask, MultiLabelTask, RegressionTask, TaggingTask, MultipleChoiceTask),
    *(SimilarityTask, QuestionTask),
):
    register(_kind)
