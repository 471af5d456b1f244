"""Kinds of task, a file each: options, reader, loss, scores and predictions.

``Task`` is what a kind of one's own derives from, and ``register`` adds it to all commands of the
process: ``examples/star_ratings.py`` is one. A kind of the library is a line at this module's end.
"""

from typing import TypeVar

from .classification import ClassificationTask
from .multilabel import MultiLabelTask
from .multiple_choice import MultipleChoiceTask
from .regression import RegressionTask
from .similarity import SimilarityTask
from .squad import QuestionTask
from .tagging import TaggingTask
from .task import Task as Task

__all__ = ["Task", "register"]
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
