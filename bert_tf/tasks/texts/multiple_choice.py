"""Task type for multiple choice: which of several texts follows a context."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.evaluation.scores import CHOICE_SCORES, LOSS, compare
from bert_tf.tasks.task import RANDOM, ExampleSet, FormReader, Items, Task
from bert_tf.tasks.training_options import Smoothing

from .multiple_choice_reader import read_choices, read_swag, swag_has_labels

if TYPE_CHECKING:
    from bert_tf.evaluation.evaluation import Evaluation, Inference, Thresholds
    from bert_tf.evaluation.prediction_files import Record
    from bert_tf.pipelines.tokenized_examples import Examples
    from bert_tf.pipelines.wordpiece import BertTokenizer
    from bert_tf.readers.examples import ChoiceExample


class MultipleChoiceTask(Task):
    """Multiple choice, such as SWAG.

    The loss is the cross-entropy of a softmax over the choices, whose number can differ between
    examples.

    Source: Devlin et al. 2019, section 4.4.
    """

    kind = "multiple_choice"
    published = ("swag",)
    Options = Smoothing
    model = "BertMultipleChoice"
    text_form = "CONTEXT,CHOICE,..."
    num_texts = (2, 100)
    in_memory_columns = (("context", "choices"),)
    metrics = (*CHOICE_SCORES, LOSS)
    default_metric = "accuracy"
    read = staticmethod(read_choices)

    @classmethod
    def grouping(cls, items: Items, fraction: float) -> tuple[Callable[[Any], Hashable], str]:
        """Groups the examples of a context."""
        return (lambda item: item.context), RANDOM

    @classmethod
    def native_reader(cls, name: str, columns: Mapping[str, Any]) -> FormReader | None:
        """Returns the reader of SWAG's tables, for models trained on SWAG."""
        is_swag = name == "swag" and not columns
        return FormReader(_read_swag, swag_has_labels, is_table=True) if is_swag else None

    def loss(self) -> Any:
        """Returns a loss that ignores padding if the number of choices varies."""
        from bert_tf.tasks.losses import ChoiceCrossEntropy

        if self._train and len({len(item.choices) for item in self._train.items}) > 1:
            return ChoiceCrossEntropy(self.options.label_smoothing)
        return super().loss()

    def rows(
        self, tokenizer: BertTokenizer, items: Items, max_seq_length: int, *, labelled: bool
    ) -> Examples:
        """Tokenizes choices in batches of rows (B, K, S) and indices of correct choices (B,)."""
        from bert_tf.pipelines.classification import multiple_choice_examples

        return multiple_choice_examples(
            tokenizer,
            [item.context for item in items],
            [item.choices for item in items],
            labels=[item.label for item in items] if labelled else None,
            max_seq_length=max_seq_length,
        )

    def _outputs(self, inference: Inference, set_name: str) -> np.ndarray:
        """Returns logits of shape (N, K), with K the maximum number of choices."""
        from bert_tf.tasks.losses import NO_CHOICE

        logits: np.ndarray = super()._outputs(inference, set_name)
        counts = np.array([len(item.choices) for item in self.sets[set_name].items])
        return np.where(np.arange(logits.shape[1]) < counts[:, None], logits, NO_CHOICE)

    def score(self, items: Items, outputs: Any, thresholds: Thresholds | None) -> Evaluation:
        from bert_tf.evaluation.evaluation import Evaluation, predict_classes, worst_mistakes

        labels = np.array([item.label for item in items])
        chosen, losses, logs, fields = predict_classes(outputs, labels, thresholds)

        def show(index: int) -> tuple[Mapping[str, str], str, str]:
            choices = items[index].choices
            return self.display_texts(items[index]), choices[labels[index]], choices[chosen[index]]

        comparison = compare(CHOICE_SCORES, labels, chosen, losses)
        return Evaluation(
            **fields,
            scores=self.select_scores(comparison),
            comparison=comparison,
            mistakes=worst_mistakes(items, losses, chosen != labels, show, logs),
        )

    @staticmethod
    def display_texts(item: ChoiceExample) -> dict[str, str]:
        return {"": item.context}

    @classmethod
    def all_texts(cls, item: ChoiceExample) -> dict[str, str]:
        return {"": item.context, **{str(index): text for index, text in enumerate(item.choices)}}

    def answer(self, outputs: Any, thresholds: Thresholds) -> dict[str, Any]:
        from .answer import answer_choice

        return answer_choice(outputs, thresholds)

    def record(self, item: ChoiceExample, answer: Mapping[str, Any]) -> dict[str, Any]:
        num_choices = len(item.choices)
        probabilities = {
            str(index): probability if index < num_choices else None
            for index, probability in enumerate(answer["probabilities"])
        }
        return {"prediction": answer["choice"], "probabilities": probabilities}

    @classmethod
    def record_columns(
        cls, labels: Sequence[str], items: Iterable[Any], columns: Mapping[str, Any], options: Any
    ) -> Record:
        """Adds a probability column per choice, up to the maximum number of choices."""
        default = len(columns.get("text_columns", ())[1:])
        num_columns = max((len(item.choices) for item in items), default=default)
        return super().record_columns([*map(str, range(num_columns))], items, columns, options)


def _read_swag(path: str, *, labelled: bool, skip_bad_rows: Any, **_: Any) -> ExampleSet:
    return read_swag(path, labelled=labelled, skip_bad_rows=skip_bad_rows)
