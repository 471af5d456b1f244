"""Exports of this library, a SavedModel each: their weights, never their graphs.

``variables/`` holds the model's variables by their paths, ``assets.extra/`` what the directory of a
run has beside its weights. A directory of numbered versions stands for the newest of them.
"""

import dataclasses
import os

import tensorflow as tf

from bert_tf.paths import is_file

from .checkpoint import Checkpoint, names_left
from .model_directory import DESCRIPTION, read_description
from .tensor_files import Bundle
from .weights import take_weights

_GRAPH = "saved_model.pb"
_VARIABLES = "variables/variables"
_DESCRIBED = "assets.extra"
# TensorFlow's spelling of the values of a dict that is called "weights", "/" in its keys.
_BEFORE, _SLASH, _BEHIND = "weights/", ".S", "/.ATTRIBUTES/VARIABLE_VALUE"


def is_checkpoint(path: str) -> bool:
    """True if a path is an export, or a directory of versions of one."""
    return _version(path) is not None


def _version(path: str) -> str | None:
    """The directory of the newest version."""
    if not tf.io.gfile.isdir(path):
        return None
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(path)]
    numbers = [name for name in names if name.isascii() and name.isdecimal()]
    versions = (os.path.join(path, name) for name in sorted(numbers, key=int, reverse=True))
    return next((at for at in (path, *versions) if is_file(os.path.join(at, _GRAPH))), None)


def open_checkpoint(path: str) -> Checkpoint:
    """Opens the variables of an export, or of the newest version."""
    folder = _version(path) or path
    described_in = os.path.join(folder, _DESCRIBED)
    if not is_file(os.path.join(described_in, DESCRIPTION)):
        raise ValueError(
            f"{folder} is a SavedModel without {_DESCRIBED}/{DESCRIPTION}, so nothing says which "
            "model it holds: expected an export of this library, or name the model that it was "
            "made from."
        )
    described = read_description(described_in)
    bundle = Bundle(os.path.join(folder, _VARIABLES))
    stored = {}
    for name in bundle.shapes:
        if name.startswith(_BEFORE) and name.endswith(_BEHIND):
            variable = name.removeprefix(_BEFORE).removesuffix(_BEHIND).replace(_SLASH, "/")
            tensor = dataclasses.replace(bundle.tensor(name), names=(variable,))
            stored[variable.split("/", 1)[-1]] = tensor
    if not stored:
        raise ValueError(
            f"{folder} holds no variables of a model, its weights are constants of its graph: name "
            "the model that it was made from."
        )
    tensors = take_weights(described.config, described.model, stored, bundle.prefix)
    return dataclasses.replace(
        described,
        path=path,
        format="saved_model",
        tensors=tensors,
        unused=names_left((tensor.name for tensor in stored.values()), tensors),
    )
