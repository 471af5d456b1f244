"""TensorFlow Model Garden's object checkpoints: ``ckpt-N.index``, ``ckpt-N.data-...``.

Kernels are (inputs, outputs) as here, those of attention divided into heads. The epsilon is 1e-12
throughout, and ``gelu`` is the tanh approximation. Source: tensorflow/models
``official/nlp/modeling/networks/bert_encoder.py``, ``models/bert_pretrainer.py``.
"""

import os
from collections.abc import Mapping
from typing import Any

from bert_tf.config import BertConfig
from bert_tf.modeling import (
    BertClassifier,
    BertEncoder,
    BertPretrainer,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)

from . import bundles, object_graph
from .checkpoint import Checkpoint, ModelSpec, StoredTensor
from .model_garden_config import Settings, read_settings
from .model_garden_names import HEAD_ATTRIBUTES, Found, find_weights
from .multi_head import merge_heads
from .tokenizer_files import read_tokenization

_RELEASED = "bert_model.ckpt"


def is_checkpoint(path: str) -> bool:
    """Whether a path is an object checkpoint's prefix, or a directory with one.

    Raises:
        ValueError: there are several and nothing says which, or the index is damaged.
    """
    prefix = bundles.find_prefix(path, _RELEASED)
    return prefix is not None and object_graph.KEY in bundles.Bundle(prefix).shapes


def open_checkpoint(path: str) -> Checkpoint:
    """Opens a released model, or what a trainer of ``official/nlp`` saved.

    A ``BertPretrainerV2`` or the older ``BertPretrainer`` becomes a ``BertPretrainer``; a
    ``BertClassifier`` becomes one, or with one class a ``BertRegressor``; a ``BertSpanLabeler`` a
    ``BertSpanPredictor``; a ``BertTokenClassifier`` one; anything else the encoder. Where a head
    has a dense layer of its own on the first token, that one is the pooler.

    Args:
        path: the directory, or the checkpoint's prefix in it.

    Raises:
        ValueError: there is no object checkpoint, it holds no BERT or several, a file is damaged,
            or the config beside it describes another model.
    """
    prefix = bundles.find_prefix(path, _RELEASED)
    if prefix is None:
        raise ValueError(f"{path} holds no TensorFlow checkpoint (NAME.index, NAME.data-...).")
    bundle = bundles.Bundle(prefix)
    if object_graph.KEY not in bundle.shapes:
        raise ValueError(f"{prefix} is a TensorFlow checkpoint without an object graph.")
    folder = os.path.dirname(prefix)
    settings = read_settings(folder)
    variables = object_graph.read_variables(bundle, HEAD_ATTRIBUTES)
    found = find_weights(variables, bundle.shapes, prefix)
    stored = {name: bundle.tensor(variable.key) for name, variable in found.weights.items()}
    config = _config(stored, settings, prefix)
    source = settings.source or prefix
    tensors = {
        name: merge_heads(name, _checked(tensor, prefix), config.num_attention_heads, source)
        for name, tensor in stored.items()
    }
    used = {tensor.names[0] for tensor in stored.values()}
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
        unused=tuple(sorted(set(bundle.shapes) - used - {object_graph.KEY})),
        tokenization=tokenization,
        labels=settings.labels if named else (),
        notes=(*_notes(found, settings, prefix), *tokenizer_notes),
    )


def _checked(tensor: StoredTensor, prefix: str) -> StoredTensor:
    if "float" not in tensor.dtype:
        raise ValueError(
            f"{prefix}: {tensor.names[0]} is {tensor.dtype}, expected a floating-point type."
        )
    return tensor


# === What model it is ===


# Where a size stands among the tensors: the tensor, and the axis.
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
    output = tensors.get(f"{head}/kernel") or tensors.get(f"{head}/bias")
    classes = output.shape[-1] if output and output.shape else 0
    if head == "classifier":
        return ModelSpec(BertClassifier, {"num_classes": classes})
    if head == "regressor":
        return ModelSpec(BertRegressor, {})
    if head == "token_classifier":
        return ModelSpec(BertTokenClassifier, {"num_classes": classes, "pooler": pooler})
    if head == "span":
        return ModelSpec(BertSpanPredictor, {"pooler": pooler})
    masked_lm = any(name.startswith("masked_lm/") for name in tensors)
    next_sentence = head == "next_sentence"
    if not masked_lm and not next_sentence:
        return ModelSpec(BertEncoder, {"pooler": pooler})
    arguments: dict[str, Any] = {
        "mlm": masked_lm,
        "nsp": next_sentence,
        "pooler": pooler or next_sentence,
    }
    if masked_lm and settings.mlm_activation not in (None, config.hidden_act):
        arguments["mlm_activation"] = settings.mlm_activation
    return ModelSpec(BertPretrainer, arguments)


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
