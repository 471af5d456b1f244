r"""Fine-tunes a BERT for a task: labelled files to a model, its scores and predictions.

    python -m bert_tf.finetune --task=mrpc --data_dir=glue/MRPC --init_checkpoint=uncased_L-12

    python -m bert_tf.finetune --task=classification --train_file=reviews.csv \
        --text_columns=review --label_column=stars --init_checkpoint=uncased_L-12

    python -m bert_tf.finetune --task=squad --train_file=train-v2.0.json \
        --dev_file=dev-v2.0.json --learning_rate=3e-5 --init_checkpoint=uncased_L-12

    python -m bert_tf.finetune --task=ner --train_file=eng.train --dev_file=eng.testa \
        --test_file=eng.testb --init_checkpoint=cased_L-12

A checkpoint may be Google's, Hugging Face's, Model Garden's, KerasHub's or this library's. Without
--dev_file a tenth of --train_file is held out for the evaluation. --model_dir keeps the weights of
the best evaluation, with the scores, the predictions, the worst errors and a confusion matrix;
``python -m bert_tf.predict`` and ``bert_tf.load(MODEL_DIR)`` read it. The same command resumes a
run that was stopped.

--feature_based=all trains a BiLSTM on features of the frozen encoder, as in the paper's table 7;
``--task=ner --feature_based=concat_last_four`` is one row of it.

--sweep=paper tries the paper's batch sizes, rates and epochs, --restarts=5 tries five seeds; the
best run is kept. A run whose loss does not fall, or that predicts one thing only, says so.
"""

from absl import flags

from bert_tf import paths
from bert_tf.cli import command
from bert_tf.finetuning import data, settings


def main(argv: list[str]) -> None:
    """Runs the command; ``argv`` holds the program's name alone."""
    del argv
    resolved = settings.settings_from_flags()
    paths.check_inputs(
        files=[resolved.train_file, resolved.dev_file, resolved.test_file],
        checkpoints=[resolved.init_checkpoint],
        output=resolved.model_dir,
    )
    data.check_tables(resolved)
    # Only now: --help and wrong flags answer without loading TensorFlow.
    command.load_tensorflow()
    from bert_tf.finetuning.run import run

    run(resolved)


if __name__ == "__main__":
    settings.define_flags()
    # --help lists the flags of the module that is run, and these besides.
    flags.adopt_module_key_flags(settings)
    flags.adopt_module_key_flags(command)
    command.run(main)
