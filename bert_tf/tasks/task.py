"""Interface of every kind of task: data, a model, a loss, an evaluation, predictions.

A kind is a class in a folder next to this file, and a line in ``registry``. Fine-tuning and
predictions know only ``Task``. ``--help`` reads the options of every kind, and must not take the
seconds that TensorFlow loads: a module of a kind imports what needs it in the methods that use it.

Letters: N examples, C classes.
"""

from __future__ import annotations

import abc
import collections
import copy
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from bert_tf.evaluation.scores import CLASS_METRICS, LOSS, Comparison
from bert_tf.io.wording import listed, one_line
from bert_tf.readers import examples as read
from bert_tf.readers.data_warnings import text_notes

from .target_scale import TargetScale

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.evaluation.evaluation import Evaluation, Inference, Thresholds
    from bert_tf.evaluation.prediction_files import Record
    from bert_tf.modeling.base import BertModel, SentenceEmbedding
    from bert_tf.pipelines.tokenized_examples import Examples
    from bert_tf.pipelines.wordpiece import BertTokenizer

# Examples of a file or of a part of one.
ExampleSet = read.ExampleSet[Any]
Items = Sequence[Any]
# How groups are held out that are no more than equal texts.
RANDOM_SPLIT = "drawn by the seed"
# The set that nothing is decided on, labelled or not.
TEST = "test"


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """Options of a kind that has none."""


