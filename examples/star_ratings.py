r"""Custom task type in one file: texts with one to five stars.

    python examples/star_ratings.py finetune --task=stars --train_file=reviews.csv \
        --text_columns=review --label_column=stars --init_checkpoint=tiny --model_dir=runs/stars
    python examples/star_ratings.py predict --model=runs/stars --input=new.csv
    python examples/star_ratings.py export --model=runs/stars --output=exports/stars/1

The program has all commands and flags of bert_tf, and adds a flag and a score.
"""

import dataclasses

import numpy as np

from bert_tf.__main__ import main
from bert_tf.cli import flag_fields
from bert_tf.evaluation.evaluation import Evaluation, worst_mistakes
from bert_tf.evaluation.metrics import LOSS, NUMBER_SCORES, compare
from bert_tf.pipelines.classification import classification_examples
from bert_tf.readers.own_data import read_regression
from bert_tf.tasks import Task, register
from bert_tf.tasks.losses import squared_error


@dataclasses.dataclass(frozen=True)
class Options:
    """Task options: each field is a flag and a keyword; saved fields also apply to predictions."""

    max_stars: int = flag_fields.integer(
        5, "stars: maximum number of stars.", min_value=2, saved_in_task_file=True
    )


def near(true, predicted):
    """Returns the fraction of predictions within one star of the label."""
    return float((np.abs(true - predicted.round()) <= 1).mean())


SCORES = {"near": near, "spearman": NUMBER_SCORES["spearman"]}


@register
class StarsTask(Task):
    """Prediction of an integer number of stars by regression."""

    kind = "stars"
    Options = Options
    model = "BertRegressor"
    metrics = (*SCORES, LOSS)
    default_metric = "near"

    @classmethod
    def read(cls, table, text_columns, label_column, **options):
        """Reads examples with ``text_a``, optionally ``text_b``, and a ``label``."""
        return read_regression(
            table, text_columns=text_columns, label_column=label_column, **options
        )

    @staticmethod
    def display_texts(item):
        """Returns the texts of an example for prediction files and reports."""
        return {"": item.text_a}

    def check_example(self, item):
        """Returns an error message for an invalid example."""
        if item.label is not None and not 1 <= item.label <= self.options.max_stars:
            return f"the example {item.id} has {item.label:g} stars"
        return None

    def rows(self, tokenizer, items, max_seq_length, *, labelled):
        """Tokenizes texts, with their labels if needed."""
        stars = np.array([item.label for item in items], np.float32) if labelled else None
        texts = [item.text_a for item in items]
        return classification_examples(
            tokenizer, texts, labels=stars, max_seq_length=max_seq_length
        )

    def loss(self):
        """Returns the loss function for Keras."""
        return squared_error

    def score(self, items, outputs, thresholds):
        """Computes the scores of outputs, shape (N,), and the worst mistakes."""
        true, stars = np.array([item.label for item in items]), outputs.astype(np.float64)
        errors = (true - stars) ** 2
        comparison = compare(SCORES, true, stars, errors)

        def show(index):
            return self.display_texts(items[index]), f"{true[index]:g}", f"{stars[index]:.2f}"

        return Evaluation(
            scores=self.select_scores(comparison),
            comparison=comparison,
            constant=bool(np.ptp(stars) < 0.01 < np.ptp(true)),
            mistakes=worst_mistakes(items, errors, errors > 0.25, show),
        )

    def answer(self, outputs, thresholds):
        """Converts outputs to answers with TensorFlow, because exports include this method."""
        import tensorflow as tf  # imported here to keep --help fast

        return {"value": tf.clip_by_value(tf.round(outputs), 1.0, self.options.max_stars)}

    def record(self, item, answer):
        """Returns the columns of a prediction, without the id."""
        return {"prediction": int(answer["value"])}


if __name__ == "__main__":
    main()
