"""A model's weights: their names, other libraries' layouts of them, and the way into variables.

Letters: H hidden, N heads, D head size, H = N * D.
"""

import dataclasses
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.io.wording import listed
from bert_tf.modeling import MODEL_CLASSES
from bert_tf.modeling.base import LOADED_ATTRIBUTES, BertModel, dense_shapes, normalization_shapes
from bert_tf.modeling.keras_hooks import seeds_from

from .checkpoint import Checkpoint, ModelSpec, StoredTensor, Tokenization

_CHUNK_BYTES = 1 << 20


def to_tensor(array: np.ndarray) -> tf.Tensor:
    """The array as a tensor in the CPU's memory.

    ``tf.constant`` holds an array up to three times; here its rows are written to where they stay.
    """
    with tf.device("CPU:0"):
        if array.ndim == 0 or array.nbytes <= _CHUNK_BYTES:
            return tf.constant(array)
        tensor = tf.raw_ops.Empty(shape=array.shape, dtype=tf.as_dtype(array.dtype))
        step = max(1, _CHUNK_BYTES // max(1, array[:1].nbytes))
        for row in range(0, len(array), step):
            block = tf.constant(array[row : row + step])
            rows = tf.range(row, row + len(block))
            tf.raw_ops.InplaceUpdate(x=tensor, i=rows, v=block)
        return tensor


_LAYER = re.compile(r"layer_(\d+)/")


class Names(NamedTuple):
    """Another library's names for this library's.

    ``modules`` maps a name here, "{}" in place of the layer's number, to the name there; ``leaves``
    maps ``kernel``, ``bias``, ``gamma`` and ``beta`` to what follows the module's name;
    ``transposed`` says whether kernels there are (outputs, inputs).
    """

    modules: Mapping[str, str]
    leaves: Mapping[str, str]
    transposed: bool

    def source_name(self, name: str) -> str:
        """The other library's name of a weight."""
        layer = _LAYER.match(name)
        pattern = _LAYER.sub("layer_{}/", name, count=1)
        if pattern in self.modules:  # a table: no leaf below it
            return self.modules[pattern]
        module, leaf = pattern.rsplit("/", 1)
        return self.modules[module].format(layer[1] if layer else "") + self.leaves[leaf]

    def to_source_layout(self, name: str, tensor: StoredTensor) -> StoredTensor:
        """A weight in the other library's layout; and from there, in this one's."""
        if not (self.transposed and name.endswith("/kernel")):
            return tensor
        return tensor.transform(tensor.shape[::-1], lambda array: np.ascontiguousarray(array.T))

    def to_source(self, name: str, tensor: StoredTensor) -> StoredTensor:
        """A weight as the other library stores it."""
        return dataclasses.replace(self.to_source_layout(name, tensor), name=self.source_name(name))

    def read(
        self, names: Iterable[str], stored: Mapping[str, StoredTensor]
    ) -> dict[str, StoredTensor]:
        """The weights of these names in a file of the other library, as far as they are there."""
        source_names = ((name, self.source_name(name)) for name in names)
        return {
            name: self.to_source_layout(name, stored[at])
            for name, at in source_names
            if at in stored
        }


def leaves(module: str) -> tuple[str, ...]:
    """Suffixes of the names of a module's weights, in the order of Keras' variables."""
    if module.endswith("layer_norm"):
        return "/gamma", "/beta"
    return ("",) if module.endswith(("_embeddings", "/output_bias")) else ("/kernel", "/bias")


_LEAF = re.compile(r"layer_\d+/attention/(query|key|value|output)/(kernel|bias)")


def merge_heads(name: str, tensor: StoredTensor, num_heads: int, source: str) -> StoredTensor:
    """A tensor of attention that is stored by head, in this library's layout.

    A query, key or value kernel is (H, N, D) in the file and (H, N * D) here, its bias (N, D) and
    (N * D,); the output's kernel is (N, D, H) and (N * D, H). Any other tensor, and one with
    another number of dimensions, stays as it is. With another number of heads than that of
    ``source`` it would have the right shape and mean something else.
    """
    match = _LEAF.fullmatch(name)
    if not match:
        return tensor
    part, leaf = match.groups()
    rank = {"kernel": 3, "bias": 2}[leaf] if (part, leaf) != ("output", "bias") else 0
    if len(tensor.shape) != rank:
        return tensor
    first = 1 if leaf == "kernel" and part != "output" else 0  # the axis of heads
    heads, size = tensor.shape[first : first + 2]
    if heads != num_heads:
        raise ValueError(
            f"{source} says that attention has {num_heads} heads, but {tensor.name} of shape "
            f"{tensor.shape} has {heads}: one of the two belongs to another model."
        )
    shape = (*tensor.shape[:first], heads * size, *tensor.shape[first + 2 :])
    return tensor.transform(shape, lambda array: array.reshape(shape))


_FUSED = "query_key_value"
# Each layer takes names and time before any tensor is looked for: a stranger may claim any number.
_ATTENTION_PARTS = ("query", "key", "value")


def build_model(
    config: BertConfig, spec: ModelSpec, dtype: Any = None, generator: Any = None
) -> BertModel:
    """Builds a model.

    Args:
        config: the sizes.
        spec: the class and its arguments.
        dtype: a Keras dtype policy.
        generator: the source of seeds, as ``seeds_from`` takes it.

    Returns:
        The model, randomly initialized.
    """
    model_class: Any = spec.model_class
    with seeds_from(generator):
        return model_class(config, dtype=dtype, **spec.arguments)


# === A model's variables ===


def is_in_encoder(name: str) -> bool:
    """True if a weight, or a variable, belongs to the encoder, its pooler included."""
    return name.startswith(("embeddings/", "layer_", "pooler/"))


def split_columns(name: str, width: int) -> tuple[str, tuple[int, int] | None]:
    """A weight's variable, and (first, number) of its columns there; ``None`` for all of them.

    >>> split_columns("layer_0/attention/key/bias", 128)
    ('layer_0/attention/query_key_value/bias', (128, 128))
    """
    for number, part in enumerate(_ATTENTION_PARTS):
        inside = f"/attention/{part}/"
        if inside in name:
            return name.replace(inside, f"/attention/{_FUSED}/"), (number * width, width)
    return name, None


def split_variables(
    config: BertConfig,
    spec: ModelSpec,
    variables: Mapping[str, StoredTensor],
    source: str,
) -> dict[str, StoredTensor]:
    """A model's weights out of its variables by path, as far as these are there."""
    tensors = {}
    width = config.hidden_size
    for name in expected_shapes(config, spec):
        path, columns = split_columns(name, width)
        if path not in variables:
            continue
        tensor = variables[path]
        if columns:
            if tensor.shape[-1:] != (len(_ATTENTION_PARTS) * width,):
                raise ValueError(
                    f"{source}: {tensor.name} is {tensor.shape}: expected "
                    f"{len(_ATTENTION_PARTS) * width:,} columns, those of query, key and value "
                    f"beside each other, for a hidden_size of {width:,}."
                )
            first, number = columns
            part = operator.itemgetter((..., slice(first, first + number)))
            tensor = tensor.transform((*tensor.shape[:-1], number), part)
        tensors[name] = tensor
    return tensors


def group_by_variable(names: Iterable[str]) -> dict[str, list[str]]:
    """The variables that weights lie in, each with its weights in the order of their columns.

    >>> group_by_variable(["pooler/dense/bias", "layer_0/attention/value/bias",
    ...                    "layer_0/attention/query/bias", "layer_0/attention/key/bias"])
    {'pooler/dense/bias': ['pooler/dense/bias'], 'layer_0/attention/query_key_value/bias': \
['layer_0/attention/query/bias', 'layer_0/attention/key/bias', 'layer_0/attention/value/bias']}
    """
    variables: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        path, columns = split_columns(name, 1)
        variables.setdefault(path, []).append((columns[0] if columns else 0, name))
    return {path: [name for _, name in sorted(found)] for path, found in variables.items()}


def read_variable(tensors: Sequence[StoredTensor], dtype: str = "float32") -> np.ndarray:
    """A variable's value, made of its weights in the order of their columns."""
    arrays = [tensor.read().astype(dtype, copy=False) for tensor in tensors]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, -1)


