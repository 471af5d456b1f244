"""Which format a path holds, and the checkpoint that it is."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import marks, paths
from bert_tf.pipelines.vocabulary import check_vocabulary_fits
from bert_tf.untrusted import listed, reason

from . import (
    exports,
    google,
    hub,
    hugging_face,
    keras2_files,
    keras_files,
    keras_hub,
    model_directory,
    model_garden,
    sentence_transformers,
)
from .checkpoint import Checkpoint, StoredTensor

# In this order: directories of KerasHub and of sentence-transformers have a config.json too.
_FORMATS = (
    *(keras_files, model_directory, keras_hub, sentence_transformers, hugging_face),
    *(keras2_files, model_garden, google, exports),
)
_MAY_BE_PICKLED = (hugging_face, sentence_transformers)


def open_checkpoint(path: str | os.PathLike[str], allow_pickle: bool = False) -> Checkpoint:
    """Opens a checkpoint of any format that this library reads, no further than names and shapes.

    The path and ``allow_pickle`` are ``bert_tf.load``'s; it may also be an HDF5 file of Keras 2
    that holds a BERT of transformers', with the ``config.json`` beside it. Reading a tensor
    raises ``ValueError`` where the file is damaged, or a value is infinite or no number: no model
    computes with such a weight.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(
            f"The model is a {type(path).__name__}: expected a path, hf://OWNER/NAME of the "
            "Hugging Face hub, or a model of bert_tf."
        )
    return _open(os.fspath(path), allow_pickle, None)


def open_for(path: str, settings: Mapping[str, Any]) -> Checkpoint:
    """As ``open_checkpoint``; what has no config beside it is of the ``config.json`` given."""
    return _open(path, False, settings)


def _open(path: str, allow_pickle: bool, settings: Mapping[str, Any] | None) -> Checkpoint:
    if hub.is_name(path):
        path = hub.directory_of(path, allow_pickle)
    paths.check_checkpoint(path)
    path = paths.of_model(path).rstrip("/") or path[:1]
    with _named(path):
        form = next((form for form in _FORMATS if form.is_checkpoint(path)), None)
        if form is not None:
            options: dict[str, Any] = {"values": settings} if form is keras2_files else {}
            if form in _MAY_BE_PICKLED:
                options["allow_pickle"] = allow_pickle
            checkpoint = form.open_checkpoint(path, **options)
            tensors = checkpoint.tensors.items()
            checked = {name: _checked(tensor, path) for name, tensor in tensors}
            checkpoint = dataclasses.replace(checkpoint, tensors=checked)
            try:
                pieces = checkpoint.tokenization.vocabulary if checkpoint.tokenization else ()
                check_vocabulary_fits(pieces, checkpoint.config.vocab_size, path)
            except ValueError as error:
                notes = (*checkpoint.notes, f"No preprocessor is made: {error}")
                checkpoint = dataclasses.replace(checkpoint, tokenization=None, notes=notes)
            return checkpoint
    if not tf.io.gfile.exists(path):
        raise ValueError(paths.checkpoint(path))
    names = tf.io.gfile.listdir(path) if tf.io.gfile.isdir(path) else None
    raise ValueError(marks.unknown(path, names))


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Names the checkpoint in errors that name no file."""
    try:
        yield
    except (ValueError, MemoryError) as error:
        if path in str(error):
            raise
        raise ValueError(f"{path} cannot be read: {reason(error)}") from error


def _checked(tensor: StoredTensor, path: str) -> StoredTensor:
    def read() -> np.ndarray:
        with _named(path):
            array = tensor.read()
        if not np.isfinite(array).all():
            raise ValueError(
                f"{path}: {listed(tensor.names)} has a value that is infinite or no number (NaN): "
                "the training that saved it diverged; take a checkpoint from before."
            )
        return array

    return dataclasses.replace(tensor, read=read)
