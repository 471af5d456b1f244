"""KerasHub presets: JSON files, ``*.weights.h5`` and ``assets/tokenizer``.

Presets do not contain the activation and epsilon, because KerasHub fixes both: tanh GELU and 1e-12
in ``BertBackbone``, and exact GELU and 1e-5 in the masked-LM head. Kernels have shape (inputs,
outputs); those of attention layers are split into heads. Source: keras-hub
``models/bert/bert_backbone.py``, ``layers/modeling/masked_lm_head.py``, ``utils/preset_utils.py``.
"""

import dataclasses
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.io.checkpoint_formats import CONFIG
from bert_tf.io.files import read_json_object
from bert_tf.io.messages import quote
from bert_tf.modeling import BertClassifier, BertEncoder, BertPretrainer
from bert_tf.pipelines.vocabulary import load_vocabulary

from . import config_keys
from .checkpoint import Checkpoint, ModelSpec, StoredTensor, Tokenization, check_model
from .config_keys import IS_OBJECT, IS_POSITIVE, IS_SWITCH, KERAS_HUB_SIZES, check_value
from .tensor_files import open_hdf5, read_weight_map
from .tokenizer_files import NO_PREPROCESSOR
from .weights import Names, expected_shapes, merge_heads

_TASK = "task.json"
_TOKENIZER, _PREPROCESSOR = "tokenizer.json", "preprocessor.json"
_FILE_SUFFIX = " of KerasHub"  # suffix in the keys of ``config_keys.FILES``
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
_CLASSIFIERS = ("BertTextClassifier", "BertClassifier")  # the current name and the old one

_BLOCK = "layers/transformer_encoder_{}"
_HEAD = "task/layers/masked_lm_head"
# Paths in the weights files, as returned by ``_normalize_path``. A layer's variables are 0 and 1.
_NAMES = Names(
    {
        "embeddings/word_embeddings": "layers/reversible_embedding/vars/0",
        "embeddings/position_embeddings": "layers/position_embedding/vars/0",
        "embeddings/token_type_embeddings": "layers/embedding/vars/0",
        "embeddings/layer_norm": "layers/layer_normalization/vars",
        "layer_{}/attention/query": f"{_BLOCK}/self_attention_layer/query_dense/vars",
        "layer_{}/attention/key": f"{_BLOCK}/self_attention_layer/key_dense/vars",
        "layer_{}/attention/value": f"{_BLOCK}/self_attention_layer/value_dense/vars",
        "layer_{}/attention/output": f"{_BLOCK}/self_attention_layer/output_dense/vars",
        "layer_{}/attention_layer_norm": f"{_BLOCK}/self_attention_layer_norm/vars",
        "layer_{}/intermediate": f"{_BLOCK}/feedforward_intermediate_dense/vars",
        "layer_{}/output": f"{_BLOCK}/feedforward_output_dense/vars",
        "layer_{}/output_layer_norm": f"{_BLOCK}/feedforward_layer_norm/vars",
        "pooler/dense": "layers/dense/vars",
        "masked_lm/dense": f"{_HEAD}/intermediate_dense/vars",
        "masked_lm/layer_norm": f"{_HEAD}/intermediate_layer_norm/vars",
        "masked_lm/output_bias": f"{_HEAD}/vars/0",
        "classifier": "task/layers/dense/vars",
    },
    {"kernel": "/0", "bias": "/1", "gamma": "/0", "beta": "/1"},
    transposed=False,
)


def read_checkpoint(path: str) -> Checkpoint:
    """Opens a directory that ``save_to_preset`` of a backbone or a task wrote.

    ``BertMaskedLM`` is loaded as a ``BertPretrainer`` without a next-sentence head,
    ``BertTextClassifier`` is loaded as a ``BertClassifier``, and any other task is loaded as a
    ``BertEncoder``. No Keras object is deserialized.
    """
    source = os.path.join(path, CONFIG)
    config, key_notes = _read_config(source)
    model, notes = _read_task(path, config)
    names = {_NAMES.source_name(name): name for name in expected_shapes(config, model)}
    tensors: dict[str, StoredTensor] = {}
    unused = []
    for stored_name, entry in _entries(path):
        name = names.get(_normalize_path(stored_name))
        if name is None:
            unused.append(stored_name)
            continue
        if name in tensors:
            raise ValueError(
                f"{path}: {tensors[name].name} and {stored_name} are the same weight, {name}. "
                "Remove one of them."
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
        notes=(*key_notes, *notes, *tokenizer_notes, *length_notes),
    )


# === Configuration ===


def _read_config(source: str) -> tuple[BertConfig, tuple[str, ...]]:
    """Returns the config, including KerasHub's constants, and warnings."""
    values = _serialized(source, "BertBackbone")
    missing = [key for key in (*KERAS_HUB_SIZES, "dropout") if key not in values]
    if missing:
        raise ValueError(f"{source}: missing keys in config: {', '.join(missing)}.")
    sizes = {name: values[key] for key, name in KERAS_HUB_SIZES.items()}
    rest = {
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": values["dropout"],
        "attention_probs_dropout_prob": values["dropout"],
    }
    config = BertConfig.from_dict({**sizes, **rest}, source)
    return config, (*config_keys.messages(f"{CONFIG}{_FILE_SUFFIX}", values, source),)


