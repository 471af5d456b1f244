"""TensorFlow Model Garden's object checkpoints: ``ckpt-N.index``, ``ckpt-N.data-...``.

Kernels are (inputs, outputs) as here, those of attention divided into heads. The epsilon is 1e-12
throughout, and ``gelu`` is the tanh approximation. Source: tensorflow/models
``official/nlp/modeling/networks/bert_encoder.py``, ``models/bert_pretrainer.py``.
"""

import dataclasses
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import yaml
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from bert_tf import marks
from bert_tf.config import BertConfig
from bert_tf.files import read_bounded, read_json_object
from bert_tf.modeling import (
    BertClassifier,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)
from bert_tf.untrusted import quote, reason

from . import bundles
from .checkpoint import (
    Checkpoint,
    ModelSpec,
    StoredTensor,
    check_labels,
    model_of,
    names_left,
    pretrained_model,
)
from .tokenizer_files import read_tokenization
from .weights import leaves, merge_heads

_JSON = marks.SIZES
_YAML = "params.yaml"
# Model Garden's have some kilobytes, and PyYAML reads a megabyte a minute.
_MAX_YAML_BYTES = 1 << 20
_ENCODERS = ("bert", "bert_v2")
# params.yaml's names that differ from bert_config.json's.
_RENAMED = {
    "num_layers": "num_hidden_layers",
    "hidden_activation": "hidden_act",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
}
_FIELDS = {field.name for field in dataclasses.fields(BertConfig)} - {"layer_norm_eps"}
# Model Garden's "gelu" is the tanh approximation.
_ACTIVATIONS = {"gelu": "gelu_new", "identity": "linear"}


class Settings(NamedTuple):
    """What the config beside a checkpoint says; ``source`` is its file, "" where there is none.

    ``mlm_activation`` and ``do_lower_case`` are ``None``, and ``labels`` (), where it does not say.
    """

    source: str
    fields: Mapping[str, Any]
    mlm_activation: str | None = None
    do_lower_case: bool | None = None
    labels: tuple[str, ...] = ()


def read_settings(folder: str) -> Settings:
    """Reads ``bert_config.json``, or else ``params.yaml``."""
    path = os.path.join(folder, _JSON)
    if tf.io.gfile.exists(path):
        return Settings(path, _fields(read_json_object(path), path))
    path = os.path.join(folder, _YAML)
    if tf.io.gfile.exists(path):
        return _from_task(_mapping(_read_yaml(path), "task", path), path)
    return Settings("", {})


def _from_task(task: Mapping[str, Any], path: str) -> Settings:
    model = _mapping(task, "model", path)
    encoder = _mapping(model, "encoder", path)
    kind = encoder.get("type")
    if kind not in _ENCODERS:
        raise ValueError(
            f"{path}: task.model.encoder.type is {quote(kind)}, expected one of "
            f"{', '.join(_ENCODERS)}: only BERT as published can be built from it."
        )
    for head in model.get("cls_heads") or ():
        _check_head(head, path)
    labels = task.get("class_names") or ()
    return Settings(
        path,
        _fields(_mapping(encoder, kind, path), path),
        mlm_activation=_activation(model.get("mlm_activation")),
        do_lower_case=_casing(task),
        labels=check_labels(labels, path) if isinstance(labels, list) else (),
    )


def _fields(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    values = {_RENAMED.get(name, name): value for name, value in values.items()}
    width = values.get("hidden_size")
    if values.get("norm_first") or values.get("embedding_size") not in (None, width):
        raise ValueError(
            f"{path}: norm_first is {quote(values.get('norm_first'))} and embedding_size is "
            f"{quote(values.get('embedding_size'))}, expected false and {quote(width)}: only BERT "
            "as published can be built from it."
        )
    fields = {name: values[name] for name in _FIELDS if values.get(name) is not None}
    if "hidden_act" in fields:
        fields["hidden_act"] = _activation(fields["hidden_act"])
    return fields


def _activation(name: Any) -> Any:
    return _ACTIVATIONS.get(name.lower(), name.lower()) if isinstance(name, str) else name


def _check_head(head: Any, path: str) -> None:
    """A head's own dense layer is taken for the pooler, so it has to compute what a pooler does."""
    if not isinstance(head, Mapping):
        raise ValueError(f"{path}: expected cls_heads to be a list of objects, got {quote(head)}.")
    activation, position = head.get("activation", "tanh"), head.get("cls_token_idx", 0)
    if head.get("inner_dim") and (activation != "tanh" or position != 0):
        raise ValueError(
            f"{path}: the head {quote(head.get('name'))} has activation {quote(activation)} at "
            f"token {quote(position)}, expected 'tanh' at token 0, as in BERT's pooler."
        )


def _casing(task: Mapping[str, Any]) -> bool | None:
    for part in ("train_data", "validation_data"):
        data = task.get(part)
        for key in ("do_lower_case", "lower_case"):
            if isinstance(data, Mapping) and isinstance(data.get(key), bool):
                return bool(data[key])
    return None


# === YAML ===


def _mapping(values: Any, key: str, path: str) -> Mapping[str, Any]:
    value = values.get(key) if isinstance(values, Mapping) else None
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{path}: expected an object under {key}, as Model Garden's trainer writes it, got "
            f"{quote(value)}."
        )
    return value


