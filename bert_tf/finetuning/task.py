"""What every kind of task is to fine-tuning: data, a model's class, a loss, an evaluation.

The kinds are the modules beside this one: ``text_tasks`` (classification, several labels,
regression; GLUE among them), ``tagging``, ``multiple_choice``, ``question_answering``. The rest of
fine-tuning (``training``, ``run``, ``sweep``, ``results``) knows only what stands here.
"""

import abc
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from bert_tf.modeling.base import BertModel
from bert_tf.pipelines.length_buckets import Examples
from bert_tf.pipelines.wordpiece import BertTokenizer

from .prediction_files import Record

T = TypeVar("T")
_MOST_MISTAKES = 50
# The set that nothing is decided on, labelled or not.
TEST = "test"


@dataclasses.dataclass(frozen=True)
class Mistake:
    """An example that the model got wrong, for a person to read.

    Attributes:
        id: the example's, as its file has it.
        text: what the model read.
        expected: the label, answer or tags.
        predicted: what the model said.
        loss: how wrong it was: the negative log-likelihood of what was expected, or the squared
            error; the worst come first.
    """

    id: str
    text: str
    expected: str
    predicted: str
    loss: float


def is_constant(true: np.ndarray, predicted: np.ndarray) -> bool:
    """Whether all predictions are one though the labels are not.

    >>> is_constant(np.array([0, 1]), np.array([1, 1])), is_constant(np.ones(2), np.ones(2))
    (True, False)
    """
    return bool((predicted == predicted[0]).all() and (true != true[0]).any())


def worst_first(losses: np.ndarray, wrong: np.ndarray) -> list[int]:
    """The numbers of the examples to show as mistakes: at most 50, the greatest loss first.

    Args:
        losses: (N,) floats.
        wrong: (N,) bool.

    >>> worst_first(np.array([1.0, 3.0, 2.0]), np.array([True, False, True]))
    [2, 0]
    """
    numbers = np.flatnonzero(wrong)
    order = np.argsort(-losses[numbers], kind="stable")[:_MOST_MISTAKES]
    return [int(number) for number in numbers[order]]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A model on one data set.

    Attributes:
        scores: by the metric's name; fractions of 1, or 0 to 100 where the official script says so.
        constant: whether every prediction was the same and should not have been: the run has
            collapsed.
        constant_means: what ``constant`` says, in words.
        mistakes: the worst first, at most 50.
        confusion: (C, C) counts, row = expected, column = predicted; ``None`` without classes.
        thresholds: those of the scores, by name, such as SQuAD's ``null``: decided on this set, or
            given.
    """

    scores: Mapping[str, float]
    constant: bool
    mistakes: Sequence[Mistake] = ()
    confusion: Any = None
    thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    constant_means: str = "every prediction is the same"


class TargetScale(NamedTuple):
    """The scale of the numbers to learn: a regressor is trained on ``(number - mean) / std``.

    Weights and learning rates are made for numbers near 0. A model in training holds the head that
    answers in those; the head of the weights that are kept, ``kernel * std`` and
    ``bias * std + mean``, answers in the numbers' own units, and is that of a plain regressor.
    The default changes nothing, not even a rounding.
    """

    mean: float = 0.0
    std: float = 1.0

    @contextlib.contextmanager
    def folded(self, model: Any) -> Iterator[None]:
        """Within it, a model in training answers in the numbers' own units."""
        if self == TargetScale():
            yield
            return
        head = model.regressor
        kept = [variable.numpy() for variable in (head.kernel, head.bias)]
        self._assign(head, self.std, self.mean)
        try:
            yield
        finally:
            head.kernel.assign(kept[0])
            head.bias.assign(kept[1])

    def unfold(self, model: Any) -> None:
        """Makes of a regressor that answers in the numbers' own units one to train."""
        if self != TargetScale():
            self._assign(model.regressor, 1 / self.std, -self.mean / self.std)

    @staticmethod
    def _assign(head: Any, factor: float, shift: float) -> None:
        kernel, bias = np.float64(head.kernel.numpy()), np.float64(head.bias.numpy())
        head.kernel.assign(np.float32(kernel * factor))
        head.bias.assign(np.float32(bias * factor + shift))

    def scaled(self, batches: Any) -> Any:
        """A dataset of features and numbers, (B,) float32, with the numbers to train on."""
        if self == TargetScale():
            return batches

        def scale(rows: Any, numbers: Any) -> tuple[Any, Any]:
            wide = tf.cast(numbers, tf.float64)
            return rows, tf.cast((wide - self.mean) / self.std, tf.float32)

        return batches.map(scale)


