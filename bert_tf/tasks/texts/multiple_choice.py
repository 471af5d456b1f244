"""Task type for multiple choice (which of several texts follows a context), and its readers.

Sources: BERT (2018), section 4.4; SWAG (Zellers et al., 2018).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.evaluation.metrics import CHOICE_SCORES, LOSS, compare
from bert_tf.readers import examples as read
from bert_tf.readers.examples import BadRowError, BadRows, ChoiceExample, ExampleSet, quoted
from bert_tf.readers.tables import Row, TableFile, read_columns, read_rows
from bert_tf.tasks.task import RANDOM, FormReader, Items, Task
from bert_tf.tasks.training_options import Smoothing

if TYPE_CHECKING:
    from bert_tf.evaluation.evaluation import Evaluation, Inference, Thresholds
    from bert_tf.evaluation.prediction_files import Record
    from bert_tf.pipelines.tokenized_examples import Examples
    from bert_tf.pipelines.wordpiece import BertTokenizer

_MAX_CHOICES = 1000
_COUNTED = "(choices are numbered from 0, not from 1 or A)"


# === Readers of user tables and of SWAG ===


def read_choices(
    path: str | TableFile,
    *,
    text_columns: Sequence[str],
    label_column: str | None,
    id_column: str | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[ChoiceExample]:
    """Reads contexts and their choices from a table.

    ``text_columns`` are the column of the context and the columns of the choices: two or more, or
    a single one with lists of choices. ``label_column`` contains the index of the correct choice.
    """
    bad = BadRows.from_option(str(path), skip_bad_rows)

    def make_example(row: Row) -> ChoiceExample:
        example_id, label, context, *choices = row.values
        if len(choices) == 1:
            choices = read.parse_list(choices[0], f"column {text_columns[1]!r}")
            if not isinstance(choices, list) or not 2 <= len(choices) <= _MAX_CHOICES:
                raise BadRowError(
                    f"expected a list of 2 to {_MAX_CHOICES:,} choices in column "
                    f"{text_columns[1]!r}, got {quoted(choices)}"
                )
        name = read.row_id(example_id, row.number)
        return _choice_example(name, context, choices, label, label_column is not None)

    columns = [id_column, label_column, *text_columns]
    items = bad.collect(read_columns(path, columns, bad), make_example)
    return ExampleSet(items, (), bad.skipped, tuple(choice_notes(str(path), items)))


def read_swag(
    path: str, *, labelled: bool = True, skip_bad_rows: bool | BadRows = False
) -> ExampleSet[ChoiceExample]:
    """Reads a CSV file of SWAG: ``train.csv``, ``val.csv`` or ``test.csv``, not a ``_full`` file.

    The context is ``sent1``; each choice is ``sent2`` followed by one of ``ending0`` to
    ``ending3``.
    """
    bad = BadRows.from_option(str(path), skip_bad_rows)

    def make_example(row: Row) -> ChoiceExample:
        context, beginning, *endings, label = row.values
        choices = [
            f"{beginning} {read.non_empty_text(end, 'an ending')}".lstrip() for end in endings
        ]
        return _choice_example(str(row.number), context, choices, label, labelled)

    endings = (f"ending{number}" for number in range(4))
    columns = ["sent1", "sent2", *endings, "label" if labelled else None]
    rows = read_columns(TableFile(str(path), suffix=".csv"), columns, bad)
    return ExampleSet(bad.collect(rows, make_example), (), bad.skipped)


def swag_has_labels(path: str) -> bool:
    """Returns whether a SWAG file has labels; only the test file has none."""
    return "label" in next(read_rows(TableFile(str(path), suffix=".csv")), {})


def _choice_example(
    example_id: str, context: Any, choices: Sequence[Any], label: Any, labelled: bool
) -> ChoiceExample:
    return ChoiceExample(
        example_id,
        read.non_empty_text(context, "the context"),
        tuple(read.non_empty_text(text, f"choice {i}") for i, text in enumerate(choices)),
        read.integer(label, f"the label {_COUNTED}", len(choices) - 1) if labelled else None,
    )


def choice_notes(path: str, items: Sequence[ChoiceExample]) -> list[str]:
    """Returns a note if the labels seem to be numbered from 1."""
    # With this many rows, the label 0 is missing by chance in only one of a thousand files.
    many = [7 * len(item.choices) for item in items if item.label]
    if not len(many) == len(items) >= max(many, default=1):
        return []
    return [
        f"{path}: no label is 0, but choices are numbered from 0. If the labels start at 1, "
        "subtract 1."
    ]


# === Task type ===


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
        """Groups the examples that have the same context."""
        return (lambda item: item.context), RANDOM

    @classmethod
    def native_reader(cls, name: str, columns: Mapping[str, Any]) -> FormReader | None:
        """Returns the reader for SWAG's tables if the model was trained on SWAG."""
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
        """Tokenizes choices into batches of rows, (B, K, S), and the correct choices, (B,)."""
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
        chosen, losses, pairs, fields = predict_classes(outputs, labels, thresholds)

        def show(index: int) -> tuple[Mapping[str, str], str, str]:
            choices = items[index].choices
            return self.display_texts(items[index]), choices[labels[index]], choices[chosen[index]]

        comparison = compare(CHOICE_SCORES, labels, chosen, losses)
        return Evaluation(
            **fields,
            scores=self.select_scores(comparison),
            comparison=comparison,
            mistakes=worst_mistakes(items, losses, chosen != labels, show, pairs),
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


def _read_swag(
    path: str, *, labelled: bool, skip_bad_rows: Any, **_: Any
) -> ExampleSet[ChoiceExample]:
    return read_swag(path, labelled=labelled, skip_bad_rows=skip_bad_rows)
