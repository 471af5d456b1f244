"""Runs the recorded samples of an export with TensorFlow and compares the outputs.

    python replay.py DIR [TOLERANCE]

This script, which ``verification`` starts, does not import bert_tf, so it runs in any environment
with ``tensorflow`` and ``tensorflow_text``. It prints a report as a line of JSON. It loads only the
operations of ``tensorflow_text``, because the Python modules of that package would import Keras.
"""

import base64
import dataclasses
import glob
import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

DEFAULT_TOLERANCE = 1e-4
# Modules that an export must not import. TensorFlow before 2.16 imports Keras itself.
FOREIGN = ("bert_tf", "keras", "tf_keras")
# The entry in signature_def for the initialization operation, which is not a signature.
INITIAL = "__saved_model_init_op"


class ReplayError(ValueError):
    """Error for an export that cannot be loaded or has no samples."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """Recorded request to a signature and its response, in the format of the REST API."""

    file: str
    signature: str
    inputs: Any
    outputs: Any


def load_text_operations() -> None:
    """Loads the operations of tensorflow_text without its Python modules."""
    spec = importlib.util.find_spec("tensorflow_text")
    if spec is None or not spec.submodule_search_locations:
        raise ReplayError(
            f"tensorflow_text is not installed for {sys.executable}. Install the version that "
            f"matches TensorFlow {tf.__version__}."
        )
    folder = os.path.join(spec.submodule_search_locations[0], "python", "ops")
    for library in sorted(glob.glob(os.path.join(folder, "*.so"))):
        tf.load_op_library(library)


def load(directory: str, read: Callable[[str], Any] = tf.saved_model.load) -> Any:
    """Loads an export with ``read``.

    Raises:
        ReplayError: If the directory is not an export with signatures.
    """
    if not tf.io.gfile.isdir(directory):
        raise ReplayError(f"No such directory: {directory}. Pass an export, such as exports/1.")
    if not tf.io.gfile.exists(os.path.join(directory, "saved_model.pb")):
        raise ReplayError(
            f"{directory} has no saved_model.pb. Pass the directory of a version, such as "
            "exports/1."
        )
    try:
        model = read(directory)
    except Exception as error:
        raise ReplayError(
            f"{directory} cannot be loaded by TensorFlow {tf.__version__}: {first_line(error)}"
        ) from error
    if not set(getattr(model, "signatures", model)) - {INITIAL}:
        raise ReplayError(
            f"{directory} has no signatures. Use the original export, or pass signatures to "
            "tf.saved_model.save."
        )
    return model


def read_samples(directory: str) -> list[Sample]:
    """Reads the recorded samples of an export, sorted by file name; at least one must exist."""
    samples = []
    for path in sorted(tf.io.gfile.glob(os.path.join(directory, "assets.extra/samples/*.json"))):
        try:
            with tf.io.gfile.GFile(path, "rb") as file:
                sample = json.loads(file.read().decode("utf-8"))
            samples.append(
                Sample(
                    os.path.basename(path),
                    sample["signature_name"],
                    sample["request"]["inputs"],
                    sample["response"]["outputs"],
                )
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ReplayError(
                f"{path}: expected JSON with signature_name, request.inputs and response.outputs, "
                f"got {type(error).__name__}: {error}"
            ) from error
    if not samples:
        raise ReplayError(
            f"{directory} has no samples. Expected SIGNATURE.0.json in assets.extra/samples; "
            "export the model again."
        )
    return samples


def ask(function: Any, inputs: Any) -> dict[str, np.ndarray]:
    """Runs a loaded signature with the inputs of a ``Sample`` and returns the outputs by name."""
    specs = function.structured_input_signature[1]
    tensors = {name: tf.constant(to_array(inputs[name], spec)) for name, spec in specs.items()}
    return {name: value.numpy() for name, value in function(**tensors).items()}


def to_array(values: list[Any], spec: tf.TensorSpec) -> np.ndarray:
    """Converts the values of a request to an input array."""
    array = np.array(_decoded(values), spec.dtype.as_numpy_dtype)
    # Adds the dimensions that empty lists do not have.
    return array.reshape(array.shape + (0,) * (len(spec.shape) - array.ndim))


def compare(recorded: Any, outputs: dict[str, np.ndarray], tolerance: float) -> Any:
    """Returns the maximum difference from the recorded floats, and descriptions of mismatches."""
    if not isinstance(recorded, dict):
        recorded = dict.fromkeys(outputs, recorded) if len(outputs) == 1 else {"": recorded}
    if set(recorded) != set(outputs):
        return 0.0, [
            f"expected the outputs {', '.join(sorted(recorded))}, got {', '.join(sorted(outputs))}"
        ]
    largest, problems = 0.0, []
    for name in sorted(outputs):
        difference, problem = _compare_output(recorded[name], outputs[name], tolerance)
        largest = max(largest, difference)
        if problem:
            problems.append(f"output {name}: {problem}")
    return largest, problems


def _compare_output(recorded: Any, output: np.ndarray, tolerance: float) -> tuple[float, str]:
    """Returns the maximum difference of floats, and the first mismatch or an empty string."""
    expected = np.array(recorded, object)
    # The shapes are compared before the conversion to lists, which takes many times the memory.
    if output.size and output.shape != expected.shape:
        return 0.0, f"expected the shape {expected.shape}, got {output.shape}"
    # Both values are compared as lists, which do not have the dimensions after an empty one.
    answer = np.array(output.tolist(), object)
    if answer.shape != expected.shape:
        return 0.0, f"expected the shape {expected.shape}, got {answer.shape}"
    difference = 0.0
    if np.issubdtype(output.dtype, np.floating):
        try:
            # Rounded to the output's dtype, because recorded values have the digits of a float32.
            floats = expected.astype(output.dtype).astype(np.float64)
        except (ValueError, TypeError):
            return 0.0, "the recorded values are not numbers"
        differences = np.abs(answer.astype(np.float64) - floats)
        differences[np.isnan(differences)] = np.inf
        mismatches = np.argwhere(differences > tolerance)
        difference = float(np.max(differences, initial=0.0))
    else:
        answer = np.array(as_text(answer.tolist()), object)
        mismatches = np.argwhere(np.array(answer != expected))
    if not len(mismatches):
        return difference, ""
    index = tuple(mismatches[0].tolist())
    return difference, f"expected {expected[index]!r} at {list(index)}, got {answer[index]!r}"


def as_text(value: Any) -> Any:
    """Converts values to the format of the REST API: bytes to strings, or base64 if not UTF-8."""
    if isinstance(value, list):
        return [as_text(item) for item in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode("ascii")}


def to_json(array: np.ndarray) -> Any:
    """Converts an array to the format of the REST API, with the shortest digits of a float32."""
    if array.dtype == object:
        return as_text(array.tolist())
    return (array.astype(str).astype(float) if array.dtype.kind == "f" else array).tolist()


def _decoded(value: Any) -> Any:
    """Converts the strings of a request to bytes."""
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return value.encode("utf-8") if isinstance(value, str) else value


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message, without graph nodes."""
    text = str(getattr(error, "message", None) or error)
    lines = text.strip().splitlines()
    return (lines or [type(error).__name__])[0].split(" [[")[0][:500]


