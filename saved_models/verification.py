"""Verifies an export outside this library: another process, of TensorFlow alone, asks it."""

import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

import tensorflow as tf

from bert_tf.io.files import check_fingerprints, fingerprint, fingerprint_change, write_json
from bert_tf.io.untrusted import MAX_JSON_BYTES, parse_json_object
from bert_tf.io.wording import listed, one_line

from . import replay

# Where TensorFlow Serving looks at nothing but its warm-up requests.
HASHES = "assets.extra/sha256.json"
_FORMAT_VERSION = 1
_TIMEOUT_S = 1800
_MAX_PROBLEM_LENGTH = 500


@dataclasses.dataclass(frozen=True)
class VerifiedSignature:
    """Result for the recorded samples of one signature."""

    name: str
    samples: int
    largest_difference: float  # of a float from the recorded one, absolute
    problems: tuple[str, ...]  # sentences on what differs


@dataclasses.dataclass(frozen=True)
class Verification:
    """Result for an export's recorded samples."""

    directory: str
    tensorflow: str  # the version that answered
    tensorflow_text: str  # the version whose operations it used
    signatures: tuple[VerifiedSignature, ...]
    has_hashes: bool = True  # whether there were any to compare the files with

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems of all signatures, behind the signatures' names."""
        return tuple(f"{row.name}: {text}" for row in self.signatures for text in row.problems)

    def table(self) -> str:
        """Table of the samples and results, a line for each signature.

        >>> row = VerifiedSignature("tokens", 2, 1.5e-7, ())
        >>> print(Verification("exports/1", "2.21.0", "2.21.1", (row,)).table())
        signature  samples  largest difference  result
        tokens           2             1.5e-07  as recorded
        """
        width = max(len("signature"), *(len(row.name) for row in self.signatures))
        lines = [f"{'signature':<{width}}  samples  largest difference  result"]
        for row in self.signatures:
            result = "DIFFERENT" if row.problems else "as recorded"
            lines.append(
                f"{row.name:<{width}}  {row.samples:>7}  {row.largest_difference:>18.1e}  {result}"
            )
        return "\n".join(lines)


def verify(
    directory: str, *, python: str | None = None, tolerance: float | None = None
) -> Verification:
    """Has a fresh process ask an export its recorded samples.

    The process runs ``replay.py``, and imports neither this library nor Keras. Before that, the
    export's files are compared with their hashes.

    Args:
        directory: the version's directory, on any TensorFlow file system.
        python: the interpreter, by default this one. Its environment needs ``tensorflow`` and
            ``tensorflow_text``, of any version that can read the export, and nothing else.
        tolerance: the most that a float may differ from the recorded one, absolute; by default
            1e-4. Answers of an export that computes in bfloat16 differ more from one machine to
            the next.

    Returns:
        What came of it: an answer that differs is one of its ``problems``, and no error.

    Raises:
        ValueError: ``directory`` is no export, is damaged or has no samples; the interpreter
            cannot be started, has no TensorFlow or takes longer than half an hour; or the process
            loaded this library or Keras.
    """
    has_hashes = check_hashes(directory)
    # Both keep the script's own folder from the modules it finds. This interpreter may have its
    # TensorFlow from PYTHONPATH; -P, which heeds that, is unknown to Python 3.10.
    isolated = "-P" if python is None else "-I"
    command = [python or sys.executable, isolated, os.path.abspath(replay.__file__), directory]
    if tolerance is not None:
        command.append(repr(tolerance))
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ValueError(
            f"{directory} did not answer its samples within {_TIMEOUT_S:,} seconds and was stopped."
        ) from error
    except OSError as error:
        raise ValueError(
            f"{python} cannot be started: expected a Python interpreter, got {error.strerror}."
        ) from error
    try:
        report = parse_json_object(completed.stdout.strip().splitlines()[-1], "its report")
    except (IndexError, ValueError) as error:
        last_line = (completed.stderr.strip().splitlines() or ["nothing"])[-1]
        raise ValueError(
            f"{command[0]} ended with status {completed.returncode} before it could report on "
            f"{directory}; its last words: {one_line(last_line, _MAX_PROBLEM_LENGTH)}"
        ) from error
    if report["error"]:
        raise ValueError(report["error"])
    if report["foreign"]:
        raise ValueError(
            f"{directory} does not stand alone: loading it loaded {listed(report['foreign'])}."
        )
    return Verification(
        directory,
        report["tensorflow"],
        report["tensorflow_text"],
        tuple(
            VerifiedSignature(
                one_line(row["name"]),
                row["samples"],
                row["largest_difference"],
                tuple(one_line(problem, _MAX_PROBLEM_LENGTH) for problem in row["problems"]),
            )
            for row in report["signatures"]
        ),
        has_hashes,
    )


# === Hashes ===


def write_hashes(folder: str) -> None:
    """Writes the hashes of all files of an export."""
    paths = [
        os.path.join(folder_path, name)
        for folder_path, _, names in tf.io.gfile.walk(folder)
        for name in names
    ]
    files = {os.path.relpath(path, folder): fingerprint(path) for path in sorted(paths)}
    write_json(os.path.join(folder, HASHES), {"format_version": _FORMAT_VERSION, "files": files})


def check_hashes(folder: str) -> bool:
    """Checks an export's files against their hashes; returns whether there are any."""
    path = os.path.join(folder, HASHES)
    if not tf.io.gfile.exists(path):  # as a user who changed the export was told
        return False
    for name, expected in _read(path).items():
        file = os.path.join(folder, name)
        if not tf.io.gfile.exists(file) or tf.io.gfile.isdir(file):
            raise ValueError(
                f"{folder} has no {one_line(name)}, which was exported: fetch it again."
            )
        if fingerprint_change(file, expected):
            raise ValueError(
                f"{file} is not what was exported: its SHA-256 differs; fetch it again, or export "
                f"anew. If the change is yours, delete {path}, and nothing is compared."
            )
    return True


def _read(path: str) -> dict[str, dict[str, Any]]:
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read(MAX_JSON_BYTES)
    values = parse_json_object(content, path)
    files = values.get("files")
    # As it was written to the last blank: a bit of this file, too, may have turned.
    is_unchanged = content == (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()
    expected = {"format_version": _FORMAT_VERSION, "files": files}
    if not is_unchanged or values != expected or not isinstance(files, dict):
        raise ValueError(f"{path} is damaged, or of another version of this library.")
    if any(os.path.isabs(name) or ".." in name.split("/") or "://" in name for name in files):
        raise ValueError(f"{path} names a file outside of the export.")
    try:
        check_fingerprints(files)
    except ValueError as error:
        raise ValueError(f"{path}: {error}.") from error
    return files
