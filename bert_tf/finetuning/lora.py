"""LoRA: factors of a low rank train next to attention's matrices, which stay as they are.

Source: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1, with the
scale alpha / rank at 1. What a run keeps and serves is merged: plain weights, as any other's.
"""

from typing import Any

import tensorflow as tf

from bert_tf.modeling.base import BertModel
from bert_tf.training.checkpoints import copy_values

# Keras' names of the factors, in the place of the matrix's own.
_DOWN, _UP, _MATRIX = "/lora_kernel_a", "/lora_kernel_b", "/kernel"
_FACTORS = (_DOWN, _UP)


def add_factors(model: BertModel, rank: int) -> None:
    """Freezes embeddings and blocks, and gives each attention's matrices factors that train.

    A matrix (M, N) gets factors (M, rank), drawn, and (rank, N), zeros: nothing changes yet.
    """
    encoder = model.encoder
    for part in (encoder.embeddings, *encoder.blocks):
        for variable in part.variables:
            variable.trainable = False
    for block in encoder.blocks:
        for layer in (block.attention.query_key_value, block.attention.attention_output):
            layer.enable_lora(rank)


def describe(model: BertModel) -> str:
    """How many of the weights train, in a sentence."""
    count = sum(variable.shape.num_elements() for variable in model.trainable_variables)
    return f"LoRA: {count:,} of {model.count_params():,} weights train."


def plain_variables(model: BertModel) -> dict[str, Any]:
    """The variables by path without any factors."""
    return {weight.path: weight for weight in model.weights if not weight.path.endswith(_FACTORS)}


def plain_values(model: BertModel) -> dict[str, tf.Tensor]:
    """The values of ``plain_variables``, each matrix with the product of its factors added."""
    values = copy_values({weight.path: weight for weight in model.weights})
    for path in [path for path in values if path.endswith(_DOWN)]:
        whole = path.removesuffix(_DOWN)
        product = values.pop(path) @ values.pop(whole + _UP)
        values[whole + _MATRIX] += tf.cast(product, values[whole + _MATRIX].dtype)
    return values


def clear_factors(model: BertModel) -> None:
    """Sets all factors to 0: the matrices are then all that counts."""
    for weight in model.weights:
        if weight.path.endswith(_FACTORS):
            weight.assign(tf.zeros(weight.shape))