def replay(directory: str, tolerance: float = DEFAULT_TOLERANCE) -> list[dict[str, Any]]:
    """Runs all recorded samples of an export; returns a row per signature, sorted by name."""
    model = load(directory)
    rows: dict[str, dict[str, Any]] = {}

    def get_row(name: str) -> dict[str, Any]:
        row = {"name": name, "samples": 0, "largest_difference": 0.0, "problems": []}
        return rows.setdefault(name, row)

    for sample in read_samples(directory):
        name = sample.signature
        row = get_row(name)
        row["samples"] += 1
        if name not in model.signatures:
            row["problems"].append(f"{sample.file}: no such signature: {name}")
            continue
        try:
            answer = ask(model.signatures[name], sample.inputs)
        except Exception as error:
            row["problems"].append(f"{sample.file}: {type(error).__name__}: {first_line(error)}")
            continue
        difference, problems = compare(sample.outputs, answer, tolerance)
        row["largest_difference"] = max(row["largest_difference"], difference)
        row["problems"] += [f"{sample.file}: {problem}" for problem in problems]
    for name in set(model.signatures) - set(rows):
        get_row(name)["problems"].append("no sample")
    return [rows[name] for name in sorted(rows)]


def report(directory: str, tolerance: float = DEFAULT_TOLERANCE) -> dict[str, Any]:
    """Returns the report for ``verification``: results of ``replay``, versions and modules.

    ``error`` is the message of a ``ReplayError`` or empty; ``foreign`` lists the modules of
    ``FOREIGN`` that were imported.
    """
    before = set(sys.modules)
    answers: dict[str, Any] = {"tensorflow": tf.__version__, "signatures": [], "error": ""}
    try:
        load_text_operations()
        answers["tensorflow_text"] = importlib.metadata.version("tensorflow-text")
        answers["signatures"] = replay(directory, tolerance)
    except ReplayError as error:
        answers["error"] = str(error)
    loaded = {module.split(".")[0] for module in set(sys.modules) - before}
    return {**answers, "foreign": sorted(loaded.intersection(FOREIGN))}


if __name__ == "__main__":
    print(json.dumps(report(sys.argv[1], *map(float, sys.argv[2:]))), flush=True)
