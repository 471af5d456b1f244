"""Verifies an export in a process that does not import bert_tf.

    python -m bert_tf.verify exports/reviews/1

The process sends the requests that are stored in the export and compares the answers with the
stored ones. The exit status is 1 if an answer differs. docs/guides/exports.md describes exports.
"""

import dataclasses
import sys

from bert_tf.cli import command
from bert_tf.cli.flag_fields import number, string
from bert_tf.io import paths


@dataclasses.dataclass(frozen=True)
class VerifySettings:
    """Flags of the command."""

    python: str | None = string(
        None,
        "Python interpreter that runs the verification, in another environment with tensorflow "
        "and tensorflow_text.",
    )
    tolerance: float | None = number(
        None,
        "Maximum difference of floats, by default 1e-4; exports in bfloat16 may need 0.05 on "
        "another machine.",
        min_value=0.0,
    )


def main(settings: VerifySettings, directory: str) -> None:
    """Verifies the export in a directory."""
    if not paths.is_folder(directory):
        if paths.is_file(directory):
            raise ValueError(
                f"{directory}: expected the directory of an export, such as exports/1, got a file."
            )
        raise ValueError(
            f"No such directory: {directory}. Pass the directory of an export, such as exports/1."
        )
    command.load_tensorflow()
    from bert_tf.saved_models.verification import verify

    result = verify(directory, **vars(settings))
    versions = f"TensorFlow {result.tensorflow}, tensorflow_text {result.tensorflow_text}"
    print(f"{directory} in {versions}:")
    print(result.table())
    if not result.has_hashes:
        print("The export has no hashes, so damage that does not change an answer is not detected.")
    for problem in result.problems:
        print(f"  {problem}")
    if result.problems:
        print("FAILED: the answers differ from the stored ones.")
        sys.exit(1)
    print("All answers match the stored ones, without bert_tf or Keras.")


if __name__ == "__main__":
    command.run(main, VerifySettings, arguments=("DIR",))
