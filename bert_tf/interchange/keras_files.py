"""``.keras`` files of this library's models.

They are Keras' own, made by Keras' own saving. What Keras has no place for, the vocabulary, the
casing and the labels, is under a key of this library in ``metadata.json``, which Keras does
not read when it loads.
"""

import dataclasses
import lzma
import os
import re
import tempfile
import zipfile
import zlib
from typing import Any

import h5py
import keras
import numpy as np

from bert_tf import marks
from bert_tf.config import BertConfig
from bert_tf.files import read_json_object, write_json
from bert_tf.modeling import MODEL_CLASSES, BertEncoder
from bert_tf.modeling.keras_hooks import unexpected
from bert_tf.pipelines.vocabulary import validate_vocabulary
from bert_tf.untrusted import parse_json_object, quote, reason

from . import hdf5_files
from .checkpoint import (
    Checkpoint,
    Description,
    ModelSpec,
    StoredTensor,
    Tokenization,
    check_model,
    describe_checkpoint,
    names_left,
    parse_description,
)
from .weights import (
    build_model,
    group_by_variable,
    is_in_encoder,
    read_variable,
    take_weights,
    variable_shapes,
)

SUFFIX = marks.KERAS
_CONFIG = "config.json"
_METADATA = "metadata.json"
_WEIGHTS = "model.weights.h5"
_PACKAGE = "bert_tf"
_DESCRIPTION = "bert_tf"
# Keras does not compress, and numbers hardly can be: what grows more when it is unpacked is a bomb.
_MAX_GROWTH = 2
_SPARE_BYTES = 1 << 20
_MAX_TEXT_BYTES = 64 << 20
_WITHOUT_DESCRIPTION = (
    "{} has neither vocabulary nor labels, as Keras' own save keeps none: no preprocessor is made. "
    "python -m bert_tf.convert --format=keras of the checkpoint that the model is from keeps them."
)
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    KeyError,
    RuntimeError,
)

# Where Keras puts the variables of a model's attributes, for the names of ``checkpoint``.
_BLOCK = re.compile(r"layer_(\d+)/")
_ATTRIBUTE = "sentence_dense"  # no layer of the graph
_CELL = ("kernel", "recurrent_kernel", "bias")  # of an LSTM, in Keras' order
_PLACES = {
    "embeddings/word_embeddings": "bert_embeddings/vars/0",
    "embeddings/position_embeddings": "bert_embeddings/vars/1",
    "embeddings/token_type_embeddings": "bert_embeddings/vars/2",
    "embeddings/layer_norm": "bert_embeddings/layer_norm",
    "attention/query_key_value": "attention/query_key_value",
    "attention/output": "attention/attention_output",
    "attention_layer_norm": "attention_layer_norm",
    "intermediate": "intermediate",
    "output": "feed_forward_output",
    "output_layer_norm": "output_layer_norm",
    "pooler/dense": "pooler/dense",
    "masked_lm/output_bias": "masked_lm_head/vars/0",
    "masked_lm/dense": "masked_lm_head/dense",
    "masked_lm/layer_norm": "masked_lm_head/layer_norm",
    "next_sentence/dense": "next_sentence_head/dense",
    **dict.fromkeys(("classifier", "regressor", "token_classifier", "choice", "span"), "dense"),
    _ATTRIBUTE: _ATTRIBUTE,
    "mixture/logits": "functional/layers/layer_mixture/vars/0",
    "mixture/scale": "functional/layers/layer_mixture/vars/1",
    **{
        f"bilstm_{layer}/{direction}_lstm/lstm_cell/{name}": (
            f"functional/layers/bidirectional{suffix}/{direction}_layer/cell/vars/{number}"
        )
        for layer, suffix in enumerate(("", "_1"))
        for direction in ("forward", "backward")
        for number, name in enumerate(_CELL)
    },
    "tags": "functional/layers/dense",
    **{
        f"bilstm/directions/{direction}_lstm/lstm_cell/{name}": (
            f"bi_lstm/directions/{direction}_layer/cell/vars/{number}"
        )
        for direction in ("forward", "backward")
        for number, name in enumerate(_CELL)
    },
}
_LEAVES = {"kernel": "vars/0", "bias": "vars/1", "gamma": "vars/0", "beta": "vars/1"}


