"""bert_tf directories (from runs, ``bert_tf.save`` or ``convert``), exports and .keras files.

| path             | contents                                                           |
|------------------|--------------------------------------------------------------------|
| model.json       | class and arguments of the model, labels, casing                   |
| bert_config.json | config of the encoder                                              |
| vocab.txt        | vocabulary, one token per line, if the source has one              |
| task.json        | task type, lengths and options of fine-tuning                      |
| checkpoints/     | ``step-.../``, each with a manifest of hashes; the newest is loaded |

An export is a SavedModel whose ``assets.extra/`` contains these files except the weights, which are
in ``variables/``. The graph is never run.

Keras' ``model.save`` writes ``.keras`` files. The model is built from the validated config, and
Keras loads only the weights. No Keras object in an untrusted file is deserialized.
"""

import dataclasses
import inspect
import lzma
import math
import os
import tempfile
import zipfile
import zlib

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.io.checkpoint_formats import CONFIG, SIZES
from bert_tf.io.files import atomic_directory, atomic_write, encode_json, read_json_object
from bert_tf.io.messages import listed, quote, reason
from bert_tf.io.paths import check_readable, is_file
from bert_tf.io.untrusted import parse_json_object
from bert_tf.modeling import MODEL_CLASSES
from bert_tf.modeling.base import BertModel
from bert_tf.pipelines.vocabulary import encode_vocabulary
from bert_tf.training import saved_states

from .checkpoint import (
    DESCRIPTION_KEYS,
    Checkpoint,
    ModelSpec,
    check_model,
    describe,
    parse_description,
    unused_names,
)
from .tensor_files import Bundle, open_hdf5
from .tokenizer_files import VOCABULARY, read_vocabulary
from .weights import (
    build_model,
    expected_shapes,
    group_by_variable,
    is_in_encoder,
    read_variable,
    split_variables,
    to_checkpoint,
    to_tensor,
)

DESCRIPTION, TASK = "model.json", "task.json"
CHECKPOINTS = "checkpoints"
_MODEL = "model/"
_ENCODER = "bert_encoder"
_GRAPH, _EXTRA_ASSETS = "saved_model.pb", "assets.extra"  # in an export
# TensorFlow's name format for the values of a dict attribute "weights" whose keys contain "/".
_VARIABLE_PREFIX, _SLASH, _VARIABLE_SUFFIX = "weights/", ".S", "/.ATTRIBUTES/VARIABLE_VALUE"


# === Reading ===


def read_description(path: str) -> Checkpoint:
    """Reads everything in a bert_tf directory except the weights."""
    description_path, sizes_path = os.path.join(path, DESCRIPTION), os.path.join(path, SIZES)
    values = read_json_object(description_path)
    if not values.keys() <= DESCRIPTION_KEYS:
        raise ValueError(
            f"{description_path}: expected only the keys {', '.join(sorted(DESCRIPTION_KEYS))}, "
            f"got {listed(sorted(values.keys() - DESCRIPTION_KEYS))}."
        )
    fields, do_lower_case = parse_description(values, description_path)
    tokenization, notes = read_vocabulary(path, do_lower_case, values.get("text_rules"))
    task = os.path.join(path, TASK)
    return Checkpoint(
        path=path,
        format="bert_tf",
        config=BertConfig.from_dict(read_json_object(sizes_path), sizes_path),
        tokenization=tokenization,
        task=read_json_object(task) if tf.io.gfile.exists(task) else None,
        notes=notes,
        **fields,
    )


def read_checkpoint(path: str) -> Checkpoint:
    """Opens the newest intact checkpoint of a directory, an export, or a ``.keras`` file."""
    if is_file(path):
        return _open_keras_file(path)
    if not is_file(os.path.join(path, DESCRIPTION)):
        return _open_export(path)
    described = read_description(path)
    state = saved_states.find_latest(os.path.join(path, CHECKPOINTS))
    if state is None:
        raise ValueError(
            f"{path} has no checkpoint, because the run was interrupted before saving one. "
            "Rerun the command to resume the run."
        )
    bundle = Bundle(os.path.join(state.path, saved_states.BUNDLE))
    # A run's checkpoint also contains the optimizer's variables, which are not reported as unused.
    names = [name for name in bundle.shapes if name.startswith(_MODEL)]
    stored = {name.removeprefix(_MODEL).split("/", 1)[-1]: bundle.tensor(name) for name in names}
    tensors = split_variables(described.config, described.model, stored, bundle.prefix)
    unused, notes = unused_names(names, tensors), (*state.warnings, *described.notes)
    return dataclasses.replace(described, tensors=tensors, unused=unused, notes=notes)


