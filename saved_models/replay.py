"""Asks an export its recorded questions, with TensorFlow alone, and compares the answers.

    python replay.py DIR [TOLERANCE]

A script of its own: it imports nothing of this library, runs in any environment that has
``tensorflow`` and ``tensorflow_text``, also an older one, and prints a report, a line of JSON.
``verification`` starts it. Of ``tensorflow_text`` it loads the libraries with the operations, as
TensorFlow Serving has them: its Python modules would load Keras.
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
# Modules that an export must not need. TensorFlow before 2.16 loads Keras itself, on import.
FOREIGN = ("bert_tf", "keras", "tf_keras")
# The signature, which is none, of what is run when variables are there.
INITIAL = "__saved_model_init_op"


class ReplayError(ValueError):
    """There is nothing to ask, or nobody to ask it; the text says what was expected."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """A recorded question to a signature and its answer, as TensorFlow Serving's REST has them."""

    file: str
    signature: str
    inputs: Any
    outputs: Any


def load_text_operations() -> None:
    """Loads tensorflow_text's libraries of operations, and none of its Python modules."""
    spec = importlib.util.find_spec("tensorflow_text")
    if spec is None or not spec.submodule_search_locations:
        raise ReplayError(
            f"{sys.executable} has no tensorflow_text, whose operations exports use: install the "
            "tensorflow-text of its TensorFlow's version."
        )
    folder = os.path.join(spec.submodule_search_locations[0], "python", "ops")
    for library in sorted(glob.glob(os.path.join(folder, "*.so"))):
        tf.load_op_library(library)


def load(directory: str, read: Callable[[str], Any] = tf.saved_model.load) -> Any:
    """What ``read`` makes of an export; an error says what is wrong with it."""
    if not tf.io.gfile.isdir(directory):
        raise ReplayError(f"{directory} is no directory: expected an export, such as exports/1.")
    if not tf.io.gfile.exists(os.path.join(directory, "saved_model.pb")):
        raise ReplayError(
            f"{directory} has no saved_model.pb: expected an export, the directory of a version, "
            "such as exports/1."
        )
    try:
        model = read(directory)
    except Exception as error:
        # Of whatever kind: what stops the loading is what was to be found out.
        raise ReplayError(
            f"{directory} cannot be loaded by TensorFlow {tf.__version__}: {first_line(error)}"
        ) from error
    if not set(getattr(model, "signatures", model)) - {INITIAL}:
        raise ReplayError(
            f"{directory} has no signatures, which answer requests. Use the export that it was "
            "made from, or pass signatures to tf.saved_model.save."
        )
    return model


def read_samples(directory: str) -> list[Sample]:
    """Reads the recorded questions and answers of an export, at least one, by the files' names."""
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
                f"{path} is no recorded sample: expected JSON with a signature_name, a request's "
                f"inputs and a response's outputs, got {type(error).__name__}: {error}"
            ) from error
    if not samples:
        raise ReplayError(
            f"{directory} has no samples to ask: expected SIGNATURE.0.json and more in "
            "assets.extra/samples, where an export records them."
        )
    return samples


def ask(function: Any, inputs: Any) -> dict[str, np.ndarray]:
    """Asks a loaded signature what a ``Sample`` does: the outputs by name."""
    specs = function.structured_input_signature[1]
    tensors = {name: tf.constant(to_array(inputs[name], spec)) for name, spec in specs.items()}
    return {name: value.numpy() for name, value in function(**tensors).items()}


def to_array(values: list[Any], spec: tf.TensorSpec) -> np.ndarray:
    """A request's values, texts and bytes alike, as an input takes them."""
    array = np.array(_decoded(values), spec.dtype.as_numpy_dtype)
    # An empty list tells nothing of the dimensions within.
    return array.reshape(array.shape + (0,) * (len(spec.shape) - array.ndim))