def _read_task(path: str, config: BertConfig) -> tuple[ModelSpec, tuple[str, ...]]:
    """Returns the model's class and arguments, and warnings."""
    source = os.path.join(path, _TASK)
    encoder = ModelSpec(BertEncoder, {"pooler": True})
    if not tf.io.gfile.exists(source):
        return encoder, ()
    task = read_json_object(source).get("class_name")
    if task == _MASKED_LM:
        return ModelSpec(BertPretrainer, _MASKED_LM_ARGUMENTS), ()
    if task not in _CLASSIFIERS:
        return encoder, (f"{source}: {quote(task)} is not supported; only its encoder is loaded.",)
    values = _serialized(source, task)
    dropout = values.get("dropout", config.hidden_dropout_prob)
    arguments = {"num_classes": values.get("num_classes"), "dropout": dropout}
    model = check_model(BertClassifier.__name__, arguments, source)
    return model, (*config_keys.messages(f"{_TASK}{_FILE_SUFFIX}", values, source),)


def _serialized(source: str, class_name: str) -> Mapping[str, Any]:
    """Reads the config of a serialized object of the given class."""
    values = read_json_object(source)
    if values.get("class_name") != class_name:
        raise ValueError(
            f"{source}: class_name={quote(values.get('class_name'))}: expected {class_name!r}."
        )
    config: Mapping[str, Any] = check_value(values.get("config"), IS_OBJECT, f"{source}: config")
    return config


# === Weights ===


def _entries(path: str) -> Iterator[tuple[str, StoredTensor]]:
    """Yields the name, FILE/PATH, and the tensor of each dataset in a preset's weights files."""
    index = os.path.join(path, _SHARDED)
    if tf.io.gfile.exists(os.path.join(path, _WEIGHTS)):
        files = [_WEIGHTS]
    elif tf.io.gfile.exists(index):
        files = sorted(set(itertools.chain(*read_weight_map(index).values())))
    else:
        raise ValueError(f"{path} has no {_WEIGHTS} and no {_SHARDED}.")
    if tf.io.gfile.exists(os.path.join(path, _TASK_WEIGHTS)):
        files.append(_TASK_WEIGHTS)
    for file in files:
        for name, entry in open_hdf5(os.path.join(path, file)).items():
            yield f"{file}/{name}", entry


def _normalize_path(stored: str) -> str:
    """Converts a dataset's name to its path in current files, where every block has an index."""
    # Some Keras versions name a layer by its attribute, _query_dense, others by its property.
    file, *parts = (part.removeprefix("_") for part in stored.split("/"))
    name_in_file = "/".join(parts).replace("/transformer_encoder/", "/transformer_encoder_0/")
    name_in_file = re.sub("^layer_checkpoint_dependencies/", "layers/", name_in_file)  # Keras 2's
    return f"task/{name_in_file}" if file == _TASK_WEIGHTS else name_in_file


# === Text ===


def _read_tokenization(path: str) -> tuple[Tokenization | None, tuple[str, ...]]:
    """Returns the tokenizer (``None`` if it is not supported), and warnings."""
    source = os.path.join(path, _TOKENIZER)
    if not tf.io.gfile.exists(source):
        return None, (f"{NO_PREPROCESSOR}{path} has no {_TOKENIZER}.",)
    values = _serialized(source, "BertTokenizer")
    lowercase, strip = values.get("lowercase", False), values.get("strip_accents", False)
    for key, value in (("lowercase", lowercase), ("strip_accents", strip)):
        check_value(value, IS_SWITCH, f"{source}: {key}")
    try:
        notes = (*config_keys.messages(f"{_TOKENIZER}{_FILE_SUFFIX}", values, source),)
        if strip and not lowercase:
            raise ValueError(f"{source}: strip_accents=True is not supported without lowercase.")
        for preprocessor_source, preprocessor in _preprocessors(path):
            tokenizer = _nested_config(preprocessor, "tokenizer")
            for key in sorted(tokenizer.keys() & values.keys() - config_keys.KERAS_KEYS.keys()):
                if tokenizer[key] != values[key]:
                    raise ValueError(
                        f"{source} and {preprocessor_source} have different values of {key}."
                    )
    except ValueError as error:
        return None, (f"{NO_PREPROCESSOR}{error}",)
    vocabulary = load_vocabulary(os.path.join(path, _VOCABULARY))
    if lowercase and not strip:
        notes += (
            f"{source}: strip_accents=False with lowercase: accents are stripped, as in Google's "
            "uncased models.",
        )
    return Tokenization(tuple(vocabulary), lowercase), notes


def _read_length(path: str) -> tuple[int | None, tuple[str, ...]]:
    """Returns the sequence length in ``task.json``, else ``preprocessor.json``, and warnings."""
    for source, values in _preprocessors(path):
        length = values.get("sequence_length")
        if length is not None:
            check_value(length, IS_POSITIVE, f"{source}: sequence_length")
        return length, (*config_keys.messages(f"{_PREPROCESSOR}{_FILE_SUFFIX}", values, source),)
    return None, ()


def _preprocessors(path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the path and the preprocessor config of ``task.json`` and ``preprocessor.json``."""
    for name, keys in ((_TASK, ("preprocessor",)), (_PREPROCESSOR, ())):
        source = os.path.join(path, name)
        if values := _nested_config({"": config_keys.read(source)}, "", *keys):
            yield source, values


def _nested_config(values: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Returns the config of a nested object, or ``{}`` if the object does not exist."""
    for key in keys:
        inner = values.get(key)
        config = inner.get("config") if isinstance(inner, Mapping) else None
        values = config if isinstance(config, Mapping) else {}
    return values
