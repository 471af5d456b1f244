"""Another size of vocabulary for a model that is there."""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.modeling import keras_hooks
from bert_tf.modeling.base import BertModel, new_initializer
from bert_tf.pipelines.replicas import forget_steps


def resize_embeddings(model: BertModel, size: int) -> None:
    """Gives a model's word embeddings, and the bias of its masked-LM head, ``size`` rows.

    Rows are kept as far as there is room, and new ones start as BERT's do, the bias at 0.
    """
    if size < 1:
        raise ValueError(f"The vocabulary is to have {size} pieces: expected 1 or more.")
    encoder: Any = model.encoder
    embeddings, head = encoder.embeddings, model.masked_lm
    table = _replace(embeddings, "word_embeddings", size, new_initializer(model.config))
    if head is not None:
        head.embedding_table = lambda: table
        _replace(head, "output_bias", size, keras.initializers.Zeros())
    config = dataclasses.replace(model.config, vocab_size=size)
    for part in (model, encoder, embeddings, *([] if head is None else [head])):
        part.config = config
    forget_steps(model)


def _replace(layer: Any, name: str, size: int, initializer: Any) -> Any:
    """A variable of another length in place of one of a built layer's, with the old rows."""
    old = getattr(layer, name)
    kept = ops.convert_to_numpy(old)[:size]
    new = keras_hooks.replace_variable(layer, name, (size, *old.shape[1:]), initializer)
    values = np.array(ops.convert_to_numpy(new))
    values[: len(kept)] = kept
    new.assign(values)
    return new
