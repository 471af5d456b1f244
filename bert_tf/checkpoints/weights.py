"""Model weights: names, layouts in other libraries, and assignment to variables.

H: hidden size; N: number of heads; D: head size; H = N * D.
"""

import contextlib
import dataclasses
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.io.messages import listed
from bert_tf.modeling import MODEL_CLASSES
from bert_tf.modeling.base import LOADED_ATTRIBUTES, BertModel, dense_shapes, normalization_shapes
from bert_tf.modeling.keras_hooks import seeds_from
from bert_tf.modeling.layers import initial_values

from .checkpoint import Checkpoint, ModelSpec, StoredTensor, Tokenization

_CHUNK_BYTES = 1 << 20


def _empty(shape: Sequence[int], dtype: Any) -> tf.Tensor:
    """Creates a tensor with undefined values; on a CPU, it takes no memory before it is written."""
    return tf.raw_ops.Empty(shape=shape, dtype=tf.as_dtype(dtype))


def to_tensor(array: np.ndarray) -> tf.Tensor:
    """Copies an array to a CPU tensor in chunks; ``tf.constant`` needs up to 3 times the memory."""
    with tf.device("CPU:0"):
        if array.ndim == 0 or array.nbytes <= _CHUNK_BYTES:
            return tf.constant(array)
        tensor = _empty(array.shape, array.dtype)
        step = max(1, _CHUNK_BYTES // max(1, array[:1].nbytes))
        for row in range(0, len(array), step):
            block = tf.constant(array[row : row + step])
            rows = tf.range(row, row + len(block))
            tf.raw_ops.InplaceUpdate(x=tensor, i=rows, v=block)
        return tensor


_LAYER = re.compile(r"layer_(\d+)/")


class Names(NamedTuple):
    """Weight names in another library.

    Attributes:
        modules: Names in the other library by bert_tf's name, with "{}" for the layer index.
        leaves: Suffixes in the other library for ``kernel``, ``bias``, ``gamma`` and ``beta``.
        transposed: Whether kernels in the other library are (outputs, inputs).
    """

    modules: Mapping[str, str]
    leaves: Mapping[str, str]
    transposed: bool

    def source_name(self, name: str) -> str:
        """Returns the name of a weight in the other library."""
        layer = _LAYER.match(name)
        pattern = _LAYER.sub("layer_{}/", name, count=1)
        if pattern in self.modules:  # Embeddings have no leaves.
            return self.modules[pattern]
        module, leaf = pattern.rsplit("/", 1)
        return self.modules[module].format(layer[1] if layer else "") + self.leaves[leaf]

    def to_source_layout(self, name: str, tensor: StoredTensor) -> StoredTensor:
        """Converts a weight to the other library's layout, or back."""
        if not (self.transposed and name.endswith("/kernel")):
            return tensor
        return tensor.transform(tensor.shape[::-1], lambda array: np.ascontiguousarray(array.T))

    def to_source(self, name: str, tensor: StoredTensor) -> StoredTensor:
        """Converts a weight to the other library's name and layout."""
        return dataclasses.replace(self.to_source_layout(name, tensor), name=self.source_name(name))

    def read(
        self, names: Iterable[str], stored: Mapping[str, StoredTensor]
    ) -> dict[str, StoredTensor]:
        """Returns those of the named weights that exist in a file of the other library."""
        source_names = ((name, self.source_name(name)) for name in names)
        return {
            name: self.to_source_layout(name, stored[at])
            for name, at in source_names
            if at in stored
        }


def leaves(module: str) -> tuple[str, ...]:
    """Returns the suffixes of a module's weights in the order of Keras variables."""
    if module.endswith("layer_norm"):
        return "/gamma", "/beta"
    return ("",) if module.endswith(("_embeddings", "/output_bias")) else ("/kernel", "/bias")


_LEAF = re.compile(r"layer_\d+/attention/(query|key|value|output)/(kernel|bias)")


def merge_heads(name: str, tensor: StoredTensor, num_heads: int, source: str) -> StoredTensor:
    """Merges the head dimensions of an attention weight; returns other tensors unchanged.

    Query, key and value kernels are stored in shape (H, N, D) and become (H, N * D). Their biases,
    (N, D), become (N * D,). The output kernel, (N, D, H), becomes (N * D, H).

    Raises:
        ValueError: If the number of heads is not ``num_heads``; ``source`` is the config's name.
    """
    match = _LEAF.fullmatch(name)
    if not match:
        return tensor
    part, leaf = match.groups()
    rank = {"kernel": 3, "bias": 2}[leaf] if (part, leaf) != ("output", "bias") else 0
    if len(tensor.shape) != rank:
        return tensor
    axis = 1 if leaf == "kernel" and part != "output" else 0
    heads, size = tensor.shape[axis : axis + 2]
    if heads != num_heads:
        raise ValueError(
            f"{source}: expected {num_heads} attention heads in {tensor.name}, got {heads}. Use "
            "the config of this model."
        )
    shape = (*tensor.shape[:axis], heads * size, *tensor.shape[axis + 2 :])
    return tensor.transform(shape, lambda array: array.reshape(shape))


_FUSED = "query_key_value"
_ATTENTION_PARTS = ("query", "key", "value")
_FUSED_PART = re.compile(f"/attention/({'|'.join(_ATTENTION_PARTS)})/")


def build_model(
    config: BertConfig,
    spec: ModelSpec,
    dtype: Any = None,
    generator: Any = None,
    *,
    initialize: bool = True,
) -> BertModel:
    """Builds a model with random weights.

    Args:
        config: The config.
        spec: Model class and arguments.
        dtype: Dtype policy of the model.
        generator: See ``seeds_from``.
        initialize: Whether to draw the weights. Otherwise, matrices have undefined values, and the
            caller must assign all weights.
    """
    model_class: Any = spec.model_class
    with seeds_from(generator), contextlib.nullcontext() if initialize else initial_values(_empty):
        return model_class(config, dtype=dtype, **spec.arguments)


# === Variables of a model ===


def is_in_encoder(name: str) -> bool:
    """Whether a weight or variable belongs to the encoder, including the pooler."""
    return name.startswith(("embeddings/", "layer_", "pooler/"))


def variable_path(name: str) -> str:
    """Returns the path of a weight's variable; query, key and value share a variable."""
    return _FUSED_PART.sub(f"/attention/{_FUSED}/", name)


def weight_names(path: str) -> list[str]:
    """Returns the names of a variable's weights in the order of the variable's columns.

    >>> weight_names("layer_0/attention/query_key_value/bias")
    ['layer_0/attention/query/bias', 'layer_0/attention/key/bias', 'layer_0/attention/value/bias']
    """
    return [path.replace(_FUSED, part) for part in _ATTENTION_PARTS] if _FUSED in path else [path]


def split_variables(
    config: BertConfig,
    spec: ModelSpec,
    variables: Mapping[str, StoredTensor],
    source: str,
) -> dict[str, StoredTensor]:
    """Returns the weights of a model that are in ``variables``, which are keyed by path."""
    tensors = {}
    width = config.hidden_size
    for name in expected_shapes(config, spec):
        path = variable_path(name)
        if path not in variables:
            continue
        tensor, names = variables[path], weight_names(path)
        if len(names) > 1:
            if tensor.shape[-1:] != (len(names) * width,):
                raise ValueError(
                    f"{source}: {tensor.name}: expected {len(names) * width:,} columns "
                    f"(3 * hidden_size), got the shape {tensor.shape}."
                )
            first = names.index(name) * width
            part = operator.itemgetter((..., slice(first, first + width)))
            tensor = tensor.transform((*tensor.shape[:-1], width), part)
        tensors[name] = tensor
    return tensors


def group_by_variable(names: Iterable[str]) -> dict[str, list[str]]:
    """Groups weight names by variable, in the order of the variable's columns."""
    return {path: weight_names(path) for path in map(variable_path, names)}


def read_variable(tensors: Sequence[StoredTensor], dtype: str = "float32") -> np.ndarray:
    """Returns the value of a variable whose weights are given in the order of the columns."""
    arrays = [tensor.read().astype(dtype, copy=False) for tensor in tensors]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, -1)


