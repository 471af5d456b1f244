"""Interface of task types: data, model, loss, evaluation and predictions.

Each task type is a subclass of ``Task`` in a subpackage, and is listed in ``registry``. Fine-tuning
and prediction use only this interface. ``--help`` reads the options of every task type without
loading TensorFlow, so modules of task types import TensorFlow only inside methods.

Dimensions: N examples, C classes.
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

from bert_tf.evaluation.metrics import CLASS_METRICS, LOSS, Comparison
from bert_tf.io.messages import listed, one_line
from bert_tf.readers import examples as read
from bert_tf.readers import tables
from bert_tf.readers.data_warnings import text_notes

from .target_scale import TargetScale

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.evaluation.evaluation import Evaluation, Inference, Thresholds
    from bert_tf.evaluation.prediction_files import Record
    from bert_tf.modeling.base import BertModel
    from bert_tf.modeling.pooling import SentenceEmbedding
    from bert_tf.pipelines.tokenized_examples import Examples
    from bert_tf.pipelines.wordpiece import BertTokenizer

ExampleSet = read.ExampleSet[Any]
Items = Sequence[Any]
# Description of a random split of distinct examples, for messages.
RANDOM = "chosen at random"
# Name of the data set that is never used to choose weights or thresholds.
TEST = "test"


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """Options of task types without options."""


class Task(abc.ABC):
    """Base class of task types; an instance combines a task type with its data.

    Subclasses define the class attributes below and the abstract methods.
    ``examples/star_ratings.py`` is a complete task type.

    Args:
        name: Name of the task for messages.
        train: Labeled training examples; ``None`` without training data.
        dev: Labeled evaluation examples by data set name: "dev", or for MNLI "dev_matched" and
            "dev_mismatched", and "test" if it has labels.
        test: Examples to predict by data set name. The data sets may be empty.
        labels: Class names in the order of the class ids; by default the labels of ``train`` or,
            without training data, of the first data set that has labels.
        metric: Score that selects the best epoch and run, stored as ``headline``; by default
            ``default_metric``.
        options: Instance of ``Options``; by default one with default values.
        folder: Directory for temporary files, which are deleted when the process ends.
        embedding: For embedding models, how a text is converted to a vector.
    """

    # === The task type ===

    # Name of the task type in ``task.json`` and, for user data, in ``--task``.
    kind: ClassVar[str]
    # Names of published tasks that ``--task`` accepts.
    published: ClassVar[Sequence[str]] = ()
    # Dataclass of ``cli.flag_fields``. Each field is a flag and a keyword of ``api.fine_tune``;
    # some fields are also stored in ``task.json``.
    Options: ClassVar[type] = NoOptions
    # Name of the model class in ``modeling.MODEL_CLASSES``, and name of an alternative class.
    model: str
    alternative_model: ClassVar[str] = ""
    # Format of ``--text_columns``, minimum and maximum number of columns, and default columns.
    text_form: ClassVar[str] = "A or A,B"
    num_texts: ClassVar[tuple[int, int]] = (1, 2)
    default_texts: ClassVar[Sequence[str]] = ()
    # Default text columns of Python data and of tables to predict, by number of texts.
    in_memory_columns: ClassVar[Sequence[tuple[str, ...]]] = (("text",), ("text_a", "text_b"))
    # Whether the text of a row is a list of words.
    reads_words: ClassVar[bool] = False
    # Default of ``--label_column``, and whether the column may be missing.
    default_label: ClassVar[str | None] = None
    label_is_optional: ClassVar[bool] = False
    # Whether .json files, and files that are not tables, have a published format.
    reads_native_format: ClassVar[bool] = False
    # Default of ``--max_seq_length``.
    max_seq_length: ClassVar[int] = 128
    # Values of ``--metric``, some of which may not be available for a data set, and whether
    # ``--metric`` can also be the score of a class or an entity type.
    metrics: ClassVar[Sequence[str]] = ()
    class_metrics: ClassVar[bool] = False
    # Noun for the labels in messages ("classes", "tags"); "" for task types without labels.
    classes: ClassVar[str] = ""
    multi_label: ClassVar[bool] = False
    # Name of the threshold that predictions depend on.
    threshold: ClassVar[str | None] = None
    # Whether the models embed texts, as specified by a ``SentenceEmbedding``.
    embeds: ClassVar[bool] = False
    # Format string for the size of the training set.
    size_format: ClassVar[str] = "{rows:,} examples"
    # Whether evaluation rows include labels, so that losses are computed together with the outputs.
    evaluates_with_labels: ClassVar[bool] = False
    # Format string for the note on truncated examples.
    truncation_note: str = (
        "{count:,} of the training examples have more than {length} tokens (--max_seq_length) "
        "and are truncated."
    )
    # Scores to report; () for all scores.
    displayed_scores: Sequence[str] = ()
    # Weights by output name if ``loss`` returns several losses.
    loss_weights: ClassVar[Mapping[str, float] | None] = None
    # Record of an example that cannot be predicted.
    no_prediction: ClassVar[Record] = MappingProxyType({"id": "", "prediction": None})
    # Suffixes of prediction files.
    output_suffixes: ClassVar[Sequence[str]] = (".tsv", ".csv", ".jsonl")

    @classmethod
    def changed_defaults(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the flag defaults that change because of the options in ``values``."""
        return {}

    @classmethod
    def option_fields(cls, **metadata: Any) -> dict[str, dataclasses.Field[Any]]:
        """Returns the option fields that have the given metadata, by name."""
        fields = dataclasses.fields(cls.Options)
        return {field.name: field for field in fields if metadata.items() <= field.metadata.items()}

    @classmethod
    def saved_options(cls, options: Any) -> dict[str, Any]:
        """Returns the options that ``task.json`` stores for prediction and export."""
        return {name: getattr(options, name) for name in cls.option_fields(saved_in_task_file=True)}

    @classmethod
    def is_table_file(cls, path: str) -> bool:
        """Returns whether the task type reads a file with this path as a table."""
        is_json = path.lower().removesuffix(".gz").endswith(".json")
        return tables.is_table(path) and not (cls.reads_native_format and is_json)

    # Key in ``all_texts`` of the text that should not occur in two splits; "" if only the
    # combination of all texts should not.
    unshared_text: ClassVar[str] = ""

    # Reads a table, given ``text_columns`` and ``label_column``, which is ``None`` for prediction.
    # Further arguments are ``id_column``, ``skip_bad_rows``, the options for tables and, for task
    # types with classes, ``labels``: the allowed labels, by default those that occur.
    read: ClassVar[Callable[..., ExampleSet]]

    @classmethod
    def grouping(cls, items: Items, fraction: float) -> tuple[Callable[[Any], Hashable], str]:
        """Returns a function that maps an example to its group, and a description of the groups.

        When a ``fraction`` of the examples is held out, each group stays in one split.
        """
        return (lambda item: tuple(cls.display_texts(item).values())), RANDOM

    @classmethod
    def native_reader(cls, name: str, columns: Mapping[str, Any]) -> FormReader | None:
        """Returns the reader for files in a published format, or ``None`` if there is none.

        ``columns`` are the columns of the training data.
        """
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
        #: Name of the data set that selects weights and thresholds: the first one except ``TEST``.
        self.deciding_set = next((set_name for set_name in dev if set_name != TEST), None)
        self._train, self.sets = train, {**dev, **test}
        for set_name, examples in dev.items():
            if not examples.items:
                raise ValueError(f"{name}: {set_name} is empty: expected examples to evaluate on.")
        labelled = {**({"train": train} if train else {}), **dev}
        self._labelled: list[Any] = [i for examples in labelled.values() for i in examples.items]
        self.labels: tuple[str, ...] = ()
        if self.classes:
            sets = [*labelled.values(), *test.values()]
            self.labels = tuple(labels) or next((e.labels for e in sets if e.labels), ())
            if not self.labels:
                raise ValueError(f"{name} has no labels: expected the names of the {self.classes}.")
        self._ids: dict[Any, int] = {label: number for number, label in enumerate(self.labels)}
        for set_name, examples in labelled.items():
            for problem in filter(None, map(self.check_example, examples.items)):
                raise ValueError(f"{name}, {set_name}: {problem}.")
        #: Function that returns the tokenized rows of a data set; copies share its cache.
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

    # === Training ===

    def _apply(self, options: Any) -> None:
        """Sets the options; called by the constructor and by ``with_options``."""
        self.options = options
        #: Arguments of ``model.compile`` for the losses and their weights.
        self.compile_arguments = {"loss": self.loss(), "loss_weights": self.loss_weights}

    @property
    @abc.abstractmethod
    def default_metric(self) -> str:
        """Default of ``metric``."""

    @property
    def unavailable_metrics(self) -> Collection[str]:
        """Scores that are not available for this data set."""
        return ()

    @property
    def logged_scores(self) -> Sequence[str]:
        """Names of the scores that each evaluation logs."""
        names = self.displayed_scores or [
            name for name in self.metrics if name not in self.unavailable_metrics
        ]
        loss = [name for name in self.metrics if name == LOSS]
        return list(dict.fromkeys([*names, self.headline, *loss]))

    @property
    def model_arguments(self) -> dict[str, Any]:
        """Arguments of the model's constructor in addition to the config."""
        return {"num_classes": len(self.labels)} if self.classes else {}

    def loss(self) -> Any:
        """Returns the training loss, by default the cross-entropy of classes."""
        import keras

        if smoothing := getattr(self.options, "label_smoothing", 0.0):
            from .losses import SmoothedCrossEntropy

            return SmoothedCrossEntropy(smoothing)
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @staticmethod
    def loss_weight(targets: Any) -> tf.Tensor:
        """Returns the weight of a micro-batch's mean loss, by default the number of rows."""
        import tensorflow as tf

        return tf.cast(tf.shape(tf.nest.flatten(targets)[0])[0], tf.float32)

    # === Data ===

    @property
    def default_thresholds(self) -> Thresholds:
        """Thresholds to use if there is no data set to tune them on."""
        return {}

    @property
    def scored_classes(self) -> Sequence[str]:
        """Names of the classes for which ``CLASS_METRICS`` are computed."""
        return self.labels

    def check_example(self, item: Any) -> str | None:
        """Returns an error message if a model cannot learn from an example, else ``None``."""
        return None

    @abc.abstractmethod
    def rows(
        self, tokenizer: BertTokenizer, items: Items, max_seq_length: int, *, labelled: bool
    ) -> Any:
        """Tokenizes examples; the batches include targets if ``labelled`` is true."""

    def training_items(self) -> Items:
        """Returns the labeled training examples."""
        if self._train is None or not self._train.items:
            raise ValueError(f"{self.name} has no training set: expected examples to train on.")
        return self._train.items

    def training_examples(self, tokenizer: BertTokenizer, max_seq_length: int) -> Examples:
        """Returns the tokenized training set: batches of features and labels."""
        items = self.training_items()
        examples: Examples = self.rows(tokenizer, items, max_seq_length, labelled=True)
        return examples

    def training_summary(self, examples: Examples) -> list[str]:
        """Returns the size of the training set and notes on its data."""
        items = self.training_items()
        lines = [self.size_format.format(items=len(items), rows=len(examples))]
        sets = {"train": items, **{name: self.sets[name].items for name in self.sets}}
        samples = {name: sets[name][:: 1 + len(sets[name]) // 1000] for name in sets}
        lines += text_notes({name: map(self.all_texts, samples[name]) for name in samples})
        if examples.num_too_long:
            count, length = examples.num_too_long, examples.max_seq_length
            lines.append(self.truncation_note.format(count=count, length=length))
        if equal := self.describe_constant_targets():
            lines.append(
                f"{equal}, so there is nothing to learn. Check the label column and whether the "
                "file is complete."
            )
        elif self.target_scale != TargetScale():
            mean, std = self.target_scale
            lines.append(f"Training targets: mean {mean:.6g}, standard deviation {std:.6g}.")
        return lines

    def describe_constant_targets(self) -> str:
        """Returns a message if all training targets are equal, else ""."""
        return ""

    def example_classes(self, item: Any) -> Sequence[Any]:
        """Returns the classes of a labeled example."""
        return (item.label,)

    # === Running a model ===

    def prepare_examples(self, model: BertModel, examples: Examples) -> Examples:
        """Returns the model's input examples; a subclass can run frozen layers in advance."""
        return examples

    def write_predictions(
        self, inference: Inference, set_name: str, folder: str, thresholds: Thresholds
    ) -> list[str]:
        """Writes the predictions on a data set, by default to ``SET.tsv``; returns the paths."""
        from bert_tf.evaluation.evaluation import join_texts
        from bert_tf.evaluation.prediction_files import write_file

        records: Iterable[Record] = predict(self, inference, set_name, thresholds)
        if set_name in self.dev_sets:
            items = self.sets[set_name].items
            records = (
                {
                    **{name: record[name] for name in ("id", "prediction")},
                    # Multi-label classes are a list, like the predictions.
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
        """Returns the texts of an example by name, for display; a single text has the name ""."""

    @classmethod
    def all_texts(cls, item: Any) -> Mapping[str, str]:
        """Returns all texts of an example by name; by default ``display_texts``."""
        return cls.display_texts(item)

    def _outputs(self, inference: Inference, set_name: str) -> Any:
        """Returns the model's outputs for each example, shape (N, ...) float32."""
        return inference.ordered_outputs(tokenized(self, inference, set_name))

    @abc.abstractmethod
    def score(self, items: Items, outputs: Any, thresholds: Thresholds | None) -> Evaluation:
        """Compares the model's outputs with the labels."""

    def select_scores(self, comparison: Comparison) -> dict[str, float]:
        """Returns the scores to report, including the loss and the headline."""
        names = [name for name in self.displayed_scores or comparison.scores if name != LOSS]
        scores = comparison.select([*names, self.headline, LOSS])
        # The headline's class may be missing from the labels and the predictions.
        return {self.headline: 0.0, **scores} if self.headline not in scores else scores

    # === Answers ===

    def answer(self, outputs: Any, thresholds: Thresholds) -> dict[str, tf.Tensor]:
        """Converts the model's outputs for a batch to answers by name, with labels as ids.

        Exports include this method in their graphs; prediction calls it with tensors or arrays.
        """
        raise NotImplementedError

    def record(self, item: Any, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Returns an example's record, without the id, from the answers as Python values."""
        raise NotImplementedError

    def records(
        self, items: Items, answers: Iterable[Mapping[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """Returns the record of each example, without the id."""
        return map(self.record, items, answers)

    def answers(
        self, items: Items, outputs: Any, thresholds: Thresholds
    ) -> Iterator[Mapping[str, Any]]:
        """Yields the answers for each example as Python values."""
        from bert_tf.answering.classes import split_examples

        return split_examples(self.answer(outputs, thresholds), self.labels)

    # === Prediction of files ===

    @classmethod
    def restore_options(cls, options: Mapping[str, Any], thresholds: Thresholds) -> Any:
        """Creates the options from those in ``task.json`` and the model's thresholds."""
        return cls.Options(**options)

    @classmethod
    def check_threshold(cls, value: float, options: Any, model_dir: str) -> str | None:
        """Returns an error message for an invalid ``--threshold``, else ``None``."""
        return None

    @classmethod
    def words_to_write(
        cls, labels: Sequence[str], items: Iterable[Any]
    ) -> Iterator[tuple[str, Sequence[str]]]:
        """Yields pairs of a source and its words, which the output format must not split."""
        yield from ()

    @classmethod
    def record_columns(
        cls, labels: Sequence[str], items: Iterable[Any], columns: Mapping[str, Any], options: Any
    ) -> Record:
        """Returns an empty record with the keys of all records.

        ``items`` are the examples without bad rows; ``columns`` and ``options`` are the settings
        that the model was trained with.
        """
        record = dict(cls.no_prediction)
        return {**record, "probabilities": dict.fromkeys(labels)} if labels else record


class FormReader(NamedTuple):
    """Functions that read files in a published format.

    Attributes:
        read: Function of the path, ``labels`` (the allowed labels), ``labelled``, ``encoding`` and
            ``skip_bad_rows``.
        is_labelled: Function that returns whether a file has labels.
        is_table: Whether the files are tables, which can also be read with specified columns.
    """

    read: Callable[..., ExampleSet]
    is_labelled: Callable[[str], bool]
    is_table: bool = False


TaskT = TypeVar("TaskT", bound=Task)


def with_options(task: TaskT, options: Any) -> TaskT:
    """Returns a copy of a task with different options; both share the tokenized data."""
    updated = copy.copy(task)
    updated._apply(options)
    return updated


def _check_metric(task: Task, name: str) -> None:
    classes = task.scored_classes
    known = [metric for metric in task.metrics if metric not in task.unavailable_metrics]
    class_metrics = [f"{metric}_{label}" for label in classes for metric in CLASS_METRICS]
    if name not in (*known, *class_metrics):
        class_forms = ""
        if classes:
            forms = ", ".join(f"{metric}_CLASS" for metric in CLASS_METRICS)
            class_forms = f" or {forms} for the classes {listed(classes)}"
        raise ValueError(
            f"--metric={one_line(name)} is not available for {task.name}: expected "
            f"{', '.join(known)}{class_forms}."
        )


def label_counts(task: Task, set_name: str | None) -> Mapping[str, int]:
    """Returns how often each label occurs in a dev set or, for ``None``, in the training set.

    The result is empty if the task has no labels.
    """
    items = task.training_items() if set_name is None else task.sets[set_name].items
    names = map(task.example_classes, items if task.labels else ())
    return collections.Counter(itertools.chain.from_iterable(names))


# === Running a model ===


def tokenized(task: Task, inference: Inference, set_name: str) -> Any:
    """Returns the tokenized rows of a data set; the rows are cached."""
    return task.tokenized(inference.tokenizer, set_name, inference.max_seq_length)


def outputs(task: Task, inference: Inference, set_name: str) -> Any:
    """Returns the model's outputs for a data set, in order, from the cache if there is one."""
    cache = {} if inference.cache is None else inference.cache
    if set_name not in cache:
        cache[set_name] = task._outputs(inference, set_name)
    return cache[set_name]


def evaluate(
    task: Task, inference: Inference, set_name: str, thresholds: Thresholds | None = None
) -> Evaluation:
    """Evaluates a model on one of the ``dev_sets``.

    Args:
        task: Task with the data set.
        inference: Model and settings.
        set_name: Name of the data set.
        thresholds: Thresholds; {} for the defaults, or ``None`` to tune them on this data set.
    """
    return task.score(task.sets[set_name].items, outputs(task, inference, set_name), thresholds)


def predict(
    task: Task, inference: Inference, set_name: str, thresholds: Thresholds
) -> Iterator[Record]:
    """Predicts on a data set and yields the record of each example, like ``bert_tf.Predictor``."""
    items = task.sets[set_name].items
    if items:
        answers = task.answers(items, outputs(task, inference, set_name), thresholds)
        for item, record in zip(items, task.records(items, answers), strict=True):
            yield {"id": item.id, **record}
