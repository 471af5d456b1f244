"""``.keras`` files of this library's models, as ``model.save`` writes them.

The model is made here, of the class and the sizes in the file's ``config.json``, and Keras reads
its weights: nothing is deserialised, no layer of a stranger's is made.
"""

import dataclasses
import lzma
import math
import os
import tempfile
import zipfile
import zlib

from bert_tf.config import BertConfig
from bert_tf.io.paths import check_readable
from bert_tf.io.untrusted import parse_json_object
from bert_tf.io.wording import quote, reason
from bert_tf.modeling import MODEL_CLASSES

from .checkpoint import Checkpoint, ModelSpec, check_model
from .tensor_files import open_hdf5
from .weights import build_model, expected_shapes, to_checkpoint

_CONFIG = "config.json"
_WEIGHTS = "model.weights.h5"
_PACKAGE = "bert_tf"
# Keras does not compress, and numbers hardly can be: what grows more when it is unpacked is a bomb.
_MAX_GROWTH = 2
_SPARE_BYTES = 1 << 20
_MAX_TEXT_BYTES = 64 << 20
_SMALLEST_NUMBER = 2  # bytes
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    KeyError,
    RuntimeError,
)


def read_checkpoint(path: str) -> Checkpoint:
    """Opens a ``.keras`` file of one of this library's models."""
    check_readable(path)
    with tempfile.TemporaryDirectory(prefix="bert_tf-") as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                config, spec = _read_model(archive, path)
                limit = _MAX_GROWTH * os.path.getsize(path) + _SPARE_BYTES
                _check_size(archive, _WEIGHTS, limit, path)
                unpacked = archive.extract(_WEIGHTS, folder)
        except _UNREADABLE as error:
            raise ValueError(
                f"{path} is not a .keras file that can be read: {reason(error, 120)}."
            ) from error
        numbers = sum(map(math.prod, expected_shapes(config, spec).values()))
        if numbers * _SMALLEST_NUMBER > os.path.getsize(unpacked):
            raise ValueError(
                f"{path} says that it holds {numbers:,} numbers, more than its {_WEIGHTS} has."
            )
        model = build_model(config, spec, dtype="float32")
        try:
            open_hdf5(unpacked)  # refuses what is larger than the file
            model.load_weights(unpacked)
        except (ValueError, KeyError, OSError) as error:
            raise ValueError(
                f"{path} has other weights than a {spec.class_name} of its sizes: "
                f"{reason(error, 300).replace(unpacked, _WEIGHTS)}"
            ) from error
    note = (
        f"{path} has neither vocabulary nor labels, as Keras keeps none: no preprocessor is made; "
        "bert_tf.save writes a directory that keeps them."
    )
    return dataclasses.replace(to_checkpoint(model), path=path, format="keras", notes=(note,))


def _read_model(archive: zipfile.ZipFile, path: str) -> tuple[BertConfig, ModelSpec]:
    """The config and the class, checked: nothing else of ``config.json`` is used."""
    _check_size(archive, _CONFIG, _MAX_TEXT_BYTES, path)
    values = parse_json_object(archive.read(_CONFIG), f"{path}: {_CONFIG} in it")
    # By the name that Keras goes by.
    registered = values.get("registered_name")
    if registered not in [f"{_PACKAGE}>{name}" for name in MODEL_CLASSES]:
        raise ValueError(
            f"{path} holds a {quote(registered or values.get('class_name'))}, expected a model of "
            f"this library: {', '.join(MODEL_CLASSES)}."
        )
    name = registered.removeprefix(f"{_PACKAGE}>")
    constructor = values.get("config")
    if not isinstance(constructor, dict) or not isinstance(constructor.get("config"), dict):
        raise ValueError(f"{path}: {_CONFIG} has no sizes of a BERT under config.")
    known = ("config", "name", "dtype", "trainable")
    arguments = {key: value for key, value in constructor.items() if key not in known}
    spec = check_model(name, arguments, f"{path}, {_CONFIG}")
    return BertConfig.from_dict(constructor["config"], f"{path}, {_CONFIG}"), spec


def _check_size(archive: zipfile.ZipFile, name: str, limit: int, path: str) -> None:
    size = archive.getinfo(name).file_size
    if size > limit:
        raise ValueError(
            f"{path}: {name} in it would unpack to {size:,} bytes, expected at most {limit:,}."
        )