def _read_yaml(path: str) -> Any:
    content = read_bounded(path, "YAML", _MAX_YAML_BYTES)
    try:
        return yaml.safe_load(content)  # safe: makes no object of a class that the file names
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not YAML that can be read: {reason(error)}.") from error


GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "VARIABLE_VALUE"
# An optimizer holds a slot or two for each variable, under names that end like the variable's.
_OPTIMIZERS = ("optimizer", "_optimizer")
# From a variable up: its layer, the head that the layer is in, a list of heads.
_LEVELS = 3
# A large BERT's with an optimizer has some ten thousand.
_MAX_SIZE = 150_000


class Variable(NamedTuple):
    """A variable of a model: its tensor's key, and its own name.

    ``attributes`` are, of the names that were looked for, those under which the objects around it
    are held: its layer, the object which holds the layer, and one further up.
    """

    key: str
    name: str
    attributes: frozenset[str]


def read_variables(bundle: bundles.Bundle, attributes: Collection[str]) -> list[Variable]:
    """The variables of the models of a checkpoint, in the graph's order; no optimizer's.

    A TensorFlow 2 checkpoint's keys spell one path through the objects that were saved, whichever
    came first, so that the same variable has other keys in other checkpoints. The graph next to
    them has each variable's own name and every path to it. Source: tensorflow's
    ``trackable_object_graph.proto``.
    """
    graph: Any = TrackableObjectGraph()
    try:
        graph.ParseFromString(bundle.read_string(GRAPH_KEY))
    except DecodeError as error:
        raise ValueError(
            f"{bundle.prefix}: {GRAPH_KEY} is no object graph, the checkpoint is damaged ({error})."
        ) from error
    size = sum(1 + len(node.children) + len(node.attributes) for node in graph.nodes)
    if size > _MAX_SIZE:
        raise ValueError(
            f"{bundle.prefix}: {GRAPH_KEY} has {size:,} objects, names and values, expected at "
            f"most {_MAX_SIZE:,}: no BERT has as many."
        )
    around = _around(graph.nodes, attributes, bundle.prefix)
    return [
        Variable(attribute.checkpoint_key, attribute.full_name, around[node])
        for node in sorted(around)
        for attribute in graph.nodes[node].attributes
        if attribute.name == _VALUE and attribute.checkpoint_key in bundle.shapes
    ]


def _around(nodes: Any, wanted: Collection[str], prefix: str) -> dict[int, frozenset[str]]:
    """By object, from the root on: the wanted names of its holder, and of the levels above.

    Who writes the graph chooses who holds whom: the time grows with the graph's size alone.
    """
    waiting = [0] if nodes else []
    holders: dict[int, set[int]] = {node: set() for node in waiting}
    none: frozenset[str] = frozenset()
    held_as: dict[int, frozenset[str]] = {}
    while waiting:
        holder = waiting.pop()
        for child in nodes[holder].children:
            if not 0 <= child.node_id < len(nodes):
                raise ValueError(
                    f"{prefix}: {GRAPH_KEY} names the object {child.node_id} of {len(nodes)}, the "
                    "checkpoint is damaged."
                )
            if child.local_name in _OPTIMIZERS:
                continue
            if child.node_id not in holders:
                holders[child.node_id] = set()
                waiting.append(child.node_id)
            holders[child.node_id].add(holder)
            if child.local_name in wanted:
                held_as[child.node_id] = held_as.get(child.node_id, none) | {child.local_name}
    # Most have no wanted name, and no set of their own: making those would take most of the time.
    found, level = dict[int, frozenset[str]](), held_as
    for _ in range(_LEVELS):
        upper: dict[int, frozenset[str]] = {}
        for node, above in holders.items():
            if names := none.union(*(level[holder] for holder in above if holder in level)):
                upper[node] = names
                found[node] = names | found.get(node, names)
        level = upper
    return {node: found.get(node, none) for node in holders}


