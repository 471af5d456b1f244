"""What is written into an export's directory: files, and the SavedModel."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf


def write_bytes(path: str, content: bytes) -> None:
    """Writes a file."""
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(content)


def write_text(path: str, content: str) -> None:
    """Writes a file in UTF-8."""
    write_bytes(path, content.encode())


def save(
    folder: str,
    signatures: Mapping[str, Any],
    endpoints: Mapping[str, Any],
    resources: Sequence[Any] = (),
) -> None:
    """Saves functions, and the variables that they read, as a SavedModel.

    Args:
        folder: an existing directory.
        signatures: concrete functions by signature name.
        endpoints: ``tf.function``s with an input signature, by the attribute that whoever loads
            the SavedModel finds them as.
        resources: what the functions read beside variables, as ``Served`` has it.
    """
    # A bare module holds the variables: a Keras model in its place would write its layers too.
    root = tf.Module()
    traces = [*signatures.values()]
    for name, function in endpoints.items():
        setattr(root, name, function)
        traces.append(function.get_concrete_function())
    root.weights = _variables(traces)
    root.resources = list(resources)
    tf.saved_model.save(root, folder, signatures=dict(signatures))


def _variables(functions: list[Any]) -> list[tf.Variable]:
    """The variables that any of some concrete functions reads, each once."""
    found = {
        variable.ref(): variable for function in functions for variable in function.graph.variables
    }
    return list(found.values())
