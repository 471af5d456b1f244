"""Contexts of which each has some continuations: which follows it?"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.evaluation.scores import CHOICE_SCORES, LOSS, compare
from bert_tf.tasks.options import Smoothing
from bert_tf.tasks.task import RANDOM_SPLIT, ExampleSet, FormReader, Items, Task

from .multiple_choice_reader import read_choices, read_swag, swag_has_labels

if TYPE_CHECKING:
    from bert_tf.evaluation.evaluation import Evaluation, Inference, Thresholds
    from bert_tf.evaluation.prediction_files import Record
    from bert_tf.pipelines.tokenized_examples import Examples
    from bert_tf.pipelines.wordpiece import BertTokenizer
    from bert_tf.readers.examples import ChoiceExample


class MultipleChoiceTask(Task):
    """Contexts with some continuations each, as SWAG's.

    Source: Devlin et al. 2019, section 4.4: the loss is the cross-entropy of a softmax over the
    choices, of which each example may have another number.
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
        """Keeps the choices for one context together."""
        return (lambda item: item.context), RANDOM_SPLIT

    @classmethod
    def native_reader(cls, name: str, columns: Mapping[str, Any]) -> FormReader | None:
        """SWAG's tables, for a model that was trained on them."""
        is_swag = name == "swag" and not columns
        return FormReader(_read_swag, swag_has_labels, is_table=True) if is_swag else None

    def loss(self) -> Any:
        """Over each example's own choices, where their number differs."""
        from bert_tf.tasks.losses import ChoiceCrossEntropy

        if self._train and len({len(item.choices) for item in self._train.items}) > 1:
            return ChoiceCrossEntropy(self.options.label_smoothing)
        return super().loss()

    def rows(
        self, tokenizer: BertTokenizer, items: Items, max_seq_length: int, *, labelled: bool
    ) -> Examples:
        """Tokenised choices, in batches of rows (B, K, S) and numbers of the right ones (B,)."""
        from bert_tf.pipelines.classification import multiple_choice_examples

        return multiple_choice_examples(
            tokenizer,
            [item.context for item in items],
            [item.choices for item in items],
            labels=[item.label for item in items] if labelled else None,
            max_seq_length=max_seq_length,
        )

    def _outputs(self, inference: Inference, set_name: str) -> np.ndarray:
        """Logits (N, K), K the most choices of an example."""
        from bert_tf.tasks.losses import NO_CHOICE

        logits: np.ndarray = super()._outputs(inference, set_name)
        counts = np.array([len(item.choices) for item in self.sets[set_name].items])
        return np.where(np.arange(logits.shape[1]) < counts[:, None], logits, NO_CHOICE)

    def score(self, items: Items, outputs: Any, thresholds: Thresholds | None) -> Evaluation:
        from bert_tf.evaluation.evaluation import Evaluation, predict_classes, worst_mistakes

        labels = np.array([item.label for item in items])
        chosen, losses, logs, fields = predict_classes(outputs, labels, thresholds)

        def show(at: int) -> tuple[Mapping[str, str], str, str]:
            choices = items[at].choices
            return self.display_texts(items[at]), choices[labels[at]], choices[chosen[at]]

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
        return {"": item.context, **{str(at): text for at, text in enumerate(item.choices)}}

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
        """A probability for each choice, by its number, of as many as any example has."""
        without_any = len(columns.get("text_columns", ())[1:])
        num_columns = max((len(item.choices) for item in items), default=without_any)
        return super().record_columns([*map(str, range(num_columns))], items, columns, options)


def _read_swag(path: str, *, labelled: bool, skip_bad_rows: Any, **_: Any) -> ExampleSet:
    return read_swag(path, labelled=labelled, skip_bad_rows=skip_bad_rows)
