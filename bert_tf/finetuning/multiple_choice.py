"""Multiple choice as a task of fine-tuning: which of K continuations follows a context."""

import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from bert_tf import features
from bert_tf.modeling import BertMultipleChoice
from bert_tf.pipelines import length_buckets
from bert_tf.pipelines.multiple_choice import multiple_choice_examples
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.tasks.examples import ChoiceExample, Examples
from bert_tf.tasks.metrics import accuracy

from .data_sets import DataSets
from .inference import batch_outputs, log_softmax
from .prediction_files import Record, with_expected, write_records
from .task import Evaluation, Inference, Mistake, Task, is_constant, worst_first


class ChoiceTask(Task):
    """Contexts with some continuations each, as SWAG's and CODAH's.

    Source: Devlin et al. 2019, section 4.4: the loss is the cross-entropy of a softmax over the
    choices.

    Args:
        name: for messages.
        train: labelled examples; ``None`` where there is nothing to train on.
        dev: by the set's name, labelled examples, to evaluate on.
        test: by the set's name, examples to predict; labels they may have do not count. A set may
            be empty.

    Raises:
        ValueError: as ``DataSets``, or an example to train or evaluate on has no label.
    """

    model_class = BertMultipleChoice
    model_arguments: Mapping[str, Any] = {}
    headline = "accuracy"

    def __init__(
        self,
        name: str,
        train: Examples[ChoiceExample] | None,
        dev: Mapping[str, Examples[ChoiceExample]],
        test: Mapping[str, Examples[ChoiceExample]],
    ) -> None:
        self.name = name
        self.dev_sets, self.test_sets = tuple(dev), tuple(test)
        self._data = DataSets(name, train, dev, test)
        self._data.check_labelled(_find_fault)
        self._tokenized = functools.cache(self._tokenize)

    def training_examples(
        self, tokenizer: BertTokenizer, max_seq_length: int
    ) -> length_buckets.Examples:
        """The training set's rows, (B, K, S), with labels (B,).

        Raises:
            ValueError: there is no training set; or as ``multiple_choice_examples``.
        """
        items = self._data.training_items()
        return multiple_choice_examples(
            tokenizer,
            [item.context for item in items],
            [item.choices for item in items],
            labels=[item.label for item in items],
            max_seq_length=max_seq_length,
        )

    def compile_arguments(self) -> dict[str, Any]:
        """Cross-entropy, and accuracy."""
        return {
            "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "metrics": [keras.metrics.SparseCategoricalAccuracy("accuracy")],
        }

    def evaluate(
        self,
        inference: Inference,
        set_name: str,
        thresholds: Mapping[str, float] | None = None,
    ) -> Evaluation:
        """Accuracy; a mistake's loss is the negative log-likelihood of the right choice."""
        items = self._data.items(set_name)
        log_probabilities = inference.once(set_name, lambda: self._predict(inference, set_name))
        chosen = log_probabilities.argmax(1)
        labels = np.array([item.label for item in items])
        losses = -log_probabilities[np.arange(len(items)), labels]
        return Evaluation(
            scores={"accuracy": accuracy(labels, chosen)},
            constant=is_constant(labels, chosen),
            mistakes=[
                Mistake(
                    items[index].id,
                    items[index].context,
                    items[index].choices[labels[index]],
                    items[index].choices[chosen[index]],
                    float(losses[index]),
                )
                for index in worst_first(losses, chosen != labels)
            ],
        )

    def predict(
        self, inference: Inference, set_name: str, thresholds: Mapping[str, float]
    ) -> Iterator[Record]:
        """The likeliest choice; there is no threshold."""
        log_probabilities = inference.once(set_name, lambda: self._predict(inference, set_name))
        for item, row in zip(self._data.items(set_name), log_probabilities, strict=True):
            probabilities = {str(choice): p for choice, p in enumerate(np.exp(row).tolist())}
            yield {"id": item.id, "prediction": int(row.argmax()), "probabilities": probabilities}

    def write_predictions(
        self, inference: Inference, set_name: str, folder: str, thresholds: Mapping[str, float]
    ) -> list[str]:
        """Writes ``SET.tsv``.

        It has the columns id, prediction (the choice's number, from 0), of a labelled set expected,
        and of each choice its probability.
        """
        records = self.predict(inference, set_name, thresholds)
        if set_name in self.dev_sets:
            labels = (item.label for item in self._data.items(set_name))
            records = map(with_expected, records, labels)
        path = os.path.join(folder, f"{set_name}.tsv")
        write_records(path, records)
        return [path]

    def _tokenize(
        self, tokenizer: BertTokenizer, set_name: str, max_seq_length: int
    ) -> length_buckets.Examples:
        items = self._data.items(set_name)
        return multiple_choice_examples(
            tokenizer,
            [item.context for item in items],
            [item.choices for item in items],
            max_seq_length=max_seq_length,
        )

    def _predict(self, inference: Inference, set_name: str) -> np.ndarray:
        """The choices' log-probabilities, (N, K)."""
        items = self._data.items(set_name)
        if not items:
            return np.zeros([0, 0])
        log_probabilities = np.empty([len(items), len(items[0].choices)])
        examples = self._tokenized(inference.tokenizer, set_name, inference.max_seq_length)
        for batch, logits in batch_outputs(inference.model, examples, inference.batch_size):
            log_probabilities[batch[features.EXAMPLE_INDEX]] = log_softmax(logits)
        return log_probabilities


def _find_fault(item: ChoiceExample) -> str | None:
    if item.label is None:
        return f"the example {item.id} has no label: expected the number of the right choice"
    return None
