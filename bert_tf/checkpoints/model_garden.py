"""Object checkpoints of TensorFlow Model Garden: ``ckpt-N.index``, ``ckpt-N.data-...``.

Kernels have shape (inputs, outputs); those of attention layers are split into heads. The epsilon is
always 1e-12, and ``gelu`` is the tanh approximation. Source: tensorflow/models
``official/nlp/modeling/networks/bert_encoder.py``, ``models/bert_pretrainer.py``.
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from bert_tf.config import BertConfig
from bert_tf.io.checkpoint_formats import OBJECT_GRAPH, SIZES
from bert_tf.io.files import read_json_object
from bert_tf.io.messages import quote

from .checkpoint import Checkpoint, StoredTensor, make_pretrained_spec, unused_names
from .tensor_files import Bundle, find_prefix
from .tokenizer_files import read_vocabulary
from .weights import leaves, merge_heads

_FIELDS = {field.name for field in dataclasses.fields(BertConfig)} - {"layer_norm_eps"}
_ACTIVATIONS = {"gelu": "gelu_new", "identity": "linear"}

# === Variables by name ===

_VALUE = "VARIABLE_VALUE"
# Optimizers are skipped, because slot names end with the names of the variables.
_OPTIMIZERS = ("optimizer", "_optimizer")


def read_variables(bundle: Bundle) -> dict[str, str]:
    """Returns the names of all variables, except an optimizer's, by tensor key.

    The keys of a TensorFlow 2 checkpoint depend on the order in which objects were visited. The
    object graph contains the names of the variables.
    """
    graph: Any = TrackableObjectGraph()
    try:
        graph.ParseFromString(bundle.read_string(OBJECT_GRAPH))
    except DecodeError as error:
        raise ValueError(
            f"{bundle.prefix} is damaged: {OBJECT_GRAPH} is not an object graph ({error})."
        ) from error
    nodes = graph.nodes
    waiting = [0] if nodes else []
    reached = {*waiting}
    while waiting:
        for child in nodes[waiting.pop()].children:
            if not 0 <= child.node_id < len(nodes):
                raise ValueError(
                    f"{bundle.prefix} is damaged: {OBJECT_GRAPH} refers to object {child.node_id} "
                    f"of {len(nodes)}."
                )
            if child.local_name not in _OPTIMIZERS and child.node_id not in reached:
                reached.add(child.node_id)
                waiting.append(child.node_id)
    return {
        attribute.checkpoint_key: attribute.full_name
        for node in sorted(reached)
        for attribute in nodes[node].attributes
        if attribute.name == _VALUE and attribute.checkpoint_key in bundle.shapes
    }


# bert_tf's module names by the end of a variable's name without the last component.
_MODULES = {
    "word_embeddings": "embeddings/word_embeddings",
    "position_embedding": "embeddings/position_embeddings",
    "type_embeddings": "embeddings/token_type_embeddings",
    "embeddings/layer_norm": "embeddings/layer_norm",
    "cls/predictions/transform/dense": "masked_lm/dense",
    "cls/predictions/transform/LayerNorm": "masked_lm/layer_norm",
    "pooler_transform": "pooler/dense",
    "next_sentence/logits": "next_sentence/dense",
}
_OUTPUT_BIAS = "cls/predictions/output_bias/bias"
_BLOCK = re.compile(r"(?:.*/)?transformer/layer_(0|[1-9][0-9]*)/(.+)")
_BLOCK_MODULES = {
    "self_attention/query": "attention/query",
    "self_attention/key": "attention/key",
    "self_attention/value": "attention/value",
    "self_attention/attention_output": "attention/output",
    "self_attention_layer_norm": "attention_layer_norm",
    "intermediate": "intermediate",
    "output": "output",
    "output_layer_norm": "output_layer_norm",
}
# The next-sentence head's dense layer, which was trained, replaces the pooler.
_NEXT_SENTENCE_POOLER = re.compile(r"(?:.*/)?next_sentence/pooler_dense/(kernel|bias)")
# The next-sentence head in older versions of BertPretrainer. Other task heads have the same name.
_OLD_HEAD = re.compile(r"predictions/transform/logits/(kernel|bias)")


def find_weights(variables: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Returns the tensor keys of encoder and pretrainer variables by weight name."""
    weights: dict[str, str] = {}
    next_sentence_pooler, old_head = {}, {}
    for key, variable in variables.items():
        if "embedding_projection/" in variable:
            raise ValueError(
                f"{prefix}: {quote(variable)}: embeddings of a different size than the hidden "
                "layers are not supported."
            )
        if match := _NEXT_SENTENCE_POOLER.fullmatch(variable):
            next_sentence_pooler[f"pooler/dense/{match[1]}"] = key
        elif match := _OLD_HEAD.fullmatch(variable):
            old_head[f"next_sentence/dense/{match[1]}"] = key
        name = _name(variable)
        if name in weights:
            raise ValueError(
                f"{prefix}: expected one model, got two tensors for {name}: "
                f"{quote(weights[name])} and {quote(key)}."
            )
        if name is not None:
            weights[name] = key
    if not any(name.startswith(("embeddings/", "layer_")) for name in weights):
        raise ValueError(
            f"{prefix}: expected variables of a Model Garden BERT, such as "
            "word_embeddings/embeddings."
        )
    is_pretrainer = any(name.startswith("masked_lm/") for name in weights)
    return (old_head if is_pretrainer else {}) | weights | next_sentence_pooler


