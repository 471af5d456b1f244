"""Compares two models on one dev set: scores, how sure the difference is, and where they differ.

    python -m bert_tf.compare --model=runs/a,runs/b [--output=differences.tsv]
    python -m bert_tf.compare --model=runs/a/dev/dev.tsv,baseline.csv

The two are directories that ``bert_tf.finetune`` left, or files of predictions with the columns id,
expected and prediction (of tags .conll: word, expected tag, predicted tag). Neither model is run.
Both must cover the same rows. The intervals are of a paired bootstrap: both are scored on the
same resampled rows.
"""

import dataclasses
from collections.abc import Sequence

from absl import flags

from bert_tf.cli import command, flag_fields
from bert_tf.cli.flag_fields import choice, string, words
from bert_tf.cli.flag_rules import refuses
from bert_tf.tasks.kinds import KINDS

_ENDINGS = (".tsv", ".jsonl")


@dataclasses.dataclass(frozen=True)
class _Settings:
    """Every flag."""

    model: Sequence[str] = words(
        (),
        "The two to compare, with a comma between them: runs of finetune, or files of predictions.",
        rules=[
            refuses(
                lambda two, _: len(two or ()) not in (0, 2),
                "--{flag} names the two to compare, with a comma between them: "
                "--{flag}=runs/a,runs/b.",
            )
        ],
    )
    set: str | None = string(
        None, "Which set of the directories, as dev or test; by default the first of both."
    )
    task: str | None = choice(
        None, list(KINDS), "What the files predict, if they are not in a fine-tuning's directory."
    )
    output: str | None = string(
        None,
        "The rows that the two answer differently, .tsv or .jsonl; replaced where it exists.",
        rules=[
            refuses(
                lambda path, _: bool(path) and not path.endswith(_ENDINGS),
                f"--{{flag}}={{value}}: expected a name that ends in {' or '.join(_ENDINGS)}.",
            )
        ],
    )


def define_flags() -> None:
    """Defines the command's flags; not on import, as other commands define some of the same."""
    flag_fields.define_flags(_Settings, flags.FLAGS)


def main(argv: list[str]) -> None:
    """Runs the command; ``argv`` holds the program's name, and the two where no flag does."""
    settings = flag_fields.checked(_Settings, flags.FLAGS)
    first, second = argv[1:] or settings.model
    # Only now: --help and wrong flags answer without loading TensorFlow.
    from bert_tf.results.comparison import compare

    compare(first, second, set_name=settings.set, kind=settings.task, output=settings.output)


if __name__ == "__main__":
    define_flags()
    command.run(main, arguments=("A", "B"), or_flag="model")