@dataclasses.dataclass(frozen=True)
class Inference:
    """A model, and how it is run on a data set.

    Attributes:
        model: of the task's class.
        tokenizer: the vocabulary's that the model was trained with.
        max_seq_length: the most tokens of a row.
        batch_size: rows at once.
        kept: what the model gave for a set, by the set's name, so that its evaluation and its
            predictions run the model once; who changes the weights clears it. ``None``: nothing is
            kept.
    """

    model: BertModel
    tokenizer: BertTokenizer
    max_seq_length: int
    batch_size: int
    kept: dict[str, Any] | None = None

    def once(self, set_name: str, compute: Callable[[], T]) -> T:
        """What is kept of a set, or what is computed now."""
        if self.kept is None:
            return compute()
        if set_name not in self.kept:
            self.kept[set_name] = compute()
        found: T = self.kept[set_name]
        return found


class Task(abc.ABC):
    """One kind of task on one user's data, read and checked already.

    Attributes:
        name: for messages.
        model_class: the library's model for it.
        model_arguments: of the model's constructor, ``num_classes`` for example.
        labels: the classes' names in the order of their ids; () without classes.
        multi_label: whether several classes may hold at once.
        headline: the score that decides which epoch, and which run, is best: higher is better.
        dev_sets: the names of the labelled sets, which are evaluated on ("dev"; MNLI:
            "dev_matched", "dev_mismatched"; "test" where that has labels). () where there is none.
        test_sets: the names of the unlabelled sets to predict on; most often ().
        target_scale: of the numbers to learn; the default where classes are learned.
        by_earlier_rules: whether a run is gone on with that an earlier version began: it scales no
            numbers, and early stopping may be between two evaluations.
    """

    name: str
    model_class: type[BertModel]
    model_arguments: Mapping[str, Any]
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    headline: str
    dev_sets: tuple[str, ...] = ()
    test_sets: tuple[str, ...] = ()
    target_scale: TargetScale = TargetScale()
    by_earlier_rules: bool = False

    @property
    def deciding_set(self) -> str | None:
        """The set that decides which weights are best, and the thresholds.

        It is the first of ``dev_sets`` that is no test set; ``None`` where there is none: then the
        last weights count as the best, and thresholds are the defaults.
        """
        return next((name for name in self.dev_sets if name != TEST), None)

    @abc.abstractmethod
    def training_examples(self, tokenizer: BertTokenizer, max_seq_length: int) -> Examples:
        """The training set, tokenised once: batches of features and labels."""

    def training_lines(self, examples: Examples) -> list[str]:
        """Says in words what ``training_examples`` gave.

        Returns:
            How much there is of it, then a sentence on each thing that is not as it was in the
            file.
        """
        lines = [f"{len(examples):,} examples"]
        if examples.num_too_long:
            lines.append(
                f"{examples.num_too_long:,} of the training examples have more than "
                f"{examples.max_seq_length} tokens (--max_seq_length): they are cut."
            )
        return lines

    def label_counts(self, set_name: str | None) -> Mapping[str, int]:
        """How often each label stands in one of ``dev_sets``, or (None) in the training set.

        {} without classes.
        """
        return {}

    def prepared(self, model: BertModel, examples: Examples) -> Examples:
        """What a model is run on: the examples, or what a part of it that is frozen made of them.

        Args:
            model: of ``model_class``, with its weights.
            examples: tokenised.
        """
        return examples

    @abc.abstractmethod
    def compile_arguments(self) -> dict[str, Any]:
        """``loss`` and ``metrics`` (may be empty) for ``model.compile``."""

    @abc.abstractmethod
    def evaluate(
        self,
        inference: Inference,
        set_name: str,
        thresholds: Mapping[str, float] | None = None,
    ) -> Evaluation:
        """Predicts on one of ``dev_sets`` and compares.

        The tokenised set may be kept between calls: an evaluation follows every epoch.

        Args:
            inference: how.
            set_name: the set.
            thresholds: those to score by, the defaults where {}; ``None``: they are decided on
                this set, and what they give is the best that could be had.
        """

    @abc.abstractmethod
    def predict(
        self, inference: Inference, set_name: str, thresholds: Mapping[str, float]
    ) -> Iterator[Record]:
        """Predicts on one of ``dev_sets`` or ``test_sets``.

        | kind            | a record's keys, besides ``id``                                        |
        |-----------------|------------------------------------------------------------------------|
        | classification  | prediction: the class's name; probabilities, by name                   |
        | multilabel      | prediction: a list of names; probabilities, by name                    |
        | regression      | prediction: a number                                                   |
        | tagging         | words, tags: tuples of strings                                         |
        | multiple_choice | prediction: the choice's number, from 0; probabilities, by number      |
        | squad           | prediction: the answer, "" for none; null_odds where there may be none |

        Args:
            inference: how.
            set_name: the set.
            thresholds: as ``Evaluation.thresholds``; {} where nothing was decided.

        Yields:
            A record of each example, in the set's order.
        """

    @abc.abstractmethod
    def write_predictions(
        self, inference: Inference, set_name: str, folder: str, thresholds: Mapping[str, float]
    ) -> list[str]:
        """Predicts on one of ``dev_sets`` or ``test_sets`` and writes the files of the task's form.

        Returns:
            The paths written.
        """