def is_checkpoint(path: str) -> bool:
    """Whether a path is a ``.keras`` file."""
    return path.endswith(SUFFIX) and os.path.isfile(path)


# === Reading ===


def open_checkpoint(path: str) -> Checkpoint:
    """Opens a ``.keras`` file of one of this library's models; nothing in it is deserialised."""
    # The weights are read from a copy outside the archive, which goes when no tensor needs it.
    folder = tempfile.TemporaryDirectory(prefix="bert_tf-")
    try:
        with zipfile.ZipFile(path) as archive:
            config, spec = _read_model(archive, path)
            described, tokenization = _read_description(archive, spec, path)
            limit = _MAX_GROWTH * os.path.getsize(path) + _SPARE_BYTES
            _check_size(archive, _WEIGHTS, limit, path)
            unpacked = archive.extract(_WEIGHTS, folder.name)
    except _UNREADABLE as error:
        raise ValueError(
            f"{path} is not a .keras file that can be read: {reason(error, 120)}."
        ) from error
    try:
        stored = hdf5_files.open_file(unpacked)
    except ValueError as error:
        raise ValueError(str(error).replace(unpacked, f"{path}, {_WEIGHTS}")) from error

    def find_variable(whole: str) -> StoredTensor | None:
        entry = stored.get(_place(whole, spec))
        return entry and dataclasses.replace(entry, read=lambda: _read(entry, folder))

    tensors = take_weights(config, spec, find_variable, path)
    notes = () if tokenization else (_WITHOUT_DESCRIPTION.format(path),)
    return Checkpoint(
        path=path,
        format="keras",
        config=config,
        tensors=tensors,
        unused=names_left(stored, tensors),
        tokenization=tokenization,
        notes=notes,
        **described._replace(model=spec).of_checkpoint(),
    )


def _read_model(archive: zipfile.ZipFile, path: str) -> tuple[BertConfig, ModelSpec]:
    """The config and the class, checked: nothing else of ``config.json`` is used."""
    values = _read_json(archive, _CONFIG, path)
    # By the name that Keras goes by.
    registered = values.get("registered_name")
    if registered not in [f"{_PACKAGE}>{name}" for name in MODEL_CLASSES]:
        raise ValueError(
            f"{path} holds a {quote(registered or values.get('class_name'))}, expected a model of "
            f"this library: {', '.join(MODEL_CLASSES)}."
        )
    name = registered.removeprefix(f"{_PACKAGE}>")
    given = values.get("config")
    if not isinstance(given, dict) or not isinstance(given.get("config"), dict):
        raise ValueError(f"{path}: {_CONFIG} has no sizes of a BERT under config.")
    known = ("config", "name", "dtype", "trainable")
    arguments = {key: value for key, value in given.items() if key not in known}
    spec = check_model(name, arguments, f"{path}, {_CONFIG}")
    return BertConfig.from_dict(given["config"], f"{path}, {_CONFIG}"), spec


def _read_description(
    archive: zipfile.ZipFile, spec: ModelSpec, path: str
) -> tuple[Description, Tokenization | None]:
    values = _read_json(archive, _METADATA, path).get(_DESCRIPTION)
    if values is None:
        return Description(spec), None
    described = parse_description(values, f"{path}, {_METADATA}")
    vocabulary = values.get("vocabulary")
    if described.do_lower_case is None or not isinstance(vocabulary, list):
        return described, None
    pieces = tuple(str(piece) for piece in vocabulary)
    validate_vocabulary(pieces, path)
    return described, Tokenization(pieces, described.do_lower_case)


