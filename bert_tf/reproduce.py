r"""Runs the paper's experiments, a table each, and writes them next to the paper's figures.

    python -m bert_tf.reproduce --table=ablations --size=bert-mini --input='wiki/*.gz' \
        --steps=20000 --train_batch_size=64 --data_dir=data --output_dir=runs/reproduce

Each run is a process of pretrain or finetune; what several rows need is made once. The same command
resumes: finished cells (--cells) are not computed again, and failed runs are tried again.
"""

import signal

from absl import flags

from bert_tf import paths
from bert_tf.cli import command, flag_fields
from bert_tf.reproduction.settings import Settings


def main(argv: list[str]) -> None:
    """Runs the command; ``argv`` holds the program's name alone."""
    del argv
    settings = flag_fields.checked(Settings, flags.FLAGS)
    paths.check_inputs(texts=settings.input or (), checkpoints=[settings.checkpoint])
    if not paths.is_folder(settings.data_dir):
        raise ValueError(
            f"--data_dir={settings.data_dir} is no directory: expected one with the tasks' files, "
            "glue/TASK/, squad/, swag/ and ner/, as far as you have them."
        )
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    # Only now: --help and wrong flags answer without loading TensorFlow.
    from bert_tf.reproduction.runner import Reproduction

    reproduction = Reproduction(settings)
    (reproduction.report if settings.dry_run else reproduction.run)()


if __name__ == "__main__":
    flag_fields.define_flags(Settings, flags.FLAGS)
    command.run(main)
