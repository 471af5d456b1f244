"""Base class of task types for single texts and text pairs, including GLUE.

Source: Devlin et al. 2019, section 4.1; google-research/bert ``run_classifier.py``.

Dimensions: N examples.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from bert_tf.io.messages import quote
from bert_tf.readers.glue import GLUE_TASKS, GlueTask, write_glue_submission
from bert_tf.tasks.task import RANDOM, Items, Task, predict
from bert_tf.tasks.training_options import LongTexts

if TYPE_CHECKING:
    import numpy as np

    from bert_tf.evaluation.evaluation import Inference, Mistake, Thresholds
    from bert_tf.pipelines.tokenized_examples import Examples
    from bert_tf.pipelines.wordpiece import BertTokenizer
    from bert_tf.readers.examples import TextExample

# Name of GLUE's diagnostic data set, which MNLI models also predict.
DIAGNOSTIC = "ax"
_TOO_LONG = "{count:,} of the training examples have more than {length} tokens (--max_seq_length)"


class TextTask(Task):
    """Base class for texts and text pairs.

    If ``name`` is in ``GLUE_TASKS``, the metrics and submission files are those of GLUE.
    """

    Options = LongTexts
    # Default metric of data other than GLUE.
    text_headline: ClassVar[str]

    @property
    def _glue(self) -> GlueTask | None:
        return GLUE_TASKS.get(self.name)

    @property
    def default_metric(self) -> str:
        """For GLUE tasks, the first score that GLUE reports; else the task type's default."""
        return self._glue.headline if self._glue else self.text_headline

    def _apply(self, options: Any) -> None:
        super()._apply(options)
        from bert_tf.pipelines.long_texts import MAX_WINDOWS

        effects = {
            "head_tail": "; their middle is ignored.",
            "windows": f" and are read in up to {MAX_WINDOWS} windows.",
        }
        effect = effects.get(getattr(options, "long_text", ""))
        self.truncation_note = _TOO_LONG + effect if effect else type(self).truncation_note

    def describe_constant_targets(self) -> str:
        labels = {item.label for item in self.training_items()}
        return f"Every example has the label {quote(labels.pop())}" if len(labels) == 1 else ""

    @abc.abstractmethod
    def _targets(self, items: Items) -> np.ndarray:
        """Returns the labels in the format that ``classification_examples`` expects."""

    def rows(
        self, tokenizer: BertTokenizer, items: Items, max_seq_length: int, *, labelled: bool
    ) -> Examples:
        from bert_tf.pipelines.classification import classification_examples

        are_pairs = items[0].text_b is not None
        return classification_examples(
            tokenizer,
            [item.text_a for item in items],
            [str(item.text_b) for item in items] if are_pairs else None,
            labels=self._targets(items) if labelled else None,
            sample_weights=self._sample_weights(items) if labelled else None,
            max_seq_length=max_seq_length,
            long_text=self.options.long_text,
        )

    def _sample_weights(self, items: Items) -> Sequence[float] | None:
        """Returns the weight of each example in the loss, or ``None`` for equal weights."""
        return None

    def write_predictions(
        self, inference: Inference, set_name: str, folder: str, thresholds: Thresholds
    ) -> list[str]:
        """Writes a submission file for a GLUE test set, else ``SET.tsv``."""
        if self._glue is None or set_name not in self.test_sets:
            return super().write_predictions(inference, set_name, folder, thresholds)
        records = predict(self, inference, set_name, thresholds)
        task, split = ("AX", "test") if set_name == DIAGNOSTIC else (self.name, set_name)
        values = {record["id"]: record["prediction"] for record in records}
        return [write_glue_submission(folder, task, split, values)]

    def _mistakes(
        self,
        items: Items,
        losses: np.ndarray,
        wrong: np.ndarray,
        true: np.ndarray,
        predicted: np.ndarray,
        probabilities: np.ndarray | None = None,
    ) -> list[Mistake]:
        from bert_tf.evaluation.evaluation import worst_mistakes

        def show(index: int) -> tuple[Mapping[str, str], str, str]:
            texts = self.display_texts(items[index])
            return texts, self._format_target(true[index]), self._format_target(predicted[index])

        return worst_mistakes(items, losses, wrong, show, probabilities)

    @classmethod
    def grouping(cls, items: Items, fraction: float) -> tuple[Callable[[Any], Hashable], str]:
        """Groups identical texts, and pairs of the same two texts in either order."""
        pairs = {(item.text_a, item.text_b) for item in items}
        swapped = {pair: min(pair, pair[::-1]) for pair in pairs if pair[::-1] in pairs}
        return (lambda item: swapped.get(p := (item.text_a, item.text_b), p)), RANDOM

    @staticmethod
    def display_texts(item: TextExample) -> dict[str, str]:
        """Returns the texts by name; the texts of a pair are named A and B."""
        return {"": item.text_a} if item.text_b is None else {"A": item.text_a, "B": item.text_b}

    @abc.abstractmethod
    def _format_target(self, target: Any) -> str:
        """Formats the target or the prediction of an example."""
