"""Texts, or pairs of texts, as a task of fine-tuning: classes, several classes, numbers; GLUE."""

import collections
import functools
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from bert_tf import features
from bert_tf.pipelines import length_buckets
from bert_tf.pipelines.classification import classification_examples
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.tasks.examples import Examples, TextExample
from bert_tf.tasks.glue import write_glue_submission
from bert_tf.tasks.glue_tasks import glue_task
from bert_tf.untrusted import listed

from .class_kinds import ClassesKind, ClassKind
from .data_sets import DataSets
from .inference import batch_outputs
from .number_kind import NumberKind
from .prediction_files import Record, with_expected, write_records
from .task import Evaluation, Inference, TargetScale, Task
from .text_kinds import TextKind

Kind = Literal["classification", "multilabel", "regression"]
# The name of MNLI's further set to predict: GLUE's diagnostic set.
DIAGNOSTIC = "ax"


class TextTask(Task):
    """One text each, or two, with a class, any number of classes, or a number.

    ``class_kinds`` and ``number_kind`` say what each kind's scores and mistakes are.

    Source: Devlin et al. 2019, section 4.1; google-research/bert ``run_classifier.py``.

    Args:
        name: for messages.
        train: labelled examples; ``None`` where there is nothing to train on.
        dev: by the set's name, labelled examples, to evaluate on.
        test: by the set's name, examples to predict. A set may be empty.
        kind: what is learned.
        glue: the task's name in ``glue_tasks.GLUE_TASKS``; its metrics are used, and ``test`` sets
            are GLUE's, and become files of a submission. Of MNLI one may be ``DIAGNOSTIC``.
        class_weights: of classification: what an example of a class counts in the loss, by the
            class's name; 1 for classes not named.
        labels: the classes in the order of their ids; by default those of ``train``, or, without
            it, of the first set that has any.

    Raises:
        ValueError: as ``DataSets``; there is no such kind; there are no labels; an example to train
            or to evaluate on has a label that is none; or the weights do not fit.
    """

    def __init__(
        self,
        name: str,
        train: Examples[TextExample] | None,
        dev: Mapping[str, Examples[TextExample]],
        test: Mapping[str, Examples[TextExample]],
        *,
        kind: Kind = "classification",
        glue: str | None = None,
        class_weights: Mapping[str, float] | None = None,
        labels: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.dev_sets, self.test_sets = tuple(dev), tuple(test)
        self._data = DataSets(name, train, dev, test)
        if kind != "regression":
            sets = [*([train] if train else []), *dev.values(), *test.values()]
            self.labels = tuple(labels) or next((kept.labels for kept in sets if kept.labels), ())
            if not self.labels:
                raise ValueError(f"{name} has no labels: expected the names of the classes.")
        self.multi_label = kind == "multilabel"
        self._kind = _make_kind(name, kind, self.labels, glue)
        self._data.check_labelled(self._kind.find_fault)
        self._glue = glue
        self.model_class = self._kind.model_class
        self.model_arguments = self._kind.model_arguments
        self.headline = self._kind.headline
        if train is not None and train.items:
            self.target_scale = self._kind.target_scale(train.items)
        self._class_weights = class_weights
        if class_weights is not None:
            _check_weights(name, kind, self.labels, class_weights)
        self._tokenized = functools.cache(self._tokenize)

    def training_examples(
        self, tokenizer: BertTokenizer, max_seq_length: int
    ) -> length_buckets.Examples:
        """The training set's rows with labels and, with class weights, sample weights.

        Raises:
            ValueError: there is no training set; or as ``classification_examples``.
        """
        items = self._data.training_items()
        weights = None
        if self._class_weights is not None:
            weights = [self._class_weights.get(str(item.label), 1.0) for item in items]
        return classification_examples(
            tokenizer,
            *_texts(items),
            labels=self._kind.targets(items),
            sample_weights=weights,
            max_seq_length=max_seq_length,
        )

    def training_lines(self, examples: length_buckets.Examples) -> list[str]:
        """Counts examples; of numbers, where they lie."""
        lines = super().training_lines(examples)
        if self.target_scale != TargetScale():
            mean, std = self.target_scale
            lines.append(f"The numbers to learn: mean {mean:.6g}, standard deviation {std:.6g}.")
        return lines

    def label_counts(self, set_name: str | None) -> Mapping[str, int]:
        """How many examples each class has."""
        items = self._data.training_items() if set_name is None else self._data.items(set_name)
        if not self.labels:
            return {}
        names = (item.label if self.multi_label else (item.label,) for item in items)
        return collections.Counter(itertools.chain.from_iterable(names))  # type: ignore[arg-type]

    def compile_arguments(self) -> dict[str, Any]:
        """The kind's loss and metrics."""
        return self._kind.compile_arguments()

    def evaluate(
        self,
        inference: Inference,
        set_name: str,
        thresholds: Mapping[str, float] | None = None,
    ) -> Evaluation:
        """The kind's scores."""
        items = self._data.items(set_name)
        outputs = inference.once(set_name, lambda: self._outputs(inference, set_name))
        return self._kind.evaluate(items, outputs, thresholds)

    def predict(
        self, inference: Inference, set_name: str, thresholds: Mapping[str, float]
    ) -> Iterator[Record]:
        """The kind's predictions."""
        items = self._data.items(set_name)
        if not items:
            return
        outputs = inference.once(set_name, lambda: self._outputs(inference, set_name))
        predictions = self._kind.predictions(outputs, thresholds)
        for item, prediction in zip(items, predictions, strict=True):
            record: dict[str, Any] = {"id": item.id, "prediction": prediction.value}
            if prediction.probabilities:
                record["probabilities"] = prediction.probabilities
            yield record

    def write_predictions(
        self, inference: Inference, set_name: str, folder: str, thresholds: Mapping[str, float]
    ) -> list[str]:
        """Writes a GLUE test set's file of a submission; else ``SET.tsv``.

        That has the columns id, prediction, of a labelled set expected, and of each class its
        probability.
        """
        records = self.predict(inference, set_name, thresholds)
        if self._glue is not None and set_name in self.test_sets:
            is_diagnostic = set_name == DIAGNOSTIC
            task, split = ("AX", "test") if is_diagnostic else (self._glue, set_name)
            values = {record["id"]: record["prediction"] for record in records}
            return [write_glue_submission(folder, task, split, [*values], [*values.values()])]
        path = os.path.join(folder, f"{set_name}.tsv")
        if set_name in self.dev_sets:
            items = self._data.items(set_name)
            records = map(with_expected, records, (_shown_label(item) for item in items))
        write_records(path, records)
        return [path]

    def _outputs(self, inference: Inference, set_name: str) -> np.ndarray:
        """The model's outputs in the set's order, (N, C) or (N,) float32."""
        examples = self._tokenized(inference.tokenizer, set_name, inference.max_seq_length)
        places, rows = [], []
        for batch, outputs in batch_outputs(inference.model, examples, inference.batch_size):
            places.append(batch[features.EXAMPLE_INDEX])
            rows.append(outputs)
        order = np.argsort(np.concatenate(places))
        return np.concatenate(rows)[order]

    def _tokenize(
        self, tokenizer: BertTokenizer, set_name: str, max_seq_length: int
    ) -> length_buckets.Examples:
        texts, second_texts = _texts(self._data.items(set_name))
        return classification_examples(
            tokenizer, texts, second_texts, max_seq_length=max_seq_length
        )


def _make_kind(name: str, kind: str, labels: Sequence[str], glue: str | None) -> TextKind:
    if glue is not None:
        expected = "classification" if glue_task(glue).labels else "regression"
        if kind != expected:
            raise ValueError(f"{name}: kind is {kind!r}, expected {expected}, which {glue} is.")
    if kind == "classification":
        return ClassKind(labels, glue)
    if kind == "multilabel":
        return ClassesKind(labels)
    if kind == "regression":
        return NumberKind()
    raise ValueError(
        f"{name}: kind is {kind!r}, expected classification, multilabel or regression."
    )


def _check_weights(
    name: str, kind: str, labels: Sequence[str], class_weights: Mapping[str, float]
) -> None:
    if kind != "classification":
        raise ValueError(
            f"{name}: class weights are for classification, where each example has one class; got "
            f"them for {kind}."
        )
    for label, weight in class_weights.items():
        if label not in labels:
            raise ValueError(
                f"{name}: class_weights names {label!r}, expected some of {listed(labels)}."
            )
        if not 0 < weight < float("inf"):
            raise ValueError(
                f"{name}: the class weight of {label} is {weight}, expected a number above 0."
            )


def _texts(items: Sequence[TextExample]) -> tuple[list[str], list[str] | None]:
    """The texts, and the second ones where the examples are pairs."""
    second = None
    if items[0].text_b is not None:
        second = [str(item.text_b) for item in items]
    return [item.text_a for item in items], second


def _shown_label(item: TextExample) -> Any:
    """The label; names of classes as a list, as they are predicted."""
    return list(item.label) if isinstance(item.label, tuple) else item.label