class Task(abc.ABC):
    """One kind of task; an object is the task on one user's data, read and checked already.

    Args:
        name: for messages.
        train: labelled examples; ``None`` where there is nothing to train on.
        dev: by the set's name, labelled examples to evaluate on ("dev"; MNLI: "dev_matched",
            "dev_mismatched"; "test" where that has labels).
        test: by the set's name, examples to predict. A set may be empty.
        labels: the classes' names in the order of their ids; by default those of ``train`` or,
            without it, of the first set that has any.
        metric: the score that decides which epoch, and which run, is best, the ``headline``; by
            default the data's usual one.
        options: the kind's ``Options``; by default their defaults.
        folder: a place for files that go with the process.
        embedding: of a model of embeddings its definition of a text's vector.
    """

    # === The kind ===

    # Its name in ``task.json`` and, for tables of a user's own, in ``--task``.
    kind: ClassVar[str]
    # Each ``--task`` of published data.
    published: ClassVar[Sequence[str]] = ()
    # A dataclass of ``cli.flag_fields``: each field is a flag, a keyword of ``api.fine_tune`` and,
    # where it is kept, a key of ``task.json``.
    Options: ClassVar[type] = NoOptions
    # The name of its model's class, in ``modeling.MODEL_CLASSES``, and of another that may be
    # trained for it.
    model: str
    alternative_model: ClassVar[str] = ""
    # The form of ``--text_columns``, the least and the most names in it, and those by default.
    text_form: ClassVar[str] = "A or A,B"
    num_texts: ClassVar[tuple[int, int]] = (1, 2)
    default_texts: ClassVar[Sequence[str]] = ()
    # Names of the columns of rows without names that are given in Python, by their number, and so
    # those of rows that have these names.
    in_memory_columns: ClassVar[Sequence[tuple[str, ...]]] = (("text",), ("text_a", "text_b"))
    # True if a row's text is a list of words.
    reads_words: ClassVar[bool] = False
    # The column without ``--label_column``; there may be no such column where it is optional.
    default_label: ClassVar[str | None] = None
    label_is_optional: ClassVar[bool] = False
    # True if .json, and files that are no tables, are of the kind's published form.
    reads_native_format: ClassVar[bool] = False
    # Tokens of a row without ``--max_seq_length``.
    max_seq_length: ClassVar[int] = 128
    # The scores that ``--metric`` may name, of which data may lack some; and whether it may name
    # those of a class or of a type of entity, too.
    metrics: ClassVar[Sequence[str]] = ()
    class_metrics: ClassVar[bool] = False
    # Noun of its classes ("classes", "tags"); "" without classes.
    classes: ClassVar[str] = ""
    multi_label: ClassVar[bool] = False
    # The name of the threshold that its predictions depend on.
    threshold: ClassVar[str | None] = None
    # True if its models give vectors of texts, by a ``SentenceEmbedding``.
    embeds: ClassVar[bool] = False
    # Form of the printed size of the training set.
    size_format: ClassVar[str] = "{rows:,} examples"
    # True if the rows to evaluate on have labels, for a loss that is computed with the outputs.
    evaluates_with_labels: ClassVar[bool] = False
    # Line on examples of more tokens than a row, with {count} and {length}.
    truncation_note: str = (
        "{count:,} of the training examples have more than {length} tokens "
        "(--max_seq_length): they are cut."
    )
    # The scores that are always reported, () for all of the kind's.
    displayed_scores: Sequence[str] = ()
    # The losses' weights, where ``loss`` gives several by the outputs' names.
    loss_weights: ClassVar[Mapping[str, float] | None] = None
    # A record of an example that cannot be predicted.
    no_prediction: ClassVar[Record] = MappingProxyType({"id": "", "prediction": None})
    # Suffixes of the files that hold its predictions.
    output_suffixes: ClassVar[Sequence[str]] = (".tsv", ".csv", ".jsonl")

    @classmethod
    def changed_defaults(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Defaults of flags that values of the kind's options change."""
        return {}

    # Name of the text, among ``all_texts``, that sets should not share; "" for all texts together.
    unshared_text: ClassVar[str] = ""

    # Reads a table by its ``text_columns`` and ``label_column``; without the latter its rows are to
    # be predicted. Other arguments are ``id_column``, ``skip_bad_rows``, the kind's options of
    # tables and, of a kind with classes, ``labels``: those that there may be, by default those that
    # there are.
    read: ClassVar[Callable[..., ExampleSet]]

    @classmethod
    def grouping(cls, items: Items, fraction: float) -> tuple[Callable[[Any], Hashable], str]:
        """Returns the key that examples of one group share, and a description of the groups.

        The examples of a group are trained on together or, a ``fraction`` of all, held out.
        """
        return (lambda item: tuple(cls.display_texts(item).values())), RANDOM_SPLIT

    @classmethod
    def native_reader(cls, name: str, columns: Mapping[str, Any]) -> FormReader | None:
        """The reader of files that have none of the user's columns; ``columns``: the training's."""
        return None

    def __init__(
        self,
        name: str,
        train: ExampleSet | None,
        dev: Mapping[str, ExampleSet],
        test: Mapping[str, ExampleSet],
        *,
        labels: Sequence[str] = (),
        metric: str | None = None,
        options: Any = None,
        folder: str = "",
        embedding: SentenceEmbedding | None = None,
    ) -> None:
        self.name, self.folder, self.embedding = name, folder, embedding
        self.options = self.Options() if options is None else options
        self.target_scale = TargetScale()
        self.dev_sets, self.test_sets = tuple(dev), tuple(test)
        #: The set that decides on weights and thresholds: the first dev set that is no test set.
        self.deciding_set = next((set_name for set_name in dev if set_name != TEST), None)
        self._train, self.sets = train, {**dev, **test}
        for set_name, examples in dev.items():
            if not examples.items:
                raise ValueError(f"{name}: {set_name} is empty: expected examples to evaluate on.")
        labelled = {**({"train": train} if train else {}), **dev}
        self._labelled: list[Any] = [i for examples in labelled.values() for i in examples.items]
        self.labels: tuple[str, ...] = ()
        if self.classes:
            every = [*labelled.values(), *test.values()]
            self.labels = tuple(labels) or next((e.labels for e in every if e.labels), ())
            if not self.labels:
                raise ValueError(f"{name} has no labels: expected the names of the {self.classes}.")
        self._ids: dict[Any, int] = {label: number for number, label in enumerate(self.labels)}
        for set_name, examples in labelled.items():
            for problem in filter(None, map(self.check_example, examples.items)):
                raise ValueError(f"{name}, {set_name}: {problem}.")
        #: The rows of a set, by tokenizer, name and length of rows; copies share them.
        self.tokenized = functools.cache(
            lambda tokenizer, set_name, max_seq_length: self.rows(
                tokenizer,
                self.sets[set_name].items,
                max_seq_length,
                labelled=self.evaluates_with_labels and set_name in self.dev_sets,
            )
        )
        self._apply(self.options)
        self.headline = self.default_metric
        if metric is not None:
            _check_metric(self, metric)
            self.headline = metric

    # === For training ===

    def _apply(self, options: Any) -> None:
        """Takes options, at first and where a sweep's run has others: see ``with_options``."""
        self.options = options
        #: The loss, or losses and their weights, for ``model.compile``.
        self.compile_arguments = {"loss": self.loss(), "loss_weights": self.loss_weights}

    @property
    @abc.abstractmethod
    def default_metric(self) -> str:
        """The headline without a ``metric``."""

    @property
    def unavailable_metrics(self) -> Collection[str]:
        """The kind's scores that these data do not have."""
        return ()

    @property
    def logged_scores(self) -> Sequence[str]:
        """Names of the scores of each evaluation."""
        names = self.displayed_scores or [
            name for name in self.metrics if name not in self.unavailable_metrics
        ]
        loss = [name for name in self.metrics if name == LOSS]
        return list(dict.fromkeys([*names, self.headline, *loss]))

    @property
    def model_arguments(self) -> dict[str, Any]:
        """Arguments of the model's constructor besides the config."""
        return {"num_classes": len(self.labels)} if self.classes else {}

    def loss(self) -> Any:
        """The loss to train with, by default the (smoothed) cross-entropy of classes."""
        import keras

        if smoothing := getattr(self.options, "label_smoothing", 0.0):
            from .losses import SmoothedCrossEntropy

            return SmoothedCrossEntropy(smoothing)
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @staticmethod
    def loss_weight(targets: Any) -> tf.Tensor:
        """Weight of some targets' mean loss among others': by default each row counts as much."""
        import tensorflow as tf

        return tf.cast(tf.shape(tf.nest.flatten(targets)[0])[0], tf.float32)

    # === Data ===

    @property
    def default_thresholds(self) -> Thresholds:
        """The thresholds where no set decides on any."""
        return {}

    @property
    def scored_classes(self) -> Sequence[str]:
        """Names of the classes that have ``CLASS_METRICS`` each."""
        return self.labels

    def check_example(self, item: Any) -> str | None:
        """Fault of an example that its reader let pass and a model cannot learn; or ``None``."""
        return None

    @abc.abstractmethod
    def rows(
        self, tokenizer: BertTokenizer, items: Items, max_seq_length: int, *, labelled: bool
    ) -> Any:
        """Tokenised examples, with targets if they are ``labelled``."""

    def training_items(self) -> Items:
        """The labelled examples to train on."""
        if self._train is None or not self._train.items:
            raise ValueError(f"{self.name} has no training set: expected one to train on.")
        return self._train.items

    def training_examples(self, tokenizer: BertTokenizer, max_seq_length: int) -> Examples:
        """The training set, tokenised once: batches of features and labels."""
        items = self.training_items()
        examples: Examples = self.rows(tokenizer, items, max_seq_length, labelled=True)
        return examples

    def training_summary(self, examples: Examples) -> list[str]:
        """Says how much ``training_examples`` gave, then what is not as it was in the file."""
        items = self.training_items()
        lines = [self.size_format.format(items=len(items), rows=len(examples))]
        sets = {"train": items, **{name: each.items for name, each in self.sets.items()}}
        samples = {name: every[:: 1 + len(every) // 1000] for name, every in sets.items()}
        lines += text_notes({name: map(self.all_texts, some) for name, some in samples.items()})
        if examples.num_too_long:
            count, length = examples.num_too_long, examples.max_seq_length
            lines.append(self.truncation_note.format(count=count, length=length))
        if equal := self.describe_constant_targets():
            lines.append(
                f"{equal}: there is nothing to learn; are these the columns to learn, and is the "
                "file whole?"
            )
        elif self.target_scale != TargetScale():
            mean, std = self.target_scale
            lines.append(f"The numbers to learn: mean {mean:.6g}, standard deviation {std:.6g}.")
        return lines

    def describe_constant_targets(self) -> str:
        """Sentence on targets that are the same in all training examples, or ""."""
        return ""

    def example_classes(self, item: Any) -> Sequence[Any]:
        """The classes of a labelled example."""
        return (item.label,)

    # === Running a model ===

    def prepare_examples(self, model: BertModel, examples: Examples) -> Examples:
        """Examples as a model takes them; a subclass may run a frozen part of it once."""
        return examples

    def write_predictions(
        self, inference: Inference, set_name: str, folder: str, thresholds: Thresholds
    ) -> list[str]:
        """Predicts on a set and writes its files, by default ``SET.tsv``; gives their paths."""
        from bert_tf.evaluation.evaluation import join_texts
        from bert_tf.evaluation.prediction_files import write_file

        records: Iterable[Record] = predict(self, inference, set_name, thresholds)
        if set_name in self.dev_sets:
            items = self.sets[set_name].items
            records = (
                {
                    **{name: record[name] for name in ("id", "prediction")},
                    # Several classes are a list, as the predicted ones.
                    "expected": list(self.example_classes(item))
                    if self.multi_label
                    else item.label,
                    **record,
                    "text": join_texts(self.display_texts(item)),
                }
                for record, item in zip(records, items, strict=True)
            )
        path = os.path.join(folder, f"{set_name}.tsv")
        write_file(path, records)
        return [path]

    @staticmethod
    @abc.abstractmethod
    def display_texts(item: Any) -> Mapping[str, str]:
        """An example's texts by their names, for people; ``""`` names an only one."""

    @classmethod
    def all_texts(cls, item: Any) -> Mapping[str, str]:
        """Returns every text of an example by its name; by default the texts that are shown."""
        return cls.display_texts(item)

    def _outputs(self, inference: Inference, set_name: str) -> Any:
        """The model's output for each example, (N, ...) float32."""
        return inference.ordered_outputs(tokenized(self, inference, set_name))

    @abc.abstractmethod
    def score(self, items: Items, outputs: Any, thresholds: Thresholds | None) -> Evaluation:
        """Compares what the model says with the labels."""

    def select_scores(self, comparison: Comparison) -> dict[str, float]:
        """Scores to report, the loss and the headline among them."""
        names = [name for name in self.displayed_scores or comparison.scores if name != LOSS]
        scores = comparison.select([*names, self.headline, LOSS])
        # A class that is neither true nor predicted on the set.
        return {self.headline: 0.0, **scores} if self.headline not in scores else scores

    # === From outputs to answers ===

    def answer(self, outputs: Any, thresholds: Thresholds) -> dict[str, tf.Tensor]:
        """Answers of the model's outputs for a batch, by name, a label as its number.

        It is part of the graph of an export, and called with tensors or arrays by predictions.
        """
        raise NotImplementedError

    def record(self, item: Any, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The record of an example, without its id, of its answers in Python's values."""
        raise NotImplementedError

    def records(
        self, items: Items, answers: Iterable[Mapping[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """The record of each example, without its id."""
        return map(self.record, items, answers)

    def answers(
        self, items: Items, outputs: Any, thresholds: Thresholds
    ) -> Iterator[Mapping[str, Any]]:
        """The answers of each example, in Python's values, of the outputs for all."""
        from bert_tf.answering.answers import split_examples

        return split_examples(self.answer(outputs, thresholds), self.labels)

    # === For predictions of a file ===

    @classmethod
    def restore_options(cls, options: Mapping[str, Any], thresholds: Thresholds) -> Any:
        """The options of a model that has thresholds, of those that ``task.json`` keeps."""
        return cls.Options(**options)

    @classmethod
    def check_threshold(cls, value: float, options: Any, model_dir: str) -> str | None:
        """Fault of ``--threshold``, to stand behind a colon; ``None`` if it is right."""
        return None

    @classmethod
    def words_to_write(
        cls, labels: Sequence[str], items: Iterable[Any]
    ) -> Iterator[tuple[str, Sequence[str]]]:
        """Words that an output must hold unsplit: their source, and the words."""
        yield from ()

    @classmethod
    def record_columns(
        cls, labels: Sequence[str], items: Iterable[Any], columns: Mapping[str, Any], options: Any
    ) -> Record:
        """A record that has every key of all.

        ``items`` are the examples that are no bad rows; ``columns`` and ``options`` the training's.
        """
        record = dict(cls.no_prediction)
        return {**record, "probabilities": dict.fromkeys(labels)} if labels else record


class FormReader(NamedTuple):
    """Readers of files of a published form.

    ``read`` takes the path, and ``labels`` (those that there may be), ``labelled``, ``encoding``
    and ``skip_bad_rows``; ``is_labelled`` a path, and says whether the file has labels. The columns
    of files that are tables may be named after all.
    """

    read: Callable[..., ExampleSet]
    is_labelled: Callable[[str], bool]
    is_table: bool = False


TaskT = TypeVar("TaskT", bound=Task)


def with_options(task: TaskT, options: Any) -> TaskT:
    """A task on the same data, tokenised once for both, with other options."""
    other = copy.copy(task)
    other._apply(options)
    return other


def _check_metric(task: Task, name: str) -> None:
    classes = task.scored_classes
    known = [metric for metric in task.metrics if metric not in task.unavailable_metrics]
    class_metrics = [f"{metric}_{label}" for label in classes for metric in CLASS_METRICS]
    if name not in (*known, *class_metrics):
        class_forms = ""
        if classes:
            forms = ", ".join(f"{metric}_CLASS" for metric in CLASS_METRICS)
            class_forms = f"; or {forms}, and the classes are {listed(classes)}"
        raise ValueError(
            f"--metric={one_line(name)} is no score of {task.name}: expected "
            f"{', '.join(known)}{class_forms}."
        )


def label_counts(task: Task, set_name: str | None) -> Mapping[str, int]:
    """Counts of the labels in a dev set, or (``None``) the training set; {} without labels."""
    items = task.training_items() if set_name is None else task.sets[set_name].items
    names = map(task.example_classes, items if task.labels else ())
    return collections.Counter(itertools.chain.from_iterable(names))


# === Running a model ===


def tokenized(task: Task, inference: Inference, set_name: str) -> Any:
    """The rows of a set, as ``rows`` makes them, once for all that ask."""
    return task.tokenized(inference.tokenizer, set_name, inference.max_seq_length)


def outputs(task: Task, inference: Inference, set_name: str) -> Any:
    """Predictions on a set, in the set's order."""
    return inference.cached(set_name, lambda: task._outputs(inference, set_name))


def evaluate(
    task: Task, inference: Inference, set_name: str, thresholds: Thresholds | None = None
) -> Evaluation:
    """Predicts on one of the ``dev_sets`` and compares.

    Scores by the ``thresholds``, by the defaults where {}; with ``None`` by the best thresholds of
    this set.
    """
    return task.score(task.sets[set_name].items, outputs(task, inference, set_name), thresholds)


def predict(
    task: Task, inference: Inference, set_name: str, thresholds: Thresholds
) -> Iterator[Record]:
    """Predicts on a set: a record of each example, as ``bert_tf.Predictor`` has them."""
    items = task.sets[set_name].items
    if items:
        answers = task.answers(items, outputs(task, inference, set_name), thresholds)
        for item, record in zip(items, task.records(items, answers), strict=True):
            yield {"id": item.id, **record}