def _name(variable: str) -> str | None:
    """Returns the weight name of an encoder or pretrainer variable, else ``None``."""
    if f"/{variable}".endswith(f"/{_OUTPUT_BIAS}"):
        return "masked_lm/output_bias"
    path, _, leaf = variable.rpartition("/")
    if block := _BLOCK.fullmatch(path):
        module, before = _BLOCK_MODULES.get(block[2], ""), f"layer_{block[1]}/"
    else:
        names = (name for end, name in _MODULES.items() if f"/{path}".endswith(f"/{end}"))
        module, before = next(names, ""), ""
    leaf = "" if leaf == "embeddings" else f"/{leaf}"
    return f"{before}{module}{leaf}" if module and leaf in leaves(module) else None


# === Reading ===


def read_checkpoint(path: str) -> Checkpoint:
    """Opens the directory or prefix of a checkpoint that was released or that a trainer saved."""
    bundle = Bundle(find_prefix(path) or path)
    prefix, folder = bundle.prefix, os.path.dirname(bundle.prefix)
    weights = find_weights(read_variables(bundle), prefix)
    stored = {name: bundle.tensor(key) for name, key in weights.items()}
    config_path = os.path.join(folder, SIZES)
    has_config = tf.io.gfile.exists(config_path)
    source = config_path if has_config else prefix
    config = _config(stored, _read_fields(config_path) if has_config else {}, source)
    tensors = {
        name: merge_heads(name, tensor, config.num_attention_heads, source)
        for name, tensor in stored.items()
    }
    tokenization, notes = read_vocabulary(folder)
    if not has_config:
        notes = (
            f"{prefix}: no {SIZES} in the directory; the sizes are taken from the tensors, and "
            "activation (tanh GELU) and dropout are Model Garden's defaults.",
            *notes,
        )
    return Checkpoint(
        path=path,
        format="model_garden",
        config=config,
        model=make_pretrained_spec(tensors),
        tensors=tensors,
        unused=unused_names(bundle.shapes.keys() - {OBJECT_GRAPH}, tensors),
        tokenization=tokenization,
        notes=notes,
    )


def _read_fields(path: str) -> dict[str, Any]:
    values = read_json_object(path)
    fields = {name: values[name] for name in _FIELDS if values.get(name) is not None}
    activation = fields.get("hidden_act")
    if isinstance(activation, str):
        fields["hidden_act"] = _ACTIVATIONS.get(activation.lower(), activation.lower())
    return fields


# Tensor and axis that determine each size.
_SIZES = {
    "vocab_size": ("embeddings/word_embeddings", 0),
    "hidden_size": ("embeddings/word_embeddings", 1),
    "max_position_embeddings": ("embeddings/position_embeddings", 0),
    "type_vocab_size": ("embeddings/token_type_embeddings", 0),
    "num_attention_heads": ("layer_0/attention/query/kernel", 1),
    "intermediate_size": ("layer_0/intermediate/kernel", 1),
}


def _config(
    stored: Mapping[str, StoredTensor], fields: Mapping[str, Any], source: str
) -> BertConfig:
    """Creates the config from a file's fields; takes missing sizes from the tensors."""
    values: dict[str, Any] = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12}
    for field, (name, axis) in _SIZES.items():
        if field in fields:
            continue
        shape = stored[name].shape if name in stored else ()
        if len(shape) <= axis:
            raise ValueError(
                f"{source}: {field} is not in {SIZES}, and {name} does not determine it. "
                f"Add {SIZES}."
            )
        values[field] = shape[axis]
    layers = {name.split("/")[0] for name in stored if name.startswith("layer_")}
    values["num_hidden_layers"] = len(layers)
    return BertConfig.from_dict({**values, **fields}, source)