def assign(model: BertModel, tensors: Mapping[str, StoredTensor]) -> None:
    """Assigns weights to the variables of a built model, one variable at a time.

    A variable without weights in ``tensors`` does not change; others need all of their weights.
    """
    variables = {variable.path.split("/", 1)[1]: variable for variable in model.weights}
    for path, names in group_by_variable(tensors).items():
        array = read_variable([tensors[name] for name in names], variables[path].dtype)
        variables[path].assign(to_tensor(array))


def to_checkpoint(model: BertModel) -> Checkpoint:
    """Returns a model in memory as a checkpoint, with weights read on access."""
    if type(model) not in MODEL_CLASSES.values():
        raise ValueError(
            f"model: expected one of {', '.join(MODEL_CLASSES)}, got {type(model).__name__}."
        )
    spec = get_spec(model)
    classes = spec.arguments.get("num_classes")
    if model.labels and len(model.labels) != classes:
        raise ValueError(
            f"model.labels: expected {classes or 0} names, got {len(model.labels)}: "
            f"{listed(model.labels)}."
        )
    stored = {}
    for variable in model.weights:
        path, shape = variable.path.split("/", 1)[1], tuple(variable.shape)
        stored[path] = StoredTensor(path, shape, str(variable.dtype), variable.numpy)
    shapes = {(path, tensor.shape) for path, tensor in stored.items()}
    if mismatched := shapes ^ {*variable_shapes(model.config, spec).items()}:
        raise ValueError(
            f"The weights of {model.name} do not match a {type(model).__name__}: "
            f"{listed(sorted({path for path, _ in mismatched}), 5)}. Merge adapters (LoRA) first, "
            "or use model.save."
        )
    tokenizer = model.preprocessor and model.preprocessor.tokenizer
    return Checkpoint(
        path=model.name,
        format="memory",
        config=model.config,
        model=spec,
        tensors=split_variables(model.config, spec, stored, model.name),
        tokenization=tokenizer and Tokenization.from_tokenizer(tokenizer),
        **{
            **{name: getattr(model, name) for name in LOADED_ATTRIBUTES},
            "labels": tuple(map(str, model.labels)),
            "thresholds": dict(model.thresholds),
        },
    )


