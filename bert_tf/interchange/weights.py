"""Which weights a model has, and how they get into its variables.

Letters: H hidden, F feed-forward, C classes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.modeling.base import BertModel
from bert_tf.modeling.classifier import BertClassifier, BertRegressor
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.feature_tagger import BertFeatureTagger
from bert_tf.modeling.layer_mixing import UNLEARNED_VARIANTS, read_states
from bert_tf.modeling.multiple_choice import BertMultipleChoice
from bert_tf.modeling.pretrainer import BertPretrainer
from bert_tf.modeling.span_predictor import BertSpanPredictor
from bert_tf.modeling.token_classifier import BertTokenClassifier

from .checkpoint import ModelSpec, StoredTensor
from .in_place import to_tensor

MODEL_CLASSES: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        BertEncoder,
        BertPretrainer,
        BertClassifier,
        BertRegressor,
        BertTokenClassifier,
        BertFeatureTagger,
        BertSpanPredictor,
        BertMultipleChoice,
    )
}
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
    return MODEL_CLASSES[spec.class_name](config, dtype=dtype, **spec.arguments)


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

    >>> config = BertConfig.from_preset("bert-tiny", vocab_size=100)
    >>> shapes = expected_shapes(config, ModelSpec("BertClassifier", {"num_classes": 3}))
    >>> shapes["classifier/kernel"], len(shapes)
    ((128, 3), 41)
    """
    width = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings/word_embeddings": (config.vocab_size, width),
        "embeddings/position_embeddings": (config.max_position_embeddings, width),
        "embeddings/token_type_embeddings": (config.type_vocab_size, width),
        **_normalization("embeddings/layer_norm", width),
    }
    for index in range(config.num_hidden_layers):
        layer = f"layer_{index}"
        for part in (*_ATTENTION_PARTS, "output"):
            shapes |= _dense(f"{layer}/attention/{part}", width, width)
        shapes |= _normalization(f"{layer}/attention_layer_norm", width)
        shapes |= _dense(f"{layer}/intermediate", width, config.intermediate_size)
        shapes |= _dense(f"{layer}/output", config.intermediate_size, width)
        shapes |= _normalization(f"{layer}/output_layer_norm", width)
    if has_pooler(spec):
        shapes |= _dense("pooler/dense", width, width)
    if spec.class_name == "BertFeatureTagger":
        return shapes | _reader(config, **spec.arguments)
    for head in heads(spec):
        if head == "masked_lm":
            shapes |= _dense("masked_lm/dense", width, width)
            shapes |= _normalization("masked_lm/layer_norm", width)
            shapes["masked_lm/output_bias"] = (config.vocab_size,)
        elif head == "next_sentence":
            shapes |= _dense("next_sentence/dense", width, 2)
        else:
            units = {"regressor": 1, "choice": 1, "span": 2}.get(head)
            shapes |= _dense(head, width, units or spec.arguments["num_classes"])
    return shapes


def _reader(
    config: BertConfig,
    num_classes: int,
    variant: str = "concat_last_four",
    lstm_units: int = 768,
    dropout: float | None = None,
) -> dict[str, tuple[int, ...]]:
    """What learns of a ``BertFeatureTagger``."""
    blocks = [None] * config.num_hidden_layers
    outputs = {features.EMBEDDING_OUTPUT: None, features.ENCODER_OUTPUTS: blocks}
    states = len(read_states(variant, outputs))
    shapes: dict[str, tuple[int, ...]] = {}
    if variant not in UNLEARNED_VARIANTS:
        shapes = {"mixture/logits": (states,), "mixture/scale": ()}
    width = config.hidden_size * (states if variant.startswith("concat") else 1)
    for layer in range(2):
        for direction in ("forward", "backward"):
            cell = f"bilstm_{layer}/{direction}_lstm/lstm_cell"
            shapes |= _dense(cell, width, 4 * lstm_units)
            shapes[f"{cell}/recurrent_kernel"] = (lstm_units, 4 * lstm_units)
        width = 2 * lstm_units
    return shapes | _dense("tags", width, num_classes)


_HEADS = {
    "BertEncoder": (),
    "BertClassifier": ("classifier",),
    "BertRegressor": ("regressor",),
    "BertTokenClassifier": ("token_classifier",),
    "BertFeatureTagger": ("bilstm_0", "bilstm_1", "tags"),
    "BertSpanPredictor": ("span",),
    "BertMultipleChoice": ("choice",),
}


def heads(spec: ModelSpec) -> tuple[str, ...]:
    """The first parts of the names of a model's weights outside the encoder."""
    if spec.class_name != "BertPretrainer":
        learned = spec.arguments.get("variant", "concat_last_four") not in UNLEARNED_VARIANTS
        return (("mixture",) if learned else ()) + _HEADS[spec.class_name]
    arguments = spec.arguments
    masked_lm = ("masked_lm",) if arguments.get("mlm", True) else ()
    return masked_lm + (("next_sentence",) if arguments.get("nsp", True) else ())


def has_pooler(spec: ModelSpec) -> bool:
    """Whether the model's encoder has a pooler."""
    pooler = spec.arguments.get("pooler")
    if pooler is not None:
        return bool(pooler)
    if spec.class_name == "BertPretrainer":
        return bool(spec.arguments.get("nsp", True))
    without = ("BertTokenClassifier", "BertFeatureTagger", "BertSpanPredictor")
    return spec.class_name not in without


def _dense(name: str, inputs: int, units: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": (inputs, units), f"{name}/bias": (units,)}


def _normalization(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/gamma": (width,), f"{name}/beta": (width,)}
