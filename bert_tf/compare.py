"""Compares two models on one dev set: scores, how sure the difference is, and where they differ.

    python -m bert_tf.compare runs/a runs/b [--output=differences.tsv]
    python -m bert_tf.compare runs/a/dev/dev.tsv baseline.csv

A and B are directories that ``bert_tf.finetune`` left, or files of predictions with the columns id,
expected and prediction (of tags .conll: word, expected tag, predicted tag). Neither model is run.
Both have to be of the same rows. The intervals are of a paired bootstrap: both are scored on the
same resampled rows.
"""

from absl import flags

from bert_tf.cli import command
from bert_tf.tasks.kinds import KINDS


def define_flags() -> None:
    """Defines the command's flags; not on import, as other commands define some of the same."""
    flags.DEFINE_string(
        "set", None, "Which set of the directories, as dev or test; by default the first of both."
    )
    flags.DEFINE_enum(
        "task", None, list(KINDS), "Of files outside a fine-tuning's directory: what they predict."
    )
    flags.DEFINE_string(
        "output",
        None,
        "The rows that the two answer differently, .tsv or .jsonl; replaced where it exists.",
    )


def main(argv: list[str]) -> None:
    """Runs the command; ``argv`` holds the program's name and the two to compare."""
    _, first, second = argv
    values = flags.FLAGS
    # Only now: --help and wrong flags answer without loading TensorFlow.
    from bert_tf.results.comparison import compare

    compare(
        first,
        second,
        set_name=values["set"].value,
        kind=values.task,
        output=values.output,
    )


if __name__ == "__main__":
    define_flags()
    command.run(main, arguments=("A", "B"))
