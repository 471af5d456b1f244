r"""Fine-tunes a BERT model on labeled files, evaluates it and writes predictions.

    python -m bert_tf.finetune --task=classification --train_file=reviews.csv \
        --text_columns=review --label_column=stars --init_checkpoint=tiny

By default, 10% of the examples are held out. --model_dir stores the weights with the best score on
these examples, for the commands predict and export. docs/guides/fine_tuning.md describes all tasks.
"""

from bert_tf.cli import command
from bert_tf.finetuning import data, settings
from bert_tf.io import paths


def main(resolved: settings.FineTuningSettings) -> None:
    """Runs the command."""
    paths.check_inputs(
        files=[resolved.train_file, resolved.dev_file, resolved.test_file],
        checkpoints=[resolved.init_checkpoint],
        output=resolved.model_dir,
    )
    data.check_tables(resolved)
    # TensorFlow is loaded late, so that --help and flag errors are fast.
    command.load_tensorflow()
    from bert_tf.finetuning.run import run

    run(resolved)


if __name__ == "__main__":
    declarations = settings.declarations()
    command.run(main, *declarations, read=lambda values: [settings.settings_from_flags(values)])
