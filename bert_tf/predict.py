"""Predicts on unlabelled files with a fine-tuned model.

    python -m bert_tf.predict --model=runs/reviews --input=new.csv --output=predicted.tsv

Each row of --input, a table (.gz too), CoNLL's columns or SQuAD's JSON, has one in --output, in
its order; docs/fine_tuning.md says what it holds.
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
