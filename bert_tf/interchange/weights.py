"""Which weights a model has, and how they get into its variables.

Letters: H hidden, F feed-forward, C classes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.modeling.base import BertModel, dense_shapes, normalization_shapes

from .checkpoint import ModelSpec, StoredTensor
from .in_place import to_tensor

_FUSED = "query_key_value"
# Each layer takes names and time before any tensor is looked for: a stranger may claim any number.
_ATTENTION_PARTS = ("query", "key", "value")


def build_model(config: BertConfig, spec: ModelSpec, dtype: Any = None) -> BertModel:
    """A model with new weights.

    Args:
        config: its sizes.
        spec: its class and the constructor's further arguments.
        dtype: a Keras dtype policy; the global one by default.
    """
    model_class: Any = spec.model_class
    return model_class(config, dtype=dtype, **spec.arguments)


# === A model's variables ===


def split_columns(name: str, width: int) -> tuple[str, tuple[int, int] | None]:
    """Where a weight lies in a model's variables.

    Args:
        name: of the weight, as in ``checkpoint``.
        width: H.

    Returns:
        The variable's path below the model's name; and (first, number) of the columns of its last
        axis, ``None`` for all of them.

    >>> split_columns("layer_0/attention/key/bias", 128)
    ('layer_0/attention/query_key_value/bias', (128, 128))
    """
    for number, part in enumerate(_ATTENTION_PARTS):
        inside = f"/attention/{part}/"
        if inside in name:
            return name.replace(inside, f"/attention/{_FUSED}/"), (number * width, width)
    return name, None


def check_fused(shape: tuple[int, ...], width: int, where: str) -> None:
    """Checks that a fused weight has the columns of query, key and value, and no more.

    Args:
        shape: as stored.
        width: H.
        where: what an error names.

    Raises:
        ValueError: it has not.
    """
    if shape[-1:] != (len(_ATTENTION_PARTS) * width,):
        raise ValueError(
            f"{where} is {shape}: expected {len(_ATTENTION_PARTS) * width:,} columns, those of "
            f"query, key and value beside each other, for a hidden_size of {width:,}."
        )


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
    """A variable's value.

    Args:
        tensors: its weights, in the order of their columns.
        dtype: to cast to.
    """
    arrays = [tensor.read().astype(dtype, copy=False) for tensor in tensors]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, -1)


def assign(model: BertModel, tensors: Mapping[str, StoredTensor]) -> None:
    """Puts weights into a model's variables, one variable after another.

    Args:
        model: built.
        tensors: for every weight of a variable, or for none of them, a tensor of the right shape.
            A variable without keeps its value.
    """
    variables = {variable.path.split("/", 1)[1]: variable for variable in model.weights}
    for path, names in group_by_variable(tensors).items():
        array = read_variable([tensors[name] for name in names], variables[path].dtype)
        variables[path].assign(to_tensor(array))


# === A model's weights without building it ===


def expected_shapes(config: BertConfig, spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """The shape of every weight that a model has, by the names of ``checkpoint``.

    >>> from bert_tf import BertClassifier
    >>> config = BertConfig.from_preset("bert-tiny", vocab_size=100)
    >>> shapes = expected_shapes(config, ModelSpec(BertClassifier, {"num_classes": 3}))
    >>> shapes["classifier/kernel"], len(shapes)
    ((128, 3), 41)
    """
    width = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings/word_embeddings": (config.vocab_size, width),
        "embeddings/position_embeddings": (config.max_position_embeddings, width),
        "embeddings/token_type_embeddings": (config.type_vocab_size, width),
        **normalization_shapes("embeddings/layer_norm", width),
    }
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


def heads(config: BertConfig, spec: ModelSpec) -> tuple[str, ...]:
    """The first parts of the names of a model's weights outside the encoder."""
    return tuple(dict.fromkeys(name.split("/")[0] for name in spec.head_shapes(config)))
