"""Predicts the labels of unlabeled files with a fine-tuned model.

    python -m bert_tf.predict --model=runs/reviews --input=new.csv --output=predicted.tsv

--input is a table, a CoNLL file or a SQuAD JSON file, optionally compressed (.gz). --output
contains one record per row, in the same order. docs/guides/predicting.md describes the records.
"""

from bert_tf.cli import command
from bert_tf.io import paths
from bert_tf.predicting.settings import PredictionSettings


def main(settings: PredictionSettings) -> None:
    """Runs the command."""
    paths.check_inputs(files=[settings.input], checkpoints=[settings.model])
    # TensorFlow is loaded late, so that --help and flag errors are fast.
    command.load_tensorflow()
    from bert_tf.predicting.run import run

    run(settings)


if __name__ == "__main__":
    command.run(main, PredictionSettings)
