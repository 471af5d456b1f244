"""Pre-trains a BERT model on raw text, evaluates it and exports a SavedModel.

    python -m bert_tf.pretrain --input='corpus/*.txt.gz' --model_dir=runs/mine

Without flags, the command trains a small model on a sample corpus in about five minutes. --dry_run
prints the cost of a run. See docs/guides/pretraining.md.
"""

import os
from collections.abc import Sequence

from bert_tf.cli import command
from bert_tf.io import paths
from bert_tf.pretraining.settings import DECLARATIONS, PretrainingSettings, settings_from_flags


def main(settings: PretrainingSettings, notes: Sequence[str]) -> None:
    """Prints the notes on the flags and runs the command."""
    for note in notes:
        print(note)
    reads_text = settings.input_format != "tfrecord"
    paths.check_inputs(
        texts=[*settings.input, *settings.eval_input] if reads_text else [],
        checkpoints=[settings.init_checkpoint],
        output=settings.model_dir,
    )
    # TensorFlow is loaded late, so that --help and flag errors are fast.
    if settings.dry_run:
        command.load_tensorflow()
        from bert_tf.pretraining.cost import report_cost

        report_cost(settings)
    else:
        if not (settings.input or settings.tfds or os.path.isdir(settings.model_dir)):
            from bert_tf.pipelines.corpora import sample as sample_corpus

            sample_corpus.collect_in_background()
        command.load_tensorflow()
        from bert_tf.pretraining.run import run

        run(settings)


if __name__ == "__main__":
    command.run(main, *DECLARATIONS, read=settings_from_flags)
