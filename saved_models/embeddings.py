"""Texts to vectors."""

import tensorflow as tf

from bert_tf import features
from bert_tf.modeling.pooling import normalize, pool

from .rows import on_rows, text_rows
from .served import Outputs, Served


def embed(served: Served, text: tf.Tensor) -> Outputs:
    """Embeds texts, one vector each.

    Means are over the real tokens, [CLS] and [SEP] among them, in float32 whatever the model
    computes in. With the option ``normalize`` all vectors but ``pooled_output`` have the Euclidean
    length 1: that one is what next-sentence prediction or a classifier was trained to read, and
    stays as it is.

    Letters: L chosen layers.

    Args:
        served: a ``BertEncoder``, or a model that has one.
        text: (B,) string.

    Returns:
        Float32: ``mean_output`` (B, H), the mean of the last block's states; ``cls_output`` (B, H),
        its state of [CLS]; ``pooled_output`` (B, H), the tanh layer on [CLS], where there is a
        pooler; where the option ``layers`` names some, ``layer_mean_outputs`` and
        ``layer_cls_outputs`` (B, L, H), of these blocks in the order named. And ``truncated`` (B,)
        bool.

    Raises:
        ValueError: the option ``layers`` names a block that the model lacks.
    """
    check_layers(served)
    rows, truncated = text_rows(served, text)
    return {**on_rows(rows, lambda inputs: _vectors(served, inputs)), "truncated": truncated}


def _vectors(served: Served, inputs: Outputs) -> Outputs:
    """The vectors of some packed rows."""
    outputs = served.encode(inputs)

    def pooled(states: tf.Tensor, pooling: str) -> tf.Tensor:
        vectors = pool(tf.cast(states, tf.float32), inputs[features.INPUT_MASK], pooling)
        return normalize(vectors) if served.options.normalize else vectors

    last = outputs[features.SEQUENCE_OUTPUT]
    answers = {"mean_output": pooled(last, "mean"), "cls_output": pooled(last, "cls")}
    if features.POOLED_OUTPUT in outputs:
        answers["pooled_output"] = tf.cast(outputs[features.POOLED_OUTPUT], tf.float32)
    if served.options.layers:
        blocks = outputs[features.ENCODER_OUTPUTS]
        for pooling in ("mean", "cls"):
            answers[f"layer_{pooling}_outputs"] = tf.stack(
                [pooled(blocks[layer], pooling) for layer in served.options.layers], 1
            )
    return answers


def check_layers(served: Served) -> None:
    """Checks that the model has the blocks that the option ``layers`` names.

    Raises:
        ValueError: it has not.
    """
    blocks = served.model.config.num_hidden_layers
    for layer in served.options.layers:
        if not -blocks <= layer < blocks:
            raise ValueError(
                f"layers has {layer}: expected 0, the lowest block, to {blocks - 1}, the last, or "
                f"-1, the last, to {-blocks}."
            )
