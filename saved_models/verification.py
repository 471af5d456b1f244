"""Verification of exports in a separate process that does not import bert_tf or Keras."""

import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

import tensorflow as tf

from bert_tf.io.files import check_fingerprints, fingerprint, fingerprint_change, write_json
from bert_tf.io.messages import listed, one_line
from bert_tf.io.untrusted import MAX_JSON_BYTES, parse_json_object

from . import replay

# TensorFlow Serving reads only the warm-up requests in assets.extra.
HASHES = "assets.extra/sha256.json"
_FORMAT_VERSION = 1
_TIMEOUT_S = 1800
_MAX_PROBLEM_LENGTH = 500


@dataclasses.dataclass(frozen=True)
class VerifiedSignature:
    """Result for the recorded samples of one signature.

    Attributes:
        name: Name of the signature.
        samples: Number of samples.
        largest_difference: Maximum absolute difference between a float and its recorded value.
        problems: Descriptions of mismatches.
    """

    name: str
    samples: int
    largest_difference: float
    problems: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Verification:
    """Result of ``verify``.

    Attributes:
        directory: Directory of the export.
        tensorflow: Version of TensorFlow that ran the samples.
        tensorflow_text: Version of tensorflow-text.
        signatures: Results by signature.
        has_hashes: Whether the export has hashes, with which the files were compared.
    """

    directory: str
    tensorflow: str
    tensorflow_text: str
    signatures: tuple[VerifiedSignature, ...]
    has_hashes: bool = True

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems of all signatures, prefixed with the signature's name."""
        return tuple(f"{row.name}: {text}" for row in self.signatures for text in row.problems)

    def table(self) -> str:
        """Returns a table of the results with a line per signature.

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
    """Runs the recorded samples of an export in a new process and compares the outputs.

    The files are first compared with their hashes. The process imports neither bert_tf nor Keras.

    Args:
        directory: Directory of the version, on any TensorFlow file system.
        python: Python interpreter, by default the current one. Its environment needs only
            ``tensorflow`` and ``tensorflow_text``, of any version that can load the export.
        tolerance: Maximum absolute difference between a float and its recorded value, by default
            1e-4. Exports in bfloat16 may need a larger value on other machines.

    Returns:
        The results. Outputs that differ are listed in ``problems`` and do not raise an error.

    Raises:
        ValueError: If ``directory`` is not an export, is damaged or has no samples; if the
            interpreter cannot be started, has no TensorFlow or takes longer than 30 minutes; or if
            the process imported bert_tf or Keras.
    """
    has_hashes = check_hashes(directory)
    # -P and -I remove the script's directory from sys.path. -P respects PYTHONPATH, from which this
    # interpreter may import TensorFlow, but Python 3.10 does not support it.
    isolated = "-P" if python is None else "-I"
    command = [python or sys.executable, isolated, os.path.abspath(replay.__file__), directory]
    if tolerance is not None:
        command.append(repr(tolerance))
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ValueError(
            f"{directory}: the samples did not finish within {_TIMEOUT_S:,} seconds."
        ) from error
    except OSError as error:
        raise ValueError(
            f"python={python}: expected a Python interpreter, got {error.strerror}."
        ) from error
    try:
        report = parse_json_object(completed.stdout.strip().splitlines()[-1], "its report")
    except (IndexError, ValueError) as error:
        last_line = (completed.stderr.strip().splitlines() or ["nothing"])[-1]
        raise ValueError(
            f"{command[0]} failed with status {completed.returncode} while verifying {directory}: "
            f"{one_line(last_line, _MAX_PROBLEM_LENGTH)}"
        ) from error
    if report["error"]:
        raise ValueError(report["error"])
    if report["foreign"]:
        raise ValueError(
            f"{directory} depends on other libraries: loading it imported "
            f"{listed(report['foreign'])}."
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
    """Writes the hashes of all files in an export."""
    paths = [
        os.path.join(folder_path, name)
        for folder_path, _, names in tf.io.gfile.walk(folder)
        for name in names
    ]
    files = {os.path.relpath(path, folder): fingerprint(path) for path in sorted(paths)}
    write_json(os.path.join(folder, HASHES), {"format_version": _FORMAT_VERSION, "files": files})


def check_hashes(folder: str) -> bool:
    """Compares the files of an export with their hashes; returns whether it has hashes."""
    path = os.path.join(folder, HASHES)
    if not tf.io.gfile.exists(path):
        return False
    for name, expected in _read(path).items():
        file = os.path.join(folder, name)
        if not tf.io.gfile.exists(file) or tf.io.gfile.isdir(file):
            raise ValueError(
                f"{folder} is incomplete: {one_line(name)} is missing. Download the export again."
            )
        if fingerprint_change(file, expected):
            raise ValueError(
                f"{file} has changed since the export (SHA-256). Download the file again or, for "
                f"an intended change, remove {path}."
            )
    return True


def _read(path: str) -> dict[str, dict[str, Any]]:
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read(MAX_JSON_BYTES)
    values = parse_json_object(content, path)
    files = values.get("files")
    # Compared byte by byte, because this file may also be damaged.
    is_unchanged = content == (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()
    expected = {"format_version": _FORMAT_VERSION, "files": files}
    if not is_unchanged or values != expected or not isinstance(files, dict):
        raise ValueError(f"{path} is damaged, or from another version of bert_tf.")
    if any(os.path.isabs(name) or ".." in name.split("/") or "://" in name for name in files):
        raise ValueError(f"{path} contains a path outside the export.")
    try:
        check_fingerprints(files)
    except ValueError as error:
        raise ValueError(f"{path}: {error}.") from error
    return files
