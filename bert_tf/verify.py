"""Verifies an export outside this library.

    python -m bert_tf.verify DIR
    python -m bert_tf.verify exports/mine/1 --python=other/env/bin/python

DIR is a version's directory. Its files are compared with the hashes that were exported with them.
Then a fresh process that loads TensorFlow and the operations of tensorflow_text, and neither this
library nor Keras, asks every signature the samples that were recorded with the export, and compares
the answers: floats within --tolerance, all else exactly.
Exit status 0: all answers are as recorded; 1: an answer differs or is missing.
"""

import sys

from absl import flags

from bert_tf import paths
from bert_tf.cli import command


def define_flags() -> None:
    """Defines the command's flags; not on import, as other commands define some of the same."""
    flags.DEFINE_string(
        "python",
        None,
        "The interpreter of another environment with tensorflow and tensorflow_text, of any "
        "versions, to ask there; by default this one.",
    )
    flags.DEFINE_float(
        "tolerance",
        None,
        "The most that a float may differ, absolute; 1e-4 by default. Exports that compute in "
        "bfloat16 may need 0.05 on another machine.",
        lower_bound=0.0,
    )


def main(argv: list[str]) -> None:
    """Runs the command; ``argv`` holds the program's name and the export's directory."""
    _, directory = argv
    if not paths.is_folder(directory):
        raise ValueError(f"{directory} is no directory: expected an export, such as exports/1.")
    # Only now: --help, wrong flags and a wrong path answer without loading TensorFlow.
    command.load_tensorflow()
    from bert_tf.saved_models.verification import verify

    values = flags.FLAGS
    result = verify(directory, python=values.python, tolerance=values.tolerance)
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
    define_flags()
    command.run(main, arguments=("DIR",))