# By the end of a variable's name, up to its last part.
_MODULES = {
    "word_embeddings": "embeddings/word_embeddings",
    "position_embedding": "embeddings/position_embeddings",
    "type_embeddings": "embeddings/token_type_embeddings",
    "embeddings/layer_norm": "embeddings/layer_norm",
    "cls/predictions/transform/dense": "masked_lm/dense",
    "cls/predictions/transform/LayerNorm": "masked_lm/layer_norm",
    "pooler_transform": "pooler/dense",
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
# The names that a head, or what is around it, is held by: they say which head it is.
HEAD_ATTRIBUTES = frozenset(
    ("span_labeling", "classification_heads", "classification", "classifier", "out_proj")
)
# A head's output layer, and the dense layer that it may have in front of it.
_HEAD = re.compile(r"(.+)/(logits|pooler_dense)/(kernel|bias)")
_CLASSES = {
    "classifier": BertClassifier,
    "regressor": BertRegressor,
    "token_classifier": BertTokenClassifier,
    "span": BertSpanPredictor,
}


class Found(NamedTuple):
    """A model's variables by this library's names, and its head besides the masked-LM head.

    ``head`` is the first part of the names of its weights, "" where there is none. ``own_pooler``
    names the head whose dense layer is the pooler; "" where the pooler is the encoder's.
    """

    weights: dict[str, Variable]
    head: str
    own_pooler: str


def find_weights(
    variables: Iterable[Variable], shapes: Mapping[str, tuple[int, ...]], prefix: str
) -> Found:
    """Names a checkpoint's variables.

    A head may have a dense layer of its own on the first token: that one is the pooler then, since
    it is what was trained. Of several heads the first is taken.
    """
    weights: dict[str, Variable] = {}
    heads: dict[str, dict[str, Variable]] = {}
    for variable in variables:
        if "embedding_projection/" in variable.name:
            raise ValueError(
                f"{prefix} has {quote(variable.name)}, embeddings of another width than the hidden "
                "layers: only BERT as published can be built from it."
            )
        part = _HEAD.fullmatch(variable.name)
        if part:
            heads.setdefault(part[1], {})[f"{part[2]}/{part[3]}"] = variable
        name = _name(variable.name)
        if name in weights:
            raise ValueError(
                f"{prefix} holds {quote(weights[name].key)} and {quote(variable.key)}, both "
                f"{name}: expected one model."
            )
        if name is not None:
            weights[name] = variable
    if not any(name.startswith(("embeddings/", "layer_")) for name in weights):
        raise ValueError(
            f"{prefix} holds no variable of a BERT of Model Garden, no word_embeddings/embeddings "
            "for example."
        )
    kinds = {name: _kind(name, parts, shapes) for name, parts in heads.items()}
    chosen = next((name for name, kind in kinds.items() if kind), None)
    # Without its output layer a head is none; its dense layer is the pooler all the same.
    last = chosen or next(iter(heads), "")
    own_pooler = ""
    for leaf in ("kernel", "bias"):
        if chosen and f"logits/{leaf}" in heads[chosen]:
            below = "/dense" if kinds[chosen] == "next_sentence" else ""
            weights[f"{kinds[chosen]}{below}/{leaf}"] = heads[chosen][f"logits/{leaf}"]
        if f"pooler_dense/{leaf}" in heads.get(last, {}):
            weights[f"pooler/dense/{leaf}"] = heads[last][f"pooler_dense/{leaf}"]
            own_pooler = last
    return Found(weights, kinds[chosen] if chosen else "", own_pooler)


def _kind(name: str, parts: Mapping[str, Variable], shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Which head it is, by what holds its output layer."""
    output = parts.get("logits/kernel") or parts.get("logits/bias")
    if output is None:
        return ""
    if "span_labeling" in output.attributes:
        return "span"
    if "classification_heads" in output.attributes:
        return "next_sentence" if name.rpartition("/")[2] == "next_sentence" else ""
    if "classification" in output.attributes:  # of the older BertPretrainer
        return "next_sentence"
    if "classifier" not in output.attributes:
        return ""
    if "out_proj" not in output.attributes:
        return "token_classifier"
    return "regressor" if shapes[output.key][-1:] == (1,) else "classifier"


def _name(variable: str) -> str | None:
    """This library's name of an encoder's or a masked-LM head's variable."""
    if f"/{variable}".endswith(f"/{_OUTPUT_BIAS}"):
        return "masked_lm/output_bias"
    path, _, leaf = variable.rpartition("/")
    block = _BLOCK.fullmatch(path)
    if block:
        module = _BLOCK_MODULES.get(block[2], "")
        name = f"layer_{block[1]}/{module}"
    else:
        endings = (ours for theirs, ours in _MODULES.items() if f"/{path}".endswith(f"/{theirs}"))
        module = name = next(endings, "")
    leaf = "" if leaf == "embeddings" else f"/{leaf}"
    return name + leaf if module and leaf in leaves(module) else None


def is_checkpoint(path: str) -> bool:
    """Whether a path is an object checkpoint's prefix, or a directory with one."""
    bundle = bundles.find(path)
    return bundle is not None and GRAPH_KEY in bundle.shapes


def open_checkpoint(path: str) -> Checkpoint:
    """Opens a directory or prefix that was released, or that a trainer of ``official/nlp`` saved.

    A ``BertPretrainerV2`` or the older ``BertPretrainer`` becomes a ``BertPretrainer``; a
    ``BertClassifier`` becomes one, or with one class a ``BertRegressor``; a ``BertSpanLabeler`` a
    ``BertSpanPredictor``; a ``BertTokenClassifier`` one; anything else the encoder.
    """
    bundle = bundles.open_found(path)
    prefix, folder = bundle.prefix, os.path.dirname(bundle.prefix)
    if GRAPH_KEY not in bundle.shapes:
        raise ValueError(f"{prefix} is a TensorFlow checkpoint without an object graph.")
    settings = read_settings(folder)
    source = settings.source or prefix
    found = find_weights(read_variables(bundle, HEAD_ATTRIBUTES), bundle.shapes, prefix)
    stored = {name: bundle.tensor(variable.key) for name, variable in found.weights.items()}
    config = _config(stored, settings, prefix)
    for tensor in stored.values():
        if "float" not in tensor.dtype:
            raise ValueError(
                f"{prefix}: {tensor.name} is {tensor.dtype}, expected a floating-point type."
            )
    tensors = {
        name: merge_heads(name, tensor, config.num_attention_heads, source)
        for name, tensor in stored.items()
    }
    model = _model(tensors, found.head, config, settings)
    tokenization, tokenizer_notes = read_tokenization(folder, settings.do_lower_case)
    named = len(settings.labels) == model.arguments.get("num_classes")
    return Checkpoint(
        path=path,
        format="model_garden",
        config=config,
        model=model,
        tensors=tensors,
        # The graph itself is no tensor of anything.
        unused=names_left(bundle.shapes.keys() - {GRAPH_KEY}, tensors),
        tokenization=tokenization,
        labels=settings.labels if named else (),
        notes=(*_notes(found, settings, prefix), *tokenizer_notes),
    )


# === What model it is ===


# Where the tensors say a size: the tensor, and the axis.
_SIZES = {
    "vocab_size": ("embeddings/word_embeddings", 0),
    "hidden_size": ("embeddings/word_embeddings", 1),
    "max_position_embeddings": ("embeddings/position_embeddings", 0),
    "type_vocab_size": ("embeddings/token_type_embeddings", 0),
    "num_attention_heads": ("layer_0/attention/query/kernel", 1),
    "intermediate_size": ("layer_0/intermediate/kernel", 1),
}


def _config(stored: Mapping[str, StoredTensor], settings: Settings, prefix: str) -> BertConfig:
    """What the file beside the checkpoint says; sizes that it does not say are the tensors'."""
    values: dict[str, Any] = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12}
    for field, (name, axis) in _SIZES.items():
        if field in settings.fields:
            continue
        shape = stored[name].shape if name in stored else ()
        if len(shape) <= axis:
            raise ValueError(
                f"{prefix} has no {name} from whose shape to read {field}, and no bert_config.json "
                "or params.yaml beside it says it."
            )
        values[field] = shape[axis]
    layers = {name.split("/")[0] for name in stored if name.startswith("layer_")}
    values["num_hidden_layers"] = len(layers)
    return BertConfig.from_dict({**values, **settings.fields}, settings.source or prefix)


def _model(
    tensors: Mapping[str, StoredTensor], head: str, config: BertConfig, settings: Settings
) -> ModelSpec:
    pooler = "pooler/dense/kernel" in tensors
    if head in _CLASSES:
        output = tensors.get(f"{head}/kernel") or tensors[f"{head}/bias"]
        classes = output.shape[-1] if output.shape else 0
        return model_of(_CLASSES[head], num_classes=classes, pooler=pooler)
    masked_lm = any(name.startswith("masked_lm/") for name in tensors)
    spec = pretrained_model(masked_lm, head == "next_sentence", pooler)
    if masked_lm and settings.mlm_activation not in (None, config.hidden_act):
        return model_of(spec.model_class, **spec.arguments, mlm_activation=settings.mlm_activation)
    return spec


def _notes(found: Found, settings: Settings, prefix: str) -> list[str]:
    notes = []
    if not settings.source:
        notes.append(
            f"No bert_config.json or params.yaml lies beside {prefix}: sizes are the tensors', "
            "activation (tanh GELU) and dropout are Model Garden's defaults."
        )
    if found.own_pooler:
        notes.append(
            f"The head {found.own_pooler} of {prefix} has a dense layer of its own on the first "
            "token, which is the pooler here in place of the encoder's own."
        )
    return notes
