"""KerasHub presets: JSON of each object, ``*.weights.h5``, ``assets/tokenizer``.

A preset says nothing of activation and epsilon, which KerasHub's classes fix: tanh GELU and 1e-12
in ``BertBackbone``, the GELU by the error function and 1e-5 in its masked-LM head. Kernels are
(inputs, outputs) as here, those of attention divided into heads. Source: keras-hub
``models/bert/bert_backbone.py``, ``layers/modeling/masked_lm_head.py``, ``utils/preset_utils.py``.
"""

import dataclasses
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.checkpoint_formats import CONFIG
from bert_tf.config import BertConfig
from bert_tf.files import read_json_object
from bert_tf.modeling import BertClassifier, BertEncoder, BertPretrainer
from bert_tf.pipelines.vocabulary import load_vocabulary
from bert_tf.wording import quote

from . import config_keys
from .checkpoint import Checkpoint, ModelSpec, StoredTensor, Tokenization, check_model
from .config_keys import IS_POSITIVE, IS_SWITCH, KERAS_HUB_SIZES, checked
from .tensor_files import open_hdf5, read_weight_map
from .tokenizer_files import NO_PREPROCESSOR
from .weights import leaves, merge_heads

_TASK = "task.json"
_TOKENIZER, _PREPROCESSOR = "tokenizer.json", "preprocessor.json"
_OF = " of KerasHub"  # behind the files' names in the table of keys
_VOCABULARY = os.path.join("assets", "tokenizer", "vocabulary.txt")
_WEIGHTS = "model.weights.h5"
_SHARDED = "model.weights.json"
_TASK_WEIGHTS = "task.weights.h5"

_MASKED_LM = "BertMaskedLM"
_MASKED_LM_ARGUMENTS = {
    "mlm": True,
    "nsp": False,
    "pooler": True,
    "mlm_activation": "gelu",
    "mlm_layer_norm_eps": 1e-5,
}
_CLASSIFIERS = ("BertTextClassifier", "BertClassifier")  # the second is its older name

# A layer's place in the file, by class and number; Keras 2 called the first folder otherwise.
_PLACE = re.compile(r"(?:layers|_layer_checkpoint_dependencies)/(.+)/vars/([01])")
_BLOCK = re.compile(r"transformer_encoder(?:_([1-9][0-9]*))?/(.+)")
_BLOCK_MODULES = {
    "self_attention_layer/query_dense": "attention/query",
    "self_attention_layer/key_dense": "attention/key",
    "self_attention_layer/value_dense": "attention/value",
    "self_attention_layer/output_dense": "attention/output",
    "self_attention_layer_norm": "attention_layer_norm",
    "feedforward_intermediate_dense": "intermediate",
    "feedforward_output_dense": "output",
    "feedforward_layer_norm": "output_layer_norm",
}
_BACKBONE_MODULES = {
    "reversible_embedding": "embeddings/word_embeddings",
    "position_embedding": "embeddings/position_embeddings",
    "embedding": "embeddings/token_type_embeddings",
    "layer_normalization": "embeddings/layer_norm",
    "dense": "pooler/dense",
}
_MASKED_LM_MODULES = {
    "masked_lm_head": "masked_lm/output_bias",
    "masked_lm_head/intermediate_dense": "masked_lm/dense",
    "masked_lm_head/intermediate_layer_norm": "masked_lm/layer_norm",
}
_CLASSIFIER_MODULES = {"dense": "classifier"}


