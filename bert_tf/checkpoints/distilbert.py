"""DistilBERT (Sanh et al. 2019) by a BERT's names: its config, and the weights in its files.

It is a BERT without token types and without next-sentence prediction, so without a pooler; what a
classifier has in the pooler's place is a layer with a ReLU. ``BertConfig`` says it by
``type_vocab_size=0``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from bert_tf.config import BertConfig

MODEL_TYPE = "distilbert"
PREFIX = "distilbert."
# Keys of its config.json, and what bert_config.json calls them; their defaults are transformers'.
_KEYS = MappingProxyType(
    {
        "dim": "hidden_size",
        "n_heads": "num_attention_heads",
        "n_layers": "num_hidden_layers",
        "hidden_dim": "intermediate_size",
        "activation": "hidden_act",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
    }
)
_SAME_KEYS = ("vocab_size", "max_position_embeddings", "initializer_range")
_DEFAULTS = MappingProxyType({"n_layers": 6})
_CLASSIFIER_DROPOUT = "seq_classif_dropout"
# Parts of its weights' names, and of a BERT's.
_PARTS = (
    ("transformer.layer.", "encoder.layer."),
    (".attention.q_lin.", ".attention.self.query."),
    (".attention.k_lin.", ".attention.self.key."),
    (".attention.v_lin.", ".attention.self.value."),
    (".attention.out_lin.", ".attention.output.dense."),
    (".sa_layer_norm.", ".attention.output.LayerNorm."),
    (".ffn.lin1.", ".intermediate.dense."),
    (".ffn.lin2.", ".output.dense."),
    (".output_layer_norm.", ".output.LayerNorm."),
    ("pre_classifier.", "pooler.dense."),
    ("vocab_transform.", "cls.predictions.transform.dense."),
    ("vocab_layer_norm.", "cls.predictions.transform.LayerNorm."),
    ("vocab_projector.weight", "cls.predictions.decoder.weight"),
    ("vocab_projector.bias", "cls.predictions.bias"),
)


def read_config(values: Mapping[str, Any], source: str) -> BertConfig:
    """The sizes that its ``config.json`` says; errors are those of ``BertConfig.from_dict``."""
    given = {**_DEFAULTS, **values}
    found = {name: given[key] for key, name in _KEYS.items() if key in given}
    same = {key: given[key] for key in _SAME_KEYS if key in given}
    return BertConfig.from_dict({**found, **same, "type_vocab_size": 0}, source)


def config_values(config: BertConfig) -> dict[str, Any]:
    """The sizes by the keys of its ``config.json``."""
    values = config.to_dict()
    same = {key: values[key] for key in _SAME_KEYS}
    return {**{key: values[name] for key, name in _KEYS.items()}, **same}


def classifier_dropout(values: Mapping[str, Any]) -> float:
    """The rate in front of the layer that classifies texts, of its ``config.json``."""
    return float(values.get(_CLASSIFIER_DROPOUT, 0.2))


def classifier_values(dropout: float | None) -> dict[str, Any]:
    """That rate as its ``config.json`` has it."""
    return {} if dropout is None else {_CLASSIFIER_DROPOUT: dropout}


def as_bert(name: str) -> str:
    """A weight's name in a BERT's files.

    >>> as_bert("transformer.layer.3.ffn.lin2.bias")
    'encoder.layer.3.output.dense.bias'
    """
    for own, berts in _PARTS:
        name = name.replace(own, berts)
    return name


def from_bert(name: str) -> str:
    """A weight's name in its own files, of the name in a BERT's.

    >>> from_bert("encoder.layer.3.attention.output.dense.bias")
    'transformer.layer.3.attention.out_lin.bias'
    """
    for own, berts in _PARTS:
        name = name.replace(berts, own)
    return name
