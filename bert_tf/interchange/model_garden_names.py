"""Which variable of a Model Garden checkpoint is which weight, by the variables' own names.

Source: tensorflow/models ``official/nlp/modeling/networks/bert_encoder.py``,
``layers/masked_lm.py``, ``layers/cls_head.py``, ``networks/span_labeling.py``.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bert_tf.untrusted import quote

from .object_graph import Variable

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
# What comes behind the name of a module here, by the last part of the variable's name.
_TABLE_LEAVES = {"embeddings": ""}
_NORMALIZATION_LEAVES = {"gamma": "/gamma", "beta": "/beta"}
_DENSE_LEAVES = {"kernel": "/kernel", "bias": "/bias"}
# The names that a head, or what is around it, is held by: they say which head it is.
HEAD_ATTRIBUTES = frozenset(
    ("span_labeling", "classification_heads", "classification", "classifier", "out_proj")
)
# A head's output layer, and the dense layer that it may have in front of it.
_HEAD = re.compile(r"(.+)/(logits|pooler_dense)/(kernel|bias)")
_MODULES_OF_HEADS = {
    "next_sentence": "next_sentence/dense",
    **{head: head for head in ("classifier", "regressor", "token_classifier", "span")},
}


class Found(NamedTuple):
    """A model's variables.

    Attributes:
        weights: by this library's names.
        head: the first part of the names of its head, beside the masked-LM head: ``next_sentence``,
            ``classifier``, ``regressor``, ``token_classifier``, ``span``; "" where it has none.
        own_pooler: the name of the head whose dense layer is the pooler; "" where the pooler is
            the encoder's.
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

    Args:
        variables: the checkpoint's.
        shapes: of the tensors, by key.
        prefix: what errors name.

    Raises:
        ValueError: there is no BERT of Model Garden among them, more than one, or one whose
            embeddings have another width than its hidden layers.
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
            weights[f"{_MODULES_OF_HEADS[kinds[chosen]]}/{leaf}"] = heads[chosen][f"logits/{leaf}"]
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
    if module.endswith("_embeddings"):
        leaves = _TABLE_LEAVES
    elif module.endswith("layer_norm"):
        leaves = _NORMALIZATION_LEAVES
    else:
        leaves = _DENSE_LEAVES
    return name + leaves[leaf] if module and leaf in leaves else None
