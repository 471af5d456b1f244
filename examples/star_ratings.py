r"""A kind of task in one file: texts with one to five stars, judged by near misses.

    python examples/star_ratings.py finetune --task=stars --train_file=reviews.csv \
        --text_columns=review --label_column=stars --init_checkpoint=tiny --model_dir=runs/stars
    python examples/star_ratings.py predict --model=runs/stars --input=new.csv
    python examples/star_ratings.py export --model=runs/stars --output=exports/stars/1

It has all flags of the commands, resumes as they do, and brings a flag and scores of its own.
"""

import dataclasses

import numpy as np

from bert_tf.__main__ import main
from bert_tf.cli import flag_fields
from bert_tf.evaluation.evaluation import Evaluation, worst_mistakes
from bert_tf.evaluation.scores import LOSS, NUMBER_SCORES, compare
from bert_tf.pipelines.classification import classification_examples
from bert_tf.readers.own_data import read_regression
from bert_tf.tasks import Task, register
from bert_tf.tasks.losses import squared_error


@dataclasses.dataclass(frozen=True)
class Options:
    """Each field is a flag and a keyword of Python; what is kept is known to predictions."""

    most_stars: int = flag_fields.integer(
        5, "stars: the most stars.", min_value=2, saved_in_task_file=True
    )


def near(true, predicted):
    """The share of ratings that are at most a star wrong."""
    return float((np.abs(true - predicted.round()) <= 1).mean())


SCORES = {"near": near, "spearman": NUMBER_SCORES["spearman"]}


@register
class StarsTask(Task):
    """A whole number of stars each, learned as a number."""

    kind = "stars"
    Options = Options
    model = "BertRegressor"
    metrics = (*SCORES, LOSS)
    default_metric = "near"

    @classmethod
    def read(cls, table, text_columns, label_column, **how):
        """Examples with ``text_a``, perhaps ``text_b``, and a ``label``."""
        return read_regression(table, text_columns=text_columns, label_column=label_column, **how)

    @staticmethod
    def display_texts(item):
        """For files and pages that people read."""
        return {"": item.text_a}

    def check_example(self, item):
        """Says what is wrong with a row that the reader let pass."""
        if item.label is not None and not 1 <= item.label <= self.options.most_stars:
            return f"the example {item.id} has {item.label:g} stars"
        return None

    def rows(self, tokenizer, items, max_seq_length, *, labelled):
        """Texts as token ids, with what is learned."""
        stars = np.array([item.label for item in items], np.float32) if labelled else None
        texts = [item.text_a for item in items]
        return classification_examples(
            tokenizer, texts, labels=stars, max_seq_length=max_seq_length
        )

    def loss(self):
        """What Keras calls on the labels and the model's outputs."""
        return squared_error

    def score(self, items, outputs, thresholds):
        """Scores of the outputs, (N,), and the worst mistakes."""
        true, stars = np.array([item.label for item in items]), outputs.astype(np.float64)
        errors = (true - stars) ** 2
        comparison = compare(SCORES, true, stars, errors)

        def show(at):
            return self.display_texts(items[at]), f"{true[at]:g}", f"{stars[at]:.2f}"

        return Evaluation(
            scores=self.select_scores(comparison),
            comparison=comparison,
            constant=bool(np.ptp(stars) < 0.01 < np.ptp(true)),
            mistakes=worst_mistakes(items, errors, errors > 0.25, show),
        )

    def answer(self, outputs, thresholds):
        """Answers of a batch of outputs, in TensorFlow: an export contains this."""
        import tensorflow as tf  # here, so that --help need not load it

        return {"value": tf.clip_by_value(tf.round(outputs), 1.0, self.options.most_stars)}

    def record(self, item, answer):
        """Columns of a prediction, besides the id."""
        return {"prediction": int(answer["value"])}


if __name__ == "__main__":
    main()