def get_spec(model: BertModel) -> ModelSpec:
    """Returns the class and arguments of a model in memory."""
    values = model.get_config()
    arguments = {name: values[name] for name in model.argument_checks if name in values}
    return ModelSpec(type(model), arguments)


# === Shapes of weights without building the model ===


def expected_shapes(config: BertConfig, spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a model's weights by name."""
    width = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings/word_embeddings": (config.vocab_size, width),
        "embeddings/position_embeddings": (config.max_position_embeddings, width),
    }
    if not config.is_distilbert:
        shapes["embeddings/token_type_embeddings"] = (config.type_vocab_size, width)
    shapes |= normalization_shapes("embeddings/layer_norm", width)
    for index in range(config.num_hidden_layers):
        layer = f"layer_{index}"
        for part in (*_ATTENTION_PARTS, "output"):
            shapes |= dense_shapes(f"{layer}/attention/{part}", width, width)
        shapes |= normalization_shapes(f"{layer}/attention_layer_norm", width)
        shapes |= dense_shapes(f"{layer}/intermediate", width, config.intermediate_size)
        shapes |= dense_shapes(f"{layer}/output", config.intermediate_size, width)
        shapes |= normalization_shapes(f"{layer}/output_layer_norm", width)
    if spec.has_pooler:
        shapes |= dense_shapes("pooler/dense", width, width)
    return shapes | spec.head_shapes(config)


def variable_shapes(config: BertConfig, spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a model's variables by path, without the model's name."""
    shapes = expected_shapes(config, spec)
    return {
        path: (*shapes[names[0]][:-1], sum(shapes[name][-1] for name in names))
        if shapes[names[0]]
        else ()
        for path, names in group_by_variable(shapes).items()
    }
