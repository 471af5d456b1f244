"""Verifies an export outside this library.

    python -m bert_tf.verify exports/reviews/1

A process without this library sends the export the requests that were recorded with it, and
compares the answers; the exit status is 1 if one differs. docs/guides/serving.md has more.
"""

import dataclasses
import sys

from bert_tf.cli import command
from bert_tf.cli.flag_fields import number, string
from bert_tf.io import paths


@dataclasses.dataclass(frozen=True)
class VerifySettings:
    """Every flag."""

    python: str | None = string(
        None,
        "Ask in another environment, by its interpreter, with tensorflow and tensorflow_text of "
        "any versions.",
    )
    tolerance: float | None = number(
        None,
        "Let floats differ by this much, by default 1e-4; exports that compute in bfloat16 may "
        "need 0.05 on another machine.",
        min_value=0.0,
    )


def main(settings: VerifySettings, directory: str) -> None:
    """Runs the command on an export's directory."""
    if not paths.is_folder(directory):
        raise ValueError(f"{directory} is no directory: expected an export, such as exports/1.")
    # Only now: --help, wrong flags and a wrong path answer without loading TensorFlow.
    command.load_tensorflow()
    from bert_tf.saved_models.verification import verify

    result = verify(directory, **vars(settings))
    versions = f"TensorFlow {result.tensorflow}, tensorflow_text {result.tensorflow_text}"
    print(f"{directory} in {versions}:")
    print(result.table())
    if not result.has_hashes:
        print(
            "The export has no hashes: damage to its files that changes no answer goes unnoticed."
        )
    for problem in result.problems:
        print(f"  {problem}")
    if result.problems:
        print("FAILED: the answers are not as recorded.")
        sys.exit(1)
    print("Every answer is as recorded, and neither bert_tf nor Keras was needed.")


if __name__ == "__main__":
    command.run(main, VerifySettings, arguments=("DIR",))