def compare(recorded: Any, outputs: dict[str, np.ndarray], tolerance: float) -> Any:
    """The largest difference of floats from a ``Sample``'s answers, and problems in sentences."""
    if not isinstance(recorded, dict):
        recorded = dict.fromkeys(outputs, recorded) if len(outputs) == 1 else {"": recorded}
    if set(recorded) != set(outputs):
        return 0.0, [
            f"the outputs are {', '.join(sorted(outputs))}, and "
            f"{', '.join(sorted(recorded))} were recorded"
        ]
    largest, problems = 0.0, []
    for name in sorted(outputs):
        difference, problem = _compare_output(recorded[name], outputs[name], tolerance)
        largest = max(largest, difference)
        if problem:
            problems.append(f"output {name} has {problem} was recorded")
    return largest, problems


def _compare_output(recorded: Any, output: np.ndarray, tolerance: float) -> tuple[float, str]:
    """The largest difference of floats, and in words the first value that differs, or ""."""
    expected = np.array(recorded, object)
    # Before it is a list, which takes many times the space.
    if output.size and output.shape != expected.shape:
        return 0.0, f"the shape {output.shape}, and {expected.shape}"
    # As lists both: where nothing is inside, they tell nothing of the dimensions within.
    answer = np.array(output.tolist(), object)
    if answer.shape != expected.shape:
        return 0.0, f"the shape {answer.shape}, and {expected.shape}"
    difference = 0.0
    if np.issubdtype(output.dtype, np.floating):
        try:
            # Of the output's own type: a float32 is recorded with no more digits than it has.
            numbers = expected.astype(output.dtype).astype(np.float64)
        except (ValueError, TypeError):
            return 0.0, "numbers, and something else"
        differences = np.abs(answer.astype(np.float64) - numbers)
        differences[np.isnan(differences)] = np.inf
        mismatches = np.argwhere(differences > tolerance)
        difference = float(np.max(differences, initial=0.0))
    else:
        answer = np.array(as_text(answer.tolist()), object)
        mismatches = np.argwhere(np.array(answer != expected))
    if not len(mismatches):
        return difference, ""
    index = tuple(mismatches[0].tolist())
    return difference, f"{answer[index]!r} at {list(index)}, and {expected[index]!r}"


def as_text(value: Any) -> Any:
    """Values as REST has them: bytes as text, or as base64 where they are not UTF-8."""
    if isinstance(value, list):
        return [as_text(item) for item in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode("ascii")}


def to_json(array: np.ndarray) -> Any:
    """An array as REST spells it: a float32 has as many digits as tell it from its neighbours."""
    if array.dtype == object:
        return as_text(array.tolist())
    return (array.astype(str).astype(float) if array.dtype.kind == "f" else array).tolist()


def _decoded(value: Any) -> Any:
    """A request's values with its strings as bytes."""
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return value.encode("utf-8") if isinstance(value, str) else value


def first_line(error: Exception) -> str:
    """Message of an error, without the nodes of the graph that TensorFlow adds."""
    text = str(getattr(error, "message", None) or error)
    lines = text.strip().splitlines()
    return (lines or [type(error).__name__])[0].split(" [[")[0][:500]


def replay(directory: str, tolerance: float = DEFAULT_TOLERANCE) -> list[dict[str, Any]]:
    """Asks an export every recorded question: a row for each signature, sorted."""
    model = load(directory)
    rows: dict[str, dict[str, Any]] = {}

    def row_of(name: str) -> dict[str, Any]:
        row = {"name": name, "samples": 0, "largest_difference": 0.0, "problems": []}
        return rows.setdefault(name, row)

    for sample in read_samples(directory):
        name = sample.signature
        row = row_of(name)
        row["samples"] += 1
        if name not in model.signatures:
            row["problems"].append(f"{sample.file}: the model has no signature {name}")
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
        row_of(name)["problems"].append("no sample asks it")
    return [rows[name] for name in sorted(rows)]


def report(directory: str, tolerance: float = DEFAULT_TOLERANCE) -> dict[str, Any]:
    """Report that ``verification`` reads: the answers of ``replay``, versions and loaded modules.

    ``error`` is the sentence of a ``ReplayError``, or ""; ``foreign`` are those of ``FOREIGN`` that
    were loaded meanwhile.
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
