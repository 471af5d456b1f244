"""``.keras`` files of bert_tf models, as ``model.save`` writes them.

The model is built from the validated ``config.json``, and Keras loads its weights. No Keras object
of an untrusted file is deserialized.
"""

import dataclasses
import lzma
import math
import os
import tempfile
import zipfile
import zlib

from bert_tf.config import BertConfig
from bert_tf.io.messages import quote, reason
from bert_tf.io.paths import check_readable
from bert_tf.io.untrusted import parse_json_object
from bert_tf.modeling import MODEL_CLASSES

from .checkpoint import Checkpoint, ModelSpec, check_model
from .tensor_files import open_hdf5
from .weights import build_model, expected_shapes, to_checkpoint

_CONFIG = "config.json"
_WEIGHTS = "model.weights.h5"
_PACKAGE = "bert_tf"
# Keras does not compress the files. A larger ratio indicates a decompression bomb.
_MAX_GROWTH = 2
_SPARE_BYTES = 1 << 20
_MAX_TEXT_BYTES = 64 << 20
_MIN_ITEM_SIZE = 2  # bytes
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
    """Opens a ``.keras`` file of a bert_tf model."""
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
                f"{path} cannot be read as a .keras file: {reason(error, 120)}."
            ) from error
        size = sum(map(math.prod, expected_shapes(config, spec).values()))
        if size * _MIN_ITEM_SIZE > os.path.getsize(unpacked):
            raise ValueError(
                f"{path}: {_WEIGHTS} is too small for the {size:,} weights of {_CONFIG}."
            )
        model = build_model(config, spec, dtype="float32")
        try:
            open_hdf5(unpacked)  # Rejects datasets that are larger than the file.
            model.load_weights(unpacked)
        except (ValueError, KeyError, OSError) as error:
            raise ValueError(
                f"{path}: the weights do not match a {spec.class_name} of this config: "
                f"{reason(error, 300).replace(unpacked, _WEIGHTS)}"
            ) from error
    note = (
        f"{path} has no vocabulary and no labels, so the model has no preprocessor. Save with "
        "bert_tf.save to include them."
    )
    return dataclasses.replace(to_checkpoint(model), path=path, format="keras", notes=(note,))


def _read_model(archive: zipfile.ZipFile, path: str) -> tuple[BertConfig, ModelSpec]:
    """Reads and validates the model's config and class in ``config.json``."""
    _check_size(archive, _CONFIG, _MAX_TEXT_BYTES, path)
    values = parse_json_object(archive.read(_CONFIG), f"{path}: {_CONFIG}")
    registered = values.get("registered_name")
    if registered not in [f"{_PACKAGE}>{name}" for name in MODEL_CLASSES]:
        raise ValueError(
            f"{path}: expected a model of bert_tf ({', '.join(MODEL_CLASSES)}), got "
            f"{quote(registered or values.get('class_name'))}."
        )
    name = registered.removeprefix(f"{_PACKAGE}>")
    constructor = values.get("config")
    if not isinstance(constructor, dict) or not isinstance(constructor.get("config"), dict):
        raise ValueError(f"{path}: {_CONFIG}: expected a BERT's config in config.config.")
    known = ("config", "name", "dtype", "trainable")
    arguments = {key: value for key, value in constructor.items() if key not in known}
    spec = check_model(name, arguments, f"{path}, {_CONFIG}")
    return BertConfig.from_dict(constructor["config"], f"{path}, {_CONFIG}"), spec


def _check_size(archive: zipfile.ZipFile, name: str, limit: int, path: str) -> None:
    size = archive.getinfo(name).file_size
    if size > limit:
        raise ValueError(
            f"{path}: {name}: expected at most {limit:,} bytes when unpacked, got {size:,}."
        )
