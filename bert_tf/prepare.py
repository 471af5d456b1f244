r"""Prepares raw text for pre-training on Apache Beam, on one core or a thousand machines.

    python -m bert_tf.prepare --input='wiki/*' --output=prepared
    python -m bert_tf.pretrain --input='prepared/train-*' --eval_input='prepared/held_out-*' \
        --input_format=google

Documents are cleaned, filtered, freed of exact and near duplicates, held out and shuffled, and
written a sentence a line. The output depends only on the text and the flags. The same command
resumes one that was stopped.

Flags that are not listed here are Apache Beam's. Without any its Direct runner works in one
process; in eight: --direct_running_mode=multi_processing --direct_num_workers=8. On Dataflow:
--runner=DataflowRunner --project=... --region=... --temp_location=gs://... It is installed by
pip install 'bert_tf[beam]'.
"""

from absl import flags

from bert_tf import paths
from bert_tf.cli import command, flag_fields
from bert_tf.preparation.settings import PreparationSettings, resolve


def define_flags() -> None:
    """Defines the command's flags; not on import, as other commands define some of the same."""
    flag_fields.define_flags(PreparationSettings, flags.FLAGS)


def main(argv: list[str]) -> None:
    """Runs the command; ``argv`` holds the program's name and Apache Beam's flags."""
    values = flags.FLAGS
    names = flag_fields.defaults(PreparationSettings)
    settings = resolve(**{name: values[name].value for name in names})
    paths.check_inputs(texts=settings.input, output=settings.output)
    # TensorFlow loads here, after the flags were found good.
    from bert_tf.preparation.run import run

    run(settings, argv[1:])


if __name__ == "__main__":
    define_flags()
    command.run(main, passes_on=True)