def _open_export(path: str) -> Checkpoint:
    """Opens an export, or the newest version in a directory of numbered versions."""
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(path)]
    numbers = [name for name in names if name.isascii() and name.isdecimal()]
    versions = [os.path.join(path, name) for name in sorted(numbers, key=int, reverse=True)]
    graphs = (folder for folder in (path, *versions) if is_file(os.path.join(folder, _GRAPH)))
    folder = next(graphs, path)
    description_path = os.path.join(folder, _EXTRA_ASSETS)
    if not is_file(os.path.join(description_path, DESCRIPTION)):
        raise ValueError(
            f"{folder}: expected an export of bert_tf, with {_GRAPH} and "
            f"{_EXTRA_ASSETS}/{DESCRIPTION}. Use the original model."
        )
    described = read_description(description_path)
    bundle = Bundle(os.path.join(folder, "variables", "variables"))
    stored = {}
    for name in bundle.shapes:
        if name.startswith(_VARIABLE_PREFIX) and name.endswith(_VARIABLE_SUFFIX):
            variable = name[len(_VARIABLE_PREFIX) : -len(_VARIABLE_SUFFIX)].replace(_SLASH, "/")
            tensor = dataclasses.replace(bundle.tensor(name), name=variable)
            stored[variable.split("/", 1)[-1]] = tensor
    if not stored:
        raise ValueError(
            f"{folder} has no variables, because its weights are constants in the graph. Use the "
            "original model."
        )
    tensors = split_variables(described.config, described.model, stored, bundle.prefix)
    return dataclasses.replace(
        described,
        path=path,
        format="saved_model",
        tensors=tensors,
        unused=unused_names((tensor.name for tensor in stored.values()), tensors),
    )


# === Files of Keras ===

_KERAS_WEIGHTS = "model.weights.h5"
_REGISTERED_PACKAGE = "bert_tf"
# Keras does not compress the files. A larger ratio indicates a decompression bomb.
_MAX_GROWTH = 2
_SPARE_BYTES = 1 << 20
_MAX_TEXT_BYTES = 64 << 20
_MIN_ITEM_SIZE = 2  # bytes
_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(OSError, EOFError, KeyError, RuntimeError),
)


def _open_keras_file(path: str) -> Checkpoint:
    """Opens a ``.keras`` file of a bert_tf model."""
    check_readable(path)
    with tempfile.TemporaryDirectory(prefix="bert_tf-") as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                config, spec = _read_keras_config(archive, path)
                limit = _MAX_GROWTH * os.path.getsize(path) + _SPARE_BYTES
                _check_size(archive, _KERAS_WEIGHTS, limit, path)
                unpacked = archive.extract(_KERAS_WEIGHTS, folder)
        except _UNREADABLE as error:
            raise ValueError(
                f"{path} cannot be read as a .keras file: {reason(error, 120)}."
            ) from error
        size = sum(map(math.prod, expected_shapes(config, spec).values()))
        if size * _MIN_ITEM_SIZE > os.path.getsize(unpacked):
            raise ValueError(
                f"{path}: {_KERAS_WEIGHTS} is too small for the {size:,} weights of {CONFIG}."
            )
        model = build_model(config, spec, dtype="float32", initialize=False)
        try:
            open_hdf5(unpacked)  # Rejects datasets that are larger than the file.
            model.load_weights(unpacked)
        except (ValueError, KeyError, OSError) as error:
            raise ValueError(
                f"{path}: the weights do not match a {spec.class_name} of this config: "
                f"{reason(error, 300).replace(unpacked, _KERAS_WEIGHTS)}"
            ) from error
    note = (
        f"{path} has no vocabulary and no labels, so the model has no preprocessor. Save the "
        "model with bert_tf.save to include both."
    )
    return dataclasses.replace(to_checkpoint(model), path=path, format="keras", notes=(note,))


