"""A BERT of transformers' TensorFlow classes inside a user's own Keras 2 model, in its HDF5 file.

``save_weights("a.h5")`` and ``save("a.h5")`` write its variables' names. Whatever the model around
it is called, one of them ends with the word embeddings' name, and what stands in front of that is
where the BERT is. The file does not say a BERT's sizes: they are in a config beside it, or the
caller's.
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

from . import google, hdf5_files, hugging_face, tf_model_files
from .checkpoint import Checkpoint, StoredTensor

_CONFIGS = (hugging_face.CONFIG, google.CONFIG)
_LAYER = re.compile(r"(?:bert\.encoder|distilbert\.transformer)\.layer\.(\d+)\..+")
_KERAS_3 = re.compile(r"(?:.*/)?vars/\d+")
# Layers that no class of this library has.
_NUMBERED = re.compile(r".*/attention/(?:dense_output/dense|q_lin)/vars/\d+")


def is_checkpoint(path: str) -> bool:
    """True if a path is HDF5 of Keras 2."""
    return _is_hdf5(path) and not is_keras_3(path)


def is_keras_3(path: str) -> bool:
    """True if a file is HDF5 with the variables of a layer by their numbers, without names."""
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
    variables = tf_model_files.variables_of(hdf5_files.open_file(path))
    names = [name for name, _ in variables]
    if not tf_model_files.places(names):
        raise ValueError(
            f"{path} holds no BERT of transformers' TensorFlow classes: looked for a variable "
            f"NAME{tf_model_files.WORDS} among {listed(sorted(names), 5) if names else 'none'}; "
            "docs/weights.md says where released weights are."
        )
    folder, source = os.path.dirname(path), path
    if values is None:
        files = [os.path.join(folder, name) for name in _CONFIGS]
        found = next(filter(is_file, files), None)
        if found is None:
            raise ValueError(
                f"{path} holds a BERT of transformers' TensorFlow classes, and nothing that says "
                f"its sizes: expected {' or '.join(_CONFIGS)} in {folder or '.'}; put the model's "
                "there, or read the weights into a model of the same sizes: "
                f"bert_tf.transformers.TFBertModel(config).load_weights({path!r})."
            )
        source, values = found, read_json_object(found)
    tensors = tf_model_files.by_pytorch_names(variables, path)
    checkpoint = hugging_face.of_tensors(path, tensors, values, source, folder)
    _check_layers(path, tensors, checkpoint.config.num_hidden_layers)
    return checkpoint


def _check_layers(path: str, tensors: Mapping[str, StoredTensor], expected: int) -> None:
    """Refuses a BERT of more layers, which would be read as another model."""
    numbers = [int(match[1]) for match in map(_LAYER.fullmatch, tensors) if match]
    if max(numbers, default=-1) >= expected:
        raise ValueError(
            f"{path} holds a BERT of {max(numbers) + 1} layers, expected {expected} as the config "
            "says: it belongs to another model."
        )