def _read_json(archive: zipfile.ZipFile, name: str, path: str) -> dict[str, Any]:
    _check_size(archive, name, _MAX_TEXT_BYTES, path)
    return parse_json_object(archive.read(name), f"{path}: {name} in it")


def _check_size(archive: zipfile.ZipFile, name: str, limit: int, path: str) -> None:
    size = archive.getinfo(name).file_size
    if size > limit:
        raise ValueError(
            f"{path}: {name} in it would unpack to {size:,} bytes, expected at most {limit:,}."
        )


def _place(whole: str, spec: ModelSpec) -> str:
    """The path of a variable in ``model.weights.h5``."""
    block = _BLOCK.match(whole)
    module = _BLOCK.sub("", whole, count=1)
    leaf = ""
    if module not in _PLACES:
        module, leaf = module.rsplit("/", 1)
    place = _PLACES[module] + (f"/{_LEAVES[leaf]}" if leaf else "")
    if module == _ATTRIBUTE:
        return place
    if block:
        number = int(block[1])
        place = f"transformer_block{f'_{number}' if number else ''}/{place}"
    inside = is_in_encoder(whole) and spec.model_class is not BertEncoder
    return f"layers/bert_encoder/layers/{place}" if inside else f"layers/{place}"


def _read(entry: StoredTensor, folder: tempfile.TemporaryDirectory[str]) -> np.ndarray:
    # The folder is there for as long as a tensor in it holds it.
    if not os.path.isdir(folder.name):
        raise ValueError(f"{folder.name}, where the weights were unpacked, is gone.")
    return entry.read()


# === Writing ===


def write(checkpoint: Checkpoint, path: str) -> dict[str, str]:
    """Writes a file for ``load_model`` after ``import bert_tf``; gives where each weight went."""
    # Keras saves a model whose sizes are 1, which says how a file looks; then come the real ones.
    model = build_model(_skeleton(checkpoint.config), checkpoint.model, dtype="float32")
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path) or ".") as folder:
        saved = os.path.join(folder, "model")
        keras.saving.save_model(model, saved, zipped=False)
        config = read_json_object(os.path.join(saved, _CONFIG))
        config["config"]["config"] = checkpoint.config.to_dict()
        write_json(os.path.join(saved, _CONFIG), config)
        went = _write_weights(checkpoint, os.path.join(saved, _WEIGHTS))
        metadata = read_json_object(os.path.join(saved, _METADATA))
        metadata[_DESCRIPTION] = describe_checkpoint(checkpoint)
        if checkpoint.tokenization is not None:
            metadata[_DESCRIPTION]["vocabulary"] = checkpoint.tokenization.vocabulary
        write_json(os.path.join(saved, _METADATA), metadata)
        with zipfile.ZipFile(path, "w") as archive:
            for name in (_METADATA, _CONFIG, _WEIGHTS):
                archive.write(os.path.join(saved, name), name)
    return went


def _skeleton(config: BertConfig) -> BertConfig:
    return dataclasses.replace(
        config,
        vocab_size=1,
        hidden_size=config.num_attention_heads,
        intermediate_size=1,
        max_position_embeddings=1,
        type_vocab_size=min(config.type_vocab_size, 1),
    )


def _write_weights(checkpoint: Checkpoint, path: str) -> dict[str, str]:
    """Replaces every variable in the skeleton's file; gives where each weight went."""
    went: dict[str, str] = {}
    skeleton = variable_shapes(_skeleton(checkpoint.config), checkpoint.model)
    with h5py.File(path, "r+") as file:
        for whole, names in group_by_variable(checkpoint.tensors).items():
            place = _place(whole, checkpoint.model)
            if place not in file or file[place].shape != skeleton[whole]:
                raise unexpected(f"keeps {whole} elsewhere than in {place} of its files")
            del file[place]
            file[place] = read_variable([checkpoint.tensors[name] for name in names])
            went.update(dict.fromkeys(names, place))
    return went
