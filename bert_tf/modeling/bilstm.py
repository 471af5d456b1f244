"""A bidirectional LSTM: what makes one, its weights' shapes, and the layer that a head may read."""

from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig

from .base import BertLayer, Shapes, dense_shapes
from .keras_hooks import drop_seeds
from .pooling import pool


def new_bilstm(
    units: int, name: str, policy: keras.DTypePolicy, **options: Any
) -> keras.layers.Bidirectional:
    """(B, T, X) and a mask -> (B, T, 2 * U): each direction has ``units``, U."""
    lstm = keras.layers.LSTM(units, return_sequences=True, name="lstm", dtype=policy, **options)
    bilstm = keras.layers.Bidirectional(lstm, name=name, dtype=policy)
    # Nothing is dropped inside: the cells' own seeds would be state that nothing reads.
    for direction in (bilstm.forward_layer, bilstm.backward_layer):
        drop_seeds(direction.cell)
    return bilstm


def bilstm_shapes(name: str, width: int, units: int) -> Shapes:
    """The weights of one that reads vectors of a width."""
    shapes: Shapes = {}
    for direction in ("forward", "backward"):
        cell = f"{name}/{direction}_lstm/lstm_cell"
        shapes |= dense_shapes(cell, width, 4 * units)
        shapes[f"{cell}/recurrent_kernel"] = (units, 4 * units)
    return shapes


class BiLstm(BertLayer):
    """A bidirectional LSTM on the encoder's states, each direction as wide as they are.

    Source: Devlin et al. 2019, section 5.1, which says no more of it. Padding is not read. Where
    ``summarises``, a text gets the last state of each direction.
    """

    def __init__(self, config: BertConfig, summarises: bool, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.summarises = summarises
        # Not cuDNN's kernel: an export made on a GPU would run on no CPU.
        self.directions = new_bilstm(
            config.hidden_size, "directions", self.dtype_policy, use_cudnn=False
        )

    def build(self, *input_shapes: Any) -> None:
        """Makes the weights of both directions."""
        self.directions.build((None, None, self.config.hidden_size))

    def call(self, hidden: Any, real_tokens: Any) -> Any:
        """(B, S, H) states and the (B, S) mask -> (B, S, 2 * H), or summarised (B, 2 * H)."""
        states = self.directions(hidden, mask=ops.cast(real_tokens, "bool"))
        if not self.summarises:
            return states
        forward, backward = ops.split(states, 2, axis=-1)
        return ops.concatenate([pool(forward, real_tokens, "last"), backward[:, 0]], axis=-1)

    def compute_output_spec(self, hidden: Any, real_tokens: Any) -> keras.KerasTensor:
        """(B, S, 2 * H), or (B, 2 * H)."""
        leading = hidden.shape[:1] if self.summarises else hidden.shape[:2]
        return keras.KerasTensor((*leading, 2 * hidden.shape[-1]), self.compute_dtype)
