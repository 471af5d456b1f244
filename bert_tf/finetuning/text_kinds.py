"""What is learned of texts: one class, any number of classes, or a number.

Each kind turns labels into what its model is trained towards, and its model's outputs into scores,
mistakes and predictions: ``class_kinds``, ``number_kind``. ``text_tasks.TextTask`` does all else.

Letters: N examples, C classes.
"""

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.modeling.base import BertModel
from bert_tf.tasks.examples import TextExample
from bert_tf.untrusted import one_line, quote

from .task import Evaluation, Mistake, TargetScale, worst_first


class Prediction(NamedTuple):
    """What a model says of one example.

    Attributes:
        value: a class's name, the names of all classes that hold, or a number.
        probabilities: of each class, in the order of the ids; {} for a number.
    """

    value: Any
    probabilities: Mapping[str, float]


class TextKind(abc.ABC):
    """One kind.

    Attributes:
        model_class: the model.
        model_arguments: of its constructor.
        headline: the score to judge by.
    """

    model_class: type[BertModel]
    model_arguments: Mapping[str, Any]
    headline: str

    @abc.abstractmethod
    def find_fault(self, item: TextExample) -> str | None:
        """What is wrong with an example's label; ``None`` where nothing is."""

    @abc.abstractmethod
    def targets(self, items: Sequence[TextExample]) -> np.ndarray:
        """The labels, as ``classification_examples`` takes them."""

    def target_scale(self, items: Sequence[TextExample]) -> TargetScale:
        """The scale of the targets of examples to train on."""
        return TargetScale()

    @abc.abstractmethod
    def compile_arguments(self) -> dict[str, Any]:
        """The loss, one number for each example, and metrics."""

    @abc.abstractmethod
    def evaluate(
        self,
        items: Sequence[TextExample],
        outputs: np.ndarray,
        thresholds: Mapping[str, float] | None = None,
    ) -> Evaluation:
        """Compares the model's outputs, in the items' order and finite, with the labels.

        ``thresholds`` as for ``Task.evaluate``.
        """

    @abc.abstractmethod
    def predictions(
        self, outputs: np.ndarray, thresholds: Mapping[str, float]
    ) -> Iterator[Prediction]:
        """Makes a prediction of each row of the model's outputs."""


def label_fault(item: TextExample, expected: str) -> str:
    """What is wrong with an example's label, for ``DataSets.check_labelled``."""
    return f"the example {one_line(item.id)} has the label {quote(item.label)}: expected {expected}"


def worst_mistakes(
    items: Sequence[TextExample],
    losses: np.ndarray,
    wrong: np.ndarray,
    shown: Callable[[int], tuple[str, str]],
) -> list[Mistake]:
    """Makes the list for ``Evaluation.mistakes``; of a pair the second text is on a line below.

    Args:
        items: N examples.
        losses: (N,) floats.
        wrong: (N,) bool.
        shown: gives, for an example's number, what was expected and what was predicted.
    """
    mistakes = []
    for at in worst_first(losses, wrong):
        item = items[at]
        text = item.text_a if item.text_b is None else f"{item.text_a}\n{item.text_b}"
        expected, predicted = shown(at)
        mistakes.append(Mistake(item.id, text, expected, predicted, float(losses[at])))
    return mistakes
