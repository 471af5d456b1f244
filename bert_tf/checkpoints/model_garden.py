"""TensorFlow Model Garden's object checkpoints: ``ckpt-N.index``, ``ckpt-N.data-...``.

Kernels are (inputs, outputs) as here, those of attention divided into heads. The epsilon is 1e-12
throughout, and ``gelu`` is the tanh approximation. Source: tensorflow/models
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
from bert_tf.io.wording import quote

from .checkpoint import Checkpoint, StoredTensor, make_pretrained_spec, unused_names
from .tensor_files import Bundle, find_prefix
from .tokenizer_files import read_vocabulary
from .weights import leaves, merge_heads

_FIELDS = {field.name for field in dataclasses.fields(BertConfig)} - {"layer_norm_eps"}
# Model Garden's "gelu" is the tanh approximation.
_ACTIVATIONS = {"gelu": "gelu_new", "identity": "linear"}

# === Variables by name ===

_VALUE = "VARIABLE_VALUE"
# An optimizer holds a slot or two for each variable, under names that end like the variable's.
_OPTIMIZERS = ("optimizer", "_optimizer")


def read_variables(bundle: Bundle) -> dict[str, str]:
    """The names of the models' variables by their tensors' keys, no optimizer's.

    A TensorFlow 2 checkpoint's keys spell one path through the objects that were saved, whichever
    came first; the graph next to them has each variable's own name.
    """
    graph: Any = TrackableObjectGraph()
    try:
        graph.ParseFromString(bundle.read_string(OBJECT_GRAPH))
    except DecodeError as error:
        raise ValueError(
            f"{bundle.prefix}: {OBJECT_GRAPH} is no object graph, the checkpoint is damaged "
            f"({error})."
        ) from error
    nodes = graph.nodes
    waiting = [0] if nodes else []
    reached = {*waiting}
    while waiting:
        for child in nodes[waiting.pop()].children:
            if not 0 <= child.node_id < len(nodes):
                raise ValueError(
                    f"{bundle.prefix}: {OBJECT_GRAPH} names the object {child.node_id} of "
                    f"{len(nodes)}, the checkpoint is damaged."
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


# By the end of a variable's name, up to its last part.
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
# The next-sentence head's own dense layer on the first token is the pooler: it is what was trained.
_NEXT_SENTENCE_POOLER = re.compile(r"(?:.*/)?next_sentence/pooler_dense/(kernel|bias)")
# The same head in the older BertPretrainer; heads of other tasks are called so, too.
_OLD_HEAD = re.compile(r"predictions/transform/logits/(kernel|bias)")


def find_weights(variables: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The keys of an encoder's and a pretrainer's variables by this library's names."""
    weights: dict[str, str] = {}
    next_sentence_pooler, old_head = {}, {}
    for key, variable in variables.items():
        if "embedding_projection/" in variable:
            raise ValueError(
                f"{prefix} has {quote(variable)}, embeddings of another width than the hidden "
                "layers: only BERT as published can be built from it."
            )
        if match := _NEXT_SENTENCE_POOLER.fullmatch(variable):
            next_sentence_pooler[f"pooler/dense/{match[1]}"] = key
        elif match := _OLD_HEAD.fullmatch(variable):
            old_head[f"next_sentence/dense/{match[1]}"] = key
        name = _name(variable)
        if name in weights:
            raise ValueError(
                f"{prefix} holds {quote(weights[name])} and {quote(key)}, both {name}: expected "
                "one model."
            )
        if name is not None:
            weights[name] = key
    if not any(name.startswith(("embeddings/", "layer_")) for name in weights):
        raise ValueError(
            f"{prefix} holds no variable of a BERT of Model Garden, no word_embeddings/embeddings "
            "for example."
        )
    is_pretrainer = any(name.startswith("masked_lm/") for name in weights)
    return (old_head if is_pretrainer else {}) | weights | next_sentence_pooler


def _name(variable: str) -> str | None:
    """This library's name of an encoder's or a pretrainer's variable."""
    if f"/{variable}".endswith(f"/{_OUTPUT_BIAS}"):
        return "masked_lm/output_bias"
    path, _, leaf = variable.rpartition("/")
    if block := _BLOCK.fullmatch(path):
        module, before = _BLOCK_MODULES.get(block[2], ""), f"layer_{block[1]}/"
    else:
        endings = (here for there, here in _MODULES.items() if f"/{path}".endswith(f"/{there}"))
        module, before = next(endings, ""), ""
    leaf = "" if leaf == "embeddings" else f"/{leaf}"
    return f"{before}{module}{leaf}" if module and leaf in leaves(module) else None


# === Reading ===


def read_checkpoint(path: str) -> Checkpoint:
    """Opens a directory or prefix that was released, or that a trainer saved."""
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
            f"No {SIZES} lies beside {prefix}: sizes are the tensors', activation (tanh GELU) "
            "and dropout are Model Garden's defaults.",
            *notes,
        )
    return Checkpoint(
        path=path,
        format="model_garden",
        config=config,
        model=make_pretrained_spec(tensors),
        tensors=tensors,
        # The graph itself is no tensor of anything.
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


# Where the tensors say a size: the tensor, and the axis.
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
    """Config of the file beside the checkpoint; sizes that it lacks are the tensors'."""
    values: dict[str, Any] = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12}
    for field, (name, axis) in _SIZES.items():
        if field in fields:
            continue
        shape = stored[name].shape if name in stored else ()
        if len(shape) <= axis:
            raise ValueError(
                f"{source}: there is no {name} from whose shape to read {field}, and no {SIZES} "
                "that says it."
            )
        values[field] = shape[axis]
    layers = {name.split("/")[0] for name in stored if name.startswith("layer_")}
    values["num_hidden_layers"] = len(layers)
    return BertConfig.from_dict({**values, **fields}, source)
