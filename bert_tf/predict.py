r"""Predicts on unlabelled files with a fine-tuned model.

    python -m bert_tf.predict --model=runs/sst2 --input=reviews.tsv --output=predictions.tsv

    python -m bert_tf.predict --model=a-hugging-face-classifier --input=pairs.csv \
        --text_columns=premise,hypothesis --output=predictions.jsonl

    zcat reviews.gz | python -m bert_tf.predict --model=runs/sst2 --input=- --input_format=lines

--model is what ``bert_tf.finetune`` left, which says its task, columns, labels and thresholds;
or any other checkpoint with a task's head, for which --text_columns says what to read. --input is a
.tsv, .csv, .jsonl, .json or .parquet table (.gz too), for tagging also CoNLL's columns and for
squad SQuAD's JSON; its labels, if any, are ignored. The predictions are in its order, one for
each row, with its ids or the rows' numbers, and the probability of each class; a row without text
has an ``error`` instead. --keep_columns writes the input's columns, too.
"""

from absl import flags

from bert_tf import paths
from bert_tf.cli import command, flag_fields
from bert_tf.predicting.settings import PredictionSettings


def define_flags() -> None:
    """Defines the command's flags; not on import, as other commands define some of the same."""
    flag_fields.define_flags(PredictionSettings, flags.FLAGS)


def main(argv: list[str]) -> None:
    """Runs the command; ``argv`` holds the program's name alone."""
    del argv
    settings = flag_fields.checked(PredictionSettings, flags.FLAGS)
    paths.check_inputs(files=[settings.input], checkpoints=[settings.model])
    # Only now: --help and wrong flags answer without loading TensorFlow.
    command.load_tensorflow()
    from bert_tf.predicting.run import run

    run(settings)


if __name__ == "__main__":
    define_flags()
    command.run(main)