def read_checkpoint(path: str) -> Checkpoint:
    """Opens a directory that ``save_to_preset`` made, of a backbone or of a task.

    ``BertMaskedLM`` becomes a ``BertPretrainer`` without next-sentence head, ``BertTextClassifier``
    a ``BertClassifier``, anything else the encoder. Nothing is deserialised: the JSON files are
    read as JSON, the weights as arrays.
    """
    source = os.path.join(path, CONFIG)
    config, told = _read_config(source)
    model, head_modules, notes = _read_task(path, config)
    tensors: dict[str, StoredTensor] = {}
    unused = []
    for stored_name, entry in _entries(path):
        in_task = stored_name.startswith(_TASK_WEIGHTS)
        name = _name(entry.name, head_modules if in_task else _BACKBONE_MODULES)
        if name is None:
            unused.append(stored_name)
            continue
        if name in tensors:
            raise ValueError(
                f"{path}: {tensors[name].name} and {stored_name} are both {name}: expected one."
            )
        tensor = dataclasses.replace(entry, name=stored_name)
        tensors[name] = merge_heads(name, tensor, config.num_attention_heads, source)
    tokenization, tokenizer_notes = _read_tokenization(path)
    length, length_notes = _read_length(path)
    return Checkpoint(
        path=path,
        format="keras_hub",
        config=config,
        model=model,
        tensors=tensors,
        unused=tuple(sorted(unused)),
        tokenization=tokenization,
        max_seq_length=length,
        notes=(*told, *notes, *tokenizer_notes, *length_notes),
    )


# === Configuration ===


def _read_config(source: str) -> tuple[BertConfig, tuple[str, ...]]:
    """The sizes, with what KerasHub's class fixes, and what is to be told."""
    values = _serialized(source, "BertBackbone")
    missing = [key for key in (*KERAS_HUB_SIZES, "dropout") if key not in values]
    if missing:
        raise ValueError(f"{source} has no {', '.join(missing)} in its config.")
    sizes = {name: values[key] for key, name in KERAS_HUB_SIZES.items()}
    rest = {
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": values["dropout"],
        "attention_probs_dropout_prob": values["dropout"],
    }
    config = BertConfig.from_dict({**sizes, **rest}, source)
    return config, (*config_keys.sentences(f"{CONFIG}{_OF}", values, source),)


def _read_task(
    path: str, config: BertConfig
) -> tuple[ModelSpec, Mapping[str, str], tuple[str, ...]]:
    """The model, where its head lies in the task's weights, and notes."""
    source = os.path.join(path, _TASK)
    encoder = ModelSpec(BertEncoder, {"pooler": True})
    if not tf.io.gfile.exists(source):
        return encoder, {}, ()
    task = read_json_object(source).get("class_name")
    if task == _MASKED_LM:
        return ModelSpec(BertPretrainer, _MASKED_LM_ARGUMENTS), _MASKED_LM_MODULES, ()
    if task not in _CLASSIFIERS:
        return encoder, {}, (f"{source} describes a {quote(task)}; its encoder alone is taken.",)
    values = _serialized(source, task)
    dropout = values.get("dropout", config.hidden_dropout_prob)
    arguments = {"num_classes": values.get("num_classes"), "dropout": dropout}
    model = check_model(BertClassifier.__name__, arguments, source)
    told = config_keys.sentences(f"{_TASK}{_OF}", values, source)
    return model, _CLASSIFIER_MODULES, (*told,)


def _serialized(source: str, class_name: str) -> Mapping[str, Any]:
    """The configuration of the object that a JSON file describes; no object is made."""
    values = read_json_object(source)
    if values.get("class_name") != class_name:
        raise ValueError(
            f"{source}: class_name is {quote(values.get('class_name'))}, expected {class_name!r}, "
            "as in a preset of KerasHub."
        )
    config = values.get("config")
    if not isinstance(config, Mapping):
        raise ValueError(f"{source}: expected config to be an object, got {quote(config)}.")
    return config


# === Weights ===


