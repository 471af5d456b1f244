"""Which format a path holds, and the checkpoint that it is."""

import os

import tensorflow as tf

from . import google, hugging_face, keras_files, keras_hub, model_directory, model_garden
from .checkpoint import Checkpoint

# In this order: a KerasHub directory has a config.json too.
_FORMATS = (keras_files, model_directory, keras_hub, hugging_face, model_garden, google)


def open_checkpoint(path: str | os.PathLike[str], allow_pickle: bool = False) -> Checkpoint:
    """Opens a checkpoint of any format that this library reads, no further than names and shapes.

    Args:
        path: a directory of this library, of Hugging Face, of google-research/bert, of Model
            Garden or of KerasHub; the prefix of a TensorFlow checkpoint; a ``.keras`` file.
        allow_pickle: whether ``pytorch_model.bin`` may be unpickled. A pickle from a stranger can
            run any code.

    Raises:
        ValueError: nothing is there, it is none of these, or it is damaged.
    """
    path = os.fspath(path).rstrip("/") or "/"
    for form in _FORMATS:
        if not form.is_checkpoint(path):
            continue
        if form is hugging_face:
            return hugging_face.open_checkpoint(path, allow_pickle)
        return form.open_checkpoint(path)
    if not tf.io.gfile.exists(path):
        raise ValueError(
            f"There is no checkpoint at {path}: expected a directory, the prefix of a TensorFlow "
            "checkpoint (DIR/bert_model.ckpt), or a .keras file."
        )
    there = "a file: name the directory that it lies in"
    if tf.io.gfile.isdir(path):
        names = sorted(tf.io.gfile.listdir(path))
        there = f"a directory with {', '.join(names[:8]) or 'nothing'}"
        there += f" and {len(names) - 8} more" if len(names) > 8 else " in it"
    raise ValueError(
        f"{path} is no checkpoint that can be recognised: expected model.json and "
        "bert_config.json (this library), config.json and model.safetensors (Hugging Face), "
        "bert_config.json and bert_model.ckpt.* (Google, Model Garden), config.json and "
        f"model.weights.h5 (KerasHub), or a .keras file; it is {there}."
    )