def assign(model: BertModel, tensors: Mapping[str, StoredTensor]) -> None:
    """Puts weights into a built model's variables, one variable after another.

    A variable has a tensor for each of its weights, or for none and keeps its value.
    """
    variables = {variable.path.split("/", 1)[1]: variable for variable in model.weights}
    for path, names in group_by_variable(tensors).items():
        array = read_variable([tensors[name] for name in names], variables[path].dtype)
        variables[path].assign(to_tensor(array))


def to_checkpoint(model: BertModel) -> Checkpoint:
    """A model in memory as what a reader gives; its weights are read when they are asked for."""
    if type(model) not in MODEL_CLASSES.values():
        raise ValueError(
            f"The model is of the type {type(model).__name__}: expected one of "
            f"{', '.join(MODEL_CLASSES)}."
        )
    spec = get_spec(model)
    classes = spec.arguments.get("num_classes")
    if model.labels and len(model.labels) != classes:
        raise ValueError(
            f"model.labels has {len(model.labels)} names ({listed(model.labels)}), and the model "
            f"{classes or 'no'} classes: expected a name for each."
        )
    stored = {}
    for variable in model.weights:
        path, shape = variable.path.split("/", 1)[1], tuple(variable.shape)
        stored[path] = StoredTensor(path, shape, str(variable.dtype), variable.numpy)
    shapes = {(path, tensor.shape) for path, tensor in stored.items()}
    if odd := shapes ^ {*variable_shapes(model.config, spec).items()}:
        raise ValueError(
            f"The weights of {model.name} are not those of a {type(model).__name__} "
            f"({listed(sorted({path for path, _ in odd}), 5)}): merge adapters, such as LoRA's, "
            "into the kernels first, or save it by model.save."
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
    """The class and the arguments of a model in memory."""
    known = model.get_config()
    arguments = {name: known[name] for name in model.argument_checks if name in known}
    return ModelSpec(type(model), arguments)


# === A model's weights without building it ===


def expected_shapes(config: BertConfig, spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """The shape of every weight that a model has, by the names of ``checkpoint``."""
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
    """The shape of every variable that a model has, by its path below the model's name."""
    shapes = expected_shapes(config, spec)
    return {
        path: (*shapes[names[0]][:-1], sum(shapes[name][-1] for name in names))
        if shapes[names[0]]
        else ()
        for path, names in group_by_variable(shapes).items()
    }