def _entries(path: str) -> Iterator[tuple[str, StoredTensor]]:
    """Every dataset of the preset by its file and its place in it."""
    index = os.path.join(path, _SHARDED)
    if tf.io.gfile.exists(os.path.join(path, _WEIGHTS)):
        files = [_WEIGHTS]
    elif tf.io.gfile.exists(index):
        files = sorted(set(itertools.chain(*read_weight_map(index).values())))
    else:
        raise ValueError(f"{path} has no {_WEIGHTS}, and no {_SHARDED} that names its parts.")
    if tf.io.gfile.exists(os.path.join(path, _TASK_WEIGHTS)):
        files.append(_TASK_WEIGHTS)
    for file in files:
        for name, entry in open_hdf5(os.path.join(path, file)).items():
            yield f"{file}/{name}", entry


def _name(stored: str, modules: Mapping[str, str]) -> str | None:
    """This library's name of a dataset; ``None`` where it is no weight."""
    place = _PLACE.fullmatch(stored)
    if not place:
        return None
    # Keras has called the same layer by an attribute and by a property: _query_dense, query_dense.
    module = "/".join(part.removeprefix("_") for part in place[1].split("/"))
    name, block = modules.get(module), _BLOCK.fullmatch(module)
    if block and modules is _BACKBONE_MODULES and (inner := _BLOCK_MODULES.get(block[2])):
        name = f"layer_{block[1] or 0}/{inner}"
    ends, number = leaves(name) if name else (), int(place[2])
    return f"{name}{ends[number]}" if number < len(ends) else None


# === Text ===


def _read_tokenization(path: str) -> tuple[Tokenization | None, tuple[str, ...]]:
    """The tokenizer; ``None`` and the reason where there is none that this library has, too."""
    source = os.path.join(path, _TOKENIZER)
    if not tf.io.gfile.exists(source):
        return None, (f"{NO_PREPROCESSOR}{path} has no {_TOKENIZER}.",)
    values = _serialized(source, "BertTokenizer")
    lowercase, strip = values.get("lowercase", False), values.get("strip_accents", False)
    for key, value in (("lowercase", lowercase), ("strip_accents", strip)):
        checked(value, IS_SWITCH, f"{source}: {key}")
    try:
        notes = (*config_keys.sentences(f"{_TOKENIZER}{_OF}", values, source),)
        if strip and not lowercase:
            raise ValueError(f"{source} has strip_accents=True without lowercase.")
        for other, preprocessor in _preprocessors(path):
            tokenizer = _inner(preprocessor, "tokenizer")
            for key in sorted(tokenizer.keys() & values.keys() - config_keys.OF_KERAS.keys()):
                if tokenizer[key] != values[key]:
                    raise ValueError(f"{source} and {other} have two values of {key}.")
    except ValueError as error:
        return None, (f"{NO_PREPROCESSOR}{error}",)
    vocabulary = load_vocabulary(os.path.join(path, _VOCABULARY))
    if lowercase and not strip:
        notes += (
            f"{source} lower-cases text and keeps its accents; here they are stripped, too, as "
            "when Google's uncased models were trained.",
        )
    return Tokenization(tuple(vocabulary), lowercase), notes


def _read_length(path: str) -> tuple[int | None, tuple[str, ...]]:
    """The most tokens of a row that a preprocessor makes, the task's own first; and notes."""
    for source, values in _preprocessors(path):
        length = values.get("sequence_length")
        if length is not None:
            checked(length, IS_POSITIVE, f"{source}: sequence_length")
        return length, (*config_keys.sentences(f"{_PREPROCESSOR}{_OF}", values, source),)
    return None, ()


def _preprocessors(path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The configurations of preprocessors: that of the task, which its class takes, and its own."""
    for name, keys in ((_TASK, ("preprocessor",)), (_PREPROCESSOR, ())):
        source = os.path.join(path, name)
        if values := _inner({"": config_keys.read(source)}, "", *keys):
            yield source, values


def _inner(values: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The configuration of an object within others; {} where there is none."""
    for key in keys:
        inner = values.get(key)
        config = inner.get("config") if isinstance(inner, Mapping) else None
        values = config if isinstance(config, Mapping) else {}
    return values
