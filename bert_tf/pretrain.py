r"""Pre-trains a BERT: raw text to a checkpoint, an evaluation and a SavedModel.

    python -m bert_tf.pretrain
    python -m bert_tf.pretrain --input='corpus/*.txt.gz' --model_dir=runs/mine
    python -m bert_tf.pretrain --input='gs://bucket/wiki/*' --bert_config=bert-base \
        --vocab_file=vocab.txt --train_batch_size=256 --num_train_steps=1000000 \
        --learning_rate=1e-4 --num_warmup_steps=10000 --phases=128:0.9,512:0.1 --tpu=NAME

Without flags it trains a small model on a sample corpus for about five minutes
(--recipe=five_minutes). The same command resumes a run that was stopped.
"""

import os

from absl import flags

from bert_tf import paths
from bert_tf.cli import command
from bert_tf.pretraining import settings as pretraining_settings


def main(argv: list[str]) -> None:
    """Runs the command; ``argv`` holds the program's name alone."""
    del argv
    settings, notes = pretraining_settings.settings_from_flags()
    for note in notes:
        print(note)
    reads_text = settings.input_format != "tfrecord"
    paths.check_inputs(
        texts=[*settings.input, *settings.eval_input] if reads_text else [],
        checkpoints=[settings.init_checkpoint],
        output=settings.model_dir,
    )
    # Only now: --help and wrong flags answer without loading TensorFlow.
    if settings.dry_run:
        command.load_tensorflow()
        from bert_tf.pretraining.model import report_cost

        report_cost(settings)
    else:
        if not (settings.input or settings.tfds or os.path.isdir(settings.model_dir)):
            from bert_tf.pipelines import sample_corpus

            sample_corpus.collect_ahead()
        command.load_tensorflow()
        from bert_tf.pretraining.run import run

        run(settings)


if __name__ == "__main__":
    pretraining_settings.define_flags()
    # --help lists the flags of the module that is run, and these besides.
    flags.adopt_module_key_flags(pretraining_settings)
    flags.adopt_module_key_flags(command)
    command.run(main)
