"""Every kind of task: those of the library, a line each, and those that a program registers."""

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

#: Every kind by its name, which ``task.json`` has and ``--task`` of a user's own tables.
KINDS: dict[str, type[Task]] = {}


def register(kind: KindT) -> KindT:
    """Adds a kind of task, for all commands of this process; returns the class.

    Raises:
        ValueError: another kind or published task has the name.
    """
    for name in (kind.kind, *kind.published):
        if name in tasks():
            raise ValueError(
                f"The kind {name} is there already: give {kind.__name__} another name."
            )
    KINDS[kind.kind] = kind
    return kind


def tasks() -> dict[str, type[Task]]:
    """Every ``--task`` with its kind: published data, then the kinds, of a user's own tables."""
    published = {name: kind for kind in KINDS.values() for name in kind.published}
    return {**published, **KINDS}


for _kind in (
    *(ClassificationTask, MultiLabelTask, RegressionTask, TaggingTask, MultipleChoiceTask),
    *(SimilarityTask, QuestionTask),
):
    register(_kind)
