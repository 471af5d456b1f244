"""Predicts on unlabelled files with a fine-tuned model.

    python -m bert_tf.predict --model=runs/reviews --input=new.csv --output=predicted.tsv

Each row of --input, a table (.gz too), CoNLL's columns or SQuAD's JSON, has one in --output, in
its order; docs/guides/fine_tuning.md says what it holds.
"""

from bert_tf.cli import command
from bert_tf.io import paths
from bert_tf.predicting.settings import PredictionSettings


def main(settings: PredictionSettings) -> None:
    """Runs the command."""
    paths.check_inputs(files=[settings.input], checkpoints=[settings.model])
    # Only now: --help and wrong flags answer without loading TensorFlow.
    command.load_tensorflow()
    from bert_tf.predicting.run import run

    run(settings)


if __name__ == "__main__":
    command.run(main, PredictionSettings)