def _read_keras_config(archive: zipfile.ZipFile, path: str) -> tuple[BertConfig, ModelSpec]:
    """Reads and validates the model's config and class in ``config.json``."""
    _check_size(archive, CONFIG, _MAX_TEXT_BYTES, path)
    values = parse_json_object(archive.read(CONFIG), f"{path}: {CONFIG}")
    registered = values.get("registered_name")
    if registered not in [f"{_REGISTERED_PACKAGE}>{name}" for name in MODEL_CLASSES]:
        raise ValueError(
            f"{path}: expected a model of bert_tf ({', '.join(MODEL_CLASSES)}), got "
            f"{quote(registered or values.get('class_name'))}."
        )
    name = registered.removeprefix(f"{_REGISTERED_PACKAGE}>")
    constructor = values.get("config")
    if not isinstance(constructor, dict) or not isinstance(constructor.get("config"), dict):
        raise ValueError(f"{path}: {CONFIG}: expected a BERT config in config.config.")
    known = ("config", "name", "dtype", "trainable")
    arguments = {key: value for key, value in constructor.items() if key not in known}
    spec = check_model(name, arguments, f"{path}, {CONFIG}")
    return BertConfig.from_dict(constructor["config"], f"{path}, {CONFIG}"), spec


def _check_size(archive: zipfile.ZipFile, name: str, limit: int, path: str) -> None:
    size = archive.getinfo(name).file_size
    if size > limit:
        raise ValueError(
            f"{path}: {name}: expected at most {limit:,} bytes when unpacked, got {size:,}."
        )


# === Writing ===


def save(model: BertModel, directory: str | os.PathLike[str]) -> None:
    """Saves a model to a new directory atomically.

    The directory contains the weights, the config, the vocabulary of ``model.preprocessor``, and
    the attributes ``labels``, ``multi_label``, ``thresholds``, ``task`` and ``sentence_embedding``.
    ``bert_tf.load`` and all commands accept it like a run directory. After training a classifier
    with ``fit``, set ``model.labels``, so that predictions contain class names.

    Args:
        model: A model of a bert_tf class. The optimizer and other arguments of ``compile`` are not
            saved.
        directory: Path of a directory that does not exist or is empty.

    Raises:
        ValueError: If the directory is not empty, if the weights do not match the model's class
            (as with adapters, which must be merged first), or if the number of labels does not
            match the number of classes.

    >>> import os, tempfile, bert_tf
    >>> config = bert_tf.BertConfig.from_preset("bert-tiny", vocab_size=8)
    >>> model = bert_tf.BertClassifier(config, num_classes=2)
    >>> model.preprocessor = bert_tf.BertPreprocessor(
    ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "it", "is", "so"])
    >>> model.labels = ("no", "yes")
    >>> directory = os.path.join(tempfile.mkdtemp(), "saved")
    >>> bert_tf.save(model, directory)
    >>> bert_tf.load(directory).labels
    ('no', 'yes')
    """
    checkpoint = to_checkpoint(model)
    with atomic_directory(os.fspath(directory)) as folder:
        write(checkpoint, folder)


def write(checkpoint: Checkpoint, path: str) -> tuple[str, ...]:
    """Writes a bert_tf directory, and returns ``()``, because there are no warnings."""
    # The default name of the Keras model.
    parameters = inspect.signature(checkpoint.model.model_class.__init__).parameters
    head = parameters["name"].default
    values = {}
    for variable, names in group_by_variable(checkpoint.tensors).items():
        owner = _ENCODER if is_in_encoder(variable) else head
        value = read_variable([checkpoint.tensors[name] for name in names])
        values[f"{_MODEL}{owner}/{variable}"] = to_tensor(value)
    directory = os.path.join(path, CHECKPOINTS, saved_states.directory_name(0))
    saved_states.write(directory, 0, values, {})
    write_description(checkpoint, path)
    return ()


def write_description(checkpoint: Checkpoint, path: str) -> None:
    """Writes everything in a bert_tf directory except the weights."""
    contents = {
        DESCRIPTION: encode_json(describe(checkpoint)),
        SIZES: checkpoint.config.to_json().encode(),
    }
    if checkpoint.task is not None:
        contents[TASK] = encode_json(checkpoint.task)
    if checkpoint.tokenization is not None:
        source = os.path.join(path, VOCABULARY)
        contents[VOCABULARY] = encode_vocabulary(checkpoint.tokenization.vocabulary, source)
    for name, content in contents.items():
        with atomic_write(os.path.join(path, name)) as file:
            file.write(content)
