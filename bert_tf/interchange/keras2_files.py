"""A BERT of transformers' TensorFlow classes inside a user's own Keras 2 model, found and read.

The model is on disk as HDF5 (``save_weights`` or ``save``), as an object checkpoint
(``save_weights`` or ``tf.train.Checkpoint``), or as a SavedModel, whose graph is not run: each has
its variables' names. Whatever the model around it is called, one of them ends with the word
embeddings' name, and what stands in front of that is where the BERT is. None of the three says a
BERT's sizes: they are in a config beside it, or the caller's.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf import marks
from bert_tf.files import read_json_object
from bert_tf.paths import is_file, local_path
from bert_tf.untrusted import listed

from . import bundles, exports, google, hdf5_files, hugging_face, model_garden, tf_model_files
from .checkpoint import Checkpoint, StoredTensor

_CONFIGS = (hugging_face.CONFIG, google.CONFIG)
_LAYER = re.compile(r"(?:bert\.encoder|distilbert\.transformer)\.layer\.(\d+)\..+")
_KERAS_3 = re.compile(r"(?:.*/)?vars/\d+")
# Layers that no class of this library has.
_NUMBERED = re.compile(r".*/attention/(?:dense_output/dense|q_lin)/vars/\d+")


def is_checkpoint(path: str) -> bool:
    """Whether a path is HDF5 of Keras 2, a stranger's SavedModel, or a BERT's object checkpoint.

    Of the last, Model Garden has some too.
    """
    if is_file(path):
        return _is_hdf5(path) and not is_keras_3(path)
    if exports.is_foreign(path):
        return True
    bundle = bundles.find(path)
    if bundle is None or model_garden.GRAPH_KEY not in bundle.shapes:
        return False
    return bool(tf_model_files.places(name for name, _ in _of_bundle(bundle)))


def is_keras_3(path: str) -> bool:
    """Whether a file is HDF5 with the variables of a layer by their numbers, without names."""
    if not _is_hdf5(path):
        return False
    names = hdf5_files.open_file(path)
    if any(map(_NUMBERED.fullmatch, names)):
        raise ValueError(
            f"{path} has the variables of transformers' TensorFlow classes by their numbers, as "
            "Keras 2 writes a name that ends with .weights.h5: expected their names; where it was "
            'written, load_weights it and save_weights("bert.h5").'
        )
    return any(map(_KERAS_3.fullmatch, names))


def _is_hdf5(path: str) -> bool:
    local = local_path(path)
    if not is_file(path) or (local is not None and not os.path.isfile(local)):
        return False  # of a pipe the first bytes may never come
    with tf.io.gfile.GFile(path, "rb") as file:
        return bool(file.read(len(marks.HDF5)) == marks.HDF5)


def open_checkpoint(path: str, values: Mapping[str, Any] | None = None) -> Checkpoint:
    """Opens the BERT; ``values`` are its ``config.json``'s, by default of the file beside it."""
    if is_file(path):
        folder = os.path.dirname(path)
        variables = tf_model_files.variables_of(hdf5_files.open_file(path))
    elif exports.is_foreign(path):
        folder = path
        variables = _of_bundle(bundles.open_found(os.path.join(path, exports.VARIABLES)))
    else:
        bundle = bundles.open_found(path)
        folder = os.path.dirname(bundle.prefix)
        variables = _of_bundle(bundle)
    names = [name for name, _ in variables]
    if not tf_model_files.places(names):
        raise ValueError(
            f"{path} holds no BERT of transformers' TensorFlow classes: looked for a variable "
            f"NAME{tf_model_files.WORDS} among {listed(sorted(names), 5) if names else 'none'}; "
            "docs/weights.md says where released weights are."
        )
    source = path
    if values is None:
        source = _config_beside(path, folder)
        values = read_json_object(source)
        folder = os.path.dirname(source)
    tensors = tf_model_files.by_pytorch_names(variables, path)
    checkpoint = hugging_face.of_tensors(path, tensors, values, source, folder)
    _check_layers(path, tensors, checkpoint.config.num_hidden_layers)
    return checkpoint


def _of_bundle(bundle: bundles.Bundle) -> list[tuple[str, StoredTensor]]:
    found = model_garden.read_variables(bundle)
    return [(variable.name, bundle.tensor(variable.key)) for variable in found]


def _config_beside(path: str, folder: str) -> str:
    """The config in the folder of a file, or in a SavedModel or above it."""
    folders = [folder]
    if folder == path:  # as save_pretrained writes one, saved_model/1 beside config.json
        folders += [os.path.dirname(folder), os.path.dirname(os.path.dirname(folder))]
    files = [os.path.join(place, name) for place in folders for name in _CONFIGS]
    if (found := next(filter(is_file, files), None)) is not None:
        return found
    raise ValueError(
        f"{path} holds a BERT of transformers' TensorFlow classes, and nothing that says its "
        f"sizes: expected {' or '.join(_CONFIGS)} in {' or '.join(f or '.' for f in folders)}; "
        "put the model's there, or read the weights into a model of the same sizes: "
        f"bert_tf.transformers.TFBertModel(config).load_weights({path!r})."
    )


def _check_layers(path: str, tensors: Mapping[str, StoredTensor], expected: int) -> None:
    """Refuses a BERT of more layers, which would be read as another model."""
    numbers = [int(match[1]) for match in map(_LAYER.fullmatch, tensors) if match]
    if max(numbers, default=-1) >= expected:
        raise ValueError(
            f"{path} holds a BERT of {max(numbers) + 1} layers, expected {expected} as the config "
            "says: it belongs to another model."
        )
